"""Reading the files of a snapshot as a DataFrame, with Spark's own Parquet reader.

    Scan ──no files──────────────────────────────────> an empty frame
         ──every path says what the log says─────────> one read, partition columns from the paths
         ──else──> one read per partition's values ──> their union, with the log's values as literals

The log alone decides what a partition value is. Spark takes `''` and `__HIVE_DEFAULT_PARTITION__` in a path
for null, and a timestamp for one in the session's zone: such paths are not trusted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.files import Scan
from deltars.errors import StorageError, ValidationError
from deltars.protocol import (
    NULL_PARTITION,
    DataType,
    PrimitiveType,
    StructType,
    is_absolute,
    parse_partition_value,
    partition_directory,
    uri_to_path,
)
from deltars.protocol.schema import PHYSICAL_NAME
from deltars.spark.schema import schema_to_spark
from deltars.storage import parse_location

PartitionValues: TypeAlias = tuple[str | None, ...]

_TOLD_BY_PATHS = frozenset(map(PrimitiveType, ("string", "byte", "short", "integer", "long", "boolean", "date")))
_GLOB_CHARACTERS = str.maketrans({character: f"\\{character}" for character in "{}[]*?\\"})

# Whatever the session's settings: no file may be passed over, and Parquet's calendar is the proleptic one.
_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}


class _File(NamedTuple):
    path: str
    """As the file system has it: relative to the table, or absolute."""
    location: str
    values: PartitionValues


def read_scan(spark: SparkSession, scan: Scan) -> DataFrame:
    _check_readable(scan)
    if not scan.files.num_rows:
        return spark.createDataFrame([], schema_to_spark(scan.schema))
    files = _files(scan)
    try:
        if _paths_tell_values(scan, files):
            frame = _read_by_paths(spark, scan, files)
        else:
            frame = _read_by_values(spark, scan, files)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise _missing_file(error, scan, files) from error
    return frame.select(*(_quoted(name) for name in scan.schema.names))


def _check_readable(scan: Scan) -> None:
    where: dict[str, Any] = {"table": scan.table, "version": scan.version}
    if scan.files.column("deletion_vector").null_count < scan.files.num_rows:
        raise ValidationError(
            "reading a table with deletion vectors is not supported yet", field="deletionVectors", **where
        )
    if any(PHYSICAL_NAME in column.metadata for _, column in scan.schema.walk()):
        raise ValidationError(
            "reading a table with column mapping is not supported yet", field="columnMapping", **where
        )
    for path in scan.files.column("path").to_pylist():
        name = path.rpartition("/")[2]
        if name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_"):
            raise ValidationError(
                f"Spark passes over files with such a name, and would leave out the rows of {path}",
                field="path",
                **where,
            )


def _files(scan: Scan) -> list[_File]:
    root = _spark_path(scan.root)
    decoded: dict[str | None, PartitionValues] = {None: (None,) * len(scan.partition_columns)}
    files = []
    for uri, text in zip(
        scan.files.column("path").to_pylist(), scan.files.column("partition_values").to_pylist(), strict=True
    ):
        if text not in decoded:
            document = msgspec.json.decode(text, type=dict[str, str | None])
            decoded[text] = tuple(document.get(name) or None for name in scan.partition_columns)
        path = uri_to_path(uri)
        location = _spark_path(path) if is_absolute(uri) else f"{root}/{path}"
        files.append(_File(path, location, decoded[text]))
    return files


def _spark_path(location: str) -> str:
    """With its scheme, or Spark would look in its default file system, which need not be the local one."""
    place = parse_location(location)
    return f"file:{place.path}" if place.is_local else str(place)


def _paths_tell_values(scan: Scan, files: Sequence[_File]) -> bool:
    columns = scan.partition_columns
    if any(scan.schema[name].type not in _TOLD_BY_PATHS for name in columns):
        return False
    directories: dict[PartitionValues, str] = {}
    for file in files:
        if file.values not in directories:
            values = dict(zip(columns, file.values, strict=True))
            directories[file.values] = partition_directory(columns, values)
        if columns and file.path.rpartition("/")[0] != directories[file.values]:
            return False
    return not any(NULL_PARTITION in values for values in directories)


def _read_by_paths(spark: SparkSession, scan: Scan, files: Sequence[_File]) -> DataFrame:
    reader = _reader(spark, scan.schema)
    if scan.partition_columns:
        reader = reader.option("basePath", _spark_path(scan.root))
    return reader.parquet(*(_literal_path(file.location) for file in files))


def _read_by_values(spark: SparkSession, scan: Scan, files: Sequence[_File]) -> DataFrame:
    by_values: dict[PartitionValues, list[str]] = defaultdict(list)
    for file in files:
        by_values[file.values].append(_literal_path(file.location))
    in_files = StructType(tuple(field for field in scan.schema if field.name not in scan.partition_columns))
    frames = []
    for values, locations in by_values.items():
        literals = {
            name: _literal(text, scan.schema[name].type)
            for name, text in zip(scan.partition_columns, values, strict=True)
        }
        frames.append(_reader(spark, in_files).parquet(*locations).withColumns(literals))
    return reduce(DataFrame.unionByName, frames)


def _reader(spark: SparkSession, schema: StructType) -> DataFrameReader:
    return spark.read.schema(schema_to_spark(schema)).options(**_OPTIONS)


def _literal(text: str | None, type_: DataType) -> Column:
    """The log's text, cast by Spark; where Spark would read it otherwise than Delta, the value itself."""
    value = parse_partition_value(text, type_)
    if type_ == PrimitiveType("timestamp") and value is not None:
        text = value.isoformat()
    literal = F.lit(value if type_ == PrimitiveType("binary") else text)
    return literal.cast(str(type_))


def _literal_path(location: str) -> str:
    """Spark takes a path for a pattern."""
    return location.translate(_GLOB_CHARACTERS)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _missing_file(error: AnalysisException, scan: Scan, files: Sequence[_File]) -> StorageError:
    said = (error.getMessageParameters() or {}).get("path", "")
    missing = next((file for file in files if said in (file.location, _literal_path(file.location))), None)
    path = missing.path if missing else said
    return StorageError(
        f"the data file {path} of this version is missing", path=path, table=scan.table, version=scan.version
    )
