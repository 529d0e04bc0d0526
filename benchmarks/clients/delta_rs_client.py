"""delta-rs, whose log is files on the local disk: one file or ten rows a commit."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.client import serve


def prepare(spec: dict[str, Any]) -> Callable[[], object]:
    pyarrow, deltalake = import_module("pyarrow"), import_module("deltalake")
    place = f"{spec['place']}/{spec['table']}"
    rows = pyarrow.table(
        {
            "id": pyarrow.array(range(10), pyarrow.int64()),
            "name": [f"name-{number}" for number in range(10)],
            "day": pyarrow.array([20_454] * 10, pyarrow.date32()),
        }
    )
    if spec["create"]:
        deltalake.write_deltalake(place, rows)
    if spec["way"] == "rows":
        return lambda: deltalake.write_deltalake(place, rows, mode="append")
    add_action = import_module("deltalake.transaction").AddAction
    table, number = deltalake.DeltaTable(place), 0

    def register() -> None:
        nonlocal number
        number += 1
        add = add_action(f"part-{number}.parquet", 1_000_000, {}, 1_767_225_600_000, True, spec["stats"])
        table.create_write_transaction([add], "append", rows.schema)

    return register


if __name__ == "__main__":
    serve(prepare)
