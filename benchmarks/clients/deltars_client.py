"""deltars: one file or ten rows a commit.

log      SqlTxnLogWriter.commit, on a table that no other client writes
append   SqlTxnLogWriter.append
lists    SqlTxnLogWriter.append_all of so many versions
stage    begin, stage, commit; not published
rows     ten Arrow rows written, committed and published
behind   the same, published by the service that runs beside it
reads    begin, list the files that may hold a key, stage, commit; not published
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa

import deltars
from benchmarks.client import serve
from benchmarks.rig import SCHEMA, SMALL_ROWS, add_file

MIRROR: dict[str, Literal["inline", "async"]] = {"rows": "inline", "behind": "async"}


def prepare(spec: dict[str, Any]) -> Callable[[], object]:
    mirror: Literal["inline", "async", "off"] = MIRROR.get(spec["way"], "off")
    catalog = deltars.connect(spec["uri"], mirror=mirror, timeout=60, **spec.get("settings", {}))
    name = spec["table"]
    if spec["create"]:
        catalog.create_table(name, SCHEMA)
    if spec["way"] == "lists":
        return _lists(catalog, name, spec["commits"])
    return WAYS[spec["way"]](catalog, name)


def _log(catalog: deltars.Catalog, name: str) -> Callable[[], object]:
    writer, table_id, version = deltars.SqlTxnLogWriter(catalog), catalog.table(name).id, catalog.table(name).version

    def commit() -> None:
        nonlocal version
        version += 1
        writer.commit(table_id, version, [add_file(version)], operation="WRITE", operation_params={"mode": "Append"})

    return commit


def _append(catalog: deltars.Catalog, name: str) -> Callable[[], object]:
    writer, table_id = deltars.SqlTxnLogWriter(catalog), catalog.table(name).id
    return lambda: writer.append(table_id, [add_file(1)])


def _lists(catalog: deltars.Catalog, name: str, commits: int) -> Callable[[], object]:
    writer, table_id = deltars.SqlTxnLogWriter(catalog), catalog.table(name).id
    return lambda: writer.append_all(table_id, [[add_file(number)] for number in range(commits)])


def _stage(catalog: deltars.Catalog, name: str) -> Callable[[], object]:
    def commit() -> None:
        with catalog.begin(isolation="serializable", mirror="off") as tx:
            tx.stage(name, [add_file(1)])

    return commit


def _rows(catalog: deltars.Catalog, name: str) -> Callable[[], object]:
    rows = pa.table(SMALL_ROWS)
    return lambda: catalog.write(name, rows)


def _reads(catalog: deltars.Catalog, name: str) -> Callable[[], object]:
    def commit() -> None:
        with catalog.begin(isolation="serializable", mirror="off") as tx:
            tx.files(name, where="id = -1")
            tx.stage(name, [add_file(1)])

    return commit


WAYS = {"log": _log, "append": _append, "stage": _stage, "rows": _rows, "behind": _rows, "reads": _reads}

if __name__ == "__main__":
    serve(prepare)
