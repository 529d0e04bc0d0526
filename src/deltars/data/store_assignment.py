"""Store assignment: new values of columns in the column's type, by the rules of ANSI SQL as Spark applies them.

    number     to any number       rounded as Spark rounds; a value beyond the type is an error
    date       to timestamp        and back, in UTC
    integer, boolean, date         to string
    the same type, or NULL
    anything else                  refused; or left to Spark, where only Spark has its exact result

A column of strings never becomes numbers, dates or booleans: such a mistake must not depend on the rows. A string in
the statement itself is cast before (`predicate.cast_text`), as in delta-spark.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.doubles import nearest_doubles
from deltars.errors import SchemaMismatch, ValidationError
from deltars.predicate import only_spark

_LIMITS = {bits: (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}
_WIDE = 76
_AS_DATE = "Write \"DATE '2026-01-31'\", or give a datetime.date."
_AS_TIME = "Write \"TIMESTAMP '2026-01-31 12:00:00'\", or give a datetime."


def assigned(values: pa.Array, target: pa.DataType, column: str) -> pa.Array:
    """Return the values in the column's type. Raise SchemaMismatch if they can never be, or one is out of range."""
    source = values.type
    if source == target:
        return values
    if types.is_null(source):
        return pa.nulls(len(values), target)
    if not can_assign(source, target):
        raise SchemaMismatch(
            f"column {column} is {target}, and a value of type {source} cannot be assigned to it",
            field=column,
            hint=_AS_DATE if types.is_date(target) else _AS_TIME if types.is_timestamp(target) else "Cast the value.",
        )
    try:
        return _cast(values, target)
    except pa.ArrowInvalid as error:
        raise ValidationError(
            f"a value for column {column} is out of the range of {target}: {error}", field=column
        ) from error
    except pa.ArrowNotImplementedError:
        raise only_spark(f"the conversion of {source} to {target}") from None


def can_assign(source: pa.DataType, target: pa.DataType) -> bool:
    if is_number(source) and is_number(target):
        return True
    if types.is_string(target):
        return not types.is_nested(source)
    if types.is_nested(source) and types.is_nested(target):
        # Whether the parts fit is for Spark to say.
        return bool(source.id == target.id)
    return _is_time(source) and _is_time(target)


def is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def as_double(number: Decimal, *, single: bool) -> float:
    """Return the literal as Spark casts it to float or double."""
    # Decimals have no -0.0.
    double = float(number) + 0.0
    if not single or math.isinf(double) or Decimal(double) == number:
        return double
    mantissa = int(math.ldexp(math.frexp(double)[0], 53))
    if abs(mantissa) % (1 << 29) == 1 << 28:
        # The double is halfway between two floats, but the literal is not: rounding twice would differ.
        raise only_spark(f"{number} as float")
    return double


def _is_time(kind: pa.DataType) -> bool:
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if types.is_integer(source):
        return _from_integer(values, target)
    if types.is_floating(source) and types.is_floating(target):
        return values.cast(target, safe=False)
    if types.is_floating(source) and types.is_integer(target):
        return _truncated(values, target)
    if types.is_decimal(source) and types.is_float64(target):
        return nearest_doubles(values)
    if types.is_decimal(source) and types.is_decimal(target):
        return _rounded(values, target)
    if types.is_decimal(source) and types.is_integer(target):
        wide = values.cast(pa.decimal256(_WIDE, source.scale))
        return pc.trunc(wide).cast(pa.decimal256(_WIDE, 0)).cast(target)
    if types.is_boolean(source) or (types.is_date(source) and types.is_string(target)):
        return values.cast(target)
    if _is_time(source) and _is_time(target):
        # A day begins at midnight. A timestamp loses its time of day, so that cast is not safe.
        return values.cast(target, safe=not types.is_date(target))
    raise only_spark(f"the conversion of {source} to {target}")


def _from_integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    if types.is_decimal(target):
        return values.cast(pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal256(_WIDE, target.scale)).cast(target)
    # As in Java, a long becomes the nearest floating-point number.
    return values.cast(target, safe=not types.is_floating(target))


def _truncated(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cut off the fraction. NaN and numbers beyond the type are errors."""
    low, high = _LIMITS[target.bit_width]
    whole = pc.trunc(values.cast(pa.float64()))
    # The largest long is not a double: the next one above it is out of range.
    fits = pc.and_(pc.greater_equal(whole, float(low)), pc.less(whole, float(high + 1)))
    if not pc.all(pc.fill_null(fits, True), min_count=0).as_py():
        raise pa.ArrowInvalid(f"{_first(values, pc.invert(fits))} does not fit {target}")
    return whole.cast(target)


def _rounded(values: pa.Array, target: pa.DataType) -> pa.Array:
    wide = values.cast(pa.decimal256(_WIDE, values.type.scale))
    if target.scale < values.type.scale:
        # Half away from zero, as Java's HALF_UP.
        wide = pc.round(wide, target.scale, round_mode="half_towards_infinity")
    return wide.cast(pa.decimal256(_WIDE, target.scale)).cast(target)


def _first(values: pa.Array, where: pa.Array) -> Any:
    return values.filter(where)[0].as_py()
