"""Files that Spark's own reader cannot open, or would pass over: read by the Arrow reader of `data`, in Spark's tasks.

    the files, as rows ──spread over tasks──> mapInArrow(read_batches) ──> the table's rows
                                                on the executors

It serves object stores for which the session has no file system, files whose names Spark takes for hidden, and tables
whose columns were widened in a way that Spark's reader does not know.
Columns and, as far as they can be judged without Spark, conditions reach the files.
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
"""So many digits before the point Spark asks of a decimal, or it does not read such integers as one."""


def is_hidden(path: str) -> bool:
    """Whether Spark would pass over a file because of its name."""
    name = path.rpartition("/")[2]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def is_widened_beyond_spark(schema: StructType) -> bool:
    """Whether files may hold integers for a decimal that is too small for Spark to read them so."""
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
    sides: ScanColumns,
    files: pa.Table,
    columns: Sequence[str],
    predicate: Predicate | None = None,
) -> DataFrame:
    """These of the scan's files, with these columns; rows that cannot match are left out, not all of them."""
    # mapInArrow cannot take a name with a dot or a backquote in it.
    plain = SparkStructType()
    for number, name in enumerate(columns):
        plain.add(f"c{number}", sides.table[name].dataType)
    told = (scan.root, scan.schema.to_json(), scan.partition_columns, scan.table, scan.version)
    kept = None if predicate is None else known_part(predicate)
    task = partial(read_batches, told, dict(scan.storage_options), scan.column_mapping, list(columns), kept)
    tasks = min(files.num_rows, MAX_TASKS)
    rows = spark.createDataFrame(files.select(SCAN_COLUMNS)).repartition(tasks).mapInArrow(task, plain)
    return rows.select(
        *(F.col(f"c{number}").alias(name, metadata=sides.table[name].metadata) for number, name in enumerate(columns))
    )


def read_batches(
    told: tuple[str, str, tuple[str, ...], str, int],
    storage_options: dict[str, str],
    column_mapping: Any,
    columns: list[str],
    predicate: Predicate | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """One task's part, on an executor."""
    root, schema, partition_columns, table, version = told
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
