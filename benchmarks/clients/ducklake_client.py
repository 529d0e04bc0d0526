"""DuckLake with its catalog in PostgreSQL: one file or ten rows a commit, by one DuckDB a client.

register   ducklake_add_data_files of a file that exists
rows       INSERT of ten rows into a new Parquet file: inlining is off
inlined    INSERT of ten rows, which DuckLake keeps in the catalog by default
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.client import serve


def prepare(spec: dict[str, Any]) -> Callable[[], object]:
    duckdb = import_module("duckdb")
    database = duckdb.connect(config={"autoinstall_known_extensions": False})
    for extension in ("duckdb_extension_postgres_scanner", "duckdb_extension_ducklake"):
        [file] = Path(str(import_module(extension).__file__)).parent.rglob("*.duckdb_extension")
        database.execute(f"LOAD '{file}'")
    limit = "" if spec["way"] == "inlined" else ", DATA_INLINING_ROW_LIMIT 0"
    database.execute(f"ATTACH 'ducklake:postgres:{spec['uri']}' AS lake (DATA_PATH '{spec['place']}'{limit})")
    name = spec["table"]
    if spec["create"]:
        database.execute(f"CREATE TABLE lake.{name} (id BIGINT, name VARCHAR, day DATE)")
    database.execute(
        "CREATE TABLE ten AS SELECT range AS id, 'name-' || range AS name, DATE '2026-01-01' AS day FROM range(10)"
    )
    if spec["way"] == "register":
        file = Path(spec["place"], f"{name}-registered.parquet")
        if not file.exists():
            database.execute(f"COPY ten TO '{file}'")
        return lambda: database.execute(f"CALL ducklake_add_data_files('lake', '{name}', '{file}')")
    return lambda: database.execute(f"INSERT INTO lake.{name} SELECT * FROM ten")


if __name__ == "__main__":
    serve(prepare)
