"""The example program, run as a person runs it, and its outcome looked at by others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import deltars

PROGRAM = Path(__file__).parent.parent / "examples/feature_store.py"
CHURNED = {"ada": False, "bob": True, "cyd": False}

pytestmark = pytest.mark.xdist_group("spark")  # one JVM at a time


# Twice in one process: the second run finds what the first one left, and no second Java has to start.
TWICE = f"import runpy; [runpy.run_path({str(PROGRAM)!r}, run_name='__main__') for _ in range(2)]"


def _run(directory: Path, *arguments: str | Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DELTARS_", "PYSPARK_"))}
    result = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout


def _check(said: str, catalog: deltars.Catalog, *, version: int) -> None:
    """Versions, rows and transaction as they are, whatever the program says; and then that it says so."""
    rows = 3 * (version + 1)
    for name in ("features", "labels"):
        table, outside = catalog.table(name), DeltaTable(catalog.table(name).location)
        assert table.version == outside.version() == version
        assert outside.to_pyarrow_table().num_rows == rows
        assert f"{name:8}  version {version}, published to _delta_log" in said
        line = f"{name:8}  catalog: version {version}, {rows} rows    deltalake: version {version}, {rows} rows"
        assert said.count(line) == 2  # before and after the write that failed
    features, labels = catalog.table("features"), catalog.table("labels")
    newest = features.history()[0]
    assert newest.txn_id == labels.history()[0].txn_id
    assert f"Transaction {newest.txn_id} is committed" in said
    seen = DeltaTable(labels.location).to_pyarrow_table()
    newest_rows = seen.filter(pc.equal(seen["seen_at"], pc.max(seen["seen_at"])))
    assert dict(zip(*newest_rows.select(["customer", "churned"]).to_pydict().values(), strict=True)) == CHURNED
    # The failed transaction did write files, and they belong to no version.
    on_disk = set(Path(features.location).rglob("*.parquet"))
    live = {Path(features.location) / path for path in features.snapshot().files["path"].to_pylist()}
    assert live < on_disk
    assert "column chruned is not in the table" in said
    assert "Nothing changed" in said


def test_the_example_runs_on_sqlite_and_again_where_it_ran_before(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    directory.mkdir()
    _, first, second = _run(directory, "-c", TWICE).split("The catalog is ")
    assert "features  version 0, published" in first
    with deltars.connect(first.splitlines()[0]) as catalog:
        _check(second, catalog, version=1)
    assert (directory / ".deltars/demo.db").exists()


@pytest.mark.backends("postgres")
def test_the_example_runs_on_postgresql_by_its_url_alone(catalog_uri: str, tmp_path: Path) -> None:
    said = _run(tmp_path, PROGRAM, catalog_uri)
    with deltars.connect(catalog_uri) as catalog:
        _check(said, catalog, version=0)
    assert not (tmp_path / ".deltars/demo.db").exists()
