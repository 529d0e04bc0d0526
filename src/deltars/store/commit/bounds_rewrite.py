"""Rewrite the bounds of a table's files when new metadata changes their layout.

    another range column, a new column that is not the last, a type with another scale
        ──▶ live files: compute `mins` and `maxs` again from the statistics, batch by batch
        ──▶ removed files: set bounds that exclude nothing

The rewrite runs in the transaction that commits the metadata, under the table's lock. So the bounds of every row have
the layout of the table's current metadata, or exclude nothing. A reader that uses bounds only has to check that the
metadata it knows is still current (`read.filter_sql.layout_is`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Column, Connection, FromClause, Text, Update, and_, bindparam, or_, select

from deltars.log.bounds import Bounds
from deltars.protocol import Metadata
from deltars.store.backends import Backend
from deltars.store.rows import from_row
from deltars.store.schema import dl_add_files, dl_metadata_updates

BATCH_ROWS = 10_000

_files = dl_add_files.c
_KEY = ("table_id", "version", "ord")
_BOUNDS = ("mins", "maxs")
_COLUMNS = tuple(Column(name, _files[name].type) for name in (*_KEY, *_BOUNDS))
_encode = msgspec.json.Encoder().encode


def rewrite_bounds(connection: Connection, backend: Backend, moved: Mapping[UUID, Bounds]) -> None:
    """Rewrite the bounds of every file of these tables."""
    if not moved:
        return
    to_new = backend.prepare(_set_bounds(backend))
    to_unknown = backend.prepare(_set_unknown(backend))
    for table_id, bounds in moved.items():
        for rows in _live_rows(connection, table_id):
            documents = [_document(table_id, version, ord_, stats, bounds) for version, ord_, stats in rows]
            backend.run(connection, to_new, {"rows": _encode(documents).decode()})
        unknown = {"table_id": str(table_id), "mins": bounds.unknown.mins, "maxs": bounds.unknown.maxs}
        values = {f"unknown_{name}": _parameter(backend, name, unknown[name]) for name in ("table_id", *_BOUNDS)}
        backend.run(connection, to_unknown, values)


def rewrite_bounds_since(connection: Connection, backend: Backend, table_id: UUID, version: int) -> None:
    """Rewrite the bounds of an imported table if its metadata changed their layout at or after `version`.

    An import writes each file with the layout that was current at the file's own version.
    """
    updates = dl_metadata_updates.c
    query = select(dl_metadata_updates).where(updates.table_id == table_id, updates.version >= version)
    layouts = []
    for row in connection.execute(query.order_by(updates.version)).mappings():
        metadata = from_row(dl_metadata_updates.name, row)
        assert isinstance(metadata, Metadata)
        layouts.append(Bounds(metadata.schema, metadata.partition_columns, metadata.configuration))
    if any(not after.continues(before) for before, after in pairwise(layouts)):
        rewrite_bounds(connection, backend, {table_id: layouts[-1]})


def _live_rows(connection: Connection, table_id: UUID) -> Iterator[list[tuple[int, int, str | None]]]:
    version, ord_ = -1, -1
    while True:
        query = (
            select(_files.version, _files.ord, _files.stats)
            .where(
                _files.table_id == table_id,
                _files.removed_version.is_(None),
                or_(_files.version > version, and_(_files.version == version, _files.ord > ord_)),
                # Implied by the condition above, but in a form that an index can use.
                _files.version >= version,
            )
            .order_by(_files.version, _files.ord)
            .limit(BATCH_ROWS)
        )
        rows = [(row.version, row.ord, row.stats) for row in connection.execute(query)]
        if rows:
            yield rows
        if len(rows) < BATCH_ROWS:
            return
        version, ord_, _ = rows[-1]


def _document(table_id: UUID, version: int, ord_: int, stats: str | None, bounds: Bounds) -> dict[str, Any]:
    numbers = bounds.of(stats)
    return {"table_id": str(table_id), "version": version, "ord": ord_, "mins": numbers.mins, "maxs": numbers.maxs}


def _set_bounds(backend: Backend) -> Update:
    source = backend.rows(bindparam("rows", type_=Text()), _COLUMNS)
    return backend.update_matching(
        dl_add_files,
        source,
        lambda files: and_(*(files.c[name] == source.c[name] for name in _KEY)),
        lambda row: {name: row.c[name] for name in _BOUNDS},
    )


def _set_unknown(backend: Backend) -> Update:
    source = backend.row("unknown", [column for column in _COLUMNS if column.name not in ("version", "ord")])

    def ended(files: FromClause) -> Any:
        return and_(files.c.table_id == source.c.table_id, files.c.removed_version.is_not(None))

    return backend.update_matching(dl_add_files, source, ended, lambda row: {name: row.c[name] for name in _BOUNDS})


def _parameter(backend: Backend, name: str, value: Any) -> Any:
    if value is None or name not in _BOUNDS:
        return value
    return backend.array_text(value)
