"""Connection pool of a fixed size, for SQLAlchemy and for the driver alone.

    engine.connect()  ──▶ Connection       for statements that SQLAlchemy runs
    pool.lend()       ──▶ BareConnection   for prepared statements only: a small transaction ends before SQLAlchemy's
                                           own Connection and Transaction would be made

Both come from the same pool, so its limit holds for their sum. The connection that was returned last is lent first:
its session has its statements prepared. SQLAlchemy's own pool takes ten times as long to lend a connection.
"""

from __future__ import annotations

import gc
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeAlias
from weakref import WeakSet

from sqlalchemy import Connection, Engine, Pool
from sqlalchemy import exc as sa_exc
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.pool.base import _ConnectionRecord

from deltars.observe import PoolUse

_LOST_S = 1.0
"""How often a caller that waits looks for room that a lost entry made: no one reports it."""
_ATTEMPTS = 2
"""How many connections of the pool are replaced if they are dead. SQLAlchemy does the same."""


class BareConnection:
    """Connection of the driver, lent by the pool until the end of a `with` block.

    Its borrower ends every transaction that it begins. After an exception the transaction is rolled back, or else the
    connection is closed.
    """

    __slots__ = ("_entry", "_pool", "driver", "info")

    def __init__(self, pool: WatchedPool, entry: ConnectionPoolEntry, driver: Any) -> None:
        self._pool = pool
        self._entry = entry
        self.driver = driver
        self.info: dict[str, Any] = entry.info
        """What is remembered as long as this connection is open."""

    def invalidate(self) -> None:
        """Close the connection. The pool replaces it."""
        self._entry.invalidate()

    def __enter__(self) -> BareConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                _reset(self._entry)
        finally:
            self._pool._do_return_conn(self._entry)


AnyConnection: TypeAlias = Connection | BareConnection


def driver_connection(connection: AnyConnection) -> Any:
    return connection.driver if isinstance(connection, BareConnection) else connection.connection.driver_connection


def info_of(connection: AnyConnection) -> dict[str, Any]:
    """Return what is remembered as long as the driver's connection is open."""
    return connection.info if isinstance(connection, BareConnection) else connection.connection.info


class WatchedPool(Pool):
    """Pool that counts its callers and how long they waited.

    It knows its lent entries by weak references only: one that an interrupt takes from its borrower makes room again.
    """

    def __init__(self, creator: Any, pool_size: int, timeout: float, **options: Any) -> None:
        super().__init__(creator, **options)
        self._size = pool_size
        self.timeout_s = timeout
        self._idle: list[ConnectionPoolEntry] = []
        self._entries: WeakSet[ConnectionPoolEntry] = WeakSet()
        self._change = threading.Condition()
        self._counting = threading.Lock()
        self._waiting = self._asked = 0
        self._waited_s = 0.0
        self._is_disposed = False

    def lend(self) -> BareConnection:
        entry = self._do_get()
        try:
            return BareConnection(self, entry, self._open(entry))
        except BaseException:
            self._do_return_conn(entry)
            raise

    def use(self) -> PoolUse:
        idle = len(self._idle)
        in_use = len(self._entries) - idle
        return PoolUse(self._size, in_use, idle, self._waiting, self._asked, self._waited_s)

    # -- what SQLAlchemy calls -----------------------------------------------------------------------------------

    def _do_get(self) -> ConnectionPoolEntry:
        with self._counting:
            self._asked += 1
        try:
            return self._idle.pop()
        except IndexError:
            return self._wait()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        if self._is_disposed:
            # Another thread closed the catalog while this one used the connection.
            record.close()
            return
        self._idle.append(record)
        if self._waiting:
            with self._change:
                self._change.notify()

    def dispose(self) -> None:
        self._is_disposed = True
        while self._idle:
            with suppress(IndexError):  # Another thread took the last one.
                self._idle.pop().close()

    def recreate(self) -> WatchedPool:
        return WatchedPool(
            self._creator,
            self._size,
            self.timeout_s,
            recycle=self._recycle,
            echo=self.echo,
            logging_name=self._orig_logging_name,
            reset_on_return=self._reset_on_return,
            pre_ping=self._pre_ping,
            _dispatch=self.dispatch,
            dialect=self._dialect,
        )

    def status(self) -> str:
        return str(self.use())

    # -- inside --------------------------------------------------------------------------------------------------

    def _wait(self) -> ConnectionPoolEntry:
        """Return a new entry if there is room, or wait for one. Its connection is opened by who takes it."""
        began = time.monotonic()
        is_collected = False
        with self._change:
            self._waiting += 1
            try:
                while True:
                    with suppress(IndexError):
                        return self._idle.pop()
                    if len(self._entries) < self._size:
                        entry = _ConnectionRecord(self, connect=False)
                        self._entries.add(entry)
                        return entry
                    left_s = began + self.timeout_s - time.monotonic()
                    if left_s > 0:
                        self._change.wait(min(left_s, _LOST_S))
                    elif is_collected:
                        raise sa_exc.TimeoutError(f"all {self._size} connections are in use")
                    else:
                        # A lost entry in a reference cycle makes room only now.
                        gc.collect()
                        is_collected = True
            finally:
                self._waiting -= 1
                self._waited_s += time.monotonic() - began

    def _open(self, entry: ConnectionPoolEntry) -> Any:
        """Return the open connection of an entry; replace one that the listeners of "checkout" refuse."""
        for attempt in range(_ATTEMPTS + 1):
            connection = entry.get_connection()  # type: ignore[attr-defined]
            try:
                self.dispatch.checkout(connection, entry, None)
                return connection
            except sa_exc.DisconnectionError as error:
                entry.invalidate(error)
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError


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
