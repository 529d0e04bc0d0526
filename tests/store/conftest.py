"""A log to write to: a catalog of the test's own with one registered table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

import deltars
from tests.support.log import Log
from tests.support.tap import Tap, tapped


class OpenLog(Protocol):
    def __call__(self, *, tap: Tap | None = None, name: str = "events", **settings: Any) -> Log:
        """A registered table, in the test's catalog opened anew with these settings."""


@pytest.fixture
def open_log(migrated_uri: str, tmp_path: Path) -> Iterator[OpenLog]:
    with ExitStack() as stack:

        def open_log(*, tap: Tap | None = None, name: str = "events", **settings: Any) -> Log:
            uri = migrated_uri if tap is None else tap.uri
            catalog = deltars.connect(uri, warehouse=str(tmp_path / "warehouse"), **settings)
            return Log(stack.enter_context(catalog), migrated_uri, name)

        yield open_log


@pytest.fixture
def tap(migrated_uri: str) -> Iterator[Tap]:
    """A tap on the connections of logs that are opened with it."""
    with tapped(migrated_uri) as tap:
        yield tap


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    """A table at version 0."""
    return open_log().create()
