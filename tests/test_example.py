"""The example program, run twice, and its outcome looked at by others."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import deltars

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "examples/feature_store.py"


def test_the_example_runs_and_again_where_it_ran_before(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        runpy.run_path(str(PROGRAM), run_name="__main__")
    look_at_the_outcome(tmp_path, capsys.readouterr().out)


@pytest.mark.spark
@pytest.mark.soak(only=True)
def test_the_example_runs_from_the_command_line(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    directory.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DELTARS_", "PYSPARK_"))}
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, str(PROGRAM)], cwd=directory, env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
    look_at_the_outcome(directory, result.stdout)


def look_at_the_outcome(directory: Path, said: str) -> None:
    """Check what two runs left in a directory, by another reader too, and what the second of them said."""
    with deltars.connect(f"deltasql://sqlite/{directory}/.deltars/lake.db") as catalog:
        features, labels = catalog.table("features"), catalog.table("labels")
        for table in (features, labels):
            outside = DeltaTable(table.location)
            assert (table.version, outside.version(), outside.to_pyarrow_table().num_rows) == (1, 1, 4)
        newest = features.history()[0].txn_id
        assert newest == labels.history()[0].txn_id
    assert f"transaction {newest} made {{'features': 1, 'labels': 1}}" in said
    assert "|     ada|120.5|  false|" in said


def test_the_readme_shows_the_example_as_it_is() -> None:
    _, _, program = PROGRAM.read_text().partition('"""\n\n')
    assert program in (ROOT / "README.md").read_text()
