"""Files of a scan, divided among tasks, and read there. Tasks import no database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from deltars.data.reader import RowFilter
    from deltars.data.scan import Scan

TASK_BYTES = 64 * 1024 * 1024
OPEN_BYTES = 4 * 1024 * 1024
"""What opening a file counts besides its size, so that a task does not get thousands of small ones."""


class FilesPartition(InputPartition):
    """Files that one task reads, with all that it needs for it."""

    def __init__(self, fields: Any, files: pa.Table, where: RowFilter | None) -> None:
        super().__init__(None)
        self.fields = fields
        self.files = files
        self.where = where


def divided(scan: Scan) -> list[InputPartition]:
    """Return the files of a scan as partitions of about equal size. A file is not divided."""
    from deltars.data.filter import PredicateFilter
    from deltars.spark.read.arrow import scan_fields

    groups: list[list[int]] = []
    room = 0
    for place, size in enumerate(scan.files["size"].to_pylist()):
        cost = size + OPEN_BYTES
        if cost > room or not groups:
            groups.append([])
            room = TASK_BYTES
        groups[-1].append(place)
        room -= cost
    fields = scan_fields(scan)
    # Raises here, before a task runs, if only Spark can evaluate the condition.
    where = None if scan.condition is None else PredicateFilter(scan.condition)
    return [FilesPartition(fields, scan.files.take(pa.array(group, pa.int64())), where) for group in groups]


def read_files(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files in Spark's types. Runs in a task."""
    if not isinstance(partition, FilesPartition):
        return  # Spark makes one partition of none.
    from deltars.data.reader import read_scan
    from deltars.spark.read.arrow import rebuild_scan

    wanted = to_arrow_schema(schema, timezone="UTC")
    scan = rebuild_scan(partition.fields, partition.files)
    for rows in read_scan(scan, columns=schema.fieldNames(), row_filter=partition.where):
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(rows.columns, wanted, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
