"""Reading by the Arrow reader of `data` in Spark's tasks, for files that Spark's own reader cannot open or would skip.

    the files, as rows ──spread over tasks──> mapInArrow(read_batches) ──> the table's rows
                                                on the executors

This serves object stores that the session has no file system for, files whose names Spark treats as hidden, and tables
whose columns were widened in a way that Spark's reader does not support. Only the needed columns are read. The part of
a condition that can be evaluated without Spark filters rows in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType as SparkStructType

from deltars.data.filter import PredicateFilter
from deltars.data.reader import read_scan as read_arrow
from deltars.data.scan import SCAN_COLUMNS, Scan
from deltars.predicate import Predicate, known_part
from deltars.protocol import PrimitiveType, StructType
from deltars.protocol.evolution import TYPE_CHANGES
from deltars.spark.read.columns import ScanColumns

MAX_TASKS = 200

_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Digits before the point that a decimal needs for Spark to read integers of this type as that decimal."""


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
    # mapInArrow does not accept a column name with a dot or a backquote.
    plain = SparkStructType()
    for number, name in enumerate(columns):
        plain.add(f"c{number}", scan_columns.table[name].dataType)
    scan_fields = (scan.root, scan.schema.to_json(), scan.partition_columns, scan.table, scan.version)
    kept = None if scan.condition is None else known_part(scan.condition)
    task = partial(read_batches, scan_fields, dict(scan.storage_options), scan.column_mapping, list(columns), kept)
    tasks = min(files.num_rows, MAX_TASKS)
    rows = spark.createDataFrame(files.select(SCAN_COLUMNS)).repartition(tasks).mapInArrow(task, plain)
    return rows.select(
        *(
            F.col(f"c{number}").alias(name, metadata=scan_columns.table[name].metadata)
            for number, name in enumerate(columns)
        )
    )


def read_batches(
    scan_fields: tuple[str, str, tuple[str, ...], str, int],
    storage_options: dict[str, str],
    column_mapping: Any,
    columns: list[str],
    predicate: Predicate | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the files of one task. Runs on an executor."""
    root, schema, partition_columns, table, version = scan_fields
    for batch in batches:
        scan = Scan(
            root,
            StructType.from_json(schema),
            partition_columns,
            pa.Table.from_batches([batch]),
            table,
            version,
            storage_options,
            column_mapping,
        )
        row_filter = None if predicate is None else PredicateFilter(predicate)
        for rows in read_arrow(scan, columns=columns, row_filter=row_filter):
            yield rows.rename_columns([f"c{number}" for number in range(len(columns))])
