"""Contents of a table at one version: live files, row groups, application transactions, domain metadata.

A file is live at V if it was added at V or before and was not removed, or was removed after V: two index ranges.
Rows committed at V or before never change, except that a later commit may move a file from the first range to the
second. So the result is the same at any time and in every session, and a snapshot holds no connection.

The history may be expired while a snapshot is held. The row of V in `dl_table_versions` goes before any other row that
V needs. So every query here returns nothing without that row, and an empty result is checked: a read is complete, or
fails with `HistoryExpired`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Protocol
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
    exists,
    false,
    func,
    literal,
    not_,
    null,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.sql.elements import False_, True_

from deltars.log.arrow_values import batch_of
from deltars.log.pruning import Pruner
from deltars.log.snapshot import FILE_SCHEMA, ROW_GROUP_SCHEMA, Totals, file_schema
from deltars.predicate import Predicate
from deltars.protocol import DomainMetadata, Metadata, Txn
from deltars.store.backends import Backend, Query
from deltars.store.database import Readable
from deltars.store.file_search import probes
from deltars.store.read.file_conditions import (
    Named,
    Parameter,
    count_values,
    valued,
    values_of,
)
from deltars.store.read.filter_sql import FileConditions, conditions_of, shape_of_filter, table_id_of, way_of
from deltars.store.read.pruning import FileFilter, file_filter
from deltars.store.read.version_header import version_not_found
from deltars.store.rows import from_row
from deltars.store.schema import (
    dl_add_files,
    dl_domain_metadata,
    dl_row_groups,
    dl_table_versions,
    dl_txn_actions,
)

_PRUNER_COLUMNS = file_schema(("partition_values", "stats", "num_records"))
"""Columns that `Pruner` needs to decide about a file."""
_CERTAIN = pa.field("certain", pa.bool_(), nullable=False)
"""Column that is true if the bounds alone show that a file matches."""


MAX_VALUES = 64
"""Most values of a statement that is kept: every number of values takes another statement."""


_files, _groups, _versions = dl_add_files.c, dl_row_groups.c, dl_table_versions.c


@dataclass(frozen=True, slots=True)
class TableContents:
    """Contents of a table at a version, as `Snapshot` reads them."""

    database: Readable
    table_id: UUID
    version: int
    slot: int
    metadata: Metadata
    metadata_version: int

    def batches(self, columns: pa.Schema, where: Predicate | None) -> Iterator[pa.RecordBatch]:
        if where is None:
            query = live_files(self.table_id, self.version, columns.names)
            return self._required(self.database.fetch(query, columns, may_be_large=True))
        fetched, names = _fetched_with(tuple(columns.names)), columns.names
        with_stats = "stats" in names

        def build(table_id: Any, version: Any, conditions: FileConditions) -> CompoundSelect[Any]:
            return filtered_files(table_id, version, fetched.names[:-1], conditions, with_stats=with_stats)

        found = self._required(self._found(where, fetched, ("files", *names), build))
        return self._kept(found, where, columns)

    def row_groups(self, where: Predicate | None) -> Iterator[pa.RecordBatch]:
        if where is None:
            return self._required(self.database.fetch(row_groups(self.table_id, self.version), ROW_GROUP_SCHEMA))
        found = self._required(self._found(where, ROW_GROUP_SCHEMA, "row groups", row_groups))
        return self._kept(found, where, ROW_GROUP_SCHEMA)

    def _found(self, where: Predicate, columns: pa.Schema, what: Hashable, build: _Build) -> Iterator[pa.RecordBatch]:
        """Yield the files of a query. Its statement is kept for all predicates of the same shape."""
        asked, backend = file_filter(where, self.metadata), self.database.backend
        values, is_kept = self.values(asked), count_values(asked.whole) <= MAX_VALUES
        key, most = (what, shape_of_filter(asked)), backend.few_rows
        if is_kept and most is not None and way_of(asked, backend) is not None:
            few = backend.prepared_once(("few", *key), lambda: _query(build, asked, backend, Named, most))
            rows = self.database.look_up(few, values)
            if len(rows) <= most:
                yield batch_of(rows, columns)
                return
        if is_kept:
            statement = backend.prepared_once(key, lambda: _query(build, asked, backend, Named))
        else:
            statement = backend.prepare(_query(build, asked, backend, lambda _: valued))
        yield from self.database.find(statement, values, columns)

    def values(self, asked: FileFilter) -> dict[str, Any]:
        """Return the values of the parameters of a query by this filter."""
        values: dict[str, Any] = {
            "table": str(self.table_id),
            "version": self.version,
            "layout": self.metadata_version,
            "slot": self.slot,
            **values_of(asked.whole, "whole"),
            **values_of(asked.partition, "partition"),
            **values_of(asked.certain, "certain"),
        }
        if asked.intervals is not None:
            values["probes"] = probes(asked.intervals, self.slot)
        return values

    def _required(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        is_empty = True
        for batch in batches:
            is_empty = is_empty and batch.num_rows == 0
            yield batch
        if is_empty:
            self._require_version()

    def _require_version(self) -> None:
        """Raise `HistoryExpired` if the version was expired since the snapshot was taken."""
        with self.database.read() as connection:
            if not connection.scalar(select(version_exists(self.table_id, self.version))):
                raise version_not_found(connection, self.table_id, self.version)

    def _kept(
        self, batches: Iterator[pa.RecordBatch], where: Predicate, columns: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the files that may hold a matching row, decided exactly; the database's condition keeps some more."""
        pruner = None
        for batch in batches:
            certain = batch[_CERTAIN.name] if _CERTAIN.name in batch.schema.names else None
            if certain is None or certain.false_count:
                pruner = pruner or Pruner(where, self.metadata)
                is_kept = _is_kept(batch, certain, pruner)
                batch = batch.filter(is_kept) if is_kept.false_count else batch
            if batch.num_rows:
                yield batch.select(columns.names)

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
        if row[0] == 0:
            self._require_version()
        return Totals(row[0], int(row[2]), int(row[3]) if row[0] == row[1] else None)

    def txns(self) -> dict[str, Txn]:
        return {txn.app_id: txn for txn in self._newest(dl_txn_actions, "app_id")}

    def domains(self) -> dict[str, DomainMetadata]:
        return {entry.domain: entry for entry in self._newest(dl_domain_metadata, "domain") if not entry.removed}

    def _newest(self, table: Table, key: str) -> list[Any]:
        """Return the newest action of each key."""
        query, values = _newest_of_each(table, key), {"table": self.table_id, "last": self.version}
        with self.database.read() as connection:
            found = [from_row(table.name, row) for row in connection.execute(query, values).mappings()]
        if not found:
            self._require_version()
        return found


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
    query = select(table).join(seen, newest).where(table.c.table_id == table_id, version_exists(table_id, last))
    return query.order_by(table.c[key])


class _Build(Protocol):
    """Builds a query for files, from the parameters for a table and a version, and conditions."""

    def __call__(
        self, table_id: Any, version: Any, conditions: FileConditions, /
    ) -> Select[Any] | CompoundSelect[Any]: ...


def _query(
    build: _Build,
    asked: FileFilter,
    backend: Backend,
    parameters: Callable[[str], Parameter],
    most: int | None = None,
) -> Query:
    """Return the query for the files of a filter; with `most`, for one more than so many of them."""
    conditions = conditions_of(asked, backend, parameters, most)
    query = build(table_id_of(backend), bindparam("version", type_=BigInteger()), conditions)
    return query if most is None else query.limit(literal(most + 1, BigInteger()))


@lru_cache(maxsize=100)
def _fetched_with(names: tuple[str, ...]) -> pa.Schema:
    """Return the columns that are fetched for these: those that `Pruner` needs, and at the end `_CERTAIN`."""
    return pa.unify_schemas([file_schema(names), _PRUNER_COLUMNS]).append(_CERTAIN)


def version_exists(table_id: Any, version: Any) -> ColumnElement[bool]:
    """Return the condition that a version was not expired."""
    return exists().where(_versions.table_id == table_id, _versions.version == version)


def live_files(table_id: Any, version: Any, columns: Sequence[str] = FILE_SCHEMA.names) -> CompoundSelect[Any]:
    """Return the query for the live files of a table at a version."""
    return _live(table_id, version, [_as_text(_files[name]) for name in columns])


def filtered_files(
    table_id: Any, version: Any, columns: Sequence[str], conditions: FileConditions, *, with_stats: bool
) -> CompoundSelect[Any]:
    """Return the query for the live files that may match, with a column that tells which certainly match.

    Without `with_stats`, the statistics of files that certainly match are not fetched.
    """
    doubtful = [_as_text(_files[name]) for name in columns]
    if with_stats or isinstance(conditions.certain, False_):
        certain = doubtful
    else:
        stats = case((conditions.certain, null()), else_=_files.stats).label("stats")
        certain = [stats if column.key == "stats" else column for column in doubtful]
    by_bounds = [*certain, conditions.certain.label(_CERTAIN.name)]
    return _live(table_id, version, [*doubtful, false().label(_CERTAIN.name)], conditions, by_bounds)


def _is_kept(batch: pa.RecordBatch, certain: pa.BooleanArray | None, pruner: Pruner) -> pa.Array:
    if certain is None or not certain.true_count:
        return pruner.keep(pa.Table.from_batches([batch]))
    doubtful = pc.invert(certain)
    return pc.replace_with_mask(certain, doubtful, pruner.keep(pa.Table.from_batches([batch.filter(doubtful)])))


def row_groups(table_id: Any, version: Any, conditions: FileConditions | None = None) -> Select[Any]:
    """Return the query for the row groups of the live files at a version, in their order in each file."""
    columns_of_files = [_files.version, _files.ord, _files.path, _as_text(_files.partition_values)]
    live = _live(table_id, version, columns_of_files, conditions)
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
    table_id: Any,
    version: Any,
    columns: Sequence[ColumnElement[Any]],
    conditions: FileConditions | None = None,
    by_bounds_columns: Sequence[ColumnElement[Any]] | None = None,
) -> CompoundSelect[Any]:
    """Return the query for live files. `by_bounds_columns` replaces `columns` where files are filtered by bounds."""
    is_there, is_past = version_exists(table_id, version), _files.version <= version
    is_of_table = and_(_files.table_id == table_id, is_past)
    is_live = _files.removed_version.is_(None)
    of_table = select(*columns).where(is_of_table, is_there)
    removed_later = of_table.where(_files.removed_version.is_not(None), _files.removed_version > version)
    if conditions is None:
        return union_all(of_table.where(is_live), removed_later)
    current, whole, partition = conditions.is_current, conditions.whole, conditions.partition
    # Separate selects instead of OR: an index can answer each, and conditions on the table are evaluated once.
    wanted = select(*(by_bounds_columns or columns)).where(is_live, is_there, whole)
    if not conditions.is_by_partition:
        wanted = wanted.where(current)
    search = conditions.search
    if search is None:
        parts = [wanted.where(is_of_table)]
    else:
        # The CASE keeps the planner off the index on table_id, which no CASE can use: without statistics the planner
        # considers table_id more selective than the search, and would scan every live file of the table.
        checked = case((is_of_table, true()), else_=false())
        parts = [wanted.where(search.is_hit, checked)]
        if not isinstance(search.applies, True_):
            is_scanned = conditions.equals_if(not_(search.applies), _files.table_id, table_id)
            parts.append(wanted.where(is_scanned, is_past))
    if conditions.is_by_partition:
        return union_all(*parts, removed_later.where(whole))
    is_outdated = conditions.equals_if(not_(current), _files.table_id, table_id)
    return union_all(
        *parts,
        select(*columns).where(is_live, is_there, is_outdated, is_past, partition),
        removed_later.where(or_(and_(current, whole), and_(not_(current), partition))),
    )


def _as_text(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return JSON columns cast to text, and other columns unchanged."""
    return cast(column, Text).label(column.key) if isinstance(column.type, JSON) else column
