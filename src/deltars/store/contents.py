"""What is in a table at one version: its live files, their row groups, applications' progress, domain metadata.

A file is live at V when it was added at V or before and is not removed, or removed only later: two index ranges.
What is committed at V or before never changes, and a row that a later commit ends stays in one of the two. So the
answer is the same whenever it is asked for and by whichever session, and a snapshot need hold no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
from sqlalchemy import JSON, ColumnElement, Connection, Select, Table, Text, and_, cast, func, select, union_all

from deltars.log.commit import NO_VERSION
from deltars.log.pruning import Pruner
from deltars.log.snapshot import FILE_SCHEMA, ROW_GROUP_SCHEMA, Totals, file_schema
from deltars.predicate import Predicate
from deltars.protocol import DomainMetadata, Metadata, Txn
from deltars.store.database import Readable
from deltars.store.pruning import condition
from deltars.store.rows import from_row
from deltars.store.schema import (
    dl_add_files,
    dl_domain_metadata,
    dl_metadata_updates,
    dl_row_groups,
    dl_tables,
    dl_txn_actions,
)

_JUDGED = file_schema(("partition_values", "stats", "num_records"))
"""What tells whether a file may hold a matching row."""

_files, _groups = dl_add_files.c, dl_row_groups.c


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table at a version, as `Snapshot` asks for it."""

    database: Readable
    table_id: UUID
    version: int
    slot: int
    metadata: Metadata
    metadata_version: int = NO_VERSION
    """Which version the metadata is of; where that is not known, the newest is looked up for pruning."""

    def batches(self, columns: pa.Schema, where: Predicate | None) -> Iterator[pa.RecordBatch]:
        if where is None:
            query = live_files(self.table_id, self.version, columns.names)
            return self.database.fetch(query, columns, may_be_large=True)
        judged = pa.unify_schemas([columns, _JUDGED])
        return self._matching(partial(live_files, columns=judged.names), judged, where, columns)

    def row_groups(self, where: Predicate | None) -> Iterator[pa.RecordBatch]:
        if where is None:
            return self.database.fetch(row_groups(self.table_id, self.version), ROW_GROUP_SCHEMA)
        return self._matching(row_groups, ROW_GROUP_SCHEMA, where, ROW_GROUP_SCHEMA)

    def _matching(
        self, query: Callable[..., Select[Any]], judged: pa.Schema, where: Predicate, columns: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """What may hold a matching row: the database leaves out what it can, and the rest is judged exactly."""
        pruner = Pruner(where, self.metadata)
        backend = self.database.backend
        with self.database.read() as connection:
            asked = condition(where, self.metadata, self.slot, backend, head=self._head(connection))
            rows = query(self.table_id, self.version, condition=asked)
            for batch in backend.batches(connection, rows, judged):
                kept = batch.filter(pruner.keep(pa.Table.from_batches([batch]))).select(columns.names)
                if kept.num_rows:
                    yield kept

    def _head(self, connection: Connection) -> Metadata:
        """The table's metadata now: the bounds of all its files are laid out by it.

        So it has to be read in the transaction that looks at them.
        """
        current = select(dl_tables.c.metadata_version).where(dl_tables.c.table_id == self.table_id)
        version = connection.execute(current).scalar_one()
        if version == self.metadata_version:
            return self.metadata
        updates = dl_metadata_updates.c
        query = select(dl_metadata_updates).where(updates.table_id == self.table_id, updates.version == version)
        head = from_row(dl_metadata_updates.name, connection.execute(query).mappings().one())
        assert isinstance(head, Metadata)
        return head

    def totals(self) -> Totals:
        files = live_files(self.table_id, self.version, ("size", "num_records")).subquery("sized")
        count, counted, size, records = (
            func.count(),
            func.count(files.c.num_records),
            func.coalesce(func.sum(files.c.size), 0),
            func.coalesce(func.sum(files.c.num_records), 0),
        )
        with self.database.read() as connection:
            row = connection.execute(select(count, counted, size, records).select_from(files)).one()
        return Totals(row[0], int(row[2]), int(row[3]) if row[0] == row[1] else None)

    def txns(self) -> dict[str, Txn]:
        return {txn.app_id: txn for txn in self._newest(dl_txn_actions, "app_id")}

    def domains(self) -> dict[str, DomainMetadata]:
        return {entry.domain: entry for entry in self._newest(dl_domain_metadata, "domain") if not entry.removed}

    def _newest(self, table: Table, key: str) -> list[Any]:
        """The newest action of each key."""
        seen = (
            select(table.c[key], func.max(table.c.version).label("version"))
            .where(table.c.table_id == self.table_id, table.c.version <= self.version)
            .group_by(table.c[key])
            .subquery()
        )
        newest = and_(table.c[key] == seen.c[key], table.c.version == seen.c.version)
        query = select(table).join(seen, newest).where(table.c.table_id == self.table_id).order_by(table.c[key])
        with self.database.read() as connection:
            return [from_row(table.name, row) for row in connection.execute(query).mappings()]


def live_files(
    table_id: UUID,
    version: int,
    columns: Sequence[str] = FILE_SCHEMA.names,
    condition: ColumnElement[bool] | None = None,
) -> Select[Any]:
    """The files of a table at a version."""
    return _live(table_id, version, [_as_text(_files[name]) for name in columns], condition)


def row_groups(table_id: UUID, version: int, condition: ColumnElement[bool] | None = None) -> Select[Any]:
    """The row groups of the files of a table at a version, in their order in each file."""
    of_file = [_files.version, _files.ord, _files.path, _as_text(_files.partition_values)]
    files = _live(table_id, version, of_file, condition).subquery("files")
    columns = [
        files.c[name] if name in files.c and name not in _groups else _groups[name] for name in ROW_GROUP_SCHEMA.names
    ]
    same_file = and_(_groups.version == files.c.version, _groups.ord == files.c.ord)
    return (
        select(*columns)
        .join_from(files, dl_row_groups, same_file)
        .where(_groups.table_id == table_id)
        .order_by(files.c.version, files.c.ord, _groups.row_group)
    )


def _live(
    table_id: UUID, version: int, columns: Sequence[ColumnElement[Any]], condition: ColumnElement[bool] | None
) -> Select[Any]:
    of_table = select(*columns).where(_files.table_id == table_id, _files.version <= version)
    if condition is not None:
        of_table = of_table.where(condition)
    still_live = of_table.where(_files.removed_version.is_(None))
    removed_later = of_table.where(_files.removed_version.is_not(None), _files.removed_version > version)
    both = union_all(still_live, removed_later).subquery("live")
    return select(*both.c)


def _as_text(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Documents travel as their text."""
    return cast(column, Text).label(column.key) if isinstance(column.type, JSON) else column
