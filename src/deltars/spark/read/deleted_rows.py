"""Removal of the rows that deletion vectors name, by one bitmap per file.

rows with their file and number ──join on the file── its bitmap, broadcast ──> rows whose bit is not set

Bitmaps that are too large to broadcast are joined as rows instead: an anti-join on file and row number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.column_names import free_names
from deltars.data.deletion_vectors import read_vector
from deltars.data.scan import Scan
from deltars.errors import DeltarsError
from deltars.protocol.actions import decode_deletion_vector
from deltars.spark.read.files import DataFile
from deltars.spark.read.row_position import file_keys, is_same_file, position_columns, spellings
from deltars.storage import open_storage

MAX_BROADCAST_BYTES = 64 * 1024 * 1024
"""Limit for the bitmaps of one scan. They have one bit for each row up to the last deleted one."""
MAX_BROADCAST_ROWS = 1_000_000

_WORD_BITS = 64


def read_vectors(scan: Scan, files: Sequence[DataFile]) -> list[BitMap64]:
    """Return the deleted rows of each of these files, which all have a vector."""
    storage = open_storage(scan.root, scan.storage_options)
    vectors = []
    for file in files:
        assert file.vector is not None
        try:
            vectors.append(read_vector(storage, decode_deletion_vector(file.vector)))
        except DeltarsError as error:
            error.message = f"{file.path}: {error.message}"
            raise error.located(table=scan.table, version=scan.version) from error.__cause__
    return vectors


def without_rows(
    spark: SparkSession, scan: Scan, frame: DataFrame, files: Sequence[DataFile], deleted: Sequence[BitMap64]
) -> DataFrame:
    """Return the frame without these rows of its files. It has the position columns."""
    if not any(deleted):
        return frame
    if size_bytes(deleted) > MAX_BROADCAST_BYTES:
        return _without_listed_rows(spark, scan, frame, files, deleted)
    position = position_columns(scan)
    key, words = free_names(("key", "words"), {*position, *(name.lower() for name in frame.columns)})
    file_column, keys = file_keys(position, [file.location for file in files])
    bitmaps = [_words(rows) for rows, of_file in zip(deleted, keys, strict=True) for _ in of_file]
    table = pa.table(
        {
            key: pa.array([name for of_file in keys for name in of_file], pa.string()),
            words: pa.array(bitmaps, pa.list_(pa.int64())),
        }
    )
    # A word beyond the last one has no deleted rows. Spark evaluates shifts faster than `bit_get`.
    word = f"coalesce(get({words}, cast(shiftright({position.row}, 6) AS INT)), 0L)"
    is_kept = F.expr(f"shiftrightunsigned({word}, cast({position.row} & 63 AS INT)) & 1L = 0L")
    joined = frame.join(F.broadcast(spark.createDataFrame(table)), is_same_file(file_column, F.col(key)))
    return joined.where(is_kept).drop(key, words)


def size_bytes(deleted: Sequence[BitMap64]) -> int:
    """Return how much memory the rows need as bitmaps."""
    return sum(rows.max() // 8 + 8 for rows in deleted if rows)


def _words(rows: BitMap64) -> np.ndarray:
    """Return the bitmap as 64-bit words, lowest bit first."""
    numbers = np.frombuffer(rows.to_array(), np.uint64) if rows else np.empty(0, np.uint64)
    bits = np.zeros((int(numbers[-1]) // _WORD_BITS + 1) * _WORD_BITS if rows else 0, np.bool_)
    bits[numbers] = True
    return np.packbits(bits, bitorder="little").view("<i8")


def _without_listed_rows(
    spark: SparkSession, scan: Scan, frame: DataFrame, files: Sequence[DataFile], deleted: Sequence[BitMap64]
) -> DataFrame:
    position = position_columns(scan)
    paths, numbers = [], []
    for file, rows in zip(files, deleted, strict=True):
        for uri in spellings(file.location):
            numbers.append(pa.array(rows.to_array(), pa.int64()))
            paths.append(pa.repeat(pa.scalar(uri, pa.string()), len(rows)))
    table = pa.table(
        {position.path: pa.chunked_array(paths, pa.string()), position.row: pa.chunked_array(numbers, pa.int64())}
    )
    listed = spark.createDataFrame(table)
    if table.num_rows <= MAX_BROADCAST_ROWS:
        listed = F.broadcast(listed)
    return frame.join(listed, [position.path, position.row], "left_anti")
