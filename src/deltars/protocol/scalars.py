"""Single values of Delta's types: validation, and the text forms that partition values and statistics share.

A value that does not fit its type raises `ValueError`. The caller turns it into an error that names the value's origin.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from datetime import UTC, date, datetime, tzinfo
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from deltars.protocol.schema import MAX_DECIMAL_PRECISION, PrimitiveType

INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}

_DECIMAL = Context(prec=MAX_DECIMAL_PRECISION, traps=[InvalidOperation, Inexact])
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE)


def as_integer(value: Any, type_: PrimitiveType) -> int:
    if isinstance(value, bool):
        raise ValueError("not a number")
    number = operator.index(value)
    bits = INTEGER_BITS[type_.name]
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"out of range for {type_}")
    return number


def as_float(value: Any, type_: PrimitiveType) -> float:
    """Return the number in its type's precision: a `float` is rounded to single precision."""
    if isinstance(value, bool | str):
        raise ValueError("not a number")
    number = float(value)
    if type_.name == "double" or not math.isfinite(number):
        return number
    single = to_single(number)
    if math.isinf(single):
        raise ValueError(f"out of range for {type_}")
    return single


def shortest_float(number: float, type_: PrimitiveType) -> float:
    """Return the double with the fewest digits that is equal in its type: 0.1, not 0.10000000149011612."""
    if type_.name == "double" or not math.isfinite(number):
        return number
    candidates = (float(f"{number:.{digits}g}") for digits in range(6, 10))
    return next(short for short in candidates if to_single(short) == number)


def as_decimal(value: Any, type_: PrimitiveType) -> Decimal:
    """Return the value with exactly its type's scale, never rounded. Negative zero becomes zero."""
    if isinstance(value, bool | float | str):
        raise ValueError("not an exact number")
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError("not a finite number")
    try:
        scaled = _DECIMAL.plus(number.quantize(Decimal(1).scaleb(-type_.scale), context=_DECIMAL))
    except (Inexact, InvalidOperation):
        raise ValueError(f"does not fit {type_}") from None
    if len(scaled.as_tuple().digits) > type_.precision:
        raise ValueError(f"does not fit {type_}")
    return scaled


def as_date(value: Any) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError("expected a datetime.date")
    return value


def as_timestamp(value: Any) -> datetime:
    """Return the time in UTC, without `tzinfo`."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("expected a datetime with a time zone")
    return value.astimezone(UTC).replace(tzinfo=None)


def as_timestamp_ntz(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise ValueError("expected a datetime without a time zone")
    return value


def float_text(number: float) -> str:
    """Return the digits of a number, or Java's name of a number that is not finite."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return repr(number)


def parse_integer(text: str, type_: PrimitiveType) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("not a whole number")
    return as_integer(int(text), type_)


def parse_float(text: str, type_: PrimitiveType) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a number")
    return as_float(float(text), type_)


def parse_decimal(text: str, type_: PrimitiveType) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a number")
    return as_decimal(Decimal(text), type_)


def parse_date(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise ValueError("expected YYYY-MM-DD, years 0001 to 9999")
    return date.fromisoformat(text)


def parse_timestamp(text: str, zone: tzinfo = UTC) -> datetime:
    """Return the time in UTC. `zone` is the time zone of a text without one."""
    moment = _parse_datetime(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def parse_timestamp_ntz(text: str) -> datetime:
    return as_timestamp_ntz(_parse_datetime(text))


def _parse_datetime(text: str) -> datetime:
    if not _DATE.match(text):
        raise ValueError("expected YYYY-MM-DD HH:MM:SS, years 0001 to 9999")
    return datetime.fromisoformat(text)


def to_single(number: float) -> float:
    """Return the number rounded to single precision."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)
