"""A `where` applied to rows: which of a batch match it, by the rules of Spark SQL.

Three truth values, and a row is kept only where the answer is TRUE. NaN is equal to itself and greater than every
other number. What only a query engine can judge is refused, with its text.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import reduce
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import PredicateError
from deltars.predicate import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    Value,
    columns_of,
    leaves_of,
)

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_LONG = 2**63
_DECIMAL_DIGITS = 76


class PredicateFilter:
    """Rows that match a predicate."""

    def __init__(self, predicate: Predicate) -> None:
        for leaf in leaves_of(predicate):
            if isinstance(leaf, Unknown):
                raise PredicateError(
                    f"only Spark can judge {leaf.sql}",
                    field="where",
                    hint="Read with Spark (table.read), or leave this part out of where and filter the result.",
                )
        self._predicate = predicate

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(column.path[0] for column in columns_of(self._predicate))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        return _judge(self._predicate, batch)


class Unmatched(PredicateFilter):
    """The other rows: those that do not match, or where nobody can say."""

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.invert(pc.fill_null(super().mask(batch), False))


def _judge(predicate: Predicate, batch: pa.RecordBatch) -> pa.Array:
    match predicate:
        case And(parts):
            return reduce(pc.and_kleene, (_judge(part, batch) for part in parts))
        case Or(parts):
            return reduce(pc.or_kleene, (_judge(part, batch) for part in parts))
        case Comparison(column, operator, value):
            return _compare(_values(column, batch), operator, value)
        case In(column, values, negated):
            found = _values(column, batch)
            answers = (_compare(found, "<>" if negated else "=", value) for value in values)
            return reduce(pc.and_kleene if negated else pc.or_kleene, answers)
        case StartsWith(column, prefix, negated):
            answer = pc.starts_with(_values(column, batch), prefix)
            return pc.invert(answer) if negated else answer
        case IsNull(column, negated):
            values_ = _values(column, batch)
            return pc.is_valid(values_) if negated else pc.is_null(values_)
        case Constant(value):
            return pa.repeat(pa.scalar(value, pa.bool_()), batch.num_rows)
        case Unknown(sql):
            raise PredicateError(f"only Spark can judge {sql}", field="where")
        case _:
            assert_never(predicate)


def _values(column: Column, batch: pa.RecordBatch) -> pa.Array:
    top, *below = column.path
    values = batch.column(top)
    # Where a struct is null, so is every field of it.
    return pc.struct_field(values, below) if below else values


def _compare(values: pa.Array, operator: Operator, value: Value) -> pa.Array:
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.bool_())
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if pa.types.is_floating(kind) or isinstance(value, float):
        return _compare_floats(values, operator, value)
    if is_number and (pa.types.is_decimal(kind) or isinstance(value, Decimal)):
        return _compare_decimals(values, operator, Decimal(value))  # type: ignore[arg-type]
    if is_number and isinstance(value, int) and not -_LONG <= value < _LONG:
        return _constant(values, (operator in ("<", "<=", "<>")) if value > 0 else operator in (">", ">=", "<>"))
    if is_number:
        return _COMPARE[operator](values.cast(pa.int64()), pa.scalar(value, pa.int64()))
    return _COMPARE[operator](values, pa.scalar(value, kind))


def _compare_floats(values: pa.Array, operator: Operator, value: Any) -> pa.Array:
    """As doubles; an integer meets a single-precision column as a single."""
    single = pa.types.is_float32(values.type) and isinstance(value, int)
    kind = pa.float32() if single else pa.float64()
    values, number = values.cast(kind, safe=False), float(value)
    is_nan = pc.is_nan(values)
    if math.isnan(number):
        match operator:
            case "=" | ">=":
                return is_nan
            case "<>" | "<":
                return pc.invert(is_nan)
            case _:
                return _constant(values, operator == "<=")
    answer = _COMPARE[operator](values, pa.scalar(number).cast(kind, safe=False))
    return pc.or_(answer, is_nan) if operator in (">", ">=") else answer


def _compare_decimals(values: pa.Array, operator: Operator, value: Decimal) -> pa.Array:
    """With room for the digits of both."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(-exponent, getattr(values.type, "scale", 0), 0)
    digits = len(value.as_tuple().digits) + max(exponent, 0) + scale
    if digits + 38 > _DECIMAL_DIGITS and value.adjusted() >= 38:
        return _constant(values, (operator in ("<", "<=", "<>")) if value > 0 else operator in (">", ">=", "<>"))
    kind = pa.decimal256(_DECIMAL_DIGITS, scale)
    if pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(19, 0))
    return _COMPARE[operator](values.cast(kind), pa.scalar(value, kind))


def _constant(values: pa.Array, answer: bool) -> pa.Array:
    """The same answer for every row that has a value."""
    return pc.if_else(pc.is_valid(values), pa.scalar(answer), pa.scalar(None, pa.bool_()))
