"""What a checkpoint holds: a table's whole state at a version, out of the log, and streamed.

    with CheckpointRows(database).at(table_id, version) as state:
        state.metadata, state.protocol, state.txns, state.domains
        state.removes(), state.adds()      Arrow, some ten thousand rows at a time

History does not change, so a version's state is the same whenever it is read, and whoever reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
from sqlalchemy import Connection, Select, Table, Text, and_, cast, exists, func, select, union_all

from deltars.errors import ValidationError
from deltars.protocol import DomainMetadata, Metadata, Protocol, Txn
from deltars.store.backends import Backend
from deltars.store.database import Database
from deltars.store.rows import from_row
from deltars.store.schema import (
    dl_add_files,
    dl_domain_metadata,
    dl_metadata_updates,
    dl_protocol_updates,
    dl_remove_files,
    dl_table_versions,
    dl_txn_actions,
)

ADDS = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("partition_values", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modification_time", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("tags", pa.string()),
        pa.field("deletion_vector", pa.string()),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("clustering_provider", pa.string()),
    ]
)
REMOVES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("deletion_timestamp", pa.int64()),
        pa.field("extended_file_metadata", pa.bool_()),
        pa.field("partition_values", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("deletion_vector", pa.string()),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
    ]
)
DOCUMENTS = ("partition_values", "tags", "deletion_vector")
"""Columns that hold JSON text."""

CLOCK_SLACK_US = 86_400_000_000
"""A file is said to be deleted at a time of its deleter's clock: no more than a day off its commit's."""

_add, _remove, _versions = dl_add_files.c, dl_remove_files.c, dl_table_versions.c


@dataclass(frozen=True, slots=True)
class Totals:
    """The live files of a version."""

    num_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class VersionState:
    """A table at a version, but for its files."""

    table_id: UUID
    version: int
    txn_id: UUID
    in_commit_timestamp: int
    metadata: Metadata
    protocol: Protocol


class OpenState:
    """A table at a version, inside one transaction of the catalog."""

    def __init__(self, backend: Backend, connection: Connection, state: VersionState) -> None:
        self.state = state
        self._backend = backend
        self._connection = connection

    @property
    def txns(self) -> list[Txn]:
        """The last one of each application."""
        found = self._latest(dl_txn_actions, dl_txn_actions.c.app_id)
        return [action for action in found if isinstance(action, Txn)]

    @property
    def domains(self) -> list[DomainMetadata]:
        """The last one of each domain that was not removed."""
        found = self._latest(dl_domain_metadata, dl_domain_metadata.c.domain)
        return [action for action in found if isinstance(action, DomainMetadata) and not action.removed]

    def totals(self) -> Totals:
        live = live_files(self.state.table_id, self.state.version, _add.size).subquery()
        count, size = self._connection.execute(
            select(func.count(), func.coalesce(func.sum(live.c.size), 0)).select_from(live)
        ).one()
        return Totals(int(count), int(size))

    def adds(self) -> Iterator[pa.RecordBatch]:
        """The live files."""
        columns = [_column(dl_add_files, field) for field in ADDS]
        return self._batches(live_files(self.state.table_id, self.state.version, *columns), ADDS)

    def removes(self, deleted_after_ms: int) -> Iterator[pa.RecordBatch]:
        """The files deleted after a moment and not added again: readers of older versions may still want them."""
        key, version = self.state.table_id, self.state.version
        since = (
            select(func.coalesce(func.min(_versions.version), version + 1))
            .where(_versions.table_id == key, _versions.commit_ts >= deleted_after_ms * 1000 - CLOCK_SLACK_US)
            .scalar_subquery()
        )
        later, added = dl_remove_files.alias("later"), dl_add_files.alias("added")
        query = select(*(_column(dl_remove_files, field) for field in REMOVES)).where(
            _remove.table_id == key,
            _remove.version.between(since, version),
            _remove.deletion_timestamp > deleted_after_ms,
            ~exists().where(_same_file(added), added.c.version.between(_remove.version, version)),
            ~exists().where(_same_file(later), later.c.version.between(_remove.version + 1, version)),
        )
        return self._batches(query, REMOVES)

    def _batches(self, query: Select[Any], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        return self._backend.batches(self._connection, query, columns)

    def _latest(self, table: Table, name: Any) -> list[Any]:
        at = and_(table.c.table_id == self.state.table_id, table.c.version <= self.state.version)
        newest = select(name.label("name"), func.max(table.c.version).label("version")).where(at).group_by(name)
        last = newest.subquery("last")
        query = select(table).join(last, and_(name == last.c.name, table.c.version == last.c.version)).where(at)
        rows = self._connection.execute(query.order_by(name)).mappings()
        return [from_row(table.name, row) for row in rows]


class CheckpointRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def at(self, table_id: UUID, version: int) -> Iterator[OpenState]:
        with self._database.read() as connection:
            yield OpenState(self._database.backend, connection, _state(connection, table_id, version))

    def read(self, table_id: UUID, version: int) -> VersionState:
        with self._database.read() as connection:
            return _state(connection, table_id, version)

    def gone(self, table_id: UUID, first: int, last: int) -> dict[int, Totals]:
        """The live files that each of these versions took away: removed, or added anew."""
        query = (
            select(_add.removed_version, func.count(), func.sum(_add.size))
            .where(_add.table_id == table_id, _add.removed_version.between(first, last))
            .group_by(_add.removed_version)
        )
        with self._database.read() as connection:
            return {version: Totals(int(count), int(size)) for version, count, size in connection.execute(query)}


def live_files(table_id: UUID, version: int, *columns: Any) -> Select[Any]:
    """Two index ranges: the files still live, and those removed only later."""
    of_table = select(*columns).where(_add.table_id == table_id, _add.version <= version)
    still_live = of_table.where(_add.removed_version.is_(None))
    removed_later = of_table.where(_add.removed_version.is_not(None), _add.removed_version > version)
    both = union_all(still_live, removed_later).subquery("live")
    return select(*both.c)


def _state(connection: Connection, table_id: UUID, version: int) -> VersionState:
    commit = connection.execute(
        select(_versions.txn_id, _versions.in_commit_timestamp).where(
            _versions.table_id == table_id, _versions.version == version
        )
    ).one_or_none()
    if commit is None:
        raise ValidationError(f"there is no version {version}", table_id=table_id, version=version)
    metadata, protocol = (
        _newest(connection, table, table_id, version) for table in (dl_metadata_updates, dl_protocol_updates)
    )
    assert isinstance(metadata, Metadata)
    assert isinstance(protocol, Protocol)
    return VersionState(table_id, version, commit.txn_id, commit.in_commit_timestamp, metadata, protocol)


def _newest(connection: Connection, table: Table, table_id: UUID, version: int) -> Any:
    query = (
        select(table)
        .where(table.c.table_id == table_id, table.c.version <= version)
        .order_by(table.c.version.desc())
        .limit(1)
    )
    return from_row(table.name, connection.execute(query).mappings().one())


def _same_file(other: Any) -> Any:
    return and_(other.c.table_id == _remove.table_id, other.c.path == _remove.path, other.c.dv_id == _remove.dv_id)


def _column(table: Table, field: pa.Field) -> Any:
    column = table.c[field.name]
    return cast(column, Text).label(field.name) if field.name in DOCUMENTS else column
