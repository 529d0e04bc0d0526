"""Spark's own Parquet writer, for tables without partitions on a disk, where renaming costs nothing.

    frame ──its job──> <root>/write-<uuid>/part-….parquet ──footers, synced──> renamed to <root>/part-….parquet
                       a directory of this write's own:                        and the directory removed, with
                       jobs that share one destroy each other's files          whatever else Spark left in it

Files are renamed when all of them are there, and are nobody's until the commit. A job that fails or is cancelled leaves
nothing, but for empty directories where Spark did not wait for the end of a task; a driver that dies leaves the
directory, for VACUUM.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.footers import Footers
from deltars.data.parquet_leaves import leaves
from deltars.data.write_target import TARGET_FILE_SIZE, WriteTarget, WrittenFile
from deltars.data.writer import write_table
from deltars.errors import SchemaMismatch, StorageError
from deltars.protocol import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, schema_to_arrow
from deltars.spark.read.columns import FIELD_ID, quoted
from deltars.spark.read.files import spark_path
from deltars.spark.schema import schema_from_spark, schema_to_spark
from deltars.spark.write.arrow import SHARED_DISK, decoded, encoded
from deltars.spark.write.checks import Check
from deltars.spark.write.file_limit import finished_files, limited
from deltars.storage import parse_location
from deltars.storage.failures import storage_errors
from deltars.storage.local import make_directory, sync_path

DESCRIBED_HERE = 32
"""So many footers the driver reads; more are read by a job."""

_MOMENTS = "spark.sql.parquet.outputTimestampType"
_MICROS = "TIMESTAMP_MICROS"

_OPTIONS = {
    _MOMENTS: _MICROS,
    # As the Arrow writer has it.
    "parquet.compression.codec.zstd.level": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Under version 2 the files of a task that failed while it committed would stay.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}
_CODECS = {"lz4": "lz4_raw"}

# Sessions may ask for files that others misread; nothing but the session can say otherwise.
_SETTINGS = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}


class NativeColumns(NamedTuple):
    columns: list[Column]
    """The table's, of the frame's."""
    not_null: list[Check]


def native_columns(frame: DataFrame, target: WriteTarget) -> NativeColumns | None:
    """How the frame becomes the table's columns by name alone; None where only the Arrow writer can do it."""
    # What a Spark Connect server writes to its disk need not be on ours.
    if not hasattr(frame, "_jdf") or target.partition_columns or not parse_location(target.root).is_local:
        return None
    if target.target_file_size != TARGET_FILE_SIZE or target.is_mapped:
        return None
    # What a column's metadata asks for is not Spark's business.
    if any(set(field.metadata) - {"comment"} for _, field in target.schema.walk()):
        return None
    # Options name a float column by its path, in which a dot of its own would be taken for a step.
    if any(leaf.is_float and "." in "".join(leaf.path) for leaf in leaves(schema_to_arrow(target.schema))):
        return None
    if FIELD_ID in frame.schema.json() or not _has_usual_settings(frame.sparkSession):
        return None
    if _has_moments(target.schema) and not _writes_micros(frame.sparkSession):
        return None
    data = schema_from_spark(frame.schema)
    given = {field.name.lower(): field for field in data.fields}
    columns, not_null = [], []
    for field, kind in zip(target.schema.fields, schema_to_spark(target.schema), strict=True):
        source = given.get(field.name.lower())
        if source is None or source.type == PrimitiveType("void"):
            column = F.lit(None).cast(kind.dataType)
        elif _is_same(source.type, field.type):
            column = F.col(quoted(source.name))
        else:
            return None
        columns.append(column.alias(field.name, metadata={}))
        if not field.nullable and (source is None or source.nullable):
            not_null.append(_not_null(source, field, data, target.schema))
    return NativeColumns(columns, not_null)


def write_natively(frame: DataFrame, target: WriteTarget, native: NativeColumns) -> list[WrittenFile]:
    root = parse_location(target.root).path
    name = f"write-{uuid4()}"
    directory = os.path.join(root, name)
    errors = partial(storage_errors, name, target.root)
    try:
        with errors():
            make_directory(directory)
        with limited(frame.sparkSession, target.max_files, partial(finished_files, directory)):
            count = _run(frame.select(*native.columns), target, f"{spark_path(target.root)}/{name}")
        with errors():
            written = _described(frame.sparkSession, target, directory)
        _refuse_lost_rows(written, count, target)
        with errors():
            for file in written:
                # What was written again, in parts, is where it belongs.
                if os.path.exists(made := os.path.join(directory, file.add.path)):
                    os.rename(made, os.path.join(root, file.add.path))
            sync_path(root)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return written


def _run(rows: DataFrame, target: WriteTarget, place: str) -> int | None:
    """The number of rows that Spark has written, where that can be more than is seen from here."""
    options = {**_OPTIONS, "compression": _CODECS.get(target.compression, target.compression)}
    for leaf in leaves(schema_to_arrow(target.schema)):
        if leaf.is_float:
            # To readers that skip by a dictionary, 0.0 and -0.0 are two values.
            options[f"parquet.enable.dictionary#{leaf.name}"] = "false"
    if target.max_records_per_file is not None:
        options["maxRecordsPerFile"] = str(target.max_records_per_file)
    count = None if _is_here(rows) else Observation()
    counted = rows if count is None else rows.observe(count, F.count(F.lit(1)).alias("rows"))
    counted.write.options(**options).mode("append").parquet(place)
    return None if count is None else int(count.get["rows"])


def _described(spark: SparkSession, target: WriteTarget, directory: str) -> list[WrittenFile]:
    names = sorted(name for name in os.listdir(directory) if name.endswith(".parquet") and name[0] not in "._")
    is_work = any(_is_large(os.path.join(directory, name), target) for name in names)
    if len(names) <= DESCRIBED_HERE and not is_work:
        return describe(target, directory, names)
    listed = spark.createDataFrame(pa.table({"name": names})).repartition(min(len(names), DESCRIBED_HERE))
    found = listed.mapInArrow(partial(describe_batches, target, directory), "file binary").collect()
    return sorted((decoded(row.file) for row in found), key=lambda file: file.add.path)


def describe_batches(
    target: WriteTarget, directory: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task's part, on an executor."""
    for batch in batches:
        yield pa.record_batch({"file": encoded(describe(target, directory, batch.column(0).to_pylist()))})


def describe(target: WriteTarget, directory: str, names: Sequence[str]) -> list[WrittenFile]:
    """What the log is to say of these files, durable from here on; one far too large is written again, in parts."""
    footers, described = Footers(target), []
    for name in names:
        file = os.path.join(directory, name)
        if _is_large(file, target):
            with pq.ParquetFile(file) as parquet:
                described += write_table(target, parquet.iter_batches())
            continue
        sync_path(file)
        # Where there is no row at all Spark writes a file for the schema.
        if found := footers.describe(file, name):
            described.append(found)
    return described


def _is_large(file: str, target: WriteTarget) -> bool:
    return os.path.getsize(file) > 2 * target.target_file_size


def _refuse_lost_rows(written: Sequence[WrittenFile], count: int | None, target: WriteTarget) -> None:
    found = sum(group.num_rows for file in written for group in file.row_groups)
    if count is not None and found != count:
        raise StorageError(
            f"Spark wrote {count} rows to {target.root}, and {found} of them are seen from here",
            path=target.root,
            hint=SHARED_DISK,
        )


def _is_here(frame: DataFrame) -> bool:
    """Whether it is this very machine that writes the rows."""
    return str(frame.sparkSession.sparkContext.master).startswith("local")


def _has_usual_settings(spark: SparkSession) -> bool:
    return all(str(spark.conf.get(name)).upper() == value.upper() for name, value in _SETTINGS.items())


def _has_moments(schema: StructType) -> bool:
    # A list or a map of them is no field of its own.
    return '"timestamp"' in schema.to_json()


def _writes_micros(spark: SparkSession) -> bool:
    """Spark 4.1 does not look at the option: its session alone says so, or it writes INT96, which has no statistics."""
    major, minor = map(int, spark.version.split(".")[:2])
    return (major, minor) >= (4, 2) or spark.conf.get(_MOMENTS) == _MICROS


def _is_same(source: DataType, table: DataType) -> bool:
    """Whether Parquet has both in the same way; a part that may be null in the frame alone is for the Arrow writer."""
    match source, table:
        case PrimitiveType(), PrimitiveType():
            return source == table
        case ArrayType(), ArrayType():
            return table.contains_null >= source.contains_null and _is_same(source.element_type, table.element_type)
        case MapType(), MapType():
            return (
                table.value_contains_null >= source.value_contains_null
                and _is_same(source.key_type, table.key_type)
                and _is_same(source.value_type, table.value_type)
            )
        case StructType(), StructType():
            # A struct without fields has no form in Parquet.
            return source.names == table.names != () and all(
                wanted.nullable >= given.nullable and _is_same(given.type, wanted.type)
                for given, wanted in zip(source.fields, table.fields, strict=True)
            )
    return False


def _not_null(source: StructField | None, field: StructField, data: StructType, table: StructType) -> Check:
    holds = F.lit(False) if source is None else F.col(quoted(source.name)).isNotNull()
    message = f"the data does not fit the table: column {field.name} is NOT NULL and has nulls in the data"
    return Check(holds, SchemaMismatch(f"{message}\n  data:  {data}\n  table: {table}", field=field.name))
