"""Files of a scan, divided among tasks, and read there. Tasks import no database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from deltars.data.changes import ChangePart
    from deltars.data.reader import RowFilter

TASK_BYTES = 64 * 1024 * 1024
OPEN_BYTES = 4 * 1024 * 1024
"""What opening a file counts besides its size, so that a task does not get thousands of small ones."""


class FilesPartition(InputPartition):
    """Files that one task reads, with all that it needs for it."""

    def __init__(self, fields: Any, files: pa.Table, where: RowFilter | None, is_net: bool) -> None:
        super().__init__(None)
        self.fields = fields
        self.files = files
        self.where = where
        self.is_net = is_net
        """Whether rows that are both inserted and deleted cancel out."""


def divided(parts: Iterable[ChangePart]) -> list[InputPartition]:
    """Return the files of scans as partitions of about equal size. A file is not divided."""
    from deltars.data.filter import PredicateFilter
    from deltars.spark.read.arrow import scan_fields

    found: list[InputPartition] = []
    for kind, scan in parts:
        fields = scan_fields(scan)
        # Raises here, before a task runs, if only Spark can evaluate the condition.
        where = None if scan.condition is None else PredicateFilter(scan.condition)
        groups = [list(range(scan.files.num_rows))] if kind == "net" else _groups(scan.files)
        found += [
            FilesPartition(fields, scan.files.take(pa.array(group, pa.int64())), where, kind == "net")
            for group in groups
        ]
    return found


def _groups(files: pa.Table) -> list[list[int]]:
    """Return the places of files that one task reads, for each task."""
    groups: list[list[int]] = []
    room = 0
    for place, size in enumerate(files["size"].to_pylist()):
        cost = size + OPEN_BYTES
        if cost > room or not groups:
            groups.append([])
            room = TASK_BYTES
        groups[-1].append(place)
        room -= cost
    return groups


def read_files(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files in Spark's types. Runs in a task."""
    if not isinstance(partition, FilesPartition):
        return  # Spark makes one partition of none.
    from deltars.data.net_changes import net_rows
    from deltars.data.reader import read_scan
    from deltars.spark.read.arrow import rebuild_scan

    scan, names = rebuild_scan(partition.fields, partition.files), schema.fieldNames()
    wanted = to_arrow_schema(schema, timezone="UTC")
    found: Iterable[pa.RecordBatch]
    if partition.is_net:
        found = (rows.select(names) for rows in net_rows(read_scan(scan).read_all()))
    else:
        found = read_scan(scan, columns=names, row_filter=partition.where)
    for rows in found:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(rows.columns, wanted, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
