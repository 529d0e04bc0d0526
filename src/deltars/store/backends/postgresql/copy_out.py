"""Rows of a PostgreSQL query as Arrow, by COPY TO STDOUT.

    COPY (…) TO STDOUT (FORMAT csv) ──▶ blocks of whole rows ──▶ pyarrow's CSV reader ──▶ record batches
                                        the next block is collected while this one is parsed

libpq returns one row at a time. Rows are only concatenated here; no value becomes a Python object. psycopg's own `Copy`
needs four times the CPU time per row. CSV distinguishes NULL (unquoted) from the empty string (quoted).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Wait
from sqlalchemy import Connection

BLOCK_BYTES = 8 * 1024 * 1024


def copy_batches(connection: Connection, query: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query that contains its values as quoted literals."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    is_over = False
    try:
        driver.pgconn.send_query(f"COPY ({query}) TO STDOUT (FORMAT csv)".encode())
        driver.wait(generators.send(driver.pgconn))
        begun = driver.wait(_result(driver))
        if begun is not None and begun.status == ExecStatus.COPY_OUT:
            yield from _parsed(_blocks(driver), columns)
        results = [begun, *driver.wait(_results(driver))]
        is_over = True
        for result in results:
            if result is not None and result.status == ExecStatus.FATAL_ERROR:
                raise error_from_result(result, driver.info.encoding)
    finally:
        if not is_over:
            # The remaining rows were not read, so the connection cannot be used again.
            connection.invalidate()


def _parsed(blocks: Iterator[bytearray], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    first = next(blocks)
    second = next(blocks, None)
    if second is None:
        yield from _parse(first, columns)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="deltars-copy") as pool:
        parsing: Future[list[pa.RecordBatch]] = pool.submit(_parse, first, columns)
        block: bytearray | None = second
        while block is not None:
            done, parsing = parsing, pool.submit(_parse, block, columns)
            yield from done.result()
            block = next(blocks, None)
        yield from parsing.result()


def _blocks(driver: psycopg.Connection) -> Iterator[bytearray]:
    """Yield the blocks: at least one, which may be empty."""
    has_more = True
    while has_more:
        rows, has_more = driver.wait(_block(driver))
        yield rows


def _block(driver: psycopg.Connection) -> PQGen[tuple[bytearray, bool]]:
    """Return some rows, and whether more may follow."""
    libpq, rows = driver.pgconn, bytearray()
    # Each row is copied and freed at once: collecting rows for a single join took twice the time.
    while len(rows) < BLOCK_BYTES:
        length, row = libpq.get_copy_data(1)
        if length > 0:
            rows += row
        elif length == 0:
            yield Wait.R
            libpq.consume_input()
        else:
            return rows, False
    return rows, True


def _result(driver: psycopg.Connection) -> PQGen[PGresult | None]:
    libpq = driver.pgconn
    while libpq.is_busy():
        yield Wait.R
        libpq.consume_input()
    return libpq.get_result()


def _results(driver: psycopg.Connection) -> PQGen[list[PGresult]]:
    """Return the remaining results of the statement."""
    results = []
    while (result := (yield from _result(driver))) is not None:
        results.append(result)
    return results


def _parse(rows: bytearray, columns: pa.Schema) -> list[pa.RecordBatch]:
    if not rows:
        return []
    table = pa_csv.read_csv(
        pa.BufferReader(rows),
        # One block for all: a row may be longer than Arrow's default block.
        pa_csv.ReadOptions(column_names=columns.names, block_size=len(rows)),
        # An empty line is a row whose only value is NULL.
        pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pa_csv.ConvertOptions(
            column_types=columns,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(table.columns, schema=columns).to_batches()
    return batches
