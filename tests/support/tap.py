"""Every statement that a commit sends, on any backend: counted, held back, or made to fail.

    with tapped(catalog_uri) as tap:
        …                                     # connect to `tap.uri`
        with tap.failing(3): …                # the third statement from here on is refused by the database
        with tap.holding("COMMIT") as hold:   # a statement with this text waits …
            hold.wait_until_reached(); …      # … meanwhile

On PostgreSQL the statements are read on the wire; on SQLite and DuckDB at the driver, below everything that deltars
does. A failing statement is replaced by one that the database itself refuses: the error, and what it does to the
transaction, are real.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import duckdb_sqlalchemy

from deltars.uri import parse_catalog_uri
from tests.support.wire import Verdict, Wire, tapped_wire

HOLD_TIMEOUT_S = 60.0


class Hold:
    """A statement that waits until the block around it ends."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def wait_until_reached(self) -> None:
        assert self._reached.wait(HOLD_TIMEOUT_S), "no such statement came"

    def release(self) -> None:
        self._released.set()

    def keep(self) -> None:
        self._reached.set()
        assert self._released.wait(HOLD_TIMEOUT_S), "the statement was held and never released"


class Tap:
    """What runs through one catalog's connections."""

    def __init__(self, uri: str, statements: list[str]) -> None:
        self.uri = uri
        """Where to connect, for being seen."""
        self.statements = statements
        """Every statement so far, of all connections."""
        self._judge: Callable[[str], Verdict] | None = None

    def judge(self, statement: str) -> Verdict:
        return Verdict.PASS if self._judge is None else self._judge(statement)

    @contextmanager
    def judging(self, judge: Callable[[str], Verdict]) -> Iterator[None]:
        assert self._judge is None
        self._judge = judge
        try:
            yield
        finally:
            self._judge = None

    @contextmanager
    def recording(self) -> Iterator[list[str]]:
        """The statements that run inside the block."""
        seen: list[str] = []
        start = len(self.statements)
        yield seen
        seen += self.statements[start:]

    @contextmanager
    def failing(self, number: int) -> Iterator[None]:
        """Of the statements from here on, this one (counted from 1) fails."""
        start = len(self.statements)
        with self.judging(lambda _: Verdict.FAIL if len(self.statements) - start == number else Verdict.PASS):
            yield

    @contextmanager
    def holding(self, text: str) -> Iterator[Hold]:
        """The first statement with this text waits until it is released, at the latest when the block ends."""
        hold = Hold()
        waiting = iter([hold])

        def judge(statement: str) -> Verdict:
            # Whole where it is one word: PostgreSQL's BEGIN … READ COMMITTED is no COMMIT.
            is_it = statement == text if text == "COMMIT" else text in statement
            if is_it and next(waiting, None) is not None:
                hold.keep()
            return Verdict.PASS

        with self.judging(judge):
            try:
                yield hold
            finally:
                hold.release()


@contextmanager
def tapped(catalog_uri: str) -> Iterator[Tap]:
    """A tap on the connections that are opened from here on, to `tap.uri`."""
    match parse_catalog_uri(catalog_uri).backend:
        case "postgres":
            with tapped_wire(catalog_uri) as (uri, wire):
                yield _on_wire(uri, wire)
        case "sqlite":
            tap = Tap(catalog_uri, [])
            connect: Any = sqlite3.connect

            def open_tapped(*args: Any, **options: Any) -> sqlite3.Connection:
                # A URI is how the tests' own witness looks on.
                factory = {} if "uri" in options else {"factory": _sqlite_factory(tap)}
                opened: sqlite3.Connection = connect(*args, **options, **factory)
                return opened

            with mock.patch.object(sqlite3, "connect", open_tapped):
                yield tap
        case "duckdb":
            tap = Tap(catalog_uri, [])
            wrapper = duckdb_sqlalchemy.ConnectionWrapper
            original: Any = wrapper.__init__

            def wrap_tapped(self: Any, connection: Any) -> None:
                original(self, _TappedDuckDB(connection, tap))

            with mock.patch.object(wrapper, "__init__", wrap_tapped):
                yield tap


def _on_wire(uri: str, wire: Wire) -> Tap:
    tap = Tap(uri, wire.statements)
    wire.judge = tap.judge
    return tap


def _sqlite_factory(tap: Tap) -> type[sqlite3.Connection]:
    class TappedCursor(sqlite3.Cursor):
        def execute(self, statement: str, *parameters: Any) -> TappedCursor:
            if _passes(tap, statement):
                super().execute(statement, *parameters)
            else:
                super().execute(_FAILING_SQLITE)
            return self

        def executemany(self, statement: str, parameters: Iterable[Any]) -> TappedCursor:
            for row in parameters:
                self.execute(statement, row)
            return self

    class TappedConnection(sqlite3.Connection):
        def cursor(self, *_: Any, **__: Any) -> TappedCursor:  # type: ignore[override]
            return TappedCursor(self)

        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            return self.cursor().execute(statement, *parameters)

        def commit(self) -> None:
            if not self.in_transaction:
                return
            if _passes(tap, "COMMIT"):
                super().commit()
            else:
                super().execute(_FAILING_SQLITE)

    return TappedConnection


class _TappedDuckDB:
    def __init__(self, connection: Any, tap: Tap) -> None:
        self._connection = connection
        self._tap = tap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *parameters: Any) -> Any:
        if _passes(self._tap, statement):
            return self._connection.execute(statement, *parameters)
        return self._connection.execute(_FAILING_DUCKDB)

    def executemany(self, statement: str, parameters: Iterable[Any]) -> None:
        for row in parameters:
            self.execute(statement, row)

    def begin(self) -> None:
        if _passes(self._tap, "BEGIN"):
            self._connection.begin()
        else:
            self._connection.execute(_FAILING_DUCKDB)

    def commit(self) -> None:
        if _passes(self._tap, "COMMIT"):
            self._connection.commit()
        else:
            self._connection.execute(_FAILING_DUCKDB)


_FAILING_SQLITE = "SELECT json('spoilt')"
_FAILING_DUCKDB = "SELECT error('spoilt')"


def _passes(tap: Tap, statement: str) -> bool:
    tap.statements.append(statement)
    return tap.judge(statement) is not Verdict.FAIL
