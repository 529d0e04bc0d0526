"""A restore writes the log as delta-spark's own does: operation, parameters, metrics, removed and added files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltars
from tests.support.delta_spark import DeltaSpark

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.timeout(900)]


def lines(place: Path, version: int) -> list[dict[str, Any]]:
    text = (place / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def told(place: Path, version: int) -> dict[str, Any]:
    """What a restore's commit says, without what differs between two writers of one table."""
    actions = lines(place, version)
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    return {
        "operation": info["operation"],
        # The publisher writes every parameter as text, and leaves out those without a value.
        "parameters": {name: str(value) for name, value in info["operationParameters"].items() if value is not None},
        "metrics": info["operationMetrics"],
        "added": sorted((one["add"]["path"], one["add"]["dataChange"]) for one in actions if "add" in one),
        "removed": sorted((one["remove"]["path"], one["remove"]["dataChange"]) for one in actions if "remove" in one),
    }


@pytest.mark.soak(only=True)
def test_restore_says_what_delta_spark_says(catalog: deltars.Catalog, tmp_path: Path, delta_spark: DeltaSpark) -> None:
    theirs = tmp_path / "theirs"
    write_deltalake(theirs, pa.table({"id": [1, 2]}))
    write_deltalake(theirs, pa.table({"id": [3]}), mode="append")
    write_deltalake(theirs, pa.table({"id": [9]}), mode="overwrite")
    ours = tmp_path / "ours"
    for file in theirs.rglob("*"):
        if file.is_file():
            target = ours / file.relative_to(theirs)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    delta_spark.run(f"RESTORE TABLE delta.`{theirs}` TO VERSION AS OF 1")
    table = catalog.import_table(str(ours), "t")
    table.restore(1)
    assert told(ours, table.version) == told(theirs, 3)
    found = delta_spark.read(ours)
    assert sorted(found["id"].to_pylist()) == [1, 2, 3]
