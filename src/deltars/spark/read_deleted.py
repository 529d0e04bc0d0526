"""Deleted rows: what deletion vectors name, taken away by a join on file and row number.

rows with their file and number ──anti-join── (file, number) of each deleted row
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.deletion_vectors import read_vector
from deltars.data.files import Scan
from deltars.errors import DeltarsError, StorageError
from deltars.protocol import DeletionVector
from deltars.spark.manifest import file_uri
from deltars.spark.read_files import DataFile
from deltars.storage import open_storage

PATH, ROW = "__deltars_path", "__deltars_row"
MAX_BROADCAST_ROWS = 1_000_000

_decode = msgspec.json.Decoder(DeletionVector).decode


def with_place(frame: DataFrame, *, row: bool) -> DataFrame:
    """The frame of a scan with each row's file and, if asked for, its number in it."""
    metadata = frame.metadataColumn("_metadata")
    # Depending on how it came to know the file, Spark writes three slashes or one.
    path = F.replace(metadata.getField("file_path"), F.lit("file:///"), F.lit("file:/"))
    added = {PATH: path, ROW: metadata.getField("row_index")} if row else {PATH: path}
    return frame.select("*", *(column.alias(name) for name, column in added.items()))


def check_places(scan: Scan, frame: DataFrame, files: Sequence[DataFile]) -> None:
    """That Spark names these files as we do: or a join on their names would lose rows, or bring deleted ones back."""
    theirs = {uri.replace("file:///", "file:/", 1) for uri in frame.inputFiles()}
    for file in files:
        if file_uri(file.location) not in theirs:
            raise StorageError(
                f"Spark has another name for the data file {file.path}, and its rows cannot be told apart",
                path=file.path,
                table=scan.table,
                version=scan.version,
                hint="to_arrow() reads it.",
            )


def without_deleted(spark: SparkSession, scan: Scan, frame: DataFrame, files: Sequence[DataFile]) -> DataFrame:
    deleted = _deleted_rows(scan, files)
    if not deleted.num_rows:
        return frame
    rows = spark.createDataFrame(deleted)
    if deleted.num_rows <= MAX_BROADCAST_ROWS:
        rows = F.broadcast(rows)
    return frame.join(rows, [PATH, ROW], "left_anti")


def _deleted_rows(scan: Scan, files: Sequence[DataFile]) -> pa.Table:
    storage = open_storage(scan.root, scan.storage_options)
    paths, rows = [], []
    for file in files:
        assert file.vector is not None
        try:
            numbers = read_vector(storage, _decode(file.vector)).to_array()
        except DeltarsError as error:
            error.message = f"{file.path}: {error.message}"
            raise error.located(table=scan.table, version=scan.version) from error.__cause__
        rows.append(pa.array(numbers, pa.int64()))
        paths.append(pa.repeat(pa.scalar(file_uri(file.location), pa.string()), len(numbers)))
    return pa.table({PATH: pa.chunked_array(paths, pa.string()), ROW: pa.chunked_array(rows, pa.int64())})
