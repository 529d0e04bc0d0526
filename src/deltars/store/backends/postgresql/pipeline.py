"""Several PostgreSQL statements in one round trip, prepared once per connection, by libpq's pipeline mode.

    send BEGIN, limits, lock ──▶ one flush ──▶ three results            send write, COMMIT ──▶ one flush ──▶ …

psycopg's cursors would parse and convert each statement again: a commit's statement is too long for their cache, and
this alone took longer than the server needed to run it. psycopg does the waiting, so Ctrl-C works as usual, and it
converts the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import capabilities, generators
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.errors import DuplicatePreparedStatement, error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.bool import BoolLoader
from psycopg.types.numeric import IntLoader
from psycopg.types.string import TextLoader
from psycopg.waiting import Wait

from deltars.store.backends.base import Rows
from deltars.store.backends.pool import AnyConnection, driver_connection, info_of
from deltars.store.backends.prepared import Given, Prepared

MAX_PREPARED = 500
"""Most statements that are prepared on one connection, if libpq can close them (17 or newer). Each takes memory of the
server, and there may be any number of shapes of predicates."""

Values: TypeAlias = Sequence[bytes | None]
"""Values of a statement's parameters, in their order, as the server reads them."""


class Step(NamedTuple):
    """Statement and its values. A statement given as bytes takes no values and is not prepared."""

    statement: Prepared | bytes
    values: Values = ()


def step(statement: Prepared, given: Given) -> Step:
    """Return a statement with its values as the server reads them."""
    return Step(
        statement,
        [
            None if value is None else value.encode() if type(value) is str else str(value).encode()
            for value in statement.values(given)
        ],
    )


class _Session:
    """What is remembered as long as a connection is open."""

    __slots__ = ("driver", "libpq", "loading", "names", "server")

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self.driver = driver
        self.libpq = driver.pgconn
        self.server = self.libpq.server_version
        self.names: dict[str, bytes] = {}
        """Names of the statements that are prepared, by their text."""
        self.loading = Transformer(_TYPES)


def _session(connection: AnyConnection) -> _Session:
    info = info_of(connection)
    session: _Session | None = info.get(_KEY)
    if session is None:
        session = info[_KEY] = _Session(driver_of(connection))
    return session


def prepare(connection: AnyConnection, statements: Sequence[Prepared]) -> None:
    """Prepare statements, each once per connection. Beyond `MAX_PREPARED`, the oldest are closed.

    The name follows from the text. A pooler that does not know prepared statements may give this client a session in
    which another one has prepared its own: under a name of ours there is our statement, or none.
    """
    session = _session(connection)
    for statement in statements:
        if statement.text not in session.names:
            text = statement.text.encode()
            name = b"deltars_" + sha256(text).hexdigest()[:32].encode()
            is_idle = session.libpq.transaction_status == TransactionStatus.IDLE
            error = _error(session.driver, session.libpq.prepare(name, text))
            # In a transaction, the error has ended it.
            if error is not None and not (is_idle and isinstance(error, DuplicatePreparedStatement)):
                raise error
            session.names[statement.text] = name
            if len(session.names) > MAX_PREPARED and capabilities.has_send_close_prepared():
                try:
                    _close_oldest(session, {each.text for each in statements})
                except BaseException:
                    # Whether the statement is still prepared is unknown.
                    connection.invalidate()
                    raise


def _close_oldest(session: _Session, needed: Collection[str]) -> None:
    """Close the statement that was prepared first, of those that are not needed now."""
    oldest = next((text for text in session.names if text not in needed), None)
    if oldest is not None:
        session.libpq.close_prepared(session.names.pop(oldest))


def run_pipeline(connection: AnyConnection, steps: Sequence[Step]) -> list[Rows | psycopg.Error]:
    """Run statements in one round trip. Return the rows or the error of each; nothing after an error was run."""
    session = _session(connection)
    names, libpq, driver = session.names, session.libpq, session.driver
    prepare(connection, [statement for statement, _ in steps if isinstance(statement, Prepared)])
    try:
        libpq.enter_pipeline_mode()
        for statement, values in steps:
            if isinstance(statement, bytes):
                libpq.send_query_params(statement, None)
            else:
                libpq.send_query_prepared(names[statement.text], values)
        libpq.pipeline_sync()
        if libpq.flush():
            driver.wait(generators.send(libpq))
        results = driver.wait(_answers(driver))
        libpq.exit_pipeline_mode()
    except BaseException:
        # In the middle of a pipeline the state of the connection is unknown.
        connection.invalidate()
        raise
    return [_rows(session, result) for result in results]


def rows_of_each(answers: Sequence[Rows | psycopg.Error]) -> list[Rows]:
    """Return the rows of each answer; raise the first error among them."""
    found: list[Rows] = []
    for answer in answers:
        if isinstance(answer, psycopg.Error):
            raise answer
        found.append(answer)
    return found


def rows_of(answers: Sequence[Rows | psycopg.Error]) -> Rows:
    """Return the rows of the last answer; raise the first error among them."""
    return rows_of_each(answers)[-1]


def server_of(connection: AnyConnection) -> int:
    """Return the server's version as a number, such as 180004."""
    return _session(connection).server


def driver_of(connection: AnyConnection) -> psycopg.Connection[Any]:
    driver = driver_connection(connection)
    assert isinstance(driver, psycopg.Connection)
    return driver


def _answers(driver: psycopg.Connection[Any]) -> PQGen[list[PGresult]]:
    """Return the result of every statement up to the end of the pipeline."""
    libpq = driver.pgconn
    results: list[PGresult] = []
    while True:
        while libpq.is_busy():
            yield Wait.R
            try:
                libpq.consume_input()
            except psycopg.OperationalError:
                # Messages that the server sent before it closed the connection have been read; get_result returns them.
                break
        result = libpq.get_result()
        if result is None:  # between two statements, and at the end of a lost connection
            if libpq.status != ConnStatus.OK:
                raise _lost(driver, results)
        elif result.status == ExecStatus.PIPELINE_SYNC:
            return results
        else:
            results.append(result)


def _lost(driver: psycopg.Connection[Any], results: Sequence[PGresult]) -> psycopg.Error:
    """Return the server's error for a lost connection, or a general one if the server sent none."""
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR and result.error_field(DiagnosticField.SQLSTATE):
            return error_from_result(result, driver.info.encoding)
    return psycopg.OperationalError("the connection was lost")


def _rows(session: _Session, result: PGresult) -> Rows | psycopg.Error:
    """Return the rows of a statement, or its error. Integers and booleans are converted; all other values stay text."""
    status = result.status
    if status == _COMMAND_OK:
        return []
    if status != _TUPLES_OK:
        return _error(session.driver, result) or []
    loading = session.loading
    loading.set_pgresult(result)
    return loading.load_rows(0, result.ntuples, tuple)


def _error(driver: psycopg.Connection[Any], result: PGresult) -> psycopg.Error | None:
    if result.status in (_COMMAND_OK, _TUPLES_OK):
        return None
    if result.status == ExecStatus.PIPELINE_ABORTED:
        return psycopg.errors.PipelineAborted("an earlier statement failed")
    return error_from_result(result, driver.info.encoding)


def _types() -> AdaptersMap:
    types = AdaptersMap()
    for oid in (20, 21, 23):
        types.register_loader(oid, IntLoader)
    types.register_loader(16, BoolLoader)
    types.register_loader(0, TextLoader)  # every type that is not registered
    return types


_KEY = "deltars_session"
_TYPES = _types()
_COMMAND_OK, _TUPLES_OK = int(ExecStatus.COMMAND_OK), int(ExecStatus.TUPLES_OK)
