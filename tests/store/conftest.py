"""A log to write to: a catalog of the test's own with one registered table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

import deltars
from deltars.store import migrate
from deltars.store.database import Database
from deltars.uri import parse_catalog_uri
from tests.support.log import Log
from tests.support.tap import Tap, tapped


class OpenLog(Protocol):
    def __call__(self, *, tap: Tap | None = None, name: str = "events", **settings: Any) -> Log:
        """A registered table, in the test's catalog opened anew with these settings."""


@pytest.fixture(scope="session")
def embedded_templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where an embedded backend's migrated catalog lies, to be copied: migrating takes longer than most tests."""
    directory = tmp_path_factory.mktemp("templates")
    return {"sqlite": directory / "catalog.db", "duckdb": directory / "catalog.duckdb"}


@pytest.fixture
def log_uri(catalog_uri: str, backend: str, embedded_templates: dict[str, Path]) -> str:
    """A migrated catalog of this test's own."""
    template = embedded_templates.get(backend)
    if template is None:
        _migrate(catalog_uri)
        return catalog_uri
    if not template.exists():
        _migrate(f"deltasql://{backend}/{template}")
    shutil.copyfile(template, parse_catalog_uri(catalog_uri).database)
    return catalog_uri


@pytest.fixture
def open_log(log_uri: str, tmp_path: Path) -> Iterator[OpenLog]:
    with ExitStack() as stack:

        def open_log(*, tap: Tap | None = None, name: str = "events", **settings: Any) -> Log:
            uri = log_uri if tap is None else tap.uri
            catalog = deltars.connect(uri, warehouse=str(tmp_path / "warehouse"), **settings)
            return Log(stack.enter_context(catalog), log_uri, name)

        yield open_log


@pytest.fixture
def tap(log_uri: str) -> Iterator[Tap]:
    """A tap on the connections of logs that are opened with it."""
    with tapped(log_uri) as tap:
        yield tap


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    """A table at version 0."""
    return open_log().create()


def _migrate(uri: str) -> None:
    database = Database(parse_catalog_uri(uri), pool_size=1, pool_timeout_s=60)
    migrate.up(database)
    database.close()
