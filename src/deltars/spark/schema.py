"""Conversion between Spark's schemas and Delta's. Both use the same JSON."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import types as spark_types

from deltars.errors import ValidationError
from deltars.protocol import StructType

_COLLATIONS = "__COLLATIONS"

# Prefixes of column metadata that concerns only the table itself. Frames read from the table may carry it, but it does
# not hold for another table that is created from such a frame.
TABLE_METADATA = ("delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING")


def schema_from_spark(schema: spark_types.StructType) -> StructType:
    """Return the schema of a frame. Raise ValidationError for a column whose type Delta does not have."""
    return StructType.from_dict(_without_table_metadata(schema.jsonValue()))


def table_schema(schema: spark_types.StructType) -> StructType:
    """Return the schema of a table that is created from a frame.

    Every column is nullable: what Spark infers about one frame need not hold for later rows of the table.
    """
    return StructType.from_dict(_all_nullable(_without_table_metadata(schema.jsonValue())))


def schema_to_spark(schema: StructType) -> spark_types.StructType:
    return spark_types.StructType.fromJson(json.loads(schema.to_json()))


def _without_table_metadata(document: Any) -> Any:
    match document:
        case {"name": str(name), "metadata": dict(metadata)}:
            if _COLLATIONS in metadata:
                raise ValidationError(
                    f"column {name} has a collation, which Delta does not support",
                    field=name,
                    hint="Cast it to string.",
                )
            kept = {key: value for key, value in metadata.items() if not key.startswith(TABLE_METADATA)}
            return {**document, "type": _without_table_metadata(document["type"]), "metadata": kept}
        case dict():
            return {key: _without_table_metadata(value) for key, value in document.items()}
        case list():
            return [_without_table_metadata(value) for value in document]
    return document


def _all_nullable(document: Any) -> Any:
    match document:
        case dict():
            nullable = {key: True for key in ("nullable", "containsNull", "valueContainsNull") if key in document}
            return {key: _all_nullable(value) for key, value in document.items()} | nullable
        case list():
            return [_all_nullable(value) for value in document]
    return document
