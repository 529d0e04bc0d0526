"""Hashes of the rows that a version consists of, in a form that is the same in every process and release.

    row       its columns as JSON: sorted by name, without nulls, so that a column that a migration adds changes nothing
    table     SHA-256 of its rows, in the order of their keys
    version   SHA-256 of the tables that have rows of it, by name

Columns that change after the commit are left out. `check.py` compares them with what the log says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import JSON, Column, ColumnElement, Connection, Table, Text, cast, exists, select, type_coerce

from deltars.store.schema import ACTION_TABLES, dl_add_files, dl_table_versions
from deltars.store.types import Id, Instant

ROWS_AT_ONCE = 5_000

_HASHED: tuple[Table, ...] = (dl_table_versions, *ACTION_TABLES)
_CHANGING = {dl_add_files: ("removed_version", "mins", "maxs")}
_KEYS = ("version", "ord", "row_group")
_encode = msgspec.json.Encoder(order="sorted").encode


def contents_of(connection: Connection, table_id: UUID, first: int, last: int) -> dict[int, str]:
    """Return the hash of each version that has rows, from `first` to `last`."""
    among = {table: _of(table, table_id) & table.c.version.between(first, last) for table in _HASHED}
    # Most commits only add files: one query saves six that would return nothing.
    there = connection.execute(select(*(exists().where(which).label(table.name) for table, which in among.items())))
    flags = there.one()
    hashes: dict[int, dict[str, Any]] = defaultdict(dict)
    for (table, which), has_rows in zip(among.items(), flags, strict=True):
        for version, row in _rows(connection, table, which) if has_rows else ():
            hashes[version].setdefault(table.name, sha256()).update(row)
    return {version: _combined(by_table) for version, by_table in hashes.items()}


def remainder_of(connection: Connection, table_id: UUID, first: int) -> str:
    """Return the hash of what an expiry left of the versions before `first`.

    It includes where files ended, if that was before `first` too: the actions that say so may be gone.
    """
    hashes: dict[str, Any] = {}
    for table in _HASHED:
        for _, row in _rows(connection, table, _of(table, table_id) & (table.c.version < first), ended=first):
            hashes.setdefault(table.name, sha256()).update(row)
    return _combined({"first": sha256(str(first).encode()), **hashes})


def _of(table: Table, table_id: UUID) -> ColumnElement[bool]:
    return table.c.table_id == table_id


def _rows(
    connection: Connection, table: Table, which: ColumnElement[bool], ended: int | None = None
) -> Iterator[tuple[int, bytes]]:
    left_out = ("table_id", *_CHANGING.get(table, ()))
    columns = [column for column in table.c if column.name not in left_out]
    if ended is not None and table is dl_add_files:
        columns.append(table.c.removed_version)
    names = [column.name for column in columns]
    query = select(*map(_as_stored, columns)).where(which)
    query = query.order_by(*(table.c[name] for name in _KEYS if name in table.c))
    for row in connection.execute(query.execution_options(yield_per=ROWS_AT_ONCE)):
        values = {name: _plain(value) for name, value in zip(names, row, strict=True) if value is not None}
        if ended is not None and values.get("removed_version", ended) >= ended:
            values.pop("removed_version", None)
        yield values["version"], _encode(values) + b"\n"


def _as_stored(column: Column[Any]) -> ColumnElement[Any]:
    """Return the column without a conversion, which would fail for what no program of ours wrote."""
    if isinstance(column.type, JSON):
        return cast(column, Text)
    return type_coerce(column, Text) if isinstance(column.type, Id | Instant) else column


def _plain(value: Any) -> Any:
    # A database shows a time in the zone of the session.
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _combined(by_table: dict[str, Any]) -> str:
    lines = (f"{name} {by_table[name].hexdigest()}\n" for name in sorted(by_table))
    return sha256("".join(lines).encode()).hexdigest()
