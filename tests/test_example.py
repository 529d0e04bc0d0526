"""The example program, run as a person runs it, and its outcome looked at by others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

import deltars

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "examples/feature_store.py"

pytestmark = pytest.mark.xdist_group("spark")  # one JVM at a time


# Twice in one process: the second run finds what the first one left, and no second Java has to start.
TWICE = f"import runpy; [runpy.run_path({str(PROGRAM)!r}, run_name='__main__') for _ in range(2)]"


def test_the_example_runs_and_again_where_it_ran_before(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    directory.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DELTARS_", "PYSPARK_"))}
    result = subprocess.run(
        [sys.executable, "-c", TWICE], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    with deltars.connect(f"deltasql://sqlite/{directory}/.deltars/lake.db") as catalog:
        features, labels = catalog.table("features"), catalog.table("labels")
        for table in (features, labels):
            outside = DeltaTable(table.location)
            assert (table.version, outside.version(), outside.to_pyarrow_table().num_rows) == (1, 1, 4)
        newest = features.history()[0].txn_id
        assert newest == labels.history()[0].txn_id
    assert f"transaction {newest} made {{'features': 1, 'labels': 1}}" in result.stdout
    assert "|     ada|120.5|  false|" in result.stdout


def test_the_readme_shows_the_example_as_it_is() -> None:
    _, _, program = PROGRAM.read_text().partition('"""\n\n')
    assert program in (ROOT / "README.md").read_text()
