"""SQLAlchemy's connection pool, extended: it counts waiting callers, and lends bare connections of the driver.

    engine.connect()  ──▶ Connection       for statements that SQLAlchemy runs
    pool.lend()       ──▶ BareConnection   for prepared statements only: a small transaction ends before SQLAlchemy's
                                           own Connection and Transaction would be made

Both come from the same pool, so its limit holds for their sum.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine, QueuePool
from sqlalchemy import exc as sa_exc
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from deltars.observe import PoolUse

_ATTEMPTS = 2
"""How many connections of the pool are replaced if they are dead. SQLAlchemy does the same."""


class BareConnection:
    """Connection of the driver, lent by the pool. Its borrower ends every transaction that it begins."""

    __slots__ = ("_entry", "driver", "info")

    def __init__(self, entry: ConnectionPoolEntry, driver: Any) -> None:
        self._entry = entry
        self.driver = driver
        self.info: dict[str, Any] = entry.info
        """What is remembered as long as this connection is open."""

    def invalidate(self) -> None:
        """Close the connection. The pool replaces it."""
        self._entry.invalidate()


AnyConnection: TypeAlias = Connection | BareConnection


def driver_connection(connection: AnyConnection) -> Any:
    return connection.driver if isinstance(connection, BareConnection) else connection.connection.driver_connection


def info_of(connection: AnyConnection) -> dict[str, Any]:
    """Return what is remembered as long as the driver's connection is open."""
    return connection.info if isinstance(connection, BareConnection) else connection.connection.info


class WatchedPool(QueuePool):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counting = threading.Lock()
        self._waiting = self._asked = 0
        self._waited_s = 0.0

    def connect(self) -> PoolProxiedConnection:
        with self._counted():
            return super().connect()

    @contextmanager
    def lend(self) -> Iterator[BareConnection]:
        """Lend a connection. After an exception its transaction is rolled back, or else it is closed."""
        with self._counted():
            entry = self._do_get()
        try:
            lent = BareConnection(entry, self._open(entry))
            try:
                yield lent
            except BaseException:
                _reset(entry)
                raise
        finally:
            self._do_return_conn(entry)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.perf_counter()
        with self._counting:
            self._waiting += 1
            self._asked += 1
        try:
            yield
        finally:
            with self._counting:
                self._waiting -= 1
                self._waited_s += time.perf_counter() - began

    def _open(self, entry: ConnectionPoolEntry) -> Any:
        """Return the open connection of an entry; replace one that the listeners of "checkout" refuse."""
        for attempt in range(_ATTEMPTS + 1):
            connection = entry.get_connection()  # type: ignore[attr-defined]
            try:
                self.dispatch.checkout(connection, entry, None)
                return entry.driver_connection
            except sa_exc.DisconnectionError as error:
                entry.invalidate(error)
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError

    def use(self) -> PoolUse:
        return PoolUse(self.size(), self.checkedout(), self.checkedin(), self._waiting, self._asked, self._waited_s)


def pool_of(engine: Engine) -> WatchedPool:
    assert isinstance(engine.pool, WatchedPool)
    return engine.pool


def _reset(entry: ConnectionPoolEntry) -> None:
    driver = entry.driver_connection
    if driver is None:
        return
    try:
        driver.rollback()
    except BaseException as error:
        with suppress(Exception):
            entry.invalidate(error)
        if not isinstance(error, Exception):
            raise
