"""Spark's schemas as Delta's, and Delta's as Spark's: both speak the same JSON."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import types as spark_types

from deltars.errors import ValidationError
from deltars.protocol import StructType

_COLLATIONS = "__COLLATIONS"

# What a table says of its own columns. It clings to frames that were read from that table, and is not true of
# a table that is made from such a frame.
OF_THE_TABLE = ("delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING")


def schema_from_spark(schema: spark_types.StructType) -> StructType:
    """The schema of a frame. ValidationError names the column whose type Delta does not have."""
    return StructType.from_dict(_of_a_frame(schema.jsonValue()))


def table_schema(schema: spark_types.StructType) -> StructType:
    """The schema of a table that is made from a frame.

    Every column may be null: what Spark infers of a frame is no promise about the table's next rows.
    """
    return StructType.from_dict(_all_nullable(_of_a_frame(schema.jsonValue())))


def schema_to_spark(schema: StructType) -> spark_types.StructType:
    return spark_types.StructType.fromJson(json.loads(schema.to_json()))


def _of_a_frame(document: Any) -> Any:
    match document:
        case {"name": str(name), "metadata": dict(metadata)}:
            if _COLLATIONS in metadata:
                raise ValidationError(
                    f"column {name} has a collation, and Delta has no such type",
                    field=name,
                    hint="Cast it to string.",
                )
            kept = {key: value for key, value in metadata.items() if not key.startswith(OF_THE_TABLE)}
            return {**document, "type": _of_a_frame(document["type"]), "metadata": kept}
        case dict():
            return {key: _of_a_frame(value) for key, value in document.items()}
        case list():
            return [_of_a_frame(value) for value in document]
    return document


def _all_nullable(document: Any) -> Any:
    match document:
        case dict():
            nullable = {key: True for key in ("nullable", "containsNull", "valueContainsNull") if key in document}
            return {key: _all_nullable(value) for key, value in document.items()} | nullable
        case list():
            return [_all_nullable(value) for value in document]
    return document
