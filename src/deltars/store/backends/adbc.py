"""Rows of PostgreSQL as Arrow through ADBC, where `deltars[adbc]` is installed: binary COPY, decoded in C++.

ADBC has sessions of its own. So it is only asked for what is the same in every session: history at a fixed version.

    COPY of one share of the rows    ──▶ a thread: the next batch ──┐
    COPY of the other share          ──▶ a thread: the next batch ──┴──▶ batches, from each in turn

The server takes longer to put a row together than we to take it apart, and a session is one processor of it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from deltars.errors import DatabaseError
from deltars.store.backends.base import first_line

try:
    import adbc_driver_manager
    import adbc_driver_postgresql

    IS_INSTALLED = True
except ModuleNotFoundError:
    IS_INSTALLED = False

_log = logging.getLogger(__name__)


class Adbc:
    """The driver for one database. What takes long is learning the server's types; a session costs little."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._database: Any = None

    def batches(self, shares: Sequence[str], columns: pa.Schema) -> Iterator[pa.RecordBatch] | None:
        """The rows of these queries; None where ADBC cannot have them: psycopg can, or can say why."""
        with ExitStack() as stack:
            try:
                if self._database is None:
                    self._database = adbc_driver_postgresql.connect(self._conninfo)
                readers = [self._reader(query, stack) for query in shares]
            except adbc_driver_manager.Error:
                # Not what it says: that may show how the session was asked for.
                _log.debug("ADBC gives no rows here; reading through psycopg")
                return None
            return _rows(readers, columns, stack.pop_all())

    def _reader(self, query: str, stack: ExitStack) -> pa.RecordBatchReader:
        session = stack.enter_context(adbc_driver_manager.AdbcConnection(self._database))
        statement = stack.enter_context(adbc_driver_manager.AdbcStatement(session))
        statement.set_sql_query(query)
        stream, _ = statement.execute_query()
        return stack.enter_context(pa.RecordBatchReader._import_from_c(stream.address))


def _rows(readers: Sequence[pa.RecordBatchReader], columns: pa.Schema, sessions: ExitStack) -> Iterator[pa.RecordBatch]:
    """From each in turn, so that the order is always the same; each is one batch ahead."""
    try:
        with sessions, ThreadPoolExecutor(len(readers), thread_name_prefix="deltars-adbc") as pool:
            coming = deque((reader, pool.submit(next, reader, None)) for reader in readers)
            while coming:
                reader, ahead = coming.popleft()
                batch = ahead.result()
                if batch is not None:
                    coming.append((reader, pool.submit(next, reader, None)))
                    yield batch.cast(columns)
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        raise DatabaseError(f"reading from the catalog failed: {first_line(error)}", retryable=True) from error
