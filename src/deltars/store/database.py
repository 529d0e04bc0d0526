"""One open catalog database: its connections, and the transactions they carry.

    Database(uri) ── read()  → Connection: one consistent state, blocks nobody
                  └─ write() → Connection: the backend's write transaction; commits on clean exit, else rolls back

Connections belong to the process that opened them: a forked child opens its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from deltars.errors import DatabaseError
from deltars.store.backends import Backend, backend_for
from deltars.uri import CatalogUri


class Database:
    def __init__(self, uri: CatalogUri, *, pool_size: int, pool_timeout_s: float) -> None:
        self.uri = uri.absolute()
        self.backend: Backend = backend_for(self.uri)
        self._pool_size = pool_size
        self._pool_timeout_s = pool_timeout_s
        self._engine: Engine | None = None
        self._pid = os.getpid()

    @property
    def engine(self) -> Engine:
        if self._pid != os.getpid():
            self._leave_to_the_parent()
        if self._engine is None:
            with self.backend.translating():
                self._engine = self.backend.create_engine(
                    pool_size=self._pool_size, pool_timeout_s=self._pool_timeout_s
                )
        return self._engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self.backend.translating(), self.backend.read_transaction(self.engine) as connection:
            yield connection

    @contextmanager
    def write(self, timeout_s: float) -> Iterator[Connection]:
        with self.backend.translating(), self.backend.write_transaction(self.engine, timeout_s) as connection:
            yield connection

    def close(self) -> None:
        if self._engine is not None and self._pid == os.getpid():
            self._engine.dispose()
        self._engine = None

    def _leave_to_the_parent(self) -> None:
        if not self.backend.survives_fork:
            raise DatabaseError(
                f"{self.uri} was opened by the parent of this process",
                hint="DuckDB catalogs are for one process: connect after forking, or use SQLite or PostgreSQL.",
            )
        if self._engine is not None:
            # close=False: the sockets are the parent's; closing them here would end its sessions.
            self._engine.dispose(close=False)
        self._engine = None
        self._pid = os.getpid()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.uri, self._pool_size, self._pool_timeout_s)


def _reopen(uri: CatalogUri, pool_size: int, pool_timeout_s: float) -> Database:
    return Database(uri, pool_size=pool_size, pool_timeout_s=pool_timeout_s)
