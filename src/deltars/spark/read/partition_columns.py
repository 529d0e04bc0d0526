"""Partition columns of data files, with the values that the log gives.

    every path agrees with the log ──> taken from the paths
    else, few distinct values ───────> one scan per value, with the log's values as literals
    else, many ──────────────────────> one scan, joined with the log's values by file

The log alone decides what a partition value is. Spark reads `''` and `__HIVE_DEFAULT_PARTITION__` in a path as null, so
such values are not taken from paths. Spark reads a timestamp in a path in the session's time zone, so timestamps are
taken from paths as text and cast here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.column_names import free_names
from deltars.data.scan import Scan
from deltars.protocol import (
    NULL_PARTITION,
    DataType,
    PrimitiveType,
    parse_partition_value,
    partition_directory,
    type_to_arrow,
)
from deltars.spark.read.columns import ScanColumns, quoted
from deltars.spark.read.files import DataFile, PartitionValues, open_files
from deltars.spark.read.row_position import file_keys, is_same_file, position_columns, with_position

MAX_SCANS = 16
"""Most scans that one read may consist of, one for each distinct combination of partition values."""

_READ_FROM_PATHS = frozenset(map(PrimitiveType, ("string", "byte", "short", "integer", "long", "boolean", "date")))
"""Types that Spark reads from a path as Delta does."""
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(E-?[0-9]+)?|NaN|-?Infinity")


def with_partition_columns(
    spark: SparkSession, scan: Scan, scan_columns: ScanColumns, files: Sequence[DataFile], *, has_positions: bool
) -> tuple[DataFrame, dict[str, Column]]:
    """Return the rows of the files, and the expressions for columns that Spark read from the paths as text.

    With `has_positions`, the frame also has each row's file and row number.
    """
    from_paths = _columns_from_paths(scan, files)
    if from_paths is None:
        if len({file.values for file in files}) <= MAX_SCANS:
            return _with_literals(spark, scan, scan_columns, files, has_positions), {}
        return _joined_with_values(spark, scan, scan_columns, files), {}
    schema = scan_columns.in_files(as_text=from_paths)
    is_partitioned = bool(scan.partition_columns)
    frame = open_files(spark, scan, schema, files, by_paths=is_partitioned, by_names=has_positions)
    return with_position(frame, position_columns(scan)) if has_positions else frame, from_paths


def _columns_from_paths(scan: Scan, files: Sequence[DataFile]) -> dict[str, Column] | None:
    """Return expressions for the columns that Spark must read as text; None if the paths differ from the log."""
    names = scan.value_names()
    directories: dict[PartitionValues, str] = {}
    for file in files:
        directory = directories.get(file.values)
        if directory is None:
            directory = partition_directory(names, dict(zip(names, file.values, strict=True)))
            directories[file.values] = directory
        if names and file.path.rpartition("/")[0] != directory:
            return None
    columns = {}
    for at, (column, name) in enumerate(zip(scan.partition_columns, names, strict=True)):
        type_ = scan.schema[column].type
        texts = {values[at] for values in directories} - {None}
        if NULL_PARTITION in texts:
            return None
        if type_ not in _READ_FROM_PATHS:
            typed = _cast_text(F.col(quoted(name)), type_, {text for text in texts if text is not None})
            if typed is None:
                return None
            columns[name] = typed
    return columns


def _cast_text(text: Column, type_: DataType, values: set[str]) -> Column | None:
    """Return the column cast to its type; None if Spark may read one of these values differently from Delta."""
    if type_ in (PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")):
        zone = "Z" if type_ == PrimitiveType("timestamp") else ""
        if zone and all(_TIMESTAMP.fullmatch(value[:-1]) and value[-1] == zone for value in values):
            return text.cast(str(type_))
        if all(map(_TIMESTAMP.fullmatch, values)):
            # A timestamp without a zone is in UTC, not in the session's zone.
            return F.concat(text, F.lit(zone)).cast(str(type_))
        return None
    if type_ == PrimitiveType("binary") or not all(map(_NUMBER.fullmatch, values)):
        return None
    return text.cast(str(type_))


def _with_literals(
    spark: SparkSession, scan: Scan, scan_columns: ScanColumns, files: Sequence[DataFile], has_positions: bool
) -> DataFrame:
    names = scan.value_names()
    schema = scan_columns.in_files(without=names)
    by_values: dict[PartitionValues, list[DataFile]] = defaultdict(list)
    for file in files:
        by_values[file.values].append(file)
    frames = []
    for values, partition in by_values.items():
        frame = open_files(spark, scan, schema, partition, by_paths=False, by_names=has_positions)
        if has_positions:
            frame = with_position(frame, position_columns(scan))
        literals = [
            _literal(text, scan.schema[column].type).alias(name)
            for column, name, text in zip(scan.partition_columns, names, values, strict=True)
        ]
        frames.append(frame.select("*", *literals))
    return reduce(DataFrame.union, frames)


def _joined_with_values(
    spark: SparkSession, scan: Scan, scan_columns: ScanColumns, files: Sequence[DataFile]
) -> DataFrame:
    names = scan.value_names()
    frame = open_files(spark, scan, scan_columns.in_files(without=names), files, by_paths=False, by_names=True)
    position = position_columns(scan)
    file_column, keys = file_keys(position, [file.location for file in files])
    [key] = free_names(("key",), {*position, *(name.lower() for name in (*frame.columns, *names))})
    listed = [(of_file, file.values) for file, known in zip(files, keys, strict=True) for of_file in known]
    columns: dict[str, pa.Array] = {key: pa.array([of_file for of_file, _ in listed])}
    for at, (column, name) in enumerate(zip(scan.partition_columns, names, strict=True)):
        type_ = scan.schema[column].type
        parsed = {text: parse_partition_value(text, type_) for text in {values[at] for _, values in listed}}
        columns[name] = pa.array([parsed[values[at]] for _, values in listed], type_to_arrow(type_))
    values = F.broadcast(spark.createDataFrame(pa.table(columns)))
    return with_position(frame, position).join(values, is_same_file(file_column, F.col(key))).drop(key)


def _literal(text: str | None, type_: DataType) -> Column:
    """Return the log's text cast by Spark, or the parsed value where Spark reads the text differently from Delta."""
    value = parse_partition_value(text, type_)
    if type_ == PrimitiveType("timestamp") and value is not None:
        text = value.isoformat()
    literal = F.lit(value if type_ == PrimitiveType("binary") else text)
    return literal.cast(str(type_))
