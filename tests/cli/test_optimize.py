"""`deltars optimize`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from tests.cli.conftest import Run

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture(autouse=True)
def tables(run: Run) -> None:
    with deltars.connect() as catalog:
        for name in ("features", "labels"):
            for number in range(3):
                catalog.write(name, pa.table({"id": [number], "x": [0.5]}))


def test_small_files_become_one(run: Run) -> None:
    planned = run("optimize", "features", "--dry-run", "--json")
    [record] = json.loads(planned.stdout)
    assert (record["num_files_removed"], record["num_files_added"], record["is_dry_run"]) == (3, 0, True)
    assert "dry run" in planned.stderr
    [record] = json.loads(run("optimize", "features", "--json").stdout)
    assert (record["version"], record["num_files_removed"], record["num_files_added"]) == (3, 3, 1)
    assert record["metrics"]["numFilesAdded"] == 1
    assert [step["version"] for step in record["steps"]] == [3]
    assert run("optimize", "features").stdout.split("\t")[:4] == ["features", "3", "0", "0"]


def test_options_reach_the_table(run: Run) -> None:
    [record] = json.loads(run("optimize", "features", "--zorder-by", "id, x", "--target-size", "1mb", "--json").stdout)
    assert (record["zorder_by"], record["target_size"]) == (["id", "x"], 1 << 20)
    [record] = json.loads(run("optimize", "labels", "--where", "id = 1", "--json").stdout)
    assert record["total_considered_files"] == 1


def test_all_tables_and_one_that_fails(run: Run) -> None:
    with deltars.connect() as catalog:
        table = catalog.table("labels")
        (Path(table.location) / table.files()["path"][0].as_py()).unlink()
    result = run("optimize", "--all", "--json")
    found = {record["table"]: record for record in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert found["features"]["num_files_added"] == 1
    assert "missing" in found["labels"]["failure"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("features", "--all"),
        ("--all", "--where", "id = 1"),
        ("features", "--target-size", "much"),
        ("features", "--zorder-by", ""),
        ("features", "--zorder-by", ", "),
    ],
)
def test_wrong_usage_is_refused(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("optimize", *arguments).exit_code in (1, 2)
