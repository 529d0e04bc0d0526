"""Evaluation of SQL expressions over Arrow columns, with the same results as Spark. Times are in UTC.

An expression whose result may differ from Spark's is refused: only Spark can evaluate it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.errors import ValidationError
from deltars.predicate import Call, Column, Expression, Given, only_spark, parse_default, parse_expression
from deltars.protocol import DataType, StructType, type_to_arrow

_GIVEN = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(),
    "double": pa.float64(), "string": pa.string(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_PARTS = {"year": pc.year, "quarter": pc.quarter, "month": pc.month, "day": pc.day, "hour": pc.hour}
_TRUNCATED = ("year", "month", "day", "hour", "minute", "second")


class ColumnExpression:
    """The expression of a generated column."""

    def __init__(self, sql: str, schema: StructType, type_: DataType) -> None:
        """Take the columns of the batches from `schema`, in the table's types. The result is of `type_`."""
        self._sql = sql
        self._expression = parse_expression(sql, schema)
        self._type = type_to_arrow(type_)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        try:
            found = _evaluate(self._expression, batch)
            if found.type == self._type:
                return found
            if _is_exact(found.type) and (_is_exact(self._type) or types.is_float64(self._type)):
                return found.cast(self._type)
            if types.is_null(found.type):
                return pa.nulls(len(found), self._type)
        except pa.ArrowInvalid as error:
            raise ValidationError(f"{self._sql} cannot be computed: {error}", field=self._sql) from error
        except pa.ArrowNotImplementedError:
            pass
        raise only_spark(self._sql)


def default_value(sql: str, type_: DataType) -> pa.Scalar:
    """Return the default value of a column, with the current time for CURRENT_TIMESTAMP and CURRENT_DATE."""
    default = parse_default(sql, type_)
    target = type_to_arrow(type_)
    now = datetime.now(UTC)
    match default:
        case Given(_, value):
            return pa.scalar(value, target)
        case Call("current_timestamp") if types.is_timestamp(target):
            return pa.scalar(now if target.tz else now.replace(tzinfo=None), target)
        case Call("current_date") if types.is_date(target):
            return pa.scalar(now.date(), target)
    raise only_spark(sql)


def is_same(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare as `<=>` does: null equals null, and NaN equals NaN."""
    if types.is_nested(left.type):
        return pa.array([a == b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], pa.bool_())
    equal = pc.fill_null(pc.equal(left, right), False)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    if types.is_floating(left.type):
        both_null = pc.or_(both_null, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    return pc.or_(equal, both_null)


def _evaluate(expression: Expression, batch: pa.RecordBatch) -> pa.Array:
    match expression:
        case Column(path):
            values = batch.column(path[0])
            return pc.struct_field(values, list(path[1:])) if len(path) > 1 else values
        case Given("void"):
            return pa.nulls(batch.num_rows)
        case Given(kind, value) if kind in _GIVEN:
            return pa.repeat(pa.scalar(value, _GIVEN[kind]), batch.num_rows)
        case Call("date_trunc", (Given(_, unit), inner)):
            return _truncated(unit, _evaluate(inner, batch))
        case Call(function, arguments, to):
            return _call(function, [_evaluate(argument, batch) for argument in arguments], to)
    raise only_spark(str(expression))


def _call(function: str, arguments: list[pa.Array], to: DataType | None) -> pa.Array:
    first, *rest = arguments or [None]
    kinds = [argument.type for argument in arguments]
    if function in _ARITHMETIC and all(map(_is_exact, kinds)):
        return _ARITHMETIC[function](first, *rest)
    if function == "%" and all(map(_is_exact, kinds)):
        # As in Java, the result has the sign of the dividend: division rounds toward zero.
        return pc.subtract(first, pc.multiply(pc.divide_checked(first, *rest), *rest))
    if function in _PARTS and (types.is_timestamp(kinds[0]) or (types.is_date(kinds[0]) and function != "hour")):
        return _PARTS[function](first).cast(pa.int32())
    if function == "concat" and all(map(types.is_string, kinds)):
        return pc.binary_join_element_wise(*arguments, pa.scalar(""))
    if function == "coalesce" and len(set(kinds)) == 1:
        return pc.coalesce(*arguments)
    if function == "substring" and types.is_string(kinds[0]):
        return _substring(first, *rest)
    if function == "cast" and to is not None and _can_cast(kinds[0], type_to_arrow(to)):
        # Casting a timestamp to a date drops the time of day, so that cast must not be safe.
        return first.cast(type_to_arrow(to), safe=not types.is_timestamp(kinds[0]))
    raise only_spark(f"{function} of {', '.join(map(str, kinds))}")


def _truncated(unit: str, moments: pa.Array) -> pa.Array:
    if unit not in _TRUNCATED or not types.is_timestamp(moments.type):
        raise only_spark(f"date_trunc({unit})")
    return pc.floor_temporal(moments, unit=unit)


def _substring(text: pa.Array, start: pa.Array, length: pa.Array) -> pa.Array:
    begin, count = pc.min_max(start), pc.min_max(length)
    if not len(text):
        return text
    if begin["min"] != begin["max"] or count["min"] != count["max"] or begin["min"].as_py() < 1:
        raise only_spark("substring with a start or length that is not constant, or a start below 1")
    first = begin["min"].as_py() - 1
    return pc.utf8_slice_codeunits(text, first, first + max(0, count["min"].as_py()))


def _can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    if types.is_date(target):
        return bool(types.is_timestamp(source) or types.is_date(source))
    if types.is_string(target):
        return bool(_is_exact(source) or types.is_string(source) or types.is_date(source))
    return source == target or (_is_exact(source) and (_is_exact(target) or types.is_float64(target)))


def _is_exact(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind))
