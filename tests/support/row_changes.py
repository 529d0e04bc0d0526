"""Row-level changes made of raw actions: what the conflict rules see of DELETE, UPDATE and MERGE, and nothing more.

delete(tx, "t", "id = 7")            rows go, by a vector or by files written again
update(tx, "t", "id = 7", "new")     the same, and they come back with another name
upsert(tx, "t", {7: "new"})          rows with these ids are replaced, or inserted
insert_absent(tx, "t", {7: "new"})   rows whose ids are not there are inserted
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

import deltars
from deltars.data.deletion_vectors import read_vector
from deltars.data.filter import PredicateFilter
from deltars.data.reader import read_placed, read_scan
from deltars.data.scan import Scan
from deltars.data.vector_writer import write_vectors
from deltars.log.arrow_adds import deletion_vectors
from deltars.log.key_set import KeySet
from deltars.predicate import Column, In, Predicate, parse
from deltars.protocol import Action, AddFile, PrimitiveType, RemoveFile
from deltars.storage import open_storage
from deltars.transaction.staged_table import StagedTable, removes_of
from deltars.transaction.view import View

DDL = "id BIGINT, name STRING"
ID = Column(("id",), PrimitiveType("long"))

Rows: TypeAlias = Mapping[int, str | None]


def data_file(location: str, rows: Rows | Sequence[tuple[int, str | None]], **fields: Any) -> AddFile:
    """Write rows as a data file, and describe it."""
    path = f"{uuid4()}.parquet"
    target = Path(location) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    ids, names = zip(*(rows.items() if isinstance(rows, Mapping) else rows), strict=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())}), target)
    stats = {"numRecords": len(ids), "minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}}
    values: dict[str, Any] = {
        "partition_values": {},
        "size": target.stat().st_size,
        "modification_time": 1,
        "data_change": True,
        "stats": json.dumps(stats | {"nullCount": {"id": 0}}),
    }
    return AddFile(path=path, **(values | fields))


def rows_of(catalog: deltars.Catalog, table: str) -> list[tuple[int, str | None]]:
    """All rows of a table, in order."""
    found = catalog.table(table).to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def delete(tx: deltars.Transaction, table: str, where: str, *, vectors: bool = True, tests_rows: bool = True) -> Rows:
    """Delete the rows that match, and return them."""
    view, staged = _opened(tx, table)
    assert staged.metadata is not None
    predicate = parse(where, staged.metadata.schema)
    row_filter = PredicateFilter(predicate)
    files = view.change_files(staged, predicate, row_filter=row_filter if tests_rows else None, changes_matches=True)
    return dict(_delete(tx, staged, files, row_filter, vectors=vectors))


def update(tx: deltars.Transaction, table: str, where: str, name: str, **options: Any) -> Rows:
    """Give the rows that match another name, and return them as they were."""
    old = delete(tx, table, where, **options)
    if old:
        tx.stage(table, [data_file(_opened(tx, table)[1].location, dict.fromkeys(old, name))])
    return old


def upsert(tx: deltars.Transaction, table: str, rows: Rows, *, vectors: bool = True, tests_rows: bool = True) -> Rows:
    """Replace or insert rows by id, and return those replaced."""
    staged, files, row_filter = _matched(tx, table, rows, tests_rows=tests_rows, changes_matches=True)
    old = _delete(tx, staged, files, row_filter, vectors=vectors)
    tx.stage(table, [data_file(staged.location, rows)])
    return dict(old)


def amend(
    tx: deltars.Transaction, table: str, number: int, name: Callable[[list[str]], str], *, vectors: bool = True
) -> None:
    """Replace the rows with an id by one whose name is made of theirs."""
    staged, files, row_filter = _matched(tx, table, {number: None}, tests_rows=True, changes_matches=True)
    old = _delete(tx, staged, files, row_filter, vectors=vectors)
    tx.stage(table, [data_file(staged.location, {number: name([name or "" for _, name in old])})])


def insert_absent(tx: deltars.Transaction, table: str, rows: Rows, *, tests_rows: bool = True) -> Rows:
    """Insert the rows whose ids are not there, and return them. Matching rows are left as they are."""
    staged, files, row_filter = _matched(tx, table, rows, tests_rows=tests_rows, changes_matches=False)
    found = read_scan(_scan(staged, files), columns=["id"], row_filter=row_filter).read_all()
    there = set(found["id"].to_pylist())
    new = {number: name for number, name in rows.items() if number not in there}
    tx.stage(table, [data_file(staged.location, new)] if new else [])
    return new


def read_rows(tx: deltars.Transaction, table: str, where: str) -> list[tuple[int, str | None]]:
    """Read rows as a user does: the transaction depends on whole files."""
    view, staged = _opened(tx, table)
    assert staged.metadata is not None
    predicate = parse(where, staged.metadata.schema)
    found = read_scan(view.scan(staged, predicate), row_filter=PredicateFilter(predicate)).read_all()
    return sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def compact(tx: deltars.Transaction, table: str) -> None:
    """Move the rows of two files to one, if there are two."""
    view, staged = _opened(tx, table)
    files = view.files(staged, None).slice(0, 2)
    rows = read_scan(_scan(staged, files)).read_all()
    if files.num_rows == 2 and rows.num_rows:
        pairs = list(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
        new = data_file(staged.location, pairs, data_change=False)
        tx.stage(table, [*removes_of(files, data_change=False), new], operation="OPTIMIZE")


def _opened(tx: deltars.Transaction, table: str) -> tuple[View, StagedTable]:
    view = tx._view_for(table)
    return view, view.readable(table)


def _matched(tx: deltars.Transaction, table: str, rows: Rows, *, tests_rows: bool, changes_matches: bool) -> Any:
    view, staged = _opened(tx, table)
    assert staged.metadata is not None
    keys = KeySet(ID, sorted(rows), staged.metadata)
    same_key: Predicate = In(ID, tuple(sorted(rows)))
    row_filter = PredicateFilter(same_key)
    files = view.change_files(staged, None, keys, row_filter if tests_rows else None, changes_matches=changes_matches)
    return staged, files, row_filter


def _scan(staged: StagedTable, files: pa.Table) -> Scan:
    assert staged.metadata is not None
    return Scan.of(
        staged.metadata, files, root=staged.location, table=staged.name, version=staged.version, storage_options={}
    )


def _delete(
    tx: deltars.Transaction, staged: StagedTable, files: pa.Table, row_filter: Any, *, vectors: bool
) -> list[tuple[int, str | None]]:
    scan, storage = _scan(staged, files), open_storage(staged.location)
    positions: dict[int, BitMap64] = {}
    gone: list[tuple[int, str | None]] = []
    for placed in read_placed(scan, row_filter=row_filter):
        positions.setdefault(placed.file, BitMap64()).update(placed.numbers.to_pylist())
        gone += zip(placed.rows["id"].to_pylist(), placed.rows["name"].to_pylist(), strict=True)
    actions: list[Action] = []
    touched = files.take(pa.array(list(positions), pa.int64()))
    removes: dict[str, RemoveFile] = {one.path: one for one in removes_of(touched)}
    for place, rows in positions.items():
        file = files.slice(place, 1).to_pylist()[0]
        [old] = deletion_vectors(pa.array([file["deletion_vector"]], pa.string()))
        actions.append(removes[file["path"]])
        if vectors:
            union = rows | (read_vector(storage, old) if old else BitMap64())
            if len(union) < json.loads(file["stats"])["numRecords"]:
                vector = write_vectors(storage, {0: union})[0]
                stats = json.dumps(json.loads(file["stats"]) | {"tightBounds": False})
                actions.append(
                    AddFile(
                        path=file["path"],
                        partition_values=json.loads(file["partition_values"]),
                        size=file["size"],
                        modification_time=file["modification_time"],
                        data_change=True,
                        stats=stats,
                        deletion_vector=vector,
                    )
                )
        else:
            left = [one.rows for one in read_placed(_scan(staged, files.slice(place, 1)), without={0: rows})]
            if left:
                kept = pa.Table.from_batches(left)
                pairs = zip(kept["id"].to_pylist(), kept["name"].to_pylist(), strict=True)
                actions.append(data_file(staged.location, list(pairs)))
    tx.stage(staged.name, actions, operation="DELETE")
    return gone
