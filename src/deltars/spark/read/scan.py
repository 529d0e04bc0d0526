"""A scan as a DataFrame, read by Spark's own Parquet reader.

Scan ──no files────────────────────────────────────> an empty frame
     ──read before─┬─ cached frames ────────────┐
     ──else, files─┼─ without deletion vectors ─┼──> the table's columns ──> their union ──> where ──> columns
                   ├─ with: minus deleted rows ─┤
                   └─ not for Spark: by Arrow ──┘
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import compress
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.scan import Scan
from deltars.predicate import named_in
from deltars.protocol import StructType
from deltars.spark.access import native_root
from deltars.spark.read.arrow import is_hidden, is_widened_beyond_spark, read_by_arrow
from deltars.spark.read.columns import ScanColumns, quoted
from deltars.spark.read.deleted_rows import without_deleted
from deltars.spark.read.files import DataFile, data_files
from deltars.spark.read.frame_cache import FilesFrame, keep, recall
from deltars.spark.read.partition_columns import with_partition_columns


def read_scan(
    spark: SparkSession,
    scan: Scan,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the matching rows with the given columns. No job runs, except those that Spark needs to list files."""
    wanted = None if columns is None else [column.name for column in scan.select(columns)]
    scan_columns = ScanColumns(scan)
    if scan.column_mapping == "id":
        _read_by_field_ids(spark)
    native, for_arrow = recall(spark, scan), None
    if native is None:
        native, for_arrow = _open_scan(spark, scan, scan_columns)
    parts = [scan_columns.of_table(part.frame, part.path_columns) for part in native]
    if for_arrow is not None:
        # A union needs equal columns, so next to native parts every column is read.
        needed = scan.schema.names if parts or wanted is None else _needed(scan.schema, wanted, where)
        parts.append(read_by_arrow(spark, scan, scan_columns, for_arrow, needed))
    if parts:
        frame = _bypass_spark_cache(reduce(DataFrame.union, parts))
    else:
        frame = spark.createDataFrame([], scan_columns.table)
    frame = frame if where is None else frame.where(where)
    return frame if wanted is None else frame.select(*map(quoted, wanted))


def _bypass_spark_cache(frame: DataFrame) -> DataFrame:
    """Return the same rows by a unique plan, so that Spark does not answer it from a cached frame of the same files.

    Spark answers every plan that equals a cached one from its cache. Such a plan has no files to count, and the
    statistics of Spark's cache leave out NaN: `d > 1` finds none there. The condition is always true, and Spark
    drops it.
    """
    return frame.where(F.lit(uuid4().hex).isNotNull())


def _open_scan(spark: SparkSession, scan: Scan, scan_columns: ScanColumns) -> tuple[list[FilesFrame], pa.Table | None]:
    """Return frames over the files that Spark reads itself, and the files that Arrow reads, if any."""
    root = None if is_widened_beyond_spark(scan.schema) else native_root(spark, scan)
    files, directories = data_files(scan, root)
    is_for_arrow = [root is None or is_hidden(file.path) for file in files]
    parts = _split_files(compress(files, (not is_for for is_for in is_for_arrow)))
    native = [_open_part(spark, scan, scan_columns, part) for part in parts]
    if any(is_for_arrow):
        return native, scan.files.filter(pa.array(is_for_arrow))
    # A cached frame would keep its deleted rows in memory, however many there are.
    if not any(part[0].vector for part in parts):
        keep(spark, scan, native, len(files), directories)
    return native, None


def _needed(schema: StructType, wanted: Sequence[str], where: str | None) -> Sequence[str]:
    """Return the columns of the result and of the condition."""
    return list(dict.fromkeys([*wanted, *named_in(where or "", schema.names)]))


def _read_by_field_ids(spark: SparkSession) -> None:
    """Make the session read columns by field id. Schemas without field ids are not affected.

    A file without field ids then raises an error; otherwise every column of it would read as null.
    """
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    spark.conf.set("spark.sql.parquet.fieldId.read.ignoreMissing", "false")


def _split_files(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Separate files with deletion vectors from files without, and repeated paths from each other.

    Spark reads a path once per scan, so a path that is live twice needs two scans.
    """
    files = list(files)
    if len({file.location for file in files if file.vector is None}) == len(files):
        return [files] if files else []
    parts: dict[tuple[bool, int], list[DataFile]] = defaultdict(list)
    times: Counter[tuple[bool, str]] = Counter()
    for file in files:
        has_vector = file.vector is not None
        parts[has_vector, times[has_vector, file.location]].append(file)
        times[has_vector, file.location] += 1
    return list(parts.values())


def _open_part(spark: SparkSession, scan: Scan, scan_columns: ScanColumns, files: Sequence[DataFile]) -> FilesFrame:
    has_vectors = files[0].vector is not None
    frame, path_columns = with_partition_columns(spark, scan, scan_columns, files, has_vectors=has_vectors)
    if has_vectors:
        frame = without_deleted(spark, scan, frame, files)
    is_plain = not scan.partition_columns and not has_vectors and scan.column_mapping == "none"
    return FilesFrame(frame, None if is_plain else path_columns)
