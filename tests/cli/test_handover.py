"""`deltars import`, `release`, `adopt` and `rebuild`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltars
from tests.cli.conftest import Run


@pytest.fixture
def uri(tmp_path: Path) -> str:
    catalog = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(catalog, warehouse=str(tmp_path / "warehouse")):
        return catalog


def test_a_table_comes_in_goes_out_and_comes_back(run: Run, uri: str, tmp_path: Path) -> None:
    place = str(tmp_path / "events")
    write_deltalake(place, pa.table({"id": [1]}))
    imported = run("import", place, "--catalog", uri, "--json")
    assert imported.exit_code == 0
    assert {"table": "events", "version": 1, "location": place}.items() <= json.loads(imported.stdout).items()
    assert json.loads(run("release", "events", "--catalog", uri, "--json").stdout)["released_at_version"] == 2
    write_deltalake(place, pa.table({"id": [2]}), mode="append")
    assert json.loads(run("adopt", "events", "--catalog", uri, "--json").stdout)["version"] == 4


def test_a_table_that_is_none_is_told_and_fails(run: Run, uri: str, tmp_path: Path) -> None:
    result = run("import", str(tmp_path / "nothing"), "--catalog", uri)
    assert result.exit_code == 1
    assert "there is no Delta table" in result.stderr


def test_a_lost_catalog_is_rebuilt(run: Run, uri: str, tmp_path: Path) -> None:
    with deltars.connect(uri) as catalog:
        catalog.create_table("events", "id BIGINT")
    again = f"deltasql://sqlite/{tmp_path}/again.db"
    result = run("rebuild", str(tmp_path / "warehouse"), "--catalog", again)
    assert result.stdout.split() == ["events", "0"]
    assert "events" in run("tables", "--catalog", again).stdout
