"""The statements of a commit, written once in Core and compiled once a backend.

    lock(n)          SELECT … FROM dl_tables WHERE table_id IN (…) ORDER BY table_id FOR UPDATE
    write(kinds)     the inserts of each kind of action present, dl_transactions, dl_table_versions, and last the
                     UPDATE of dl_tables: chained into one statement where the backend can, else one after the other

Rows travel as one JSON document a table, so a statement's text depends on which kinds of action there are and on
nothing else: it is prepared once, and no value ever becomes part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    FromClause,
    Integer,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy import Column as SaColumn

from deltars.store import schema
from deltars.store.backends import Backend
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

# Not `IS NULL`: that would let a planner without statistics walk a partial index of all live files.
_is_live = func.coalesce(dl_add_files.c.removed_version, literal_column("-1")) == literal_column("-1")


class Prepared:
    """A compiled statement, run on the driver's own cursor: nothing is compiled or looked up again."""

    def __init__(self, statement: Executable, connection: Connection) -> None:
        schemas = connection.get_execution_options().get("schema_translate_map")
        options = {"schema_translate_map": schemas, "render_schema_translate": True} if schemas else {}
        compiled = statement.compile(dialect=connection.dialect, **options)  # type: ignore[attr-defined]
        self.text: str = str(compiled)
        self._order: tuple[str, ...] | None = tuple(compiled.positiontup) if compiled.positiontup is not None else None
        self._constants: dict[str, Any] = {k: v for k, v in compiled.params.items() if v is not None}

    def run(self, connection: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor = connection.connection.cursor()
        try:
            if self._order is None:
                cursor.execute(self.text, {**self._constants, **values})
            else:
                constants = self._constants
                cursor.execute(
                    self.text,
                    [values[name] if name in values else constants.get(name) for name in self._order],
                )
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()


class CommitStatements:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._prepared: dict[Any, Any] = {}

    def lock(self, connection: Connection, count: int) -> Prepared:
        key = ("lock", count)
        if key not in self._prepared:
            self._prepared[key] = Prepared(self._lock(count), connection)
        found: Prepared = self._prepared[key]
        return found

    def clock(self, connection: Connection) -> Prepared:
        """The commit's time stamp, where it is taken in a statement of its own."""
        if "clock" not in self._prepared:
            self._prepared["clock"] = Prepared(select(self._next_commit_ts), connection)
        found: Prepared = self._prepared["clock"]
        return found

    def write(self, connection: Connection, kinds: frozenset[str], loaded: frozenset[str]) -> list[Prepared]:
        """In the order in which they run. `kinds`: the action tables with rows; `loaded`: those filled already."""
        key = (kinds, loaded)
        if key not in self._prepared:
            statements = self._chained(kinds, loaded) if self._backend.chains_writes else self._steps(kinds, loaded)
            self._prepared[key] = [Prepared(statement, connection) for statement in statements]
        found: list[Prepared] = self._prepared[key]
        return found

    def supersede(self, connection: Connection) -> Prepared:
        """After files were loaded: the older live rows of the same files end with this version."""
        if "supersede" not in self._prepared:
            new = dl_add_files.alias("loaded")
            statement = (
                update(dl_add_files)
                .values(removed_version=new.c.version)
                .where(
                    new.c.table_id == self._id("table_id"),
                    new.c.version == cast(bindparam("version", type_=BigInteger), BigInteger),
                    dl_add_files.c.table_id == new.c.table_id,
                    dl_add_files.c.path == new.c.path,
                    dl_add_files.c.dv_id == new.c.dv_id,
                    dl_add_files.c.version < new.c.version,
                    _is_live,
                )
            )
            self._prepared["supersede"] = Prepared(statement, connection)
        found: Prepared = self._prepared["supersede"]
        return found

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
        if REMOVES in kinds:
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
        if REMOVES in kinds:
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

    def _mark_removed(self, name: str) -> Any:
        """The live row of each file that is removed, or added anew, ends with this version."""
        source = self._backend.rows(self._document(name), _FILE_KEY)
        return (
            update(dl_add_files)
            .values(removed_version=source.c.version)
            .where(
                dl_add_files.c.table_id == source.c.table_id,
                dl_add_files.c.path == source.c.path,
                dl_add_files.c.dv_id == source.c.dv_id,
                _is_live,
            )
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

    def _update_tables(self, kinds: frozenset[str], commit_ts: ColumnElement[int]) -> Any:
        rows = self._backend.rows(self._document(VERSIONS), _VERSION_COLUMNS)
        values: dict[str, Any] = {
            "current_version": rows.c.version,
            "last_commit_ts": commit_ts,
            "last_ict": self._in_commit_timestamp(commit_ts, rows),
            "next_row_id": rows.c.next_row_id,
        }
        if METADATA in kinds:
            values["metadata_version"] = rows.c.metadata_version
            values["properties"] = func.coalesce(rows.c.properties, dl_tables.c.properties)
        if PROTOCOL in kinds:
            values["protocol_version"] = rows.c.protocol_version
            for name in ("min_reader_version", "min_writer_version", "reader_features", "writer_features"):
                values[name] = func.coalesce(rows.c[name], dl_tables.c[name])
        return update(dl_tables).values(values).where(dl_tables.c.table_id == rows.c.table_id)

    def _in_commit_timestamp(self, commit_ts: ColumnElement[int], rows: FromClause) -> ColumnElement[int]:
        thousand = literal_column("1000", Integer)
        # Exact whether `/` divides integers (PostgreSQL, SQLite) or makes a double (DuckDB).
        milliseconds = cast((commit_ts - commit_ts % thousand).op("/", precedence=15)(thousand), BigInteger)
        return self._backend.greatest(milliseconds, rows.c.last_ict + literal_column("1"))
