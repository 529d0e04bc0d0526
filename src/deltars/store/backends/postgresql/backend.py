"""PostgreSQL backend. It locks single rows, so transactions over disjoint tables do not wait for each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from hashlib import sha256
from select import POLLIN, poll
from typing import Any, TextIO

import psycopg
import pyarrow as pa
from psycopg import Copy, sql
from psycopg.conninfo import make_conninfo
from psycopg.copy import QueuedLibpqWriter
from psycopg.pq import Conninfo, ConnStatus
from sqlalchemy import (
    JSON,
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    Engine,
    Executable,
    FromClause,
    Select,
    Table,
    Text,
    Update,
    any_,
    case,
    cast,
    collate,
    create_engine,
    event,
    func,
    literal,
    literal_column,
    select,
    true,
    update,
)
from sqlalchemy import column as sa_column
from sqlalchemy import exc as sa_exc
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.pool import ConnectionPoolEntry

from deltars.errors import DatabaseError, DeltarsError, SchemaVersionError, TimeoutError
from deltars.store.backends.base import Backend, Opening, Query, Rows, StatementRefused, first_line
from deltars.store.backends.pool import AnyConnection, BareConnection, WatchedPool, pool_of
from deltars.store.backends.postgresql import copy_in
from deltars.store.backends.postgresql.adbc import IS_INSTALLED, Adbc
from deltars.store.backends.postgresql.copy_out import copy_batches
from deltars.store.backends.postgresql.deadlines import PLANS, begin, dialect, settle
from deltars.store.backends.postgresql.pipeline import (
    Step,
    driver_of,
    prepare,
    rows_of,
    rows_of_each,
    run_pipeline,
    step,
)
from deltars.store.backends.postgresql.tls import HINT as TLS_HINT
from deltars.store.backends.postgresql.tls import with_verified_tls
from deltars.store.backends.prepared import Given, Prepared, compiled_statements

LARGE_ROWS = 10_000
"""Number of rows from which ADBC's faster stream is worth a separate session."""

_BEGIN_READING = Step(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_END = Step(b"COMMIT")

_TIMEOUTS = {
    "55P03": "another transaction held the table's lock for longer than the timeout allows",
    "57014": "a statement ran longer than the timeout allows",
    "25P03": "the transaction was idle for longer than its timeout allows",
    "25P04": "the transaction ran longer than its timeout allows",
}
_RETRYABLE = {
    "40001": "the database could not serialise the transaction",
    "40P01": "the database ended this transaction to resolve a deadlock",
    "57P01": "the database ended the connection",
    "57P02": "the database crashed",
    "57P03": "the database is starting up or shutting down",
    "57P05": "the database ended an idle connection",
    "53300": "the database has no free connections",
}

_POOLER = (
    "A pooler gave the transaction another session than the one in which the statement was prepared. Use PgBouncer 1.21"
    " or newer with max_prepared_statements above 0, or session pooling; nothing was changed."
)
_HINTS = {
    "42501": "Grant the role its rights: deltars migrate grants --reader | --writer | --mirror ROLE",
    "53100": "The server's disk is full: make room and try again; nothing was changed.",
    "25006": "Connect to the primary (target_session_attrs=read-write).",
    "26000": _POOLER,
    "42P05": _POOLER,
}


class PostgreSQL(Backend):
    name = "postgres"
    dialect = "postgresql"
    migrates_on_connect = False
    locks_rows = True
    chains_writes = True
    can_hide_rows = True
    survives_fork = True
    array_marks = ("{", "NULL", "}")
    has_file_indexes = True
    # A statement that COPY contains is parsed and planned each time, which takes longer than to look up few rows.
    few_rows = 1_000
    driver_errors = (psycopg.Error,)

    @property
    def place(self) -> tuple[str | None, ...]:
        # Parameters missing in the URI come from libpq's environment. User and TLS options do not change the database.
        defaults = {option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()}
        known = defaults | dict(self.uri.parameters)
        server = (known[name] for name in ("host", "hostaddr", "port"))
        return self.name, *server, self.uri.database, self.uri.schema

    @property
    def _parameters(self) -> dict[str, str]:
        return {"application_name": "deltars", **with_verified_tls(self.uri.parameters), "dbname": self.uri.database}

    def create_engine(self, *, pool_size: int, pool_timeout_s: float) -> Engine:
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(**self._parameters, prepare_threshold=None),  # type: ignore[arg-type]
            poolclass=WatchedPool,
            pool_size=pool_size,
            pool_timeout=pool_timeout_s,
            # Set in every BEGIN: the server's default may be stricter, and would end commits with 40001.
            isolation_level="READ COMMITTED",
            execution_options={"schema_translate_map": {None: self.uri.schema}, "compiled_cache": compiled_statements},
        )
        event.listen(engine, "checkout", _refuse_dead_connection)
        return engine

    @contextmanager
    def write_transaction(self, engine: Engine, timeout_s: float, opening: Opening) -> Iterator[Connection]:
        with engine.connect() as connection, connection.begin():
            begin(connection, time.monotonic() + timeout_s, opening, self._name_of_tables)
            yield connection

    @contextmanager
    def brief_transaction(self, engine: Engine, timeout_s: float, opening: Opening) -> Iterator[BareConnection]:
        with pool_of(engine).lend() as connection:
            begin(connection, time.monotonic() + timeout_s, opening, self._name_of_tables)
            yield connection
            # Nothing is sent if the last statement was sent with its COMMIT.
            driver_of(connection).commit()

    def run_at_once(
        self, engine: Engine, timeout_s: float, opening: Opening, sending: Callable[[], None] | None = None
    ) -> list[Rows]:
        deadline = time.monotonic() + timeout_s
        with pool_of(engine).lend() as connection:
            try:
                prepare(connection, [statement for statement, _ in opening.statements])
            except psycopg.Error as error:
                raise StatementRefused(error) from error
            if sending is not None:
                sending()
            return begin(connection, deadline, opening, self._name_of_tables, and_commit=True)

    @cached_property
    def _name_of_tables(self) -> str:
        return sql.Identifier(self.uri.schema or "", "dl_tables").as_string()

    def user(self, connection: AnyConnection) -> str | None:
        """Return the user that the connection was opened as, which libpq knows."""
        return driver_of(connection).info.user

    def settle(self, engine: Engine, commit_ts: int, timeout_s: float) -> None:
        settle(engine, self._name_of_tables, commit_ts, timeout_s)

    @contextmanager
    def read_transaction(self, engine: Engine) -> Iterator[Connection]:
        with engine.connect() as connection, connection.begin():
            rows_of(run_pipeline(connection, [_BEGIN_READING]))
            yield connection

    def look_up_each(self, engine: Engine, queries: Sequence[tuple[Prepared, Mapping[str, Any]]]) -> list[Rows]:
        # One round trip: BEGIN and COMMIT are sent with the statements.
        steps = [_BEGIN_READING, PLANS, *[step(*query) for query in queries], _END]
        with pool_of(engine).lend() as connection:
            return rows_of_each(run_pipeline(connection, steps))[2:-1]

    def read_all(self, engine: Engine, statement: Prepared) -> Rows:
        # Without the planner options of look-ups: a whole table is read fastest without an index.
        with pool_of(engine).lend() as connection:
            _, rows, _ = rows_of_each(run_pipeline(connection, [_BEGIN_READING, step(statement, {}), _END]))
            return rows

    def fetch(
        self, engine: Engine, query: Query, columns: pa.Schema, *, may_be_large: bool = False
    ) -> Iterator[pa.RecordBatch]:
        adbc = self._adbc if may_be_large else None
        with self.read_transaction(engine) as connection:
            if adbc is None or not self._is_large(connection, query):
                yield from self.batches(connection, query, columns)
                return
            text = self._bound(connection, query, {})
        batches = adbc.batches(text, columns)
        yield from super().fetch(engine, query, columns) if batches is None else batches

    def batches(self, connection: Connection, query: Query, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        return copy_batches(connection, self._bound(connection, query, {}), columns)

    def batches_of(
        self, connection: Connection, statement: Prepared, values: Given, columns: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        return copy_batches(connection, self._bound(connection, statement.statement, values), columns)

    @cached_property
    def _adbc(self) -> Adbc | None:
        if not IS_INSTALLED:
            return None
        return Adbc(make_conninfo(**self._parameters))

    def _is_large(self, connection: Connection, query: Query) -> bool:
        beyond: Select[Any] = select(literal_column("1")).select_from(query.subquery()).limit(1).offset(LARGE_ROWS)
        return connection.execute(beyond).first() is not None

    def _bound(self, connection: Connection, query: Executable, values: Given) -> str:
        """Return the query's text with its values in it, quoted by libpq: COPY takes no parameters."""
        driver, prepared = driver_of(connection), Prepared(query, _FORMATTED, self.uri.schema)
        return prepared.text % tuple(sql.Literal(value).as_string(driver) for value in prepared.values(values))

    def statement_dialect(self) -> Dialect:
        return dialect()

    def run(self, connection: AnyConnection, statement: Prepared, values: Given) -> Rows:
        return rows_of(run_pipeline(connection, [step(statement, values)]))

    def scan(self, connection: AnyConnection, statement: Prepared, values: Given | None = None) -> Rows:
        # RawCursor takes the server's own parameters ($1) and converts all rows in C.
        with psycopg.RawCursor(driver_of(connection)) as cursor:
            return cursor.execute(statement.text, statement.values(values or {})).fetchall()

    def run_and_commit(self, connection: AnyConnection, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        try:
            prepare(connection, [statement])
        except psycopg.Error as error:
            raise StatementRefused(error) from error
        written, committed = run_pipeline(connection, [step(statement, values), _END])
        if isinstance(written, psycopg.Error):
            raise StatementRefused(written)
        rows_of([committed])
        return written

    def update_matching(
        self,
        table: Table,
        source: FromClause,
        match: Callable[[FromClause], ColumnElement[bool]],
        values: Callable[[FromClause], Mapping[str, Any]],
    ) -> Update:
        # OFFSET 0 forces one index probe per row, whatever the statistics are. Without it the planner assumes that the
        # source has 100 rows, scans the whole table instead, and keeps that plan for the session.
        probed = table.alias("probed")
        place: ColumnElement[Any] = sa_column("ctid", _selectable=probed)
        found = select(place).where(match(probed)).offset(literal_column("0")).lateral("found")
        hits = select(*source.c, found.c.ctid).select_from(source.join(found, true())).subquery("hits")
        return update(table).values(values(hits)).where(sa_column("ctid", _selectable=table) == hits.c.ctid)

    def rows(self, document: BindParameter[Any], columns: Sequence[Column[Any]]) -> FromClause:
        return (
            func.json_to_recordset(cast(document, JSON))
            .table_valued(*(sa_column(column.name, column.type) for column in columns))
            .render_derived(with_types=True)
        )

    def clock_us(self) -> ColumnElement[int]:
        # clock_timestamp() is the time of the call; now() is the start of the transaction, before the lock. `settle`
        # relies on time stamps not being before the start of their transaction, even if the clock is set back between
        # the two, so the later one is used.
        moment = func.greatest(func.clock_timestamp(), func.now())
        return cast(func.extract("epoch", moment) * literal_column("1000000"), BigInteger)

    def begun_us(self) -> ColumnElement[int]:
        return cast(func.extract("epoch", func.now()) * literal_column("1000000"), BigInteger)

    def is_standby(self) -> ColumnElement[bool]:
        return func.pg_is_in_recovery()

    def is_refused_write(self, error: DatabaseError) -> bool:
        return error.sqlstate in ("42501", "25006")

    def instant(self, microseconds: ColumnElement[int]) -> ColumnElement[Any]:
        # Interval arithmetic is exact to the microsecond; to_timestamp() goes through a double.
        epoch: ColumnElement[Any] = literal_column("timestamptz 'epoch'")
        return epoch + microseconds * literal_column("interval '1 microsecond'")

    def load(self, connection: Connection, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
        copying: Any = None
        with ExitStack() as stack:
            for batch in batches:
                if copying is None:
                    copying = stack.enter_context(self._copying(connection, table, batch.schema))
                    copying.write(copy_in.BEGIN)
                copying.write(copy_in.encode(batch, table))
            if copying is not None:
                copying.write(copy_in.END)

    def arrays(self, columns: Sequence[pa.Array]) -> pa.Array:
        return copy_in.encode_arrays(columns)

    def _copying(self, connection: Connection, table: Table, columns: pa.Schema) -> AbstractContextManager[Copy]:
        cursor = driver_of(connection).cursor()
        statement = sql.SQL("COPY {}.{} ({}) FROM STDIN (FORMAT binary)").format(
            sql.Identifier(self.uri.schema or ""),
            sql.Identifier(table.name),
            sql.SQL(", ").join(map(sql.Identifier, columns.names)),
        )
        # A separate thread sends the data, so the next batch is built while the server reads this one.
        return cursor.copy(statement, writer=QueuedLibpqWriter(cursor))

    def is_found(
        self,
        table: Table,
        probed: FromClause,
        source: FromClause,
        matches: ColumnElement[bool],
        most: int | None = None,
    ) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        # OFFSET 0 forces one look-up per row of the source, as in `update_matching`.
        place: ColumnElement[Any] = sa_column("ctid", _selectable=probed)
        found = select(place).where(matches).correlate(source).offset(literal_column("0")).lateral("found")
        hits = select(found.c.ctid).select_from(source.join(found, true()))
        row: ColumnElement[Any] = sa_column("ctid", _selectable=table)
        if most is None:
            return self.among(row, hits), true()
        some = hits.limit(literal(most + 1, BigInteger())).cte("hits")
        is_few = select(func.count()).select_from(some).scalar_subquery() <= most
        return self.among(row, select(some.c.ctid).where(is_few)), is_few

    def partition_text(self, files: FromClause) -> ColumnElement[str]:
        return collate(cast(files.c.partition_values, Text), "C")

    def document(self, text: ColumnElement[str]) -> ColumnElement[Any]:
        return cast(text, JSONB)

    def among(self, value: ColumnElement[Any], found: Select[Any]) -> ColumnElement[bool]:
        # IN would become a join, and the planner could choose to scan the table for it.
        return value == any_(func.array(found.scalar_subquery()))

    def by_bytes(self, text: ColumnElement[str]) -> ColumnElement[str]:
        return collate(text, "C")

    def number_of(self, text: ColumnElement[str]) -> ColumnElement[float]:
        # The pattern is checked first, because a failing cast would end the statement.
        return case((text.regexp_match(r"^[+-]?[0-9]+(\.[0-9]+)?$"), cast(text, Double)))

    def is_outcome_unknown(self, error: BaseException) -> bool:
        if not isinstance(error, psycopg.Error):
            return False
        return error.sqlstate is None or error.sqlstate.startswith(("08", "57P", "25P"))

    def lock_registry(self, connection: Connection) -> None:
        # From here on a lock wait may take all of the remaining time; the short lock timeout was for `begin` only.
        driver_of(connection).execute("SELECT set_config('lock_timeout', current_setting('statement_timeout'), true)")
        # A row lock on dl_catalog would need the right to update it, which writers do not have.
        self._advisory_lock(connection, "registry")

    def _advisory_lock(self, connection: Connection, purpose: str) -> None:
        driver_of(connection).execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"deltars {purpose} {self.uri.schema}"]
        )

    def notify(self, engine: Engine) -> None:
        # Autocommit, after the commit: inside a transaction, NOTIFY takes a server-wide lock at COMMIT.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(select(func.pg_notify(self._channel, "")))

    @contextmanager
    def listening(self, engine: Engine) -> Iterator[Callable[[float], bool] | None]:
        # A separate connection: one from the pool might have to be waited for, and would keep listening afterwards.
        with psycopg.connect(**self._parameters, autocommit=True) as connection:  # type: ignore[arg-type]
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            yield lambda seconds: any(True for _ in connection.notifies(timeout=seconds, stop_after=1))

    @property
    def _channel(self) -> str:
        # Identifiers have at most 63 bytes, which the schema's name alone may use up; hence the hash.
        return f"deltars_{sha256((self.uri.schema or '').encode()).hexdigest()[:16]}"

    def prepare_migration(self, connection: Connection) -> None:
        driver = driver_of(connection)
        self._advisory_lock(connection, "migrate")
        schema = sql.Identifier(self.uri.schema or "")
        driver.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        # Migrations only name their own objects, all of which are in this schema.
        driver.execute("SELECT set_config('search_path', quote_ident(%s), true)", [self.uri.schema])

    def name_schema(self, output: TextIO) -> None:
        schema = sql.Identifier(self.uri.schema or "").as_string()
        output.write(f"CREATE SCHEMA IF NOT EXISTS {schema};\n\nSET search_path TO {schema};\n\n")

    def classify(self, error: BaseException) -> DeltarsError:
        if not isinstance(error, psycopg.Error):
            return DatabaseError(first_line(error))
        state, diagnosis = error.sqlstate, error.diag
        if state in _TIMEOUTS:
            return TimeoutError(_TIMEOUTS[state], hint="Retry, or raise the timeout.")
        if state in _RETRYABLE:
            return DatabaseError(f"{_RETRYABLE[state]}: {first_line(error)}", sqlstate=state, retryable=True)
        if state in ("42P01", "3F000"):
            return SchemaVersionError(
                f"{self.uri} holds no deltars catalog, or an incomplete one: {first_line(error)}",
                sqlstate=state,
                hint=f"Run: deltars init --catalog '{self.uri}'",
            )
        if state is None and any(word in str(error) for word in ("SSL", "certificate")):
            return DatabaseError(f"no connection to {self.uri}: {first_line(error)}", hint=TLS_HINT)
        if state is None or state.startswith("08"):
            return DatabaseError(
                f"no connection to {self.uri}: {first_line(error)}",
                sqlstate=state,
                retryable=True,
                hint="Check that the server runs, and check host, port, database, user and password. Parameters missing"
                " in the URI come from PGHOST, PGUSER, PGPASSWORD, ~/.pgpass and so on.",
            )
        if state == "25006":
            return DatabaseError(
                f"{self.uri} refuses writes: the server is a standby or read-only: {first_line(error)}",
                sqlstate=state,
                hint=_HINTS[state],
            )
        detail = f" ({diagnosis.message_detail})" if diagnosis.message_detail else ""
        return DatabaseError(
            f"{diagnosis.message_primary or first_line(error)}{detail}",
            sqlstate=state,
            constraint=diagnosis.constraint_name,
            hint=_HINTS.get(state),
        )


def _refuse_dead_connection(driver: psycopg.Connection[Any], record: ConnectionPoolEntry, _: Any) -> None:
    """Raise DisconnectionError for a pooled connection that the server ended, so that the pool replaces it.

    Such a connection is readable although no statement is running.
    """
    is_readable: poll | None = record.info.get(_POLL)
    if is_readable is None:
        is_readable = record.info[_POLL] = poll()
        is_readable.register(driver.fileno(), POLLIN)
    # A loop, because the server's last message is read before the end of the connection.
    while is_readable.poll(0):
        try:
            driver.pgconn.consume_input()
        except psycopg.Error as error:
            raise sa_exc.DisconnectionError from error
        if driver.pgconn.status != ConnStatus.OK:
            raise sa_exc.DisconnectionError


_POLL = "deltars_poll"
_FORMATTED: Dialect = PGDialect_psycopg(paramstyle="format")  # type: ignore[no-untyped-call]
"""Dialect of texts that values are put into: %s."""
