"""PostgreSQL: the real thing. Rows are locked one by one, so transactions over disjoint tables never meet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg import sql
from sqlalchemy import (
    JSON,
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    QueuePool,
    Table,
    cast,
    create_engine,
    func,
    literal_column,
)
from sqlalchemy import column as sa_column

from deltars.errors import DatabaseError, DeltarsError, SchemaVersionError, TimeoutError
from deltars.store.backends.base import Backend, first_line

_TIMEOUTS = {
    "55P03": "another transaction held the table's lock for longer than the time-out allows",
    "57014": "a statement ran longer than the time-out allows",
    "25P03": "the transaction stood idle for longer than its time-out allows",
    "25P04": "the transaction ran longer than its time-out allows",
}
_RETRYABLE = {
    "40001": "the database could not serialise the transaction",
    "40P01": "the database broke a deadlock by ending this transaction",
    "57P01": "the database ended the connection",
    "57P02": "the database crashed",
    "57P03": "the database is starting up or shutting down",
    "53300": "the database has no connection left to give",
}


class PostgreSQL(Backend):
    name = "postgres"
    dialect = "postgresql"
    migrates_on_connect = False
    locks_rows = True
    chains_writes = True
    survives_fork = True
    driver_errors = (psycopg.Error,)

    def create_engine(self, *, pool_size: int, pool_timeout_s: float) -> Engine:
        parameters = {"application_name": "deltars", **self.uri.parameters, "dbname": self.uri.database}
        return create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(**parameters),  # type: ignore[arg-type]
            poolclass=QueuePool,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=pool_timeout_s,
            # Said in every BEGIN: the server's own default may be another, and would end commits with 40001.
            isolation_level="READ COMMITTED",
            execution_options={"schema_translate_map": {None: self.uri.schema}},
        )

    @contextmanager
    def write_transaction(self, engine: Engine, timeout_s: float) -> Iterator[Connection]:
        with engine.connect() as connection, connection.begin():
            self._limit(connection, timeout_s)
            yield connection

    def _limit(self, connection: Connection, timeout_s: float) -> None:
        """Settings of this transaction alone (PgBouncer hands the session to somebody else afterwards)."""
        driver = _driver(connection)
        milliseconds = str(max(1, round(timeout_s * 1000)))
        driver.execute(_LIMITS_17 if driver.info.server_version >= 170000 else _LIMITS, {"ms": milliseconds})

    @contextmanager
    def read_transaction(self, engine: Engine) -> Iterator[Connection]:
        with engine.connect() as connection:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            with connection.execution_options(**options).begin():
                yield connection

    def rows(self, document: BindParameter[Any], columns: Sequence[Column[Any]]) -> FromClause:
        return (
            func.json_to_recordset(cast(document, JSON))
            .table_valued(*(sa_column(column.name, column.type) for column in columns))
            .render_derived(with_types=True)
        )

    def clock_us(self) -> ColumnElement[int]:
        # clock_timestamp: the moment of the call; now() would be the start of the transaction, before the lock.
        return cast(func.extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger)

    def instant(self, microseconds: ColumnElement[int]) -> ColumnElement[Any]:
        # Interval arithmetic is exact to the microsecond; to_timestamp() goes through a double.
        epoch: ColumnElement[Any] = literal_column("timestamptz 'epoch'")
        return epoch + microseconds * literal_column("interval '1 microsecond'")

    def load(self, connection: Connection, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
        options = pa_csv.WriteOptions(include_header=False)
        copying: Any = None
        with ExitStack() as stack:
            for batch in batches:
                if copying is None:
                    copying = stack.enter_context(_driver(connection).cursor().copy(self._copy(table, batch.schema)))
                # Arrow quotes every string and leaves a null bare: just how COPY tells '' from NULL.
                buffer = io.BytesIO()
                pa_csv.write_csv(batch, buffer, options)
                copying.write(buffer.getbuffer())

    def _copy(self, table: Table, columns: pa.Schema) -> sql.Composed:
        return sql.SQL("COPY {}.{} ({}) FROM STDIN (FORMAT csv)").format(
            sql.Identifier(self.uri.schema or ""),
            sql.Identifier(table.name),
            sql.SQL(", ").join(map(sql.Identifier, columns.names)),
        )

    def array_text(self, numbers: Sequence[float | None]) -> str:
        return "{" + ",".join("NULL" if number is None else repr(number) for number in numbers) + "}"

    def is_outcome_unknown(self, error: BaseException) -> bool:
        if not isinstance(error, psycopg.Error):
            return False
        return error.sqlstate is None or error.sqlstate.startswith(("08", "57P", "25P"))

    def prepare_migration(self, connection: Connection) -> None:
        driver = _driver(connection)
        driver.execute("SELECT pg_advisory_xact_lock(hashtextextended('deltars migrate', 0))")
        schema = sql.Identifier(self.uri.schema or "")
        driver.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        # Migrations name nothing but their own objects, all of them in this schema.
        driver.execute("SELECT set_config('search_path', quote_ident(%s), true)", [self.uri.schema])

    def name_schema(self, output: TextIO) -> None:
        schema = sql.Identifier(self.uri.schema or "").as_string()
        output.write(f"CREATE SCHEMA IF NOT EXISTS {schema};\n\nSET search_path TO {schema};\n\n")

    def classify(self, error: BaseException) -> DeltarsError:
        if not isinstance(error, psycopg.Error):
            return DatabaseError(first_line(error))
        state, diagnosis = error.sqlstate, error.diag
        if state in _TIMEOUTS:
            return TimeoutError(_TIMEOUTS[state], hint="Retry, or raise the time-out.")
        if state in _RETRYABLE:
            return DatabaseError(f"{_RETRYABLE[state]}: {first_line(error)}", sqlstate=state, retryable=True)
        if state in ("42P01", "3F000"):
            return SchemaVersionError(
                f"{self.uri} holds no deltars catalog, or an unfinished one: {first_line(error)}",
                sqlstate=state,
                hint=f"Run: deltars migrate up --catalog '{self.uri}'",
            )
        if state is None or state.startswith("08"):
            return DatabaseError(f"no connection to {self.uri}: {first_line(error)}", sqlstate=state, retryable=True)
        detail = f" ({diagnosis.message_detail})" if diagnosis.message_detail else ""
        return DatabaseError(
            f"{diagnosis.message_primary or first_line(error)}{detail}",
            sqlstate=state,
            constraint=diagnosis.constraint_name,
        )


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


# Besides the time-outs: a commit touches few rows of large tables, so its plan must not hang on statistics that
# may not have been gathered yet; index look-ups are right at every size.
_PLAN = """,
    set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('plan_cache_mode', 'force_generic_plan', true)"""

_LIMITS = f"""
SELECT
    set_config('lock_timeout', %(ms)s, true),
    set_config('statement_timeout', %(ms)s, true),
    set_config('idle_in_transaction_session_timeout', %(ms)s, true){_PLAN}"""

_LIMITS_17 = f"""{_LIMITS},
    set_config('transaction_timeout', %(ms)s, true)"""
