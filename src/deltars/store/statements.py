"""The statements of a commit, written once in Core and compiled once a backend.

    lock(n)          SELECT … FROM dl_tables WHERE table_id IN (…) ORDER BY table_id FOR UPDATE
    write(kinds)     the inserts of each kind of action present, dl_transactions, dl_table_versions, and last the
                     UPDATE of dl_tables: chained into one statement where the backend can, else one after the other

Rows travel as one JSON document a table, so a statement's text depends on which kinds of action there are and on
nothing else: it is prepared once, and no value ever becomes part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Executable,
    FromClause,
    Integer,
    Select,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    cast,
    func,
    insert,
    literal_column,
    select,
)
from sqlalchemy import Column as SaColumn

from deltars.store import schema
from deltars.store.backends import Backend, Prepared
from deltars.store.schema import dl_add_files, dl_table_versions, dl_tables, dl_transactions

ADDS = dl_add_files.name
REMOVES = schema.dl_remove_files.name
METADATA = schema.dl_metadata_updates.name
PROTOCOL = schema.dl_protocol_updates.name
VERSIONS = dl_table_versions.name
TRANSACTION = dl_transactions.name

LOCK_COLUMNS = (
    dl_tables.c.table_id,
    dl_tables.c.name,
    dl_tables.c.current_version,
    dl_tables.c.metadata_version,
    dl_tables.c.protocol_version,
    dl_tables.c.last_commit_ts,
    dl_tables.c.last_ict,
    dl_tables.c.next_row_id,
    dl_tables.c.slot,
    dl_tables.c.dropped_at,
)

# What a commit says of one table's new version. `last_ict` is the one before it.
_VERSION_COLUMNS: tuple[SaColumn[Any], ...] = (
    *(
        SaColumn(column.name, column.type)
        for column in dl_table_versions.c
        if column.name not in ("committed_at", "commit_ts", "in_commit_timestamp")
    ),
    *(
        SaColumn(name, dl_tables.c[name].type)
        for name in (
            "last_ict",
            "metadata_version",
            "protocol_version",
            "next_row_id",
            "min_reader_version",
            "min_writer_version",
            "reader_features",
            "writer_features",
            "properties",
        )
    ),
)
_FILE_KEY = tuple(SaColumn(name, dl_add_files.c[name].type) for name in ("table_id", "version", "path", "dv_id"))


class CommitStatements:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._prepared: dict[Hashable, Prepared] = {}
        self._writes: dict[Hashable, list[Prepared]] = {}

    def lock(self, count: int) -> Prepared:
        return self._once(("lock", count), lambda: self._lock(count))

    def clock(self) -> Prepared:
        """The commit's time stamp, where it is taken in a statement of its own."""
        return self._once("clock", lambda: select(self._next_commit_ts))

    def supersede(self) -> Prepared:
        """After files were loaded: the older live rows of the same files end with this version."""
        return self._once("supersede", self._supersede)

    def insert(self, name: str) -> Prepared:
        return self._once(("insert", name), lambda: self._insert(schema.metadata.tables[name]))

    def mark_removed(self) -> Prepared:
        return self._once("mark_removed", lambda: self._mark_removed(REMOVES).returning(dl_add_files.c.ord))

    def write(self, kinds: frozenset[str], loaded: frozenset[str]) -> list[Prepared]:
        """In the order in which they run. `kinds`: the action tables with rows; `loaded`: those filled already."""
        key = (kinds, loaded)
        if key not in self._writes:
            statements = self._chained(kinds, loaded) if self._backend.chains_writes else self._steps(kinds, loaded)
            self._writes[key] = [self._backend.prepare(statement) for statement in statements]
        return self._writes[key]

    def _once(self, key: Hashable, build: Callable[[], Executable]) -> Prepared:
        if key not in self._prepared:
            self._prepared[key] = self._backend.prepare(build())
        return self._prepared[key]

    def _supersede(self) -> Update:
        new = dl_add_files.alias("loaded")
        loaded = (
            select(new.c.table_id, new.c.path, new.c.dv_id, new.c.version)
            .where(
                new.c.table_id == self._id("table_id"),
                new.c.version == cast(bindparam("version", type_=BigInteger), BigInteger),
            )
            .subquery("loaded_files")
        )
        return self._end_live_rows(loaded)

    def _id(self, name: str) -> ColumnElement[Any]:
        return self._backend.id_of(bindparam(name, type_=Text()))

    def _lock(self, count: int) -> Select[Any]:
        ids = [self._id(f"table_{i}") for i in range(count)]
        statement = select(*LOCK_COLUMNS).where(dl_tables.c.table_id.in_(ids)).order_by(dl_tables.c.table_id)
        return statement.with_for_update() if self._backend.locks_rows else statement

    @cached_property
    def _next_commit_ts(self) -> ColumnElement[int]:
        """Later than the clock, than everything committed, and than every locked table's last commit."""
        latest = select(func.coalesce(func.max(dl_transactions.c.commit_ts), literal_column("0")) + literal_column("1"))
        floor = cast(bindparam("floor", type_=BigInteger), BigInteger)
        return self._backend.greatest(self._backend.clock_us(), floor, latest.scalar_subquery()).label("commit_ts")

    def _chained(self, kinds: frozenset[str], loaded: frozenset[str]) -> list[Executable]:
        stamp = select(self._next_commit_ts).cte("stamp")
        commit_ts: ColumnElement[int] = select(stamp.c.commit_ts).scalar_subquery()
        removed: ColumnElement[int] = literal_column("0", Integer)
        if REMOVES in kinds - loaded:
            gone = self._mark_removed(REMOVES).returning(dl_add_files.c.ord).cte("gone")
            removed = select(func.count()).select_from(gone).scalar_subquery()
        superseded = [self._mark_removed(ADDS).cte("superseded")] if ADDS in kinds - loaded else []
        inserted = [self._insert(schema.metadata.tables[name]).cte(f"into_{name}") for name in sorted(kinds - loaded)]
        recorded = [
            self._insert_transaction(commit_ts).cte("into_transactions"),
            self._insert_versions(commit_ts).cte("into_versions"),
        ]
        last = self._update_tables(kinds, commit_ts).returning(commit_ts, removed)
        return [last.add_cte(*superseded, *inserted, *recorded)]

    def _steps(self, kinds: frozenset[str], loaded: frozenset[str]) -> list[Executable]:
        commit_ts: ColumnElement[int] = cast(bindparam("commit_ts", type_=BigInteger), BigInteger)
        steps: list[Executable] = []
        if REMOVES in kinds - loaded:
            steps.append(self._mark_removed(REMOVES).returning(dl_add_files.c.ord))
        if ADDS in kinds - loaded:
            steps.append(self._mark_removed(ADDS))
        steps += [self._insert(schema.metadata.tables[name]) for name in sorted(kinds - loaded)]
        steps.append(self._insert_transaction(commit_ts))
        steps.append(self._insert_versions(commit_ts))
        steps.append(self._update_tables(kinds, commit_ts))
        return steps

    def _document(self, name: str) -> Any:
        return bindparam(f"rows_{name}", type_=Text())

    def _insert(self, table: Table) -> Any:
        columns = [column for column in table.c if column.name != "removed_version"]
        source = self._backend.rows(self._document(table.name), columns)
        return insert(table).from_select(
            [column.name for column in columns], select(*(source.c[column.name] for column in columns))
        )

    def _mark_removed(self, name: str) -> Update:
        """The live row of each file that is removed, or added anew, ends with this version."""
        return self._end_live_rows(self._backend.rows(self._document(name), _FILE_KEY))

    def _end_live_rows(self, source: FromClause) -> Update:
        return self._backend.update_matching(
            dl_add_files,
            source,
            lambda files: and_(
                files.c.table_id == source.c.table_id,
                files.c.path == source.c.path,
                files.c.dv_id == source.c.dv_id,
                files.c.version != source.c.version,
                # Not `IS NULL`: that would let a planner without statistics walk a partial index of all live files.
                func.coalesce(files.c.removed_version, literal_column("-1")) == literal_column("-1"),
            ),
            lambda row: {"removed_version": row.c.version},
        )

    def _insert_transaction(self, commit_ts: ColumnElement[int]) -> Any:
        rows = self._backend.rows(self._document(TRANSACTION), list(dl_transactions.c))
        row = {column.name: rows.c[column.name] for column in dl_transactions.c} | {"commit_ts": commit_ts}
        return insert(dl_transactions).from_select(list(row), select(*row.values()))

    def _insert_versions(self, commit_ts: ColumnElement[int]) -> Any:
        rows = self._backend.rows(self._document(VERSIONS), _VERSION_COLUMNS)
        row: dict[str, ColumnElement[Any]] = {
            column.name: rows.c[column.name] for column in dl_table_versions.c if column.name in rows.c
        }
        row["committed_at"] = self._backend.instant(commit_ts)
        row["commit_ts"] = commit_ts
        row["in_commit_timestamp"] = self._in_commit_timestamp(commit_ts, rows)
        return insert(dl_table_versions).from_select(list(row), select(*row.values()))

    def _update_tables(self, kinds: frozenset[str], commit_ts: ColumnElement[int]) -> Update:
        source = self._backend.rows(self._document(VERSIONS), _VERSION_COLUMNS)

        def values(row: FromClause) -> dict[str, Any]:
            new: dict[str, Any] = {
                "current_version": row.c.version,
                "last_commit_ts": commit_ts,
                "last_ict": self._in_commit_timestamp(commit_ts, row),
                "next_row_id": row.c.next_row_id,
            }
            if METADATA in kinds:
                new["metadata_version"] = row.c.metadata_version
                new["properties"] = func.coalesce(row.c.properties, dl_tables.c.properties)
            if PROTOCOL in kinds:
                new["protocol_version"] = row.c.protocol_version
                for name in ("min_reader_version", "min_writer_version", "reader_features", "writer_features"):
                    new[name] = func.coalesce(row.c[name], dl_tables.c[name])
            return new

        return self._backend.update_matching(
            dl_tables, source, lambda tables: tables.c.table_id == source.c.table_id, values
        )

    def _in_commit_timestamp(self, commit_ts: ColumnElement[int], rows: FromClause) -> ColumnElement[int]:
        thousand = literal_column("1000", Integer)
        # Exact whether `/` divides integers (PostgreSQL, SQLite) or makes a double (DuckDB).
        milliseconds = cast((commit_ts - commit_ts % thousand).op("/", precedence=15)(thousand), BigInteger)
        return self._backend.greatest(milliseconds, rows.c.last_ict + literal_column("1"))
