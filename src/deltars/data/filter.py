"""Evaluation of a `where` condition on the rows of a batch, by the rules of Spark SQL.

Logic has three values, and a row matches only if the condition is TRUE. NaN equals itself and is greater than every
other number. A part that only Spark can evaluate is refused, with its text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from functools import cached_property
from typing import Any, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.doubles import nearest_doubles
from deltars.errors import PredicateError
from deltars.predicate import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    Value,
    columns_of,
    conjunction,
    grouped,
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
_EXACT = Context(prec=200)
_LONG = 2**63
_DECIMAL_DIGITS = 76


Computed: TypeAlias = Callable[[pa.RecordBatch], pa.Array]


class PredicateFilter:
    """Row filter that keeps the rows that match a predicate."""

    def __init__(self, predicate: Predicate, computed: Mapping[Unknown, Computed] | None = None) -> None:
        """Take `computed` for parts of the predicate that the filter cannot evaluate itself."""
        self._computed = computed or {}
        for leaf in leaves_of(predicate):
            if isinstance(leaf, Unknown) and leaf not in self._computed:
                raise PredicateError(
                    f"only Spark can evaluate {leaf.sql}",
                    field="where",
                    hint="Read with Spark (table.read), or omit this part from where and filter the result.",
                )
        self._predicate = grouped(predicate)
        # The values of each IN list as an array of the column's type, converted once and not for each batch.
        self._lists: dict[tuple[int, pa.DataType], tuple[In, pa.Array]] = {}

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(column.path[0] for column in columns_of(self._predicate))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        return self._evaluate(self._predicate, batch)

    def _evaluate(self, predicate: Predicate, batch: pa.RecordBatch) -> pa.Array:
        match predicate:
            case And(parts):
                return self._joined(parts, pc.and_kleene, batch, decides=False)
            case Or(parts):
                return self._joined(parts, pc.or_kleene, batch, decides=True)
            case Comparison(column, operator, value):
                return _compare(_values(column, batch), operator, value)
            case In(column, _, negated):
                answer = self._one_of(_values(column, batch), predicate)
                return pc.invert(answer) if negated else answer
            case StartsWith(column, prefix, negated):
                answer = pc.starts_with(_values(column, batch), prefix)
                return pc.invert(answer) if negated else answer
            case Like(column, pattern, negated):
                answer = _like(_values(column, batch), pattern)
                return pc.invert(answer) if negated else answer
            case IsNull(column, negated):
                values_ = _values(column, batch)
                return pc.is_valid(values_) if negated else pc.is_null(values_)
            case Constant(value):
                return pa.repeat(pa.scalar(value, pa.bool_()), batch.num_rows)
            case Unknown():
                return self._computed[predicate](batch)
            case _:
                assert_never(predicate)

    def _joined(
        self, parts: Sequence[Predicate], join: Callable[[Any, Any], Any], batch: pa.RecordBatch, *, decides: bool
    ) -> pa.Array:
        """Join the parts from left to right. A row that is decided needs no further part, whose computation may fail.

        So `b <> 0 AND a / b > 1` divides by no zero, as in Spark.
        """
        answer = self._evaluate(parts[0], batch)
        for part in parts[1:]:
            if not self._computed or not any(isinstance(leaf, Unknown) for leaf in leaves_of(part)):
                answer = join(answer, self._evaluate(part, batch))
                continue
            is_open = pc.fill_null(pc.not_equal(answer, decides), True)
            found = self._evaluate(part, batch.filter(is_open))
            answer = pc.replace_with_mask(answer, is_open, join(answer.filter(is_open), found))
        return answer

    def _one_of(self, values: pa.Array, leaf: In) -> pa.Array:
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), pa.bool_())
        is_double = pa.types.is_floating(values.type) or any(isinstance(value, float) for value in leaf.values)
        if is_double:
            values = _one_zero_one_nan(nearest_doubles(values))
        key = id(leaf), values.type
        known, wanted = self._lists.get(key, (None, None))
        if known is not leaf:
            kind = values.type
            wanted = _as_doubles(leaf.values) if is_double else pa.array(_in_type(leaf.values, kind), kind)
            self._lists[key] = leaf, wanted
        return pc.if_else(pc.is_valid(values), pc.is_in(values, wanted), pa.scalar(None, pa.bool_()))


class Unmatched(PredicateFilter):
    """Row filter that keeps the rows for which the predicate is false or null."""

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.invert(pc.fill_null(super().mask(batch), False))


class KeyFilter:
    """Row filter that keeps the rows that match a predicate and have one of many keys.

    The list of keys is prepared for the first batch: few filters of merges are ever used.
    """

    def __init__(self, predicate: Predicate, column: Column, values: Sequence[Value]) -> None:
        self._predicate, self._column, self._values = predicate, column, values

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(column.path[0] for column in (self._column, *columns_of(self._predicate)))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        return self._filter.mask(batch)

    @cached_property
    def _filter(self) -> PredicateFilter:
        return PredicateFilter(conjunction([self._predicate, In(self._column, tuple(self._values))]))


def _one_zero_one_nan(values: pa.Array) -> pa.Array:
    """Return doubles of which equal ones have the same bits, for functions of Arrow that compare bits."""
    return pc.if_else(pc.is_nan(values), pa.scalar(math.nan), pc.add(values, 0.0))


def _as_doubles(values: Sequence[Value]) -> pa.Array:
    found = [float(value) for value in values if isinstance(value, int | float | Decimal)]
    return _one_zero_one_nan(pa.array(found, pa.float64()))


def _in_type(values: Sequence[Value], kind: pa.DataType) -> list[Value]:
    """Return the values that a column of this type can hold exactly. No other value can equal one of the column."""
    if pa.types.is_integer(kind):
        bits = kind.bit_width - 1
        whole = [int(value) for value in values if isinstance(value, int | Decimal) and value == int(value)]
        return [value for value in whole if -(1 << bits) <= value < 1 << bits]
    if pa.types.is_decimal(kind):
        numbers = [Decimal(value) for value in values if isinstance(value, int | Decimal)]
        most = Decimal(10) ** (kind.precision - kind.scale)
        unit = Decimal(1).scaleb(-kind.scale)
        return [value for value in numbers if abs(value) < most and _EXACT.remainder(value, unit) == 0]
    return list(values)


def _values(column: Column, batch: pa.RecordBatch) -> pa.Array:
    top, *below = column.path
    values = batch.column(top)
    # If a struct is null, all its fields are null.
    return pc.struct_field(values, below) if below else values


def _like(values: pa.Array, pattern: str) -> pa.Array:
    if "\\" not in pattern:
        return pc.match_like(values, pattern)
    # pyarrow finds no match for an escaped backslash at the end of a pattern such as `%\\\\`.
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wanted = "".join({"%": ".*", "_": "."}.get(part) or _literal(part[-1]) for part in parts)
    return pc.match_substring_regex(values, rf"\A(?s:{wanted})\z")


def _literal(character: str) -> str:
    """Return a character as RE2 takes it literally."""
    return rf"\x{{{ord(character):x}}}"


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
    """Compare as doubles. An integer is compared with a float column in single precision, as in Spark."""
    single = pa.types.is_float32(values.type) and isinstance(value, int)
    kind = pa.float32() if single else pa.float64()
    values, number = nearest_doubles(values, kind), float(value)
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
    """Compare in a decimal type that holds the digits of both sides."""
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
    """Return the same answer for every row that is not null."""
    return pc.if_else(pc.is_valid(values), pa.scalar(answer), pa.scalar(None, pa.bool_()))
