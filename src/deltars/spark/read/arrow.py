"""Reading by the Arrow reader of `data` in Spark's tasks, for files that Spark's own reader cannot open or would skip.

    the files, as rows ──spread over tasks──> mapInArrow(read_batches) ──> the table's rows
                                                on the executors

This serves object stores that the session has no file system for, files whose names Spark treats as hidden, and tables
whose columns were widened in a way that Spark's reader does not support. Only the needed columns are read. The part of
a condition that can be evaluated without Spark filters rows in the tasks. Row-level changes also need each row's file
and number (`read_positions_by_arrow`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType as SparkStructType

from deltars.data.filter import PredicateFilter
from deltars.data.reader import read_placed
from deltars.data.reader import read_scan as read_arrow
from deltars.data.scan import SCAN_COLUMNS, Scan
from deltars.predicate import Predicate, known_part
from deltars.protocol import PrimitiveType, StructType
from deltars.protocol.evolution import TYPE_CHANGES
from deltars.spark.read.columns import ScanColumns
from deltars.spark.read.row_position import PositionColumns

MAX_TASKS = 200

_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Digits before the point that a decimal needs for Spark to read integers of this type as that decimal."""

ScanFields: TypeAlias = tuple[str, str, tuple[str, ...], str, int, dict[str, str], Any]
"""Fields of a scan without its files, as tasks receive them."""


def is_hidden(path: str) -> bool:
    """Return whether Spark would skip a file because of its name."""
    name = path.rpartition("/")[2]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def is_widened_beyond_spark(schema: StructType) -> bool:
    """Return whether files may hold integers for a decimal column that is too small for Spark to read them as such."""
    return any(
        _is_beyond_spark(str(change.get("fromType")), str(change.get("toType")))
        for _, field in schema.walk()
        for change in field.metadata.get(TYPE_CHANGES, ())
    )


def _is_beyond_spark(before: str, after: str) -> bool:
    if before not in _DIGITS or not after.startswith("decimal"):
        return False
    type_ = PrimitiveType(after)
    return type_.precision - type_.scale < _DIGITS[before]


def read_by_arrow(
    spark: SparkSession,
    scan: Scan,
    scan_columns: ScanColumns,
    files: pa.Table,
    columns: Sequence[str],
) -> DataFrame:
    """Return the rows of some of the scan's files. The frame may still hold rows that do not match its condition."""
    plain = _plain_schema(scan_columns, columns)
    kept = None if scan.condition is None else known_part(scan.condition)
    task = partial(read_batches, scan_fields(scan), list(columns), kept)
    tasks = min(files.num_rows, MAX_TASKS)
    rows = spark.createDataFrame(files.select(SCAN_COLUMNS)).repartition(tasks).mapInArrow(task, plain)
    return rows.select(*_named(scan_columns, columns))


def read_positions_by_arrow(
    spark: SparkSession,
    scan: Scan,
    scan_columns: ScanColumns,
    places: Sequence[int],
    columns: Sequence[str],
    position: PositionColumns,
    hidden: Mapping[int, BitMap64],
) -> DataFrame:
    """Return the rows of the files at these places, with positions. The path of a row is the place of its file.

    `hidden` has rows that are left out besides those of the vectors.
    """
    bitmaps = [hidden[place].serialize() if place in hidden else None for place in places]
    files = scan.files.select(SCAN_COLUMNS).take(pa.array(places, pa.int64()))
    files = files.append_column("place", pa.array(places, pa.int64()))
    files = files.append_column("hidden", pa.array(bitmaps, pa.binary()))
    plain = _plain_schema(scan_columns, columns).add("path", "string").add("row", "long")
    task = partial(read_positions, scan_fields(scan), list(columns))
    rows = spark.createDataFrame(files).repartition(min(len(places), MAX_TASKS)).mapInArrow(task, plain)
    return rows.select(
        *_named(scan_columns, columns), F.col("path").alias(position.path), F.col("row").alias(position.row)
    )


def _plain_schema(scan_columns: ScanColumns, columns: Sequence[str]) -> SparkStructType:
    """Return the columns under plain names: mapInArrow does not accept a name with a dot or a backquote."""
    plain = SparkStructType()
    for number, name in enumerate(columns):
        plain.add(f"c{number}", scan_columns.table[name].dataType)
    return plain


def _named(scan_columns: ScanColumns, columns: Sequence[str]) -> list[Column]:
    return [
        F.col(f"c{number}").alias(name, metadata=scan_columns.table[name].metadata)
        for number, name in enumerate(columns)
    ]


def scan_fields(scan: Scan) -> ScanFields:
    options = dict(scan.storage_options)
    return (
        scan.root,
        scan.schema.to_json(),
        scan.partition_columns,
        scan.table,
        scan.version,
        options,
        scan.column_mapping,
    )


def rebuild_scan(fields: ScanFields, files: pa.Table) -> Scan:
    root, schema, partition_columns, table, version, storage_options, column_mapping = fields
    schema_ = StructType.from_json(schema)
    return Scan(root, schema_, partition_columns, files, table, version, storage_options, column_mapping)


def read_batches(
    scan_fields: ScanFields, columns: list[str], predicate: Predicate | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the files of one task. Runs on an executor."""
    for batch in batches:
        scan = rebuild_scan(scan_fields, pa.Table.from_batches([batch]))
        row_filter = None if predicate is None else PredicateFilter(predicate)
        for rows in read_arrow(scan, columns=columns, row_filter=row_filter):
            yield rows.rename_columns([f"c{number}" for number in range(len(columns))])


def read_positions(
    scan_fields: ScanFields, columns: list[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the files of one task, with the numbers of their rows. Runs on an executor."""
    names = [*(f"c{number}" for number in range(len(columns))), "path", "row"]
    for batch in batches:
        files = pa.Table.from_batches([batch])
        places = [str(place) for place in files["place"].to_pylist()]
        hidden = {
            at: BitMap64.deserialize(rows) for at, rows in enumerate(files["hidden"].to_pylist()) if rows is not None
        }
        for found in read_placed(rebuild_scan(scan_fields, files), columns=columns, without=hidden):
            rows, path = found.rows, pa.repeat(places[found.file], found.rows.num_rows)
            yield pa.RecordBatch.from_arrays([*rows.columns, path, found.numbers.cast(pa.int64())], names=names)
