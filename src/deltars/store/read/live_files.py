"""What is in a table at one version: its live files, their row groups, applications' progress, domain metadata.

A file is live at V when it was added at V or before and is not removed, or removed only later: two index ranges.
What is committed at V or before never changes, and a row that a later commit ends stays in one of the two. So the
answer is the same whenever it is asked for and by whichever session, and a snapshot need hold no connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    false,
    func,
    not_,
    null,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.sql.elements import False_

from deltars.log.pruning import Pruner
from deltars.log.snapshot import FILE_SCHEMA, ROW_GROUP_SCHEMA, Totals, file_schema
from deltars.predicate import Predicate, partition_part
from deltars.protocol import DomainMetadata, Metadata, Txn
from deltars.store.database import Readable
from deltars.store.read.pruning import Translation, layout_is
from deltars.store.rows import from_row
from deltars.store.schema import dl_add_files, dl_domain_metadata, dl_row_groups, dl_txn_actions

_JUDGED = file_schema(("partition_values", "stats", "num_records"))
"""What tells whether a file may hold a matching row."""
_CERTAIN = pa.field("certain", pa.bool_(), nullable=False)
"""That it does, by the bounds alone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A where, as conditions on rows of `dl_add_files`."""

    is_current: ColumnElement[bool]
    """Whether the bounds of the files are where the snapshot's metadata has them."""
    whole: ColumnElement[bool]
    """By bounds and partition values."""
    partition: ColumnElement[bool]
    """By partition values alone."""
    is_by_partition: bool
    """Whether the two are one."""
    certain: ColumnElement[bool]
    """Of those that `whole` is true of, the ones that need no second look."""
    is_by_range: bool
    """Whether the index on the range column finds every live file that `whole` is true of."""


_files, _groups = dl_add_files.c, dl_row_groups.c


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table at a version, as `Snapshot` asks for it."""

    database: Readable
    table_id: UUID
    version: int
    slot: int
    metadata: Metadata
    metadata_version: int

    def batches(self, columns: pa.Schema, where: Predicate | None) -> Iterator[pa.RecordBatch]:
        if where is None:
            query = live_files(self.table_id, self.version, columns.names)
            return self.database.fetch(query, columns, may_be_large=True)
        judged = pa.unify_schemas([columns, _JUDGED])
        asked = self.asked(where)
        query = judged_files(self.table_id, self.version, judged.names, asked, with_stats="stats" in columns.names)
        return self._kept(self.database.fetch(query, judged.append(_CERTAIN)), where, columns)

    def row_groups(self, where: Predicate | None) -> Iterator[pa.RecordBatch]:
        query = row_groups(self.table_id, self.version, None if where is None else self.asked(where))
        batches = self.database.fetch(query, ROW_GROUP_SCHEMA)
        return batches if where is None else self._kept(batches, where, ROW_GROUP_SCHEMA)

    def asked(self, where: Predicate) -> Asked:
        """The where as the database can judge it."""
        translation = Translation(self.metadata, self.slot, self.database.backend)
        partition = partition_part(where, self.metadata.partition_columns)
        return Asked(
            layout_is(self.table_id, self.metadata_version),
            translation.condition(where),
            translation.condition(partition),
            partition == where,
            translation.certainty(where),
            translation.is_by_range(where),
        )

    def _kept(
        self, batches: Iterator[pa.RecordBatch], where: Predicate, columns: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """What may hold a matching row, judged exactly: the database's own condition only came near."""
        pruner = Pruner(where, self.metadata)
        for batch in batches:
            kept = batch.filter(_is_kept(batch, pruner)).select(columns.names)
            if kept.num_rows:
                yield kept

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
        query, values = _newest_of_each(table, key), {"table": self.table_id, "last": self.version}
        with self.database.read() as connection:
            return [from_row(table.name, row) for row in connection.execute(query, values).mappings()]


@cache
def _newest_of_each(table: Table, key: str) -> Select[Any]:
    table_id, last = bindparam("table", type_=table.c.table_id.type), bindparam("last", type_=BigInteger())
    seen = (
        select(table.c[key], func.max(table.c.version).label("version"))
        .where(table.c.table_id == table_id, table.c.version <= last)
        .group_by(table.c[key])
        .subquery()
    )
    newest = and_(table.c[key] == seen.c[key], table.c.version == seen.c.version)
    return select(table).join(seen, newest).where(table.c.table_id == table_id).order_by(table.c[key])


def live_files(
    table_id: UUID, version: int, columns: Sequence[str] = FILE_SCHEMA.names, asked: Asked | None = None
) -> CompoundSelect[Any]:
    """The files of a table at a version; or those that are asked for, and some more."""
    return _live(table_id, version, [_as_text(_files[name]) for name in columns], asked)


def judged_files(
    table_id: UUID, version: int, columns: Sequence[str], asked: Asked, *, with_stats: bool
) -> CompoundSelect[Any]:
    """The same, and whether each needs no second look: then its statistics are left where they are."""
    doubtful = [_as_text(_files[name]) for name in columns]
    if with_stats or isinstance(asked.certain, False_):
        certain = doubtful
    else:
        stats = case((asked.certain, null()), else_=_files.stats).label("stats")
        certain = [stats if column.key == "stats" else column for column in doubtful]
    by_bounds = [*certain, asked.certain.label(_CERTAIN.name)]
    return _live(table_id, version, [*doubtful, false().label(_CERTAIN.name)], asked, by_bounds)


def _is_kept(batch: pa.RecordBatch, pruner: Pruner) -> pa.Array:
    if _CERTAIN.name not in batch.schema.names:
        return pruner.keep(pa.Table.from_batches([batch]))
    certain = batch[_CERTAIN.name]
    doubtful = pc.invert(certain)
    return pc.replace_with_mask(certain, doubtful, pruner.keep(pa.Table.from_batches([batch.filter(doubtful)])))


def row_groups(table_id: UUID, version: int, asked: Asked | None = None) -> Select[Any]:
    """The row groups of the files of a table at a version, in their order in each file."""
    columns_of_files = [_files.version, _files.ord, _files.path, _as_text(_files.partition_values)]
    live = _live(table_id, version, columns_of_files, asked)
    files = live.subquery("files")
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
    table_id: UUID,
    version: int,
    columns: Sequence[ColumnElement[Any]],
    asked: Asked | None = None,
    by_bounds_columns: Sequence[ColumnElement[Any]] | None = None,
) -> CompoundSelect[Any]:
    """`by_bounds_columns`: in the place of the others, for those that the bounds speak for."""
    is_of_table = and_(_files.table_id == table_id, _files.version <= version)
    of_table = select(*columns).where(is_of_table)
    still_live = of_table.where(_files.removed_version.is_(None))
    removed_later = of_table.where(_files.removed_version.is_not(None), _files.removed_version > version)
    if asked is None:
        parts = [still_live, removed_later]
    elif asked.is_by_partition:
        parts = [still_live.where(asked.whole), removed_later.where(asked.whole)]
    else:
        # Apart, not joined by OR: an index can answer the first, and which of the two is asked is settled once.
        # No index answers a CASE. Without statistics a planner takes the table's id for the rarer thing to ask for, and
        # would walk through every live file of the table.
        checked = case((is_of_table, true()), else_=false()) if asked.is_by_range else is_of_table
        by_bounds = select(*(by_bounds_columns or columns)).where(_files.removed_version.is_(None), checked)
        parts = [
            by_bounds.where(asked.is_current, asked.whole),
            still_live.where(not_(asked.is_current), asked.partition),
            removed_later.where(
                or_(and_(asked.is_current, asked.whole), and_(not_(asked.is_current), asked.partition))
            ),
        ]
    return union_all(*parts)


def _as_text(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Documents travel as their text."""
    return cast(column, Text).label(column.key) if isinstance(column.type, JSON) else column
