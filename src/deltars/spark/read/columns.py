"""Columns as data files name them, and as the table does.

mapping    the file's column is found by
none       the column's name
name       its physical name
id         its field id, where the session reads by ids; and by its physical name in any case

What the table says of a column for itself (its mapping, defaults, generation) is not handed to the frame.

A condition on a float or double column is kept away from Spark's Parquet reader (`_unskipped`). That reader skips rows
by footers, from which many writers leave NaN out, and by dictionaries, in which -0.0 is not 0.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType as SparkDataType
from pyspark.sql.types import DoubleType, FloatType
from pyspark.sql.types import StructType as SparkStructType

from deltars.data.scan import Scan
from deltars.protocol.schema import COLUMN_ID, PHYSICAL_NAME
from deltars.spark.schema import OF_THE_TABLE

FIELD_ID = "parquet.field.id"


class ScanColumns:
    """The columns of one scan, on both sides."""

    def __init__(self, scan: Scan) -> None:
        self._mapping = scan.column_mapping
        self._partition_columns = frozenset(scan.partition_columns)
        document = json.loads(scan.schema.to_json())
        self.table = SparkStructType.fromJson(_each_field(document, _in_table))
        is_mapped = scan.column_mapping != "none"
        self._files = SparkStructType.fromJson(_each_field(document, self._in_file)) if is_mapped else self.table

    def in_files(self, *, without: Collection[str] = (), as_text: Collection[str] = ()) -> SparkStructType:
        """What Spark is told to look for, by the files' own names."""
        schema = SparkStructType()
        for field in self._files.fields:
            if field.name in as_text:
                schema.add(field.name, "string")
            elif field.name not in without:
                schema.add(field)
        return schema

    def of_table(self, frame: DataFrame, found: dict[str, Column] | None) -> DataFrame:
        """A frame of the files with the table's columns; `found`: those that are made of something else than a file's.

        None says that the frame has the table's columns and no others. They are made anew all the same: Spark could
        not tell two frames over the same files apart in a join.
        """
        if found is None and not any(_has_floats(field.dataType) for field in self.table.fields):
            return frame.toDF(*self.table.names)
        columns = []
        for inside, outside in zip(self._files.fields, self.table.fields, strict=True):
            column = (found or {}).get(inside.name, F.col(quoted(inside.name)))
            if outside.name not in self._partition_columns:
                column = _unskipped(column, inside.dataType)
            if inside.dataType.simpleString() != outside.dataType.simpleString():
                # The same, but for the names of nested fields, which go by position.
                column = column.cast(outside.dataType)
            columns.append(column.alias(outside.name, metadata=outside.metadata))
        return frame.select(*columns)

    def _in_file(self, field: dict[str, Any]) -> dict[str, Any]:
        metadata = field["metadata"]
        number = {FIELD_ID: metadata[COLUMN_ID]} if self._mapping == "id" and COLUMN_ID in metadata else {}
        return {**field, "name": metadata.get(PHYSICAL_NAME, field["name"]), "nullable": True, "metadata": number}


def _unskipped(column: Column, kind: SparkDataType) -> Column:
    """The same values, by an expression that Spark evaluates for each row and cannot hand to its Parquet reader.

    Arrays and maps stay as they are: no condition on what they hold reaches that reader.
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
    kept = {key: value for key, value in field["metadata"].items() if not key.startswith(OF_THE_TABLE)}
    return {**field, "nullable": True, "metadata": kept}


def _each_field(document: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The schema with every field changed, the nested ones too, and everything in it optional."""
    match document:
        case {"name": str(), "metadata": dict()}:
            return {**change(document), "type": _each_field(document["type"], change)}
        case dict():
            nullable = {key: True for key in ("containsNull", "valueContainsNull") if key in document}
            return {key: _each_field(value, change) for key, value in document.items()} | nullable
        case list():
            return [_each_field(value, change) for value in document]
    return document
