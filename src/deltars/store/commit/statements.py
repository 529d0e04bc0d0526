"""SQL statements of a commit, written once with SQLAlchemy Core and compiled once per backend.

    lock(n)          SELECT … FROM dl_tables WHERE table_id IN (…) ORDER BY table_id FOR UPDATE | SHARE
    write(shape)     the inserts of each kind of action present, dl_transactions, dl_table_versions, and last the
                     UPDATE of dl_tables: chained into one statement if the backend can, otherwise run in this order
    together(kinds)  the write of several commits to one table, each a version, as one chained statement

A single row of a table is sent as parameters, several rows as one JSON document. So the text of a statement depends
only on the commit's shape: it is prepared once, and values never become part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
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
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    true,
    type_coerce,
)
from sqlalchemy import Column as SaColumn
from sqlalchemy.dialects.postgresql import JSONB

from deltars.store import schema
from deltars.store.backends import Backend, Prepared
from deltars.store.rows import Row
from deltars.store.schema import (
    dl_add_files,
    dl_commit_times,
    dl_maintenance,
    dl_mirror_status,
    dl_table_versions,
    dl_tables,
    dl_transactions,
)

ADDS = dl_add_files.name
REMOVES = schema.dl_remove_files.name
METADATA = schema.dl_metadata_updates.name
PROTOCOL = schema.dl_protocol_updates.name
VERSIONS = dl_table_versions.name
TRANSACTION = dl_transactions.name
READS = schema.dl_reads.name

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
    dl_tables.c.location,
)

# Columns of the document about a table's new version. `last_ict` is the previous in-commit timestamp.
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
_VERSION_ROW = {*(column.name for column in dl_table_versions.c), "last_ict"}
"""Columns of that document that a new row of dl_table_versions depends on. The others are for new metadata."""
_FILE_KEY = tuple(SaColumn(name, dl_add_files.c[name].type) for name in ("table_id", "version", "path", "dv_id"))
_COLUMNS: dict[str, tuple[SaColumn[Any], ...]] = {
    VERSIONS: _VERSION_COLUMNS,
    TRANSACTION: tuple(dl_transactions.c),
    **{
        table.name: tuple(column for column in table.c if column.name != "removed_version")
        for table in (*schema.ACTION_TABLES, schema.dl_reads)
    },
}

CONDITIONS = "conditions"
"""Name of the row whose values are no table's: what a table must be like for a write that is sent with its lock."""
_CONDITION_NAMES = (
    "table_0",
    "is_blind",
    "expected",
    "base_ts",
    "expected_metadata",
    "expected_protocol",
    "expected_key",
    "allow_diverged",
)
_OWN_ROWS = frozenset({TRANSACTION, VERSIONS, CONDITIONS})

PLACE = SaColumn("place", Integer)
"""Column of rows of several commits: the number of the row's commit, from 0."""
_BASES = (SaColumn("version", BigInteger), SaColumn("commit_ts", BigInteger))

_encode = msgspec.json.Encoder().encode

_Parameter: TypeAlias = tuple[str, str, Callable[[Any], Any] | None]
"""Key of a row, name of its parameter, and the conversion of its value (None: sent unchanged)."""

_Source: TypeAlias = tuple[str, str, Callable[[Any], Any] | None]
"""Where a parameter's value is: the name of a table, the key of its row, and the conversion."""

_ALL_ROWS = ""
"""Key for all rows of a table, as one document."""
_CONSTANTS = "constants"
"""Name of the row of the statement's own constants."""


class Shape(NamedTuple):
    """Everything that determines the text of a commit's statements."""

    kinds: frozenset[str]
    """Action tables that receive rows."""
    loaded: frozenset[str] = frozenset()
    """Action tables whose rows are already inserted."""
    single: frozenset[str] = frozenset()
    """Tables with one row, whose values are parameters; several rows are sent as one JSON document."""
    at_once: bool = False
    """Whether the write is sent together with the lock, and takes what depends on the locked row from the row."""
    together: bool = False
    """Whether it writes several commits, whose rows have a `PLACE`. Set `at_once` too."""


class CommitStatements:
    """Statements of a commit; each is built and compiled on first use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._prepared: dict[Hashable, Prepared] = {}
        self._writes: dict[Shape, list[Prepared]] = {}
        self._single: dict[str, list[_Parameter]] = {}
        self._at_once: dict[Shape, tuple[Prepared, list[_Source]]] = {}

    def lock(self, count: int, *, shared: bool = False) -> Prepared:
        return self._once(("lock", count, shared), lambda: lock_tables(self._backend, count, shared=shared))

    def lock_and_stamp(self) -> Prepared:
        """Return the lock of one table with the commit's time stamp, for backends where a transaction is the lock."""
        after = dl_tables.c.last_commit_ts + literal_column("1")
        stamp = next_commit_ts(self._backend, after)
        return self._once("lock_and_stamp", lambda: lock_tables(self._backend, 1).add_columns(stamp))

    def clock(self) -> Prepared:
        """Return the statement that takes the commit's time stamp, for backends that do not chain writes."""
        return self._once("clock", lambda: select(next_commit_ts(self._backend)))

    def together(self, kinds: frozenset[str]) -> Prepared:
        """Return the write of several commits to one table, which took its lock in the same transaction."""
        [statement] = self.write(Shape(kinds, at_once=True, together=True))
        return statement

    def expected_by_all(self) -> Prepared:
        """Return the check of `together` alone, for backends that do not chain writes."""
        return self._once("expected_by_all", lambda: row_expected_by_all(self._backend))

    def supersede(self) -> Prepared:
        """Return the statement that ends the older live rows of the files that were just loaded."""
        return self._once("supersede", lambda: supersede_loaded(self._backend))

    def insert(self, name: str) -> Prepared:
        rows = _Writes(self._backend, Shape(frozenset({name})))
        return self._once(("insert", name), lambda: rows.insert(schema.metadata.tables[name]))

    def mark_removed(self) -> Prepared:
        rows = _Writes(self._backend, Shape(frozenset({REMOVES})))
        return self._once("mark_removed", lambda: rows.mark_removed(REMOVES).returning(dl_add_files.c.ord))

    def write(self, shape: Shape) -> list[Prepared]:
        """Return the statements that write a commit of this shape, in the order in which they run."""
        if shape not in self._writes:
            writes = _Writes(self._backend, shape)
            statements = writes.chained() if self._backend.chains_writes else writes.steps()
            self._writes[shape] = [self._backend.prepare(statement) for statement in statements]
        return self._writes[shape]

    def values(self, rows: Mapping[str, Sequence[Row]], single: frozenset[str]) -> dict[str, Any]:
        """Return the parameters that carry these rows."""
        values: dict[str, Any] = {}
        for name, documents in rows.items():
            if name not in single:
                values[f"rows_{name}"] = _as_document(documents)
                continue
            [row] = documents
            for key, parameter, plain in self._parameters(name):
                value = row.get(key)
                values[parameter] = value if plain is None or value is None else plain(value)
        return values

    def at_once(self, rows: Mapping[str, Sequence[Row]]) -> tuple[Prepared, list[Any]]:
        """Return the write that is sent with its lock, for these rows, and its values in their order.

        Values are taken directly from the rows: this is the most frequent statement.
        """
        kinds = frozenset([name for name in rows if name not in _OWN_ROWS])
        single = frozenset([name for name, documents in rows.items() if len(documents) == 1])
        shape = Shape(kinds, single=single, at_once=True)
        known = self._at_once.get(shape)
        if known is None:
            known = self._at_once[shape] = self._sources(shape)
        statement, sources = known
        given = {**rows, _CONSTANTS: [statement.constants]}
        values = []
        for name, key, plain in sources:
            value = given[name] if key == _ALL_ROWS else given[name][0].get(key)
            values.append(value if plain is None or value is None else plain(value))
        return statement, values

    def _sources(self, shape: Shape) -> tuple[Prepared, list[_Source]]:
        [statement] = self.write(shape)
        sources: dict[str, _Source] = {name: (_CONSTANTS, name, None) for name in statement.constants}
        for name in (*shape.kinds, TRANSACTION, VERSIONS):
            sources[f"rows_{name}"] = (name, _ALL_ROWS, _as_document)
            sources |= {parameter: (name, key, plain) for key, parameter, plain in self._parameters(name)}
        sources |= {name: (CONDITIONS, name, None) for name in _CONDITION_NAMES}
        return statement, [sources[name] for name in statement.names]

    def _parameters(self, name: str) -> list[_Parameter]:
        if name not in self._single:
            self._single[name] = [
                (column.name, f"{name}_{column.name}", self._backend.plain(column)) for column in _columns(name)
            ]
        return self._single[name]

    def _once(self, key: Hashable, build: Callable[[], Executable]) -> Prepared:
        if key not in self._prepared:
            self._prepared[key] = self._backend.prepare(build())
        return self._prepared[key]


def lock_tables(backend: Backend, count: int, *, shared: bool = False) -> Select[Any]:
    ids = [_id(backend, f"table_{i}") for i in range(count)]
    status = dl_mirror_status.c
    # The status row is not locked: if the table diverges while this commit waits, the next commit is refused.
    columns = (*LOCK_COLUMNS, state_key(backend), status.state, status.published_version)
    joined = dl_tables.outerjoin(dl_mirror_status, status.table_id == dl_tables.c.table_id)
    statement = select(*columns).select_from(joined).where(dl_tables.c.table_id.in_(ids)).order_by(dl_tables.c.table_id)
    return statement.with_for_update(read=shared, of=dl_tables) if backend.locks_rows else statement


def expected_row(backend: Backend) -> Select[Any]:
    """Return the locked row of the only table of a commit, with its next version, if the commit may be written.

    See `direct_commit`. The lock is held already: this statement sees what its last holder committed.
    """
    tables, versions = dl_tables.c, dl_table_versions.c
    expected, base_ts = (cast(bindparam(name, type_=BigInteger), BigInteger) for name in ("expected", "base_ts"))
    is_blind = cast(bindparam("is_blind", type_=Text()), Boolean)
    is_base = and_(versions.table_id == tables.table_id, versions.version == expected, versions.commit_ts == base_ts)
    is_unchanged = and_(tables.current_version == expected, or_(base_ts.is_(None), tables.last_commit_ts == base_ts))
    is_rebased = and_(
        is_blind,
        tables.current_version > expected,
        backend.greatest(tables.metadata_version, tables.protocol_version) <= expected,
        ~_is_expired(expected),
        or_(base_ts.is_(None), exists().where(is_base)),
    )
    return _row_in_expected_state(backend).where(or_(is_unchanged, is_rebased))


def row_expected_by_all(backend: Backend) -> Select[Any]:
    """Return the locked row of a table, with its next version, if several blind appends may follow.

    See `expected_row`. `lowest` and `highest` are the lowest and highest version that a commit expects. `bases` are the
    versions that the transactions began with, as far as they are known.
    """
    tables, versions = dl_tables.c, dl_table_versions.c
    lowest, highest = (cast(bindparam(name, type_=BigInteger), BigInteger) for name in ("lowest", "highest"))
    bases = backend.rows(bindparam("bases", type_=Text()), _BASES)
    is_there = exists().where(
        versions.table_id == tables.table_id,
        versions.version == bases.c.version,
        versions.commit_ts == bases.c.commit_ts,
    )
    replaced = select(bases.c.version).where(~is_there.correlate(dl_tables, bases))
    return _row_in_expected_state(backend).where(
        tables.current_version >= highest,
        backend.greatest(tables.metadata_version, tables.protocol_version) <= lowest,
        ~_is_expired(lowest),
        ~replaced.correlate(dl_tables).exists(),
    )


def _row_in_expected_state(backend: Backend) -> Select[Any]:
    """Return the locked row of a table, with its next version, if metadata, protocol and mirror are as expected."""
    tables, status = dl_tables.c, dl_mirror_status.c
    metadata, protocol = (
        cast(bindparam(name, type_=BigInteger), BigInteger) for name in ("expected_metadata", "expected_protocol")
    )
    allow_diverged = cast(bindparam("allow_diverged", type_=Text()), Boolean)
    is_diverged = exists().where(status.table_id == tables.table_id, status.state == literal_column("'diverged'"))
    return select(
        tables.table_id,
        (tables.current_version + literal_column("1")).label("version"),
        tables.last_ict,
        tables.last_commit_ts,
        tables.next_row_id,
        tables.slot,
    ).where(
        tables.table_id == _id(backend, "table_0"),
        tables.dropped_at.is_(None),
        tables.metadata_version == metadata,
        tables.protocol_version == protocol,
        state_key(backend) == cast(bindparam("expected_key", type_=Text()), Text),
        or_(allow_diverged, ~is_diverged),
    )


def _is_expired(version: ColumnElement[int]) -> ColumnElement[bool]:
    maintenance = dl_maintenance.c
    return exists().where(maintenance.table_id == dl_tables.c.table_id, maintenance.first_version > version)


def state_key(backend: Backend) -> ColumnElement[str | None]:
    """Return the id and time stamp of the commit that last changed a table's metadata or protocol.

    Version numbers are not enough: after a restore or a failover, the same number may belong to another commit. If
    that commit is expired, the key is that of the first one after it that is not. The key is NULL if that commit is
    newer than the statement's snapshot, which was taken before the wait for the lock.
    """
    versions = dl_table_versions.c
    last = backend.greatest(dl_tables.c.metadata_version, dl_tables.c.protocol_version)
    key = cast(versions.txn_id, Text).concat(literal_column("' '")).concat(cast(versions.commit_ts, Text))
    query = select(key).where(versions.table_id == dl_tables.c.table_id, versions.version >= last)
    return (
        query.order_by(versions.version)
        .limit(literal_column("1"))
        .correlate(dl_tables)
        .scalar_subquery()
        .label("state_key")
    )


def key_of(txn_id: UUID, commit_ts: int) -> str:
    """Return the `state_key` of a known commit."""
    return f"{txn_id} {commit_ts}"


def next_commit_ts(backend: Backend, floor: ColumnElement[int] | None = None) -> ColumnElement[int]:
    """Return a time stamp not before the clock or `floor`, and after every commit.

    `floor` is just after the last commit of the locked tables.
    """
    times = (dl_commit_times if backend.can_hide_rows else dl_transactions).c.commit_ts
    latest = select(func.coalesce(func.max(times), literal_column("0")) + literal_column("1"))
    least = cast(bindparam("floor", type_=BigInteger), BigInteger) if floor is None else floor
    return backend.greatest(backend.clock_us(), least, latest.scalar_subquery()).label("commit_ts")


def supersede_loaded(backend: Backend) -> Update:
    new = dl_add_files.alias("loaded")
    loaded = (
        select(new.c.table_id, new.c.path, new.c.dv_id, new.c.version)
        .where(
            new.c.table_id == _id(backend, "table_id"),
            new.c.version == cast(bindparam("version", type_=BigInteger), BigInteger),
        )
        .subquery("loaded_files")
    )
    return end_live_rows(backend, loaded)


def end_live_rows(backend: Backend, source: FromClause) -> Update:
    """Return the UPDATE that ends the live row of each file in `source`: `removed_version` becomes its `version`."""
    return backend.update_matching(
        dl_add_files,
        source,
        lambda files: and_(
            files.c.table_id == source.c.table_id,
            files.c.path == source.c.path,
            files.c.dv_id == source.c.dv_id,
            files.c.version != source.c.version,
            # With `IS NULL`, a planner without statistics might scan the partial index of all live files.
            func.coalesce(files.c.removed_version, literal_column("-1")) == literal_column("-1"),
        ),
        lambda row: {"removed_version": row.c.version},
    )


def _id(backend: Backend, name: str) -> ColumnElement[Any]:
    return backend.id_of(bindparam(name, type_=Text()))


def _columns(name: str) -> tuple[SaColumn[Any], ...]:
    return _COLUMNS[name]


def _as_document(rows: Sequence[Row]) -> str:
    return _encode(rows).decode()


class _Writes:
    """Builder of the statements that write a commit of one shape."""

    def __init__(self, backend: Backend, shape: Shape) -> None:
        self._backend = backend
        self._shape = shape
        expected = row_expected_by_all if shape.together else expected_row
        self._locked = expected(backend).cte("expected") if shape.at_once else None
        self._adds: FromClause | None = None

    def chained(self) -> list[Executable]:
        pending = self._shape.kinds - self._shape.loaded
        stamp = self._stamp().cte("stamp")
        commit_ts: ColumnElement[int] = select(stamp.c.commit_ts).scalar_subquery()
        removed: ColumnElement[int] = literal_column("0", Integer)
        if REMOVES in pending:
            gone = self.mark_removed(REMOVES).returning(dl_add_files.c.ord).cte("gone")
            removed = select(func.count()).select_from(gone).scalar_subquery()
        superseded = (
            [self.mark_removed(ADDS).returning(dl_add_files.c.ord).cte("superseded")] if ADDS in pending else []
        )
        inserted = [self.insert(schema.metadata.tables[name]).cte(f"into_{name}") for name in sorted(pending)]
        recorded = [
            self._insert_transaction(commit_ts).cte("into_transactions"),
            self._insert_versions(commit_ts).cte("into_versions"),
        ]
        update_tables = self._update_tables(commit_ts)
        if self._locked is None:
            last = update_tables.returning(commit_ts, removed)
        else:
            tables, begun = dl_tables.c, self._backend.begun_us()
            ended: ColumnElement[int] = literal_column("0", Integer)
            for files in superseded:
                ended = select(func.count()).select_from(files).scalar_subquery()
            last = update_tables.returning(tables.current_version, tables.last_commit_ts, begun, ended)
        return [last.add_cte(*superseded, *inserted, *recorded)]

    def _stamp(self) -> Select[Any]:
        if self._locked is None:
            return select(next_commit_ts(self._backend))
        after = self._locked.c.last_commit_ts + literal_column("1")
        return select(next_commit_ts(self._backend, after)).select_from(self._locked)

    def steps(self) -> list[Executable]:
        pending = self._shape.kinds - self._shape.loaded
        commit_ts: ColumnElement[int] = cast(bindparam("commit_ts", type_=BigInteger), BigInteger)
        steps: list[Executable] = []
        if REMOVES in pending:
            steps.append(self.mark_removed(REMOVES).returning(dl_add_files.c.ord))
        if ADDS in pending:
            steps.append(self.mark_removed(ADDS).returning(dl_add_files.c.ord))
        steps += [self.insert(schema.metadata.tables[name]) for name in sorted(pending)]
        steps.append(self._insert_transaction(commit_ts))
        steps.append(self._insert_versions(commit_ts))
        steps.append(self._update_tables(commit_ts))
        return steps

    def _rows(self, name: str, columns: Sequence[SaColumn[Any]]) -> FromClause:
        if self._locked is None:
            return self._given(name, columns)
        # The version in dl_reads is the one that was read.
        taken = [] if name == READS else [column for column in self._locked.c if column.name != "table_id"]
        known: dict[str, ColumnElement[Any]] = {column.name: column for column in taken}
        if self._shape.together:
            columns = [*columns, PLACE]
        given = self._given(name, [column for column in columns if column.name not in known])
        if self._shape.together and "version" in known:
            known["version"] = (self._locked.c.version + given.c.place).label("version")
        chosen = (known[column.name] if column.name in known else given.c[column.name] for column in columns)
        return select(*chosen).select_from(given.join(self._locked, true())).subquery()

    def _given(self, name: str, columns: Sequence[SaColumn[Any]]) -> FromClause:
        if self._shape.together and name == ADDS:
            return self._given_adds()
        if name in self._shape.single:
            return self._backend.row(name, columns)
        return self._backend.rows(bindparam(f"rows_{name}", type_=Text()), columns)

    def _given_adds(self) -> FromClause:
        """Return the added files of several commits, parsed once for the two parts of the statement that use them."""
        if self._adds is None:
            columns = [*(column for column in _columns(ADDS) if column.name not in ("version", "slot")), PLACE]
            self._adds = select(self._backend.rows(bindparam(f"rows_{ADDS}", type_=Text()), columns)).cte("given_adds")
        return self._adds

    def insert(self, table: Table) -> Any:
        columns = _columns(table.name)
        source = self._rows(table.name, columns)
        return insert(table).from_select(
            [column.name for column in columns], select(*(source.c[column.name] for column in columns))
        )

    def mark_removed(self, name: str) -> Update:
        """Return the UPDATE that ends the live row of each file that this version removes or adds again."""
        return end_live_rows(self._backend, self._rows(name, _FILE_KEY))

    def _insert_transaction(self, commit_ts: ColumnElement[int]) -> Any:
        given = [column for column in _columns(TRANSACTION) if self._locked is None or column.name != "participants"]
        rows = self._rows(TRANSACTION, [column for column in given if column.name != "commit_ts"])
        row: dict[str, ColumnElement[Any]] = {column.name: column for column in rows.c if column.name != PLACE.name}
        row["commit_ts"] = self._in_place(commit_ts, rows)
        if self._locked is not None:
            version = self._in_place(select(self._locked.c.version).scalar_subquery(), rows)
            row["participants"] = func.jsonb_build_object(bindparam("table_0", type_=Text()), version)
            # The time stamp was taken when the lock was there. NULL, which means not to record, stays NULL.
            waited = func.jsonb_build_object(literal_column("'lock'"), commit_ts - self._backend.begun_us())
            row["stages"] = type_coerce(rows.c.stages, JSONB()).concat(waited)
        return insert(dl_transactions).from_select(list(row), select(*row.values()))

    def _insert_versions(self, commit_ts: ColumnElement[int]) -> Any:
        rows = self._rows(
            VERSIONS, [column for column in _columns(VERSIONS) if self._locked is None or column.name in _VERSION_ROW]
        )
        row: dict[str, ColumnElement[Any]] = {
            column.name: rows.c[column.name] for column in dl_table_versions.c if column.name in rows.c
        }
        own_ts = self._in_place(commit_ts, rows)
        row["committed_at"] = self._backend.instant(own_ts)
        row["commit_ts"] = own_ts
        # Not the formula for each row: versions of the same millisecond would get the same one.
        row["in_commit_timestamp"] = self._in_place(self._in_commit_timestamp(commit_ts, rows), rows)
        return insert(dl_table_versions).from_select(list(row), select(*row.values()))

    def _update_tables(self, commit_ts: ColumnElement[int]) -> Update:
        source = self._rows(VERSIONS, _columns(VERSIONS)) if self._locked is None else self._locked

        def values(row: FromClause) -> dict[str, Any]:
            new: dict[str, Any] = {
                "current_version": self._last(row.c.version),
                "last_commit_ts": self._last(commit_ts),
                "last_ict": self._last(self._in_commit_timestamp(commit_ts, row)),
                "next_row_id": row.c.next_row_id,
            }
            if METADATA in self._shape.kinds:
                new["metadata_version"] = row.c.metadata_version
                new["properties"] = func.coalesce(row.c.properties, dl_tables.c.properties)
            if PROTOCOL in self._shape.kinds:
                new["protocol_version"] = row.c.protocol_version
                for name in ("min_reader_version", "min_writer_version", "reader_features", "writer_features"):
                    new[name] = func.coalesce(row.c[name], dl_tables.c[name])
            return new

        return self._backend.update_matching(
            dl_tables, source, lambda tables: tables.c.table_id == source.c.table_id, values
        )

    def _in_place(self, first: ColumnElement[int], rows: FromClause) -> ColumnElement[int]:
        """Return the value of each commit, given that of the first. The values of several commits count up."""
        return first + rows.c.place if self._shape.together else first

    def _last(self, first: ColumnElement[int]) -> ColumnElement[int]:
        """Return the value of the last commit, given that of the first."""
        if not self._shape.together:
            return first
        return first + cast(bindparam("last_place", type_=BigInteger), BigInteger)

    def _in_commit_timestamp(self, commit_ts: ColumnElement[int], rows: FromClause) -> ColumnElement[int]:
        thousand = literal_column("1000", Integer)
        # Exact for integer division (PostgreSQL, SQLite) and for division into a double (DuckDB).
        milliseconds = cast((commit_ts - commit_ts % thousand).op("/", precedence=15)(thousand), BigInteger)
        return self._backend.greatest(milliseconds, rows.c.last_ict + literal_column("1"))
