"""Removal of the rows that deletion vectors name, by a join on file and row number.

rows with their file and number ──anti-join── (file, number) of each deleted row
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.deletion_vectors import read_vector
from deltars.data.scan import Scan
from deltars.errors import DeltarsError
from deltars.protocol.actions import decode_deletion_vector
from deltars.spark.read.files import DataFile
from deltars.spark.read.manifest import file_uri
from deltars.storage import open_storage

MAX_BROADCAST_ROWS = 1_000_000


class PositionColumns(NamedTuple):
    """Names of the two columns that hold a row's file and its row number there."""

    path: str
    row: str


def position_columns(scan: Scan) -> PositionColumns:
    """Return two names that neither the table nor its files use for a column."""
    taken = {name.lower() for field in scan.schema.fields for name in (field.name, field.physical_name)}
    for number in count():
        position = PositionColumns(f"__deltars_path_{number}", f"__deltars_row_{number}")
        if taken.isdisjoint(position):
            return position
    raise AssertionError("unreachable: some number is always free")


def with_position(frame: DataFrame, position: PositionColumns, *, row: bool) -> DataFrame:
    """Add each row's file and, with `row`, its row number in the file."""
    metadata = frame.metadataColumn("_metadata")
    # Spark writes three slashes or one, depending on how it found the file.
    path = F.replace(metadata.getField("file_path"), F.lit("file:///"), F.lit("file:/"))
    added = {position.path: path, position.row: metadata.getField("row_index")} if row else {position.path: path}
    return frame.select("*", *(column.alias(name) for name, column in added.items()))


def without_deleted(spark: SparkSession, scan: Scan, frame: DataFrame, files: Sequence[DataFile]) -> DataFrame:
    position = position_columns(scan)
    deleted = _deleted_rows(scan, files, position)
    if not deleted.num_rows:
        return frame
    rows = spark.createDataFrame(deleted)
    if deleted.num_rows <= MAX_BROADCAST_ROWS:
        rows = F.broadcast(rows)
    return frame.join(rows, list(position), "left_anti")


def _deleted_rows(scan: Scan, files: Sequence[DataFile], position: PositionColumns) -> pa.Table:
    storage = open_storage(scan.root, scan.storage_options)
    paths, rows = [], []
    for file in files:
        assert file.vector is not None
        try:
            numbers = read_vector(storage, decode_deletion_vector(file.vector)).to_array()
        except DeltarsError as error:
            error.message = f"{file.path}: {error.message}"
            raise error.located(table=scan.table, version=scan.version) from error.__cause__
        rows.append(pa.array(numbers, pa.int64()))
        paths.append(pa.repeat(pa.scalar(file_uri(file.location), pa.string()), len(numbers)))
    return pa.table(
        {position.path: pa.chunked_array(paths, pa.string()), position.row: pa.chunked_array(rows, pa.int64())}
    )
