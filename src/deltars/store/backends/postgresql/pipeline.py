"""Several PostgreSQL statements in one round trip, prepared once per connection, by libpq's pipeline mode.

    send BEGIN, limits, lock ──▶ one flush ──▶ three results            send write, COMMIT ──▶ one flush ──▶ …

psycopg's cursors would parse and convert each statement again: a commit's statement is too long for their cache, and
this alone took longer than the server needed to run it. psycopg does the waiting, so Ctrl-C works as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.errors import DuplicatePreparedStatement, error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Wait

from deltars.store.backends.base import Rows
from deltars.store.backends.pool import AnyConnection, driver_connection, info_of
from deltars.store.backends.prepared import Prepared


class Step(NamedTuple):
    """Statement and its values. A statement given as bytes takes no values and is not prepared."""

    statement: Prepared | bytes
    values: Mapping[str, Any] = {}


def prepare(connection: AnyConnection, statement: Prepared) -> bytes:
    """Prepare a statement once per connection, and return its name on the server.

    The name follows from the text. A pooler that does not know prepared statements may give this client a session in
    which another one has prepared its own: under a name of ours there is our statement, or none.
    """
    names: dict[Prepared, bytes] = info_of(connection).setdefault("deltars_prepared", {})
    if statement not in names:
        driver = driver_of(connection)
        text = statement.text.encode()
        name = b"deltars_" + sha256(text).hexdigest()[:32].encode()
        if name not in names.values():
            is_idle = driver.info.transaction_status is TransactionStatus.IDLE
            error = _error(driver, driver.pgconn.prepare(name, text))
            # In a transaction, the error has ended it.
            if error is not None and not (is_idle and isinstance(error, DuplicatePreparedStatement)):
                raise error
        names[statement] = name
    return names[statement]


def run_pipeline(connection: AnyConnection, steps: Sequence[Step]) -> list[Rows | psycopg.Error]:
    """Run statements in one round trip. Return the rows or the error of each; nothing after an error was run."""
    driver = driver_of(connection)
    libpq = driver.pgconn
    names = {
        step.statement: prepare(connection, step.statement) for step in steps if isinstance(step.statement, Prepared)
    }
    try:
        libpq.enter_pipeline_mode()
        for step in steps:
            if isinstance(step.statement, Prepared):
                values = [
                    None if value is None else str(value).encode() for value in step.statement.values(step.values)
                ]
                libpq.send_query_prepared(names[step.statement], values)
            else:
                libpq.send_query_params(step.statement, None)
        libpq.pipeline_sync()
        if libpq.flush():
            driver.wait(generators.send(libpq))
        results = driver.wait(_answers(driver))
        libpq.exit_pipeline_mode()
    except BaseException:
        # In the middle of a pipeline the state of the connection is unknown.
        connection.invalidate()
        raise
    return [_error(driver, result) or _rows(result) for result in results]


def rows_of(answers: Sequence[Rows | psycopg.Error]) -> Rows:
    """Return the last answer; raise the first error among them."""
    rows: Rows = []
    for answer in answers:
        if isinstance(answer, psycopg.Error):
            raise answer
        rows = answer
    return rows


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


def _rows(result: PGresult) -> Rows:
    count = result.ntuples
    if not count:
        return []
    columns = range(result.nfields)
    if count >= _MANY and all(result.ftype(column) in _SAME for column in columns):
        # Each transaction begins by reading a catalog of up to ten thousand tables.
        loading = Transformer()
        loading.set_pgresult(result)
        return loading.load_rows(0, count, tuple)
    value_at, readers = result.get_value, [_READ.get(result.ftype(column), bytes.decode) for column in columns]
    return [
        tuple(None if (value := value_at(row, column)) is None else read(value) for column, read in enumerate(readers))
        for row in range(count)
    ]


def _error(driver: psycopg.Connection[Any], result: PGresult) -> psycopg.Error | None:
    if result.status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        return None
    if result.status == ExecStatus.PIPELINE_ABORTED:
        return psycopg.errors.PipelineAborted("an earlier statement failed")
    return error_from_result(result, driver.info.encoding)


# Converters by type OID: integers. Everything else stays text.
_READ: dict[int, Callable[[bytes], Any]] = {20: int, 21: int, 23: int}
_SAME = (*_READ, 25, 1043)
"""Types whose values psycopg's own loaders, in C, convert in the same way: integers and texts."""
_MANY = 100
"""Number of rows from which psycopg's loaders are worth their preparation."""
