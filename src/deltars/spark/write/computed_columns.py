"""Columns that the table computes for a Spark frame: defaults, generated columns, CHAR and VARCHAR lengths.

The rules are those of `data.computed_columns`. Here Spark evaluates the expressions, so they may use any function of
Spark, and times are in the session's time zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark_types

from deltars.errors import ValidationError
from deltars.protocol import StructField, StructType
from deltars.protocol.char_varchar import Limit, TypePath
from deltars.protocol.column_rules import default_of, generation_of, has_rules, limits_of
from deltars.protocol.identity import Identity, counted
from deltars.spark.read.columns import quoted
from deltars.spark.schema import schema_to_spark

REFUSED = "deltars refuses: "
"""Beginning of the messages that Spark's jobs raise for values that do not fit a column."""


def with_computed_columns(frame: DataFrame, table: StructType) -> DataFrame:
    """Add the missing computed columns of the table to a frame, and fit its strings to their length limits."""
    if not has_rules(table):
        return frame
    present = {name.lower() for name in frame.columns}
    missing = [field for field in table.fields if field.name.lower() not in present]
    defaults = {
        field.name: F.expr(sql).cast(_type(field))
        for field in missing
        if (sql := default_of(field)) is not None and generation_of(field) is None
    }
    defaults |= {name: _counted(identity) for name, identity in counted(table, frame.columns).items()}
    whole = _limited(frame.withColumns(defaults) if defaults else frame, table.fields)
    generated = {
        field.name: F.expr(sql).cast(_type(field)) for field in missing if (sql := generation_of(field)) is not None
    }
    if not generated:
        return whole
    # A missing column is null in the table, and therefore null for the generated columns.
    absent = {
        field.name: F.lit(None).cast(_type(field))
        for field in missing
        if field.name not in defaults and field.name not in generated
    }
    computed = (whole.withColumns(absent) if absent else whole).withColumns(generated)
    computed = _limited(computed, [field for field in missing if field.name in generated])
    return computed.select(*map(quoted, [*whole.columns, *generated]))


def _counted(identity: Identity) -> Column:
    """Return the values of an identity column. Each task counts its own rows, so there are gaps between tasks."""
    place = F.monotonically_increasing_id()
    return (F.lit(identity.first_free) + F.lit(identity.step) * place).cast("bigint")


def value_error(error: PySparkException) -> ValidationError | None:
    """Return the error for a value that does not fit its column, if that made the Spark job fail."""
    said = (error.getMessageParameters() or {}).get("errorMessage", "")
    found = re.search(rf"{REFUSED}([^\n]*)\.", said or str(error))
    return ValidationError(found[1]) if found else None


def _type(field: StructField) -> spark_types.DataType:
    return schema_to_spark(StructType((field,)))[0].dataType


def _limited(frame: DataFrame, fields: Iterable[StructField]) -> DataFrame:
    limits = {field.name.lower(): limits_of(field) for field in fields}
    changed = {
        field.name: _fitted(F.col(quoted(field.name)), field.dataType, limits[field.name.lower()], (), field.name)
        for field in frame.schema.fields
        if limits.get(field.name.lower())
    }
    return frame.withColumns(changed) if changed else frame


def _fitted(
    column: Column, kind: spark_types.DataType, limits: Mapping[TypePath, Limit], path: TypePath, name: str
) -> Column:
    """Return the column with its strings fitted to their length limits, inside structs, arrays and maps too."""
    if path in limits:
        return _limited_text(column, limits[path], name) if isinstance(kind, spark_types.StringType) else column
    if not any(place[: len(path)] == path for place in limits):
        return column
    match kind:
        case spark_types.StructType():
            for field in kind.fields:
                place = (*path, field.name.lower())
                if any(known[: len(place)] == place for known in limits):
                    inner = _fitted(column.getField(field.name), field.dataType, limits, place, name)
                    column = column.withField(quoted(field.name), inner)
            return column
        case spark_types.ArrayType():
            return F.transform(
                column, lambda element: _fitted(element, kind.elementType, limits, (*path, "element"), name)
            )
        case spark_types.MapType():
            keys = F.transform_keys(column, lambda key, _: _fitted(key, kind.keyType, limits, (*path, "key"), name))
            return F.transform_values(
                keys, lambda _, value: _fitted(value, kind.valueType, limits, (*path, "value"), name)
            )
        case _:
            return column


def _limited_text(text: Column, limit: Limit, name: str) -> Column:
    message = f"{REFUSED}column {name} has a string that is longer than {limit}."
    cut = F.substring(text, 1, limit.length)
    fits = F.when(text.isNull() | (F.length(F.rtrim(text)) <= limit.length), cut)
    fitted = fits.otherwise(F.raise_error(F.lit(message)).cast("string"))
    return F.rpad(fitted, limit.length, " ") if limit.is_padded else fitted
