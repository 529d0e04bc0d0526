"""Rows of PostgreSQL as Arrow through ADBC, if `deltars[adbc]` is installed: binary COPY, decoded in C++.

ADBC opens separate sessions. So it only reads what is the same in every session: history at a fixed version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
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
    """ADBC driver for one database. Loading the server's types takes long, once; a session costs little."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._database: Any = None

    def batches(self, query: str, columns: pa.Schema) -> Iterator[pa.RecordBatch] | None:
        """Return the rows of a query; None if ADBC cannot read them. psycopg then reads them or reports the error."""
        with ExitStack() as stack:
            try:
                if self._database is None:
                    self._database = adbc_driver_postgresql.connect(self._conninfo)
                session = stack.enter_context(adbc_driver_manager.AdbcConnection(self._database))
                statement = stack.enter_context(adbc_driver_manager.AdbcStatement(session))
                statement.set_sql_query(query)
                stream, _ = statement.execute_query()
            except adbc_driver_manager.Error:
                # The error text is not logged: it may contain the connection string.
                _log.debug("ADBC cannot read this query; reading through psycopg")
                return None
            return _rows(stream, columns, stack.pop_all())


def _rows(stream: Any, columns: pa.Schema, session: ExitStack) -> Iterator[pa.RecordBatch]:
    try:
        with session, pa.RecordBatchReader._import_from_c(stream.address) as reader:
            for batch in reader:
                yield batch.cast(columns)
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        raise DatabaseError(f"reading from the catalog failed: {first_line(error)}", retryable=True) from error
