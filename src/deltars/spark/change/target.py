"""Rows of the table that a statement may change, each with its position.

Scan ──files that Spark reads──> parts: a path that is live twice is in two of them ─┬─> union: columns of the table,
     ──other files─────────────> by Arrow in tasks ──────────────────────────────────┘   part, path and row number

If the table tracks rows, the rows also have what their file says about their id (`with_row_ids`).
Spark's own spelling of a path stays in the rows. The driver translates the few distinct ones to places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import compress
from typing import NamedTuple

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.column_names import free_names
from deltars.data.row_ids import FILE_COLUMNS
from deltars.data.scan import Scan
from deltars.spark.read.arrow import read_positions_by_arrow
from deltars.spark.read.columns import ScanColumns, quoted
from deltars.spark.read.deleted_rows import read_vectors
from deltars.spark.read.files import DataFile
from deltars.spark.read.row_position import position_columns, spellings
from deltars.spark.read.scan import bypass_spark_cache, files_for_spark, open_part, read_by_field_ids, split_files

_NOTHING_HIDDEN: Mapping[int, BitMap64] = {}


class PlaceColumns(NamedTuple):
    """Names of the columns that hold a row's part of the frame, its position, and its id."""

    part: str
    path: str
    row: str
    row_id: str

    @property
    def position(self) -> tuple[str, str, str]:
        return self.part, self.path, self.row


class TargetRows(NamedTuple):
    frame: DataFrame
    """The columns of the table that are wanted, and those of `kept`."""
    place: PlaceColumns
    places: Mapping[tuple[int, str], int]
    """Place in `Scan.files` of each part and path."""
    columns: Sequence[str]
    row_id: str | None = None
    """Name of the data files' column for row ids, if the frame has ids."""

    @property
    def kept(self) -> tuple[str, ...]:
        """Place columns of the frame."""
        return self.place.position if self.row_id is None else self.place


def place_columns(scan: Scan, *others: str) -> PlaceColumns:
    """Return names that are free in the table and differ from `others`."""
    taken = {field.name.lower() for field in scan.schema.fields} | {name.lower() for name in others}
    return PlaceColumns(*free_names(("at_part", "at_path", "at_row", "row_id"), taken))


def target_rows(
    spark: SparkSession,
    scan: Scan,
    columns: Sequence[str] | None = None,
    hidden: Mapping[int, BitMap64] = _NOTHING_HIDDEN,
    place: PlaceColumns | None = None,
) -> TargetRows:
    """Return the live rows of a scan. `hidden` has further rows that are left out, by the place of their file.

    Without `columns` the rows have all columns of the table, and their ids if the scan has a column for them.
    """
    place = place or place_columns(scan)
    scan_columns = ScanColumns(scan)
    # A frame without columns would have no rows for Arrow.
    wanted = list(scan.table_schema.names if columns is None else columns) or [scan.schema.names[0]]
    row_id = scan.hidden_columns[0] if columns is None and scan.hidden_columns else None
    selected = [F.col(quoted(name)) for name in wanted]
    if row_id is not None:
        selected.append(F.col(quoted(row_id)).alias(place.row_id))
    if not scan.files.num_rows:
        empty = spark.createDataFrame([], scan_columns.table).select(*selected)
        nowhere = (F.lit(0).alias(place.part), F.lit("").alias(place.path), F.lit(0).cast("bigint").alias(place.row))
        return TargetRows(empty.select("*", *nowhere), place, {}, wanted, row_id)
    if scan.column_mapping == "id":
        read_by_field_ids(spark)
    position = position_columns(scan)
    files, is_for_arrow, _ = files_for_spark(spark, scan)
    frames: list[DataFrame] = []
    places: dict[tuple[int, str], int] = {}

    def add(frame: DataFrame) -> None:
        part = F.lit(len(frames)).alias(place.part)
        where = (part, F.col(position.path).alias(place.path), F.col(position.row).alias(place.row))
        frames.append(frame.select(*selected, *where))

    def is_filtered(file: DataFile) -> bool:
        return file.vector is not None or file.place in hidden

    for part in split_files(list(compress(files, (not is_for for is_for in is_for_arrow))), is_filtered):
        deleted = _left_out(scan, part, hidden) if is_filtered(part[0]) else None
        opened = open_part(spark, scan, scan_columns, part, deleted, has_positions=True)
        places |= {(len(frames), uri): file.place for file in part for uri in spellings(file.location)}
        add(scan_columns.of_table(opened.frame, opened.path_columns or {}, (position.path, position.row)))
    if for_arrow := [file.place for file in compress(files, is_for_arrow)]:
        places |= {(len(frames), str(at)): at for at in for_arrow}
        read = wanted if row_id is None else [*wanted, row_id]
        add(read_positions_by_arrow(spark, scan, scan_columns, for_arrow, read, position, hidden))
    return TargetRows(bypass_spark_cache(reduce(DataFrame.union, frames)), place, places, wanted, row_id)


def with_row_ids(rows: DataFrame, target: TargetRows, scan: Scan) -> DataFrame:
    """Return rows that have the columns `target.kept` with their ids, if the table tracks rows (`data.row_ids`)."""
    if target.row_id is None:
        return rows
    part, path, row, row_id = target.place
    [first] = free_names(("first_id",), {name.lower() for name in rows.columns})
    first_ids = scan.files[FILE_COLUMNS[0]].to_pylist()
    listed = pa.table(
        {
            part: pa.array([number for number, _ in target.places], pa.int32()),
            path: pa.array([uri for _, uri in target.places], pa.string()),
            first: pa.array([first_ids[place] for place in target.places.values()], pa.int64()),
        }
    )
    joined = rows.join(F.broadcast(rows.sparkSession.createDataFrame(listed)), [part, path], "left")
    found = F.coalesce(F.col(row_id), F.col(first) + F.col(row))
    return joined.select(*(found.alias(name) if name == row_id else F.col(quoted(name)) for name in rows.columns))


def _left_out(scan: Scan, files: Sequence[DataFile], hidden: Mapping[int, BitMap64]) -> list[BitMap64]:
    with_vector = [file for file in files if file.vector is not None]
    vectors = dict(zip((file.place for file in with_vector), read_vectors(scan, with_vector), strict=True))
    nothing = BitMap64()
    return [vectors.get(file.place, nothing) | hidden.get(file.place, nothing) for file in files]
