"""Translation between the column names of data files and those of the table.

mapping    the file's column is found by
none       the column's name
name       its physical name
id         its field id, if the session reads by ids; otherwise its physical name

A frame does not get the metadata that concerns only the table (column mapping, defaults, generation).

Conditions on float and double columns are kept away from Spark's Parquet reader (`_unskipped`). That reader skips rows
by footer statistics, which omit NaN in the files of many writers, and by dictionaries, in which -0.0 differs from 0.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType as SparkDataType
from pyspark.sql.types import DoubleType, FloatType
from pyspark.sql.types import StructType as SparkStructType

from deltars.data.scan import Scan
from deltars.protocol.schema import COLUMN_ID, PHYSICAL_NAME
from deltars.spark.schema import TABLE_METADATA

FIELD_ID = "parquet.field.id"


class ScanColumns:
    """Columns of one scan, as the table and as its files name them."""

    def __init__(self, scan: Scan) -> None:
        self._mapping = scan.column_mapping
        self._partition_columns = frozenset(scan.partition_columns)
        document = json.loads(scan.schema.to_json())
        self.table = SparkStructType.fromJson(_each_field(document, _in_table))
        is_mapped = scan.column_mapping != "none"
        self._files = SparkStructType.fromJson(_each_field(document, self._in_file)) if is_mapped else self.table

    def in_files(self, *, without: Collection[str] = (), as_text: Collection[str] = ()) -> SparkStructType:
        """Return the schema that Spark reads the files with, under the names that the files use."""
        schema = SparkStructType()
        for field in self._files.fields:
            if field.name in as_text:
                schema.add(field.name, "string")
            elif field.name not in without:
                schema.add(field)
        return schema

    def of_table(self, frame: DataFrame, path_columns: dict[str, Column] | None, also: Sequence[str] = ()) -> DataFrame:
        """Return a frame over files with the table's columns, and with `also`, which are columns of the frame.

        `path_columns` has expressions for columns that are not simply a column of the frame. None means that the frame
        has exactly the table's columns. They get new identities even then: otherwise Spark could not distinguish two
        frames over the same files in a join.
        """
        if path_columns is None and not any(_has_floats(field.dataType) for field in self.table.fields):
            return frame.toDF(*self.table.names)
        columns = []
        for inside, outside in zip(self._files.fields, self.table.fields, strict=True):
            column = (path_columns or {}).get(inside.name, F.col(quoted(inside.name)))
            if outside.name not in self._partition_columns:
                column = _unskipped(column, inside.dataType)
            if inside.dataType.simpleString() != outside.dataType.simpleString():
                # Only the names of nested fields differ, and a cast matches them by position.
                column = column.cast(outside.dataType)
            columns.append(column.alias(outside.name, metadata=outside.metadata))
        return frame.select(*columns, *also)

    def _in_file(self, field: dict[str, Any]) -> dict[str, Any]:
        metadata = field["metadata"]
        number = {FIELD_ID: metadata[COLUMN_ID]} if self._mapping == "id" and COLUMN_ID in metadata else {}
        return {**field, "name": metadata.get(PHYSICAL_NAME, field["name"]), "nullable": True, "metadata": number}


def _unskipped(column: Column, kind: SparkDataType) -> Column:
    """Return the same values, by an expression that Spark evaluates per row and cannot push to its Parquet reader.

    Arrays and maps stay as they are: Spark pushes no condition on their elements to that reader.
    """
    if isinstance(kind, FloatType | DoubleType):
        return F.nanvl(column, column)
    if isinstance(kind, SparkStructType):
        for field in kind.fields:
            if _has_floats(field.dataType):
                column = column.withField(quoted(field.name), _unskipped(column.getField(field.name), field.dataType))
    return column


def _has_floats(kind: SparkDataType) -> bool:
    if isinstance(kind, SparkStructType):
        return any(_has_floats(field.dataType) for field in kind.fields)
    return isinstance(kind, FloatType | DoubleType)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _in_table(field: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in field["metadata"].items() if not key.startswith(TABLE_METADATA)}
    return {**field, "nullable": True, "metadata": kept}


def _each_field(document: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return the schema document with `change` applied to every field, nested ones too, and all elements nullable."""
    match document:
        case {"name": str(), "metadata": dict()}:
            return {**change(document), "type": _each_field(document["type"], change)}
        case dict():
            nullable = {key: True for key in ("containsNull", "valueContainsNull") if key in document}
            return {key: _each_field(value, change) for key, value in document.items()} | nullable
        case list():
            return [_each_field(value, change) for value in document]
    return document
