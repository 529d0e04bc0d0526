"""Reading the log: what a table is at a version, and how it came to be. Nothing here can write.

A snapshot at V is two index ranges: the files still live, and those removed only later. Both leave out what was
added after V.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
from sqlalchemy import Connection, Select, Table, select, union_all

from deltars.errors import TableNotFound, ValidationError
from deltars.log.commit import NO_VERSION
from deltars.log.snapshot import HistoryEntry, Snapshot
from deltars.protocol import Metadata, Protocol
from deltars.store.database import Database
from deltars.store.rows import from_row
from deltars.store.schema import (
    dl_add_files,
    dl_metadata_updates,
    dl_protocol_updates,
    dl_table_versions,
    dl_tables,
)

_files = dl_add_files.c
_versions = dl_table_versions.c

FILE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("partition_values", pa.string(), nullable=False),
        pa.field("stats", pa.string()),
        pa.field("modification_time", pa.int64(), nullable=False),
        pa.field("data_change", pa.bool_(), nullable=False),
        pa.field("deletion_vector", pa.string()),
        pa.field("tags", pa.string()),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("version", pa.int64(), nullable=False),
    ]
)
_DOCUMENTS = ("partition_values", "deletion_vector", "tags")


class LogReader:
    def __init__(self, database: Database) -> None:
        self._database = database

    def current_version(self, table_id: UUID) -> int:
        with self._database.read() as connection:
            return _current_version(connection, table_id)

    def history(self, table_id: UUID, *, limit: int | None = None) -> list[HistoryEntry]:
        """The commits of a table, newest first."""
        with self._database.read() as connection:
            return [HistoryEntry(*row) for row in connection.execute(newest_first(table_id, limit))]

    def snapshot(self, table_id: UUID, version: int | None = None) -> Snapshot:
        with self._database.read() as connection:
            current = _current_version(connection, table_id)
            at = current if version is None else version
            if not 0 <= at <= current:
                raise ValidationError(
                    "nothing was committed to the table yet" if current == NO_VERSION else f"there is no version {at}",
                    table_id=table_id,
                    hint="" if current == NO_VERSION else f"The table has the versions 0 to {current}.",
                )
            metadata = _latest(connection, dl_metadata_updates, table_id, at)
            protocol = _latest(connection, dl_protocol_updates, table_id, at)
            assert isinstance(metadata, Metadata)
            assert isinstance(protocol, Protocol)
            files = _table(connection.execute(live_files(table_id, at)))
        return Snapshot(table_id, at, metadata, protocol, files)


def newest_first(table_id: UUID, limit: int | None = None) -> Select[Any]:
    """The commits of a table, in falling order."""
    columns = [_versions[name] for name in HistoryEntry.__dataclass_fields__]
    falling = _versions.version.desc().nulls_last()
    return select(*columns).where(_versions.table_id == table_id).order_by(falling).limit(limit)


def live_files(table_id: UUID, version: int) -> Select[Any]:
    """The files of a table at a version."""
    columns = [_files[field.name] for field in FILE_SCHEMA]
    of_table = select(*columns).where(_files.table_id == table_id, _files.version <= version)
    still_live = of_table.where(_files.removed_version.is_(None))
    removed_later = of_table.where(_files.removed_version.is_not(None), _files.removed_version > version)
    both = union_all(still_live, removed_later).subquery("live")
    return select(*both.c)


def _current_version(connection: Connection, table_id: UUID) -> int:
    query = select(dl_tables.c.current_version).where(dl_tables.c.table_id == table_id)
    version: int | None = connection.execute(query).scalar_one_or_none()
    if version is None:
        raise TableNotFound("no such table in this catalog", table_id=table_id)
    return version


def _latest(connection: Connection, table: Table, table_id: UUID, version: int) -> Any:
    query = (
        select(table)
        .where(table.c.table_id == table_id, table.c.version <= version)
        .order_by(table.c.version.desc())
        .limit(1)
    )
    return from_row(table.name, connection.execute(query).mappings().one())


def _table(rows: Iterable[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(FILE_SCHEMA)
    arrays = [
        _documents(values) if field.name in _DOCUMENTS else pa.array(values, field.type)
        for field, values in zip(FILE_SCHEMA, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=FILE_SCHEMA)


def _documents(values: Iterable[Any]) -> pa.Array:
    encode = msgspec.json.encode
    return pa.array([None if value is None else encode(value).decode() for value in values], pa.string())


__all__ = ["FILE_SCHEMA", "LogReader", "live_files", "newest_first"]
