"""Tables to write to together, in a catalog of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import deltars
from tests.store.conftest import open_log, tap
from tests.support.lake import Lake, OpenLake
from tests.support.log import SCHEMA
from tests.support.tap import Tap

__all__ = ["open_log", "tap"]


@pytest.fixture
def open_lake(migrated_uri: str, tmp_path: Path) -> Iterator[OpenLake]:
    with ExitStack() as stack:

        def open_lake(*names: str, tap: Tap | None = None, ddl: str = SCHEMA, **settings: Any) -> Lake:
            uri = migrated_uri if tap is None else tap.uri
            catalog = deltars.connect(uri, warehouse=str(tmp_path / "warehouse"), **({"mirror": "off"} | settings))
            return Lake(stack.enter_context(catalog), migrated_uri, *names, ddl=ddl)

        yield open_lake


@pytest.fixture
def lake(open_lake: OpenLake) -> Lake:
    """Three tables, `a`, `b` and `c`."""
    return open_lake("a", "b", "c")
