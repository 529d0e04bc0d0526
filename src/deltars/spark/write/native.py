"""Writing by Spark's own Parquet writer, for unpartitioned tables on a disk, where renaming is cheap.

    frame ──its job──> <root>/write-<uuid>/part-….parquet ──footers, synced──> renamed to <root>/part-….parquet
                       one directory per write: jobs that                      and the directory removed, with
                       share one destroy each other's files                    anything else that Spark left in it

Files are renamed when all of them are complete, and no version refers to them until the commit. A job that fails or is
cancelled leaves nothing, except empty directories if Spark did not wait for the end of a task. A driver that dies
leaves the directory; a full vacuum deletes it.
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
from deltars.spark.write.arrow import SHARED_DISK, decode_file, encode_files
from deltars.spark.write.checks import Check
from deltars.spark.write.file_limit import finished_files, limit_files
from deltars.storage import parse_location
from deltars.storage.failures import storage_errors
from deltars.storage.local import make_directory, sync_path

DESCRIBED_HERE = 32
"""Largest number of footers that the driver reads itself. A Spark job reads more."""

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_MICROS = "TIMESTAMP_MICROS"

_OPTIONS = {
    _TIMESTAMPS: _MICROS,
    # The level that the Arrow writer uses.
    "parquet.compression.codec.zstd.level": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # With version 2, files of a task that fails during its commit would remain.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}
_CODECS = {"lz4": "lz4_raw"}

# With other values Spark writes files that other readers misread. No write option overrides these session settings.
_SETTINGS = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}


class NativeColumns(NamedTuple):
    columns: list[Column]
    """The table's columns, as expressions over the frame's."""
    not_null: list[Check]


def native_columns(frame: DataFrame, target: WriteTarget) -> NativeColumns | None:
    """Return the table's columns, each an unchanged column of the frame or null; None if the Arrow writer is needed."""
    # A Spark Connect server may write to a disk that this process does not see.
    if not hasattr(frame, "_jdf") or target.partition_columns or not parse_location(target.root).is_local:
        return None
    if target.target_file_size != TARGET_FILE_SIZE or target.is_mapped or target.cluster_by:
        return None
    # Spark's writer does not handle what a column's metadata asks for.
    if any(set(field.metadata) - {"comment"} for _, field in target.schema.walk()):
        return None
    # Writer options name a float column by its dotted path, so a dot inside a name would be ambiguous.
    if any(leaf.is_float and "." in "".join(leaf.path) for leaf in leaves(schema_to_arrow(target.schema))):
        return None
    if FIELD_ID in frame.schema.json() or not _has_required_settings(frame.sparkSession):
        return None
    if _has_timestamps(target.schema) and not _writes_micros(frame.sparkSession):
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
        with limit_files(frame.sparkSession, target.max_files, partial(finished_files, directory)):
            count = _run(frame.select(*native.columns), target, f"{spark_path(target.root)}/{name}")
        with errors():
            written = _described(frame.sparkSession, target, directory)
        _refuse_lost_rows(written, count, target)
        with errors():
            for file in written:
                # A file that `describe` rewrote in parts is in its final place already.
                if os.path.exists(made := os.path.join(directory, file.add.path)):
                    os.rename(made, os.path.join(root, file.add.path))
            sync_path(root)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return written


def _run(rows: DataFrame, target: WriteTarget, place: str) -> int | None:
    """Run the job. Return the number of rows that Spark wrote, or None if it wrote them on this machine."""
    options = {**_OPTIONS, "compression": _CODECS.get(target.compression, target.compression)}
    for leaf in leaves(schema_to_arrow(target.schema)):
        if leaf.is_float:
            # Readers that skip by dictionary treat 0.0 and -0.0 as different values.
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
    return sorted((decode_file(row.file) for row in found), key=lambda file: file.add.path)


def describe_batches(
    target: WriteTarget, directory: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Describe the files of one task. Runs on an executor."""
    for batch in batches:
        yield pa.record_batch({"file": encode_files(describe(target, directory, batch.column(0).to_pylist()))})


def describe(target: WriteTarget, directory: str, names: Sequence[str]) -> list[WrittenFile]:
    """Sync the files and describe them for the log. A file of more than twice the target size is rewritten in parts."""
    footers, described = Footers(target), []
    for name in names:
        file = os.path.join(directory, name)
        if _is_large(file, target):
            with pq.ParquetFile(file) as parquet:
                described += write_table(target, parquet.iter_batches())
            continue
        sync_path(file)
        # For a frame without rows, Spark writes a file with only the schema.
        if found := footers.describe(file, name):
            described.append(found)
    return described


def _is_large(file: str, target: WriteTarget) -> bool:
    return os.path.getsize(file) > 2 * target.target_file_size


def _refuse_lost_rows(written: Sequence[WrittenFile], count: int | None, target: WriteTarget) -> None:
    found = sum(group.num_rows for file in written for group in file.row_groups)
    if count is not None and found != count:
        raise StorageError(
            f"Spark wrote {count} rows to {target.root}, but the driver sees {found} of them",
            path=target.root,
            hint=SHARED_DISK,
        )


def _is_here(frame: DataFrame) -> bool:
    """Return whether this machine writes the rows."""
    return str(frame.sparkSession.sparkContext.master).startswith("local")


def _has_required_settings(spark: SparkSession) -> bool:
    return all(str(spark.conf.get(name)).upper() == value.upper() for name, value in _SETTINGS.items())


def _has_timestamps(schema: StructType) -> bool:
    # The JSON also shows timestamps inside lists and maps, which are not fields.
    return '"timestamp"' in schema.to_json()


def _writes_micros(spark: SparkSession) -> bool:
    """Return whether Spark writes timestamps as microseconds, not as INT96, which has no statistics.

    Spark 4.1 ignores the write option and uses only the session's setting.
    """
    major, minor = map(int, spark.version.split(".")[:2])
    return (major, minor) >= (4, 2) or spark.conf.get(_TIMESTAMPS) == _MICROS


def _is_same(source: DataType, table: DataType) -> bool:
    """Return whether Parquet stores both types alike, and the table allows nulls in every part where the frame does."""
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
            # Parquet has no struct without fields.
            return source.names == table.names != () and all(
                wanted.nullable >= given.nullable and _is_same(given.type, wanted.type)
                for given, wanted in zip(source.fields, table.fields, strict=True)
            )
    return False


def _not_null(source: StructField | None, field: StructField, data: StructType, table: StructType) -> Check:
    holds = F.lit(False) if source is None else F.col(quoted(source.name)).isNotNull()
    message = f"the data does not fit the table: column {field.name} is NOT NULL and has nulls in the data"
    return Check(holds, SchemaMismatch(f"{message}\n  data:  {data}\n  table: {table}", field=field.name))
