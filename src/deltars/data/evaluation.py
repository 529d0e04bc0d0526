"""Evaluation of SQL expressions over Arrow columns, with the same results as Spark. Times are in UTC.

An expression whose result may differ from Spark's is refused: only Spark can evaluate it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.filter import PredicateFilter
from deltars.data.read_schema import arrow_type
from deltars.data.store_assignment import as_double, assigned, is_number
from deltars.errors import ValidationError
from deltars.predicate import (
    Call,
    Case,
    Column,
    Expression,
    Given,
    Sides,
    Truth,
    Unknown,
    columns_in,
    leaves_of,
    only_spark,
    parse,
    parse_default,
    parse_expression,
    parse_truth,
)
from deltars.protocol import DataType, StructType, type_to_arrow

_GIVEN = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_MAX_DIGITS = 38
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
        found = _computed(self._sql, self._expression, batch)
        if found.type == self._type:
            return found
        if types.is_null(found.type):
            return pa.nulls(len(found), self._type)
        if _is_exact(found.type) and (_is_exact(self._type) or types.is_float64(self._type)):
            with _computing(self._sql):
                return found.cast(self._type)
        raise only_spark(self._sql)


class AssignedValue:
    """The new value of a column in a row-level change."""

    def __init__(self, sql: str, schema: StructType | Sides, type_: DataType, column: str) -> None:
        """Take the columns of the batches from `schema`. The result is of `type_`; `column` is for errors."""
        self._sql = sql
        self._expression = parse_expression(sql, schema)
        self._type = arrow_type(type_)
        self._column = column

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        if isinstance(self._expression, Given) and types.is_floating(self._type):
            # The decimal 0.1 of a statement means the double nearest to it.
            values = _evaluate_as(self._expression, batch, self._type)
        else:
            values = _computed(self._sql, self._expression, batch)
        return assigned(values, self._type, self._column)


class RowCondition:
    """A condition on rows, of which parts may have to be computed. It is a `RowFilter`."""

    def __init__(self, sql: str, schema: StructType | Sides, *, field: str = "where") -> None:
        self._sql = sql
        predicate = parse(sql, schema, field=field)
        is_plain = not any(isinstance(leaf, Unknown) for leaf in leaves_of(predicate))
        self._truth = Truth(predicate) if is_plain else parse_truth(sql, schema)
        self._filter = _filter_of(self._truth)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(column.path[0] for column in columns_in(self._truth))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        with _computing(self._sql):
            return self._filter.mask(batch)


def _filter_of(truth: Truth) -> PredicateFilter:
    return PredicateFilter(truth.predicate, {leaf: partial(_evaluate, value) for leaf, value in truth.computed})


@contextmanager
def _computing(sql: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise ValidationError(f"{sql} cannot be computed: {error}", field=sql) from error
    except pa.ArrowNotImplementedError:
        raise only_spark(sql) from None


def _computed(sql: str, expression: Expression, batch: pa.RecordBatch) -> pa.Array:
    with _computing(sql):
        return _evaluate(expression, batch)


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
        case Given("decimal", value):
            return pa.repeat(pa.scalar(value, _decimal_of(value)), batch.num_rows)
        case Given(kind, value) if kind in _GIVEN:
            return pa.repeat(pa.scalar(value, _GIVEN[kind]), batch.num_rows)
        case Call("date_trunc", (Given(_, unit), inner)):
            return _truncated(unit, _evaluate(inner, batch))
        case Call("substring", (text, Given(_, int(start)), Given(_, int(length)))) if start > 0:
            return _substring(_evaluate(text, batch), start, length)
        case Call("coalesce", arguments):
            return _coalesced(arguments, batch)
        case Call(function, arguments) if function in _COMPARISONS:
            return _compared(function, *_alike(arguments, batch))
        case Call(function, (left, right)) if function in _ARITHMETIC or function in ("%", "/"):
            return _calculated(function, *_operands(left, right, batch))
        case Call(function, arguments, to):
            return _call(function, [_evaluate(argument, batch) for argument in arguments], to)
        case Case(branches, otherwise):
            return _chosen(branches, otherwise, batch)
        case Truth():
            return _filter_of(expression).mask(batch)
    raise only_spark(str(expression))


def _evaluate_as(expression: Expression, batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    """Evaluate for a use as float or double."""
    return _as_float(expression, _evaluate(expression, batch), kind)


def _as_float(expression: Expression, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values for a use as float or double, to which Spark casts a decimal literal directly."""
    match expression:
        case Given("decimal", value):
            number = as_double(value, single=types.is_float32(kind))
            return pa.repeat(pa.scalar(number, pa.float64()), len(values)).cast(kind, safe=False)
    return values


def _decimal_of(value: Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return pa.decimal128(max(len(digits) + max(0, exponent), scale, 1), scale)


# -- types ------------------------------------------------------------------------------------------------------------


def _alike(expressions: Sequence[Expression], batch: pa.RecordBatch) -> list[pa.Array]:
    """Evaluate expressions, and convert the values to the one type that Spark would choose."""
    return _converted(expressions, [_evaluate(expression, batch) for expression in expressions])


def _converted(expressions: Sequence[Expression], arrays: list[pa.Array]) -> list[pa.Array]:
    """Convert the values of these expressions to one type. Nothing is evaluated again: operands may be nested."""
    kinds = {array.type for array in arrays} - {pa.null()}
    if any(types.is_float64(kind) for kind in kinds):
        arrays = [_as_float(*pair, pa.float64()) for pair in zip(expressions, arrays, strict=True)]
        kinds = {array.type for array in arrays} - {pa.null()}
    if not kinds:
        return arrays
    kind = _common(kinds)
    return [_widened(array, kind) for array in arrays]


def _common(kinds: Collection[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    if all(map(_is_exact, kinds)):
        return max(kinds, key=lambda kind: kind.bit_width)
    if all(_is_exact(kind) or types.is_float64(kind) for kind in kinds):
        return pa.float64()
    if all(_is_exact(kind) or types.is_decimal(kind) for kind in kinds):
        decimals = [_as_decimal(kind) for kind in kinds]
        scale = max(kind.scale for kind in decimals)
        whole = max(kind.precision - kind.scale for kind in decimals)
        if whole + scale <= _MAX_DIGITS:
            return pa.decimal128(whole + scale, scale)
    raise only_spark(f"values of {', '.join(sorted(map(str, kinds)))} together{_perhaps_meant(kinds)}")


def _perhaps_meant(kinds: Collection[pa.DataType]) -> str:
    """Return what may be wrong in a text that compares values of these types."""
    if not any(_is_exact(kind) or types.is_floating(kind) for kind in kinds):
        return ""
    if any(map(types.is_temporal, kinds)):
        return " (a date is written in quotes: '2026-01-31')"
    # Spark's SQL takes double quotes for a text.
    return " (a column is written without quotes, or in backquotes)" if any(map(types.is_string, kinds)) else ""


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return kind if types.is_decimal(kind) else pa.decimal128(_DIGITS[kind.bit_width], 0)


def _widened(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if types.is_decimal(kind) and _is_exact(array.type):
        array = array.cast(pa.int64()).cast(pa.decimal128(19, 0))
    # As in Java, a long becomes the nearest double.
    return array.cast(kind, safe=not types.is_float64(kind)) if array.type != kind else array


# -- functions --------------------------------------------------------------------------------------------------------


def _operands(left: Expression, right: Expression, batch: pa.RecordBatch) -> list[pa.Array]:
    """Evaluate the operands of an operator. Decimals keep their own types: that of the result follows from them."""
    arrays = [_evaluate(left, batch), _evaluate(right, batch)]
    kinds = [array.type for array in arrays]
    if not any(map(types.is_decimal, kinds)) or any(map(types.is_float64, kinds)):
        return _converted((left, right), arrays)
    if not all(_is_exact(kind) or types.is_decimal(kind) for kind in kinds):
        raise only_spark(f"arithmetic with {', '.join(map(str, kinds))}")
    return [_widened(array, _as_decimal(array.type)) for array in arrays]


def _calculated(operator: str, left: pa.Array, right: pa.Array) -> pa.Array:
    kinds = [left.type, right.type]
    if types.is_null(kinds[0]) or types.is_null(kinds[1]) or not all(map(is_number, kinds)):
        raise only_spark(f"{operator} of {', '.join(map(str, kinds))}")
    if operator in _ARITHMETIC:
        if types.is_decimal(kinds[0]) and _result_digits(operator, *kinds) > _MAX_DIGITS:
            raise only_spark(f"{operator} of {', '.join(map(str, kinds))}, which may have to be rounded")
        return _ARITHMETIC[operator](left, right)
    if operator == "%" and all(map(_is_exact, kinds)):
        # As in Java, the result has the sign of the dividend: division rounds toward zero.
        return pc.subtract(left, pc.multiply(pc.divide_checked(left, right), right))
    if operator == "/" and all(_is_exact(kind) or types.is_float64(kind) for kind in kinds):
        left, right = (_widened(array, pa.float64()) for array in (left, right))
        if pc.any(pc.and_(pc.equal(right, 0.0), pc.is_valid(left))).as_py():
            raise pa.ArrowInvalid("divide by zero")
        return pc.divide(left, right)
    raise only_spark(f"{operator} of {', '.join(map(str, kinds))}")


def _result_digits(operator: str, left: pa.DataType, right: pa.DataType) -> int:
    """Return the digits of the result of decimals, before Spark limits them to 38."""
    if operator == "*":
        return int(left.precision + right.precision + 1)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return int(whole + max(left.scale, right.scale) + 1)


def _compared(operator: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare two columns of one type. NaN equals itself and is greater than every other number."""
    if operator == "<=>":
        return is_same(left, right)
    if operator in (">", ">="):
        return _compared(operator.replace(">", "<"), right, left)
    if operator == "<>":
        return pc.invert(_compared("=", left, right))
    kind = left.type
    if types.is_null(kind):
        return pa.nulls(len(left), pa.bool_())
    if types.is_nested(kind):
        raise only_spark(f"comparison of {kind}")
    if types.is_boolean(kind):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    answer = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}[operator](left, right)
    if not types.is_floating(kind):
        return answer
    match operator:
        case "=":
            return pc.or_(answer, pc.and_(pc.is_nan(left), pc.is_nan(right)))
        case "<":
            return pc.or_(answer, pc.and_not(pc.is_nan(right), pc.is_nan(left)))
        case _:
            return pc.or_(answer, pc.is_nan(right))


def _coalesced(arguments: Sequence[Expression], batch: pa.RecordBatch) -> pa.Array:
    """Evaluate each argument only for rows in which all before it are null, as Spark does."""
    kinds = _kinds_alike(arguments, batch)
    left = _numbers(batch.num_rows)
    places, found = [], []
    for argument, kind in zip(arguments, kinds, strict=True):
        values = _widened(_evaluate_as(argument, batch.take(left), kind), kind)
        is_found = pc.is_valid(values)
        places.append(left.filter(is_found))
        found.append(values.filter(is_found))
        left = left.filter(pc.invert(is_found))
    return _in_order([*places, left], [*found, pa.nulls(len(left), kinds[0])])


def _chosen(branches: Sequence[tuple[Truth, Expression]], otherwise: Expression, batch: pa.RecordBatch) -> pa.Array:
    """Evaluate each branch for its own rows only: `CASE WHEN b <> 0 THEN a / b END` divides by no zero."""
    left = _numbers(batch.num_rows)
    places = []
    for truth, _ in branches:
        holds = pc.fill_null(_filter_of(truth).mask(batch.take(left)), False)
        places.append(left.filter(holds))
        left = left.filter(pc.invert(holds))
    places.append(left)
    values = [value for _, value in branches] + [otherwise]
    # The types of all branches, those without rows too, decide on the result's type.
    kinds = _kinds_alike(values, batch)
    found = [
        _widened(_evaluate_as(value, batch.take(rows), kind), kind)
        for value, rows, kind in zip(values, places, kinds, strict=True)
    ]
    return _in_order(places, found)


def _in_order(places: Sequence[pa.Array], values: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(values).take(pc.sort_indices(pa.concat_arrays(places)))


def _kinds_alike(expressions: Sequence[Expression], batch: pa.RecordBatch) -> list[pa.DataType]:
    """Return the types to which `_alike` converts the values."""
    return [array.type for array in _alike(expressions, batch.slice(0, 0))]


def _numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _call(function: str, arguments: list[pa.Array], to: DataType | None) -> pa.Array:
    if not arguments:
        raise only_spark(function)
    first, kinds = arguments[0], [argument.type for argument in arguments]
    if function == "not" and types.is_boolean(kinds[0]):
        return pc.invert(first)
    if function == "negate" and (is_number(kinds[0])):
        return pc.negate_checked(first)
    if function in _PARTS and (types.is_timestamp(kinds[0]) or (types.is_date(kinds[0]) and function != "hour")):
        return _PARTS[function](first).cast(pa.int32())
    if function == "concat" and all(map(types.is_string, kinds)):
        return pc.binary_join_element_wise(*arguments, pa.scalar(""))
    if function == "cast" and to is not None and _can_cast(kinds[0], type_to_arrow(to)):
        # A timestamp loses its time of day as a date, and a long becomes the nearest double: no error in Spark.
        is_exact = not types.is_timestamp(kinds[0]) and not types.is_floating(type_to_arrow(to))
        return first.cast(type_to_arrow(to), safe=is_exact)
    raise only_spark(f"{function} of {', '.join(map(str, kinds))}")


def _truncated(unit: str, moments: pa.Array) -> pa.Array:
    if unit not in _TRUNCATED or not types.is_timestamp(moments.type):
        raise only_spark(f"date_trunc({unit})")
    return pc.floor_temporal(moments, unit=unit)


def _substring(text: pa.Array, start: int, length: int) -> pa.Array:
    if not types.is_string(text.type):
        raise only_spark(f"substring of {text.type}")
    return pc.utf8_slice_codeunits(text, start - 1, start - 1 + max(0, length))


def _can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    if types.is_date(target):
        return bool(types.is_timestamp(source) or types.is_date(source))
    if types.is_string(target):
        return bool(_is_exact(source) or types.is_string(source) or types.is_date(source))
    return source == target or (_is_exact(source) and (_is_exact(target) or types.is_float64(target)))


def _is_exact(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind))
