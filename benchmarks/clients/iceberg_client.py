"""PyIceberg's SqlCatalog in PostgreSQL: one file or ten rows a commit."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.client import serve


def prepare(spec: dict[str, Any]) -> Callable[[], object]:
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    catalog = import_module("pyiceberg.catalog.sql").SqlCatalog(
        "bench", uri=spec["uri"], warehouse=f"file://{spec['place']}"
    )
    rows = pyarrow.table(
        {
            "id": pyarrow.array(range(10), pyarrow.int64()),
            "name": [f"name-{number}" for number in range(10)],
            "day": pyarrow.array([20_454] * 10, pyarrow.date32()),
        }
    )
    name = f"bench.{spec['table']}"
    if spec["create"]:
        catalog.create_namespace_if_not_exists("bench")
        catalog.create_table(name, schema=rows.schema)
    table = catalog.load_table(name)

    def tried(work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            # What another client committed has to be read before the next attempt.
            table.refresh()
            raise

    if spec["way"] == "rows":
        return lambda: tried(lambda: table.append(rows))
    file = Path(spec["place"], f"{spec['table']}-registered.parquet")
    if not file.exists():
        parquet.write_table(rows, file)
    return lambda: tried(lambda: table.add_files([str(file)], check_duplicate_files=False))


if __name__ == "__main__":
    serve(prepare)
