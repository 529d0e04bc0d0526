"""SQLite backend, the embedded default: one file, many processes, one writer at a time; readers never wait."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    Engine,
    FromClause,
    Integer,
    Table,
    Text,
    bindparam,
    case,
    cast,
    create_engine,
    event,
    func,
    literal,
    select,
    true,
    type_coerce,
)
from sqlalchemy import column as sa_column
from sqlalchemy import exc as sa_exc
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.pool import ConnectionPoolEntry

from deltars import late_arrow
from deltars.backoff import Backoff
from deltars.errors import DatabaseError, DeltarsError, TimeoutError
from deltars.store.backends.base import Backend, Opening, Query, Rows, first_line, read_too_long
from deltars.store.backends.file_system import networked_file_system
from deltars.store.backends.pool import (
    AnyConnection,
    BareConnection,
    WatchedPool,
    driver_connection,
    info_of,
    pool_of,
)
from deltars.store.backends.prepared import Given, Prepared, compiled_statements

if TYPE_CHECKING:
    import pyarrow as pa

LOAD_CHUNK_ROWS = 1_000
"""SQLite accepts about 32,000 values in a statement, and no table has more than 22 columns."""
FETCH_CHUNK_ROWS = 10_000
OPEN_TIMEOUT_S = 30.0

_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_HINTS = {
    "SQLITE_FULL": "The disk is full: make room and try again; nothing was changed.",
    "SQLITE_READONLY": "The catalog's file or its directory is read-only for this user: grant write permission.",
    "SQLITE_CANTOPEN": "Check that the directory exists and may be written to.",
    "SQLITE_NOTADB": "The file is not a SQLite database.",
    "SQLITE_CORRUPT": "The file is damaged: restore it from a backup, or rebuild it from the mirror.",
}


class SQLite(Backend):
    name = "sqlite"
    dialect = "sqlite"
    migrates_on_connect = True
    locks_rows = False
    chains_writes = False
    survives_fork = True
    has_file_indexes = True
    driver_errors = (sqlite3.Error,)

    @property
    def is_there(self) -> bool:
        return Path(self.uri.database).exists()

    def create_engine(self, *, pool_size: int, pool_timeout_s: float) -> Engine:
        path = Path(self.uri.database)
        if kind := networked_file_system(path):
            raise DatabaseError(
                f"{self.uri} is on a network file system ({kind}), where SQLite's locks do not hold",
                hint="Keep the catalog's file on a local disk (the tables may stay where they are), or use PostgreSQL.",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: _open(path),
            poolclass=WatchedPool,
            pool_size=pool_size,
            pool_timeout=pool_timeout_s,
            execution_options={"compiled_cache": compiled_statements},
        )

        @event.listens_for(engine, "connect")
        def _note_file(_: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
            record.info["file"] = _file(path)

        @event.listens_for(engine, "checkout")
        def _refuse_replaced_file(_: sqlite3.Connection, record: ConnectionPoolEntry, *__: Any) -> None:
            # A restore replaces the file; this connection would still use the old one.
            now = _file(path)
            if now is None:
                raise DatabaseError(
                    f"{self.uri}: the file no longer exists", hint="Put it back, or restore it from a backup."
                )
            if now != record.info["file"]:
                raise sa_exc.DisconnectionError

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            deadline = connection.get_execution_options().get("deltars_deadline")
            if deadline is None:
                _begin_reading(connection)
            else:
                _begin_immediate(connection, deadline)

        return engine

    @contextmanager
    def write_transaction(self, engine: Engine, timeout_s: float, opening: Opening) -> Iterator[Connection]:
        deadline = time.monotonic() + timeout_s
        with engine.connect().execution_options(deltars_deadline=deadline) as connection, connection.begin():
            self.open(connection, opening)
            yield connection

    @contextmanager
    def brief_transaction(self, engine: Engine, timeout_s: float, opening: Opening) -> Iterator[BareConnection]:
        deadline = time.monotonic() + timeout_s
        with pool_of(engine).lend() as connection:
            _begin_immediate(connection, deadline)
            self.open(connection, opening)
            yield connection
            connection.driver.commit()

    @contextmanager
    def read_transaction(self, engine: Engine) -> Iterator[Connection]:
        with engine.connect() as connection, connection.begin(), self.limited(connection):
            yield connection

    def look_up_each(self, engine: Engine, queries: Sequence[tuple[Prepared, Mapping[str, Any]]]) -> list[Rows]:
        with pool_of(engine).lend() as connection:
            _begin_reading(connection)
            with self.limited(connection):
                answers = [self.run(connection, statement, values) for statement, values in queries]
            connection.driver.commit()
            return answers

    def read_all(self, engine: Engine, statement: Prepared) -> Rows:
        return self.look_up(engine, statement, {})

    def run(self, connection: AnyConnection, statement: Prepared, values: Given) -> Rows:
        # SQLite's execute() makes the cursor, which is closed when it has no more rows.
        rows: Rows = driver_connection(connection).execute(statement.text, statement.values(values)).fetchall()
        return rows

    def batches(self, connection: Connection, query: Query, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        # Fetch from the driver's cursor, so that SQLAlchemy does not convert values first.
        result = connection.execute(query)
        return _batches(result.cursor, columns)

    def batches_of(
        self, connection: Connection, statement: Prepared, values: Given, columns: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        return _batches(driver_connection(connection).execute(statement.text, statement.values(values)), columns)

    def statement_dialect(self) -> Dialect:
        return SQLiteDialect_pysqlite(paramstyle="qmark")

    def rows(self, document: BindParameter[Any], columns: Sequence[Column[Any]]) -> FromClause:
        each = func.json_each(document).table_valued("value")
        return select(
            *(func.json_extract(each.c.value, f"$.{column.name}").label(column.name) for column in columns)
        ).subquery()

    def row(self, prefix: str, columns: Sequence[Column[Any]]) -> FromClause:
        # No casts: the target column determines the stored type, and SQLite has no JSON type to cast to.
        return select(*(bindparam(f"{prefix}_{column.name}").label(column.name) for column in columns)).subquery()

    def id_of(self, text: ColumnElement[str]) -> ColumnElement[Any]:
        return text

    def greatest(self, *values: ColumnElement[int]) -> ColumnElement[int]:
        return func.max(*values)

    def clock_us(self) -> ColumnElement[int]:
        return cast((func.julianday("now") - 2440587.5) * 86_400_000, BigInteger) * 1000

    def instant(self, microseconds: ColumnElement[int]) -> ColumnElement[Any]:
        seconds, rest = microseconds / 1_000_000, microseconds % 1_000_000
        whole = func.strftime("%Y-%m-%dT%H:%M:%S", cast(seconds, Integer), "unixepoch")
        return whole.concat(func.printf(".%06dZ", rest))

    def load(self, connection: Connection, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            names = ", ".join(f'"{name}"' for name in batch.schema.names)
            row, begin = f"({', '.join('?' * batch.num_columns)})", f"INSERT INTO {table.name} ({names}) VALUES "
            for start in range(0, batch.num_rows, LOAD_CHUNK_ROWS):
                chunk = batch.slice(start, LOAD_CHUNK_ROWS)
                # The driver keeps the statement of a full chunk. A JSON document would be parsed for every column.
                values = zip(*(column.to_pylist() for column in chunk.columns), strict=True)
                statement = begin + ", ".join([row] * chunk.num_rows)
                connection.exec_driver_sql(statement, tuple(chain.from_iterable(values)))

    def bound(self, numbers: ColumnElement[Any], place: int) -> ColumnElement[float]:
        text = type_coerce(numbers, Text)
        if place == 1:
            # The first entry is always a number after the bracket. CAST reads it in a third of a JSON parser's time.
            return cast(func.substr(text, 2), Double)
        return type_coerce(func.json_extract(text, f"$[{place - 1}]"), Double)

    def is_found(
        self,
        table: Table,
        probed: FromClause,
        source: FromClause,
        matches: ColumnElement[bool],
        most: int | None = None,
    ) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        # An outer join, because SQLite keeps its order. A row of the source without a match gives NULL: no row has it.
        row: ColumnElement[Any] = sa_column("rowid", _selectable=probed)
        hits = select(row).select_from(source.outerjoin(probed, matches))
        return self.among(sa_column("rowid", _selectable=table), hits), true()

    def equals_if(
        self, condition: ColumnElement[bool], column: ColumnElement[Any], value: ColumnElement[Any]
    ) -> ColumnElement[bool]:
        # SQLite would evaluate the condition for every row, if it contains a query. An index finds nothing for NULL.
        return column == case((condition, value))

    def entry(self, document: ColumnElement[Any], name: str) -> ColumnElement[str]:
        # As SQLAlchemy's own, but with the path that SQLite takes, which a prepared statement sends as it is.
        return type_coerce(func.json_extract(document, literal(f'$."{name}"', Text())), Text())

    def number_of(self, text: ColumnElement[str]) -> ColumnElement[float]:
        # CAST alone would accept a numeric prefix, and turn other texts into 0.
        return case((text.op("NOT GLOB")("*[^0-9.+-]*"), cast(text, Double)))

    def is_refused_write(self, error: DatabaseError) -> bool:
        return (error.sqlstate or "").startswith("SQLITE_READONLY")

    def insert_unless_present(self, table: Table) -> Any:
        return sqlite_insert(table).on_conflict_do_nothing()

    def classify(self, error: BaseException) -> DeltarsError:
        code = getattr(error, "sqlite_errorname", None)
        if code is None:
            return DatabaseError(first_line(error))
        if code.startswith(_BUSY):
            return TimeoutError(
                "another process kept the catalog locked for longer than the timeout allows",
                hint="Retry, or raise the timeout.",
            )
        if code == "SQLITE_INTERRUPT":
            return read_too_long()
        if code.startswith("SQLITE_CONSTRAINT"):
            _, _, constraint = str(error).partition(": ")
            return DatabaseError(first_line(error), sqlstate=code, constraint=constraint or code)
        hint = next((text for prefix, text in _HINTS.items() if code.startswith(prefix)), None)
        return DatabaseError(f"{self.uri}: {first_line(error)}", sqlstate=code, hint=hint)


def _file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _batches(cursor: Any, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    while rows := cursor.fetchmany(FETCH_CHUNK_ROWS):
        arrays = [_array(values, field.type) for values, field in zip(zip(*rows, strict=True), columns, strict=True)]
        yield late_arrow.pa.RecordBatch.from_arrays(arrays, schema=columns)


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    # SQLite stores booleans as numbers.
    pa = late_arrow.pa
    return pa.array(values, pa.int8()).cast(type_) if pa.types.is_boolean(type_) else pa.array(values, type_)


def _open(path: Path) -> sqlite3.Connection:
    if path.is_dir():
        raise DatabaseError(f"{path} is a directory, not a database file")
    # isolation_level None: the driver must not begin transactions implicitly.
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=1.0, check_same_thread=False, cached_statements=256
    )
    deadline = time.monotonic() + OPEN_TIMEOUT_S
    _retrying(lambda: connection.execute("PRAGMA journal_mode=WAL"), deadline)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    # `_retrying` does the waiting, because SQLite's own busy handler starves one process in six.
    connection.execute("PRAGMA busy_timeout=0")
    return connection


def _begin_reading(connection: AnyConnection) -> None:
    _may_write(connection, False).execute("BEGIN")


def _begin_immediate(connection: AnyConnection, deadline: float) -> None:
    driver = _may_write(connection, True)
    _retrying(lambda: driver.execute("BEGIN IMMEDIATE"), deadline)


def _may_write(connection: AnyConnection, is_writer: bool) -> sqlite3.Connection:
    """Allow or forbid writes. A pooled connection serves readers and writers in turn."""
    driver, info = driver_connection(connection), info_of(connection)
    assert isinstance(driver, sqlite3.Connection)
    if info.get("is_writer") is not is_writer:
        info["is_writer"] = None
        driver.execute("PRAGMA query_only=OFF" if is_writer else "PRAGMA query_only=ON")
        info["is_writer"] = is_writer
    return driver


def _retrying(attempt: Any, deadline: float) -> None:
    """Retry until the lock is free, with jitter so that no process is starved."""
    backoff = Backoff(0.0002, longest_s=0.01)
    while True:
        try:
            attempt()
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_BUSY) or time.monotonic() >= deadline:
                raise
        backoff.sleep()
