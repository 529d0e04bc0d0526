"""A migrated catalog for each test; embedded ones are copies, because migrating takes longer than most tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltars
from deltars.catalog import migrate
from deltars.uri import parse_catalog_uri


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("templates")
    return {"sqlite": directory / "catalog.db", "duckdb": directory / "catalog.duckdb"}


@pytest.fixture
def catalog(catalog_uri: str, backend: str, templates: dict[str, Path], tmp_path: Path) -> Iterator[deltars.Catalog]:
    """A migrated catalog of this test's own, its warehouse in `tmp_path`."""
    if backend in templates:
        if not templates[backend].exists():
            migrate.up(f"deltasql://{backend}/{templates[backend]}")
        shutil.copyfile(templates[backend], parse_catalog_uri(catalog_uri).database)
    with deltars.connect(catalog_uri, warehouse=str(tmp_path / "warehouse"), migrate=True) as opened:
        yield opened
