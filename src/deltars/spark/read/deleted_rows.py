"""Deleted rows: what deletion vectors name, taken away by a join on file and row number.

rows with their file and number ──anti-join── (file, number) of each deleted row
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.deletion_vectors import read_vector
from deltars.data.scan import Scan
from deltars.errors import DeltarsError
from deltars.protocol import DeletionVector
from deltars.spark.read.files import DataFile
from deltars.spark.read.manifest import file_uri
from deltars.storage import open_storage

MAX_BROADCAST_ROWS = 1_000_000

_decode = msgspec.json.Decoder(DeletionVector).decode


class Place(NamedTuple):
    """The names of two columns that say where a row comes from."""

    path: str
    row: str


def place_of(scan: Scan) -> Place:
    """Names that no column of the table has, nor of its files."""
    taken = {name.lower() for field in scan.schema.fields for name in (field.name, field.physical_name)}
    for number in count():
        place = Place(f"__deltars_path_{number}", f"__deltars_row_{number}")
        if taken.isdisjoint(place):
            return place
    raise AssertionError("there is always a free number")


def with_place(frame: DataFrame, place: Place, *, row: bool) -> DataFrame:
    """The frame of a scan with each row's file and, if asked for, its number in it."""
    metadata = frame.metadataColumn("_metadata")
    # Depending on how it came to know the file, Spark writes three slashes or one.
    path = F.replace(metadata.getField("file_path"), F.lit("file:///"), F.lit("file:/"))
    added = {place.path: path, place.row: metadata.getField("row_index")} if row else {place.path: path}
    return frame.select("*", *(column.alias(name) for name, column in added.items()))


def without_deleted(spark: SparkSession, scan: Scan, frame: DataFrame, files: Sequence[DataFile]) -> DataFrame:
    place = place_of(scan)
    deleted = _deleted_rows(scan, files, place)
    if not deleted.num_rows:
        return frame
    rows = spark.createDataFrame(deleted)
    if deleted.num_rows <= MAX_BROADCAST_ROWS:
        rows = F.broadcast(rows)
    return frame.join(rows, list(place), "left_anti")


def _deleted_rows(scan: Scan, files: Sequence[DataFile], place: Place) -> pa.Table:
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
    return pa.table({place.path: pa.chunked_array(paths, pa.string()), place.row: pa.chunked_array(rows, pa.int64())})
