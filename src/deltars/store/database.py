"""Open catalog database: its connections and transactions.

    Database(uri) ── read()    → Connection: one consistent state, blocks no writer, cannot write
                  ├─ look_up() → rows of one reading statement; look_up_each() of several
                  ├─ fetch()   → record batches: many rows, by the backend's fastest method
                  ├─ find()    → record batches of a prepared query
                  └─ write()   → Connection: write transaction; commits on clean exit, otherwise rolls back

Connections belong to the process that opened them: a forked child opens its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from sqlalchemy import Connection, Engine

from deltars.errors import DatabaseError
from deltars.observe import PoolUse, Source, watch_pool
from deltars.store.backends import Backend, Opening, Prepared, Query, Rows, backend_for
from deltars.store.backends.pool import AnyConnection, WatchedPool
from deltars.uri import CatalogUri

if TYPE_CHECKING:
    import pyarrow as pa

_databases: WeakSet[Database] = WeakSet()


class Readable(Protocol):
    """Database for readers: neither its methods nor its connections can write."""

    @property
    def backend(self) -> Backend: ...

    def read(self) -> AbstractContextManager[Connection]: ...

    def look_up(self, statement: Prepared, values: Mapping[str, Any]) -> Rows: ...

    def look_up_each(self, queries: Sequence[tuple[Prepared, Mapping[str, Any]]]) -> list[Rows]: ...

    def fetch(self, query: Query, columns: pa.Schema, *, may_be_large: bool = False) -> Iterator[pa.RecordBatch]: ...

    def find(self, statement: Prepared, values: Mapping[str, Any], columns: pa.Schema) -> Iterator[pa.RecordBatch]: ...


_left_to_the_parent: dict[CatalogUri, list[Engine]] = {}
"""Engines that the parent of a forked process had open. They are kept so that this process never closes them: closing
would end the parent's sessions and, with SQLite, drop the parent's locks."""


class Database:
    def __init__(self, uri: CatalogUri, *, pool_size: int, pool_timeout_s: float) -> None:
        self.uri = uri.absolute()
        self.source = Source.of(self.uri)
        self.backend: Backend = backend_for(self.uri)
        self._pool_size = pool_size
        self._pool_timeout_s = pool_timeout_s
        self._engine: Engine | None = None
        self._opening = threading.Lock()
        _databases.add(self)
        watch_pool(self)

    @property
    def engine(self) -> Engine:
        # The lock ensures one engine, and so one pool, when several threads open it at once.
        with self._opening:
            if self._engine is None:
                self._engine = self._open()
            return self._engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self.backend.translating(), self.backend.read_transaction(self.engine) as connection:
            yield connection

    def look_up(self, statement: Prepared, values: Mapping[str, Any]) -> Rows:
        """Return the rows of one reading statement, in one round trip if the driver can."""
        with self.backend.translating():
            return self.backend.look_up(self.engine, statement, values)

    def look_up_each(self, queries: Sequence[tuple[Prepared, Mapping[str, Any]]]) -> list[Rows]:
        """Return the rows of each of several statements that read one state, in one round trip if the driver can."""
        with self.backend.translating():
            return self.backend.look_up_each(self.engine, queries)

    def read_all(self, statement: Prepared) -> Rows:
        """Return the rows of one statement that reads a whole table, in one round trip if the driver can."""
        with self.backend.translating():
            return self.backend.read_all(self.engine, statement)

    def fetch(self, query: Query, columns: pa.Schema, *, may_be_large: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as Arrow; see `Backend.fetch`."""
        with self.backend.translating():
            yield from self.backend.fetch(self.engine, query, columns, may_be_large=may_be_large)

    def find(self, statement: Prepared, values: Mapping[str, Any], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a prepared query as record batches; see `Backend.find`."""
        with self.backend.translating():
            yield from self.backend.find(self.engine, statement, values, columns)

    @contextmanager
    def write(self, timeout_s: float, opening: Opening | None = None) -> Iterator[Connection]:
        first = opening or Opening(())
        with self.backend.translating(), self.backend.write_transaction(self.engine, timeout_s, first) as connection:
            yield connection

    @contextmanager
    def brief_write(self, timeout_s: float, opening: Opening) -> Iterator[AnyConnection]:
        """Open a write transaction for prepared statements only, which costs less than `write`."""
        with self.backend.translating(), self.backend.brief_transaction(self.engine, timeout_s, opening) as connection:
            yield connection

    def run_at_once(self, timeout_s: float, opening: Opening, sending: Callable[[], None] | None = None) -> list[Rows]:
        """Run statements as one whole transaction; see `Backend.run_at_once`."""
        with self.backend.translating():
            return self.backend.run_at_once(self.engine, timeout_s, opening, sending)

    def pool_use(self) -> PoolUse | None:
        """Return the use of the connection pool; None before the first connection."""
        pool = None if self._engine is None else self._engine.pool
        return pool.use() if isinstance(pool, WatchedPool) else None

    def notify(self) -> None:
        """Notify every listener of this catalog."""
        with self.backend.translating():
            self.backend.notify(self.engine)

    @contextmanager
    def listening(self) -> Iterator[Callable[[float], bool] | None]:
        """Open a listener: a function that waits up to so many seconds for `notify`. Yield None if unsupported."""
        with self.backend.translating(), self.backend.listening(self.engine) as wait:
            yield wait

    def close(self) -> None:
        with self._opening:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def _open(self) -> Engine:
        if self.uri in _left_to_the_parent and not self.backend.survives_fork:
            raise DatabaseError(
                f"{self.uri} is open in the parent process that this process was forked from",
                hint="DuckDB catalogs are for one process: connect after forking, or use SQLite or PostgreSQL.",
            )
        try:
            with self.backend.translating():
                return self.backend.create_engine(pool_size=self._pool_size, pool_timeout_s=self._pool_timeout_s)
        except OSError as error:
            raise DatabaseError(f"{self.uri} cannot be opened: {error}") from error

    def _leave_to_the_parent(self) -> None:
        # A thread of the parent may have held the lock; it does not exist in this process.
        self._opening = threading.Lock()
        if self._engine is not None:
            _left_to_the_parent.setdefault(self.uri, []).append(self._engine)
            self._engine = None

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.uri, self._pool_size, self._pool_timeout_s)


def _reopen(uri: CatalogUri, pool_size: int, pool_timeout_s: float) -> Database:
    return Database(uri, pool_size=pool_size, pool_timeout_s=pool_timeout_s)


def _after_fork() -> None:
    for database in list(_databases):
        database._leave_to_the_parent()


os.register_at_fork(after_in_child=_after_fork)
