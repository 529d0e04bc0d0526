"""DuckDB backend: embedded, one process with many threads. Writers take turns by a lock of this process."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb_sqlalchemy import Dialect as DuckDBDialect
from sqlalchemy import (
    ARRAY,
    URL,
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    Engine,
    FromClause,
    Table,
    cast,
    create_engine,
    func,
    insert,
    select,
    try_cast,
    type_coerce,
)
from sqlalchemy import column as sa_column
from sqlalchemy import table as sa_table

from deltars.errors import ConfigError, DatabaseError, DeltarsError, TimeoutError
from deltars.store.backends.base import Backend, Opening, Query, first_line, read_too_long
from deltars.store.backends.pool import WatchedPool
from deltars.store.backends.prepared import Given, Prepared, compiled_statements
from deltars.store.types import Id
from deltars.uri import CatalogUri

FETCH_CHUNK_ROWS = 100_000

_writing: dict[str, threading.Lock] = {}
_registering = threading.Lock()


class DuckDB(Backend):
    name = "duckdb"
    dialect = "duckdb"
    migrates_on_connect = True
    locks_rows = False
    chains_writes = False
    deletes_referenced_rows = False
    # A forked child would write to its parent's open file without the parent noticing.
    survives_fork = False
    driver_errors = (duckdb.Error,)

    def __init__(self, uri: CatalogUri) -> None:
        super().__init__(uri)
        with _registering:
            self._turn = _writing.setdefault(os.path.realpath(uri.database), threading.Lock())

    @property
    def is_there(self) -> bool:
        return Path(self.uri.database).exists()

    def create_engine(self, *, pool_size: int, pool_timeout_s: float) -> Engine:
        path = Path(self.uri.database).absolute()
        if "?" in str(path):
            # DuckDB parses the rest as parameters and writes its write-ahead log to another path.
            raise ConfigError(f"DuckDB cannot open {path}: the path contains '?'", hint="Use a path without '?'.")
        path.parent.mkdir(parents=True, exist_ok=True)
        return create_engine(
            URL.create("duckdb", database=str(path)),
            poolclass=WatchedPool,
            pool_size=pool_size,
            pool_timeout=pool_timeout_s,
            execution_options={"compiled_cache": compiled_statements},
        )

    @contextmanager
    def write_transaction(self, engine: Engine, timeout_s: float, opening: Opening) -> Iterator[Connection]:
        if not self._turn.acquire(timeout=timeout_s):
            raise TimeoutError(
                "another thread kept the catalog locked for longer than the timeout allows",
                hint="Retry, or raise the timeout.",
            )
        try:
            with engine.connect() as connection, connection.begin():
                self.open(connection, opening)
                yield connection
        finally:
            self._turn.release()

    @contextmanager
    def read_transaction(self, engine: Engine) -> Iterator[Connection]:
        # With AUTOCOMMIT the dialect does not begin a transaction that may write.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.execute("BEGIN TRANSACTION READ ONLY")
            try:
                with self.limited(connection):
                    yield connection
            finally:
                driver.execute("ROLLBACK")

    def batches(self, connection: Connection, query: Query, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        # Bypass SQLAlchemy's cursors, which would fetch the rows a second time after Arrow has read them.
        return self.batches_of(connection, self.prepare(query), {}, columns)

    def batches_of(
        self, connection: Connection, statement: Prepared, values: Given, columns: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        driver: Any = connection.connection.driver_connection
        for batch in driver.execute(statement.text, statement.values(values)).to_arrow_reader(FETCH_CHUNK_ROWS):
            yield batch.cast(columns)

    def statement_dialect(self) -> Dialect:
        return DuckDBDialect(paramstyle="numeric_dollar")

    def rows(self, document: BindParameter[Any], columns: Sequence[Column[Any]]) -> FromClause:
        shape = json.dumps([{column.name: _type_name(column) for column in columns}])
        each = select(func.unnest(func.from_json(document, shape)).label("row")).subquery()
        return select(
            *(
                type_coerce(func.struct_extract(each.c.row, column.name), column.type).label(column.name)
                for column in columns
            )
        ).subquery()

    def clock_us(self) -> ColumnElement[int]:
        # now() is the start of the transaction, which is after the writers' lock was taken.
        return cast(func.epoch_us(func.now()), BigInteger)

    def instant(self, microseconds: ColumnElement[int]) -> ColumnElement[Any]:
        return func.make_timestamptz(microseconds)

    def load(self, connection: Connection, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        for batch in batches:
            arriving = sa_table("deltars_load", *(sa_column(name) for name in batch.schema.names))
            values = (cast(arriving.c[name], table.c[name].type) for name in batch.schema.names)
            driver.register(arriving.name, pa.Table.from_batches([batch]))
            try:
                connection.execute(insert(table).from_select(batch.schema.names, select(*values)))
            finally:
                driver.unregister(arriving.name)

    def number_of(self, text: ColumnElement[str]) -> ColumnElement[float]:
        return try_cast(text, Double)

    def _is_duckdb(self) -> bool:
        try:
            with open(self.uri.database, "rb") as file:
                return file.read(12)[8:] == b"DUCK"
        except OSError:
            return True

    def classify(self, error: BaseException) -> DeltarsError:
        if isinstance(error, duckdb.InterruptException):
            return read_too_long()
        if isinstance(error, duckdb.ConstraintException):
            return DatabaseError(first_line(error), sqlstate="constraint", constraint=first_line(error))
        if isinstance(error, duckdb.TransactionException):
            return DatabaseError(first_line(error), sqlstate="transaction", retryable=True)
        if isinstance(error, duckdb.IOException):
            return DatabaseError(
                f"{self.uri} cannot be opened: {first_line(error)}",
                sqlstate="io",
                hint="DuckDB catalogs are for one process: close the other one, or use SQLite or PostgreSQL."
                if self._is_duckdb()
                else "The file is not a DuckDB database.",
            )
        return DatabaseError(first_line(error), sqlstate=type(error).__name__)


def _type_name(column: Column[Any]) -> str:
    match column.type:
        case Id():
            return "UUID"
        case ARRAY():
            return "DOUBLE[]"
        case other:
            return str(other.compile())
