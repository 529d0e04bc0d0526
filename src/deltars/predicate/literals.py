"""Literals, and their conversion to the type of the column that they are compared with.

    '2026-01-01'  with a date column        ──▶ date(2026, 1, 1)
                  with a timestamp column   ──▶ that midnight in the session's time zone
    1.5           with a long column        ──▶ Decimal("1.5"), compared exactly
                  with a double column      ──▶ 1.5

Spark's rules decide which side is converted, and to what. If they convert the literal, or convert the column in a way
that keeps its order, the comparison can be evaluated here. Otherwise, or if Spark's settings decide, the result is
`None`, and the file is kept. A literal that is not valid for the column's type raises `Misfit`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from deltars.predicate.tree import Operator, Value
from deltars.protocol import DataType, PrimitiveType
from deltars.protocol.scalars import to_single

INTEGERS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
MAX_DIGITS = 38
"""Most digits of a decimal, before and after the decimal point together."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"nan|[+-]?inf(?:inity)?", re.IGNORECASE)
_DAY = r"(?P<sign>[+-])?(?P<year>[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
_DATE = re.compile(rf"{_DAY}(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    rf"{_DAY}(?:[ T](?:(?P<hour>[0-9]{{1,2}}):(?P<minute>[0-9]{{1,2}})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{0,9}))?)?\s*(?P<zone>[A-Za-z+-].*)?)?)?)?)?"
)
_TIME_OF_TODAY = re.compile(r"T?[0-9]{1,2}:.*")
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>[0-9]{1,2})(?::?(?P<minutes>[0-9]{2})(?::?(?P<seconds>[0-9]{2}))?)?"
)
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


class Misfit(ValueError):
    """The literal is not a valid value of the type."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal. `kind` is the name of its Delta type; `decimal` for every decimal type, `void` for NULL."""

    kind: str
    value: Any


def number_literal(text: str) -> Literal:
    """Return the literal of a number.

    Raise `Misfit` if it has too many digits, is out of a double's range, or is malformed, such as `1e`.
    """
    if not _NUMBER.fullmatch(text):
        raise Misfit
    if "e" in text.lower():
        number = float(text)
        if math.isinf(number):
            raise Misfit
        return Literal("double", number)
    if len(text.replace(".", "").lstrip("0")) > MAX_DIGITS or len(text.partition(".")[2]) > MAX_DIGITS:
        raise Misfit
    if not text.isdecimal():
        return Literal("decimal", Decimal(text))
    whole = int(text)
    kind = "integer" if whole < 1 << 31 else "long" if whole < 1 << 63 else "decimal"
    return Literal(kind, Decimal(whole) if kind == "decimal" else whole)


def negated(literal: Literal) -> Literal | None:
    if literal == Literal("decimal", Decimal(1 << 63)) and not literal.value.as_tuple().exponent:
        # The smallest long: its digits alone are too large for one.
        return Literal("long", -(1 << 63))
    if literal.kind == "decimal":
        # The minus operator would round to 28 digits.
        return Literal(literal.kind, literal.value.copy_negate())
    return Literal(literal.kind, -literal.value) if literal.kind in (*INTEGERS, "float", "double") else None


def zone_of(name: str) -> tzinfo | None:
    """Return the time zone with this name or offset, or None if there is none."""
    if name.upper() in ("Z", "UTC", "GMT", "UT"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        hours, minutes, seconds = (int(offset[part] or 0) for part in ("hours", "minutes", "seconds"))
        if hours > 18 or minutes > 59 or seconds > 59:
            return None
        distance = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-distance if offset["sign"] == "-" else distance)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


# -- compared with a column -------------------------------------------------------------------------------------------


def fit(literal: Literal, type_: DataType, operator: Operator, zone: tzinfo) -> tuple[Operator, Value] | None:
    """Return the comparison of a column of this type with the literal, or None if only Spark can evaluate it."""
    if not isinstance(type_, PrimitiveType) or type_.name in ("void", "variant"):
        return None
    if type_.name == "date" and literal.kind in ("timestamp", "timestamp_ntz"):
        return _date_against_moment(literal, operator, zone)
    value = _fitted(literal, type_, zone)
    return None if value is None else (operator, value)


def _fitted(literal: Literal, type_: PrimitiveType, zone: tzinfo) -> Value | None:
    kind, value = literal.kind, literal.value
    match type_.name:
        case "string":
            return _encodable(value) if kind == "string" else None
        case "boolean":
            return _boolean(kind, value)
        case "byte" | "short" | "integer" | "long" as name:
            return _whole(kind, value, _DIGITS[name])
        case "float" | "double" as name:
            return _floating(kind, value, single=name == "float")
        case "date":
            return _date(kind, value)
        case "timestamp":
            return _moment(kind, value, zone)
        case "timestamp_ntz":
            return _wall_clock(kind, value, zone)
        case "binary":
            return _binary(kind, value)
        case _:
            return _decimal(kind, value, type_)


def _encodable(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _boolean(kind: str, value: Any) -> bool:
    if kind == "boolean":
        return bool(value)
    if kind == "string" and value.strip().lower() in _TRUTHS:
        return _TRUTHS[value.strip().lower()]
    raise Misfit


def _whole(kind: str, value: Any, digits: int) -> Value | None:
    if kind in INTEGERS or kind == "double":
        return int(value) if kind in INTEGERS else float(value)
    if kind == "decimal":
        return _exact(value, digits, 0)
    if kind == "float":
        return None
    if kind == "string" and _INTEGER.fullmatch(value.strip()):
        if len(value.strip().lstrip("+-0")) > MAX_DIGITS:
            raise Misfit
        return int(Decimal(value.strip()))
    if kind == "string" and _NUMBER.fullmatch(value.strip()):
        return None
    raise Misfit


def _floating(kind: str, value: Any, *, single: bool) -> float | None:
    match kind:
        case "decimal" | "double" | "float":
            return float(value)
        case "byte" | "short" | "integer" | "long":
            # Spark's settings decide whether both sides become float or double.
            return float(value) if not single or to_single(float(value)) == value else None
        case "string":
            number = parse_double(value)
            return number if not single or to_single(number) == number or number != number else None
    raise Misfit


def _decimal(kind: str, value: Any, type_: PrimitiveType) -> Value | None:
    if kind in INTEGERS or kind == "decimal":
        return _exact(Decimal(value), type_.precision - type_.scale, type_.scale)
    if kind in ("double", "float"):
        return float(value)
    if kind == "string" and (_NUMBER.fullmatch(value.strip()) or _SPECIAL.fullmatch(value.strip())):
        # Spark's settings decide whether both sides become double or decimal.
        return None
    raise Misfit


def _exact(number: Decimal, integer_digits: int, scale: int) -> Decimal | None:
    """Return the number if one decimal type holds both sides exactly. Beyond 38 digits Spark rounds."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    own_scale = max(0, -exponent)
    own_integer_digits = max(0, number.adjusted() + 1) if number else 0
    return number if max(integer_digits, own_integer_digits) + max(scale, own_scale) <= MAX_DIGITS else None


def _date(kind: str, value: Any) -> date | None:
    if kind == "date":
        return date(value.year, value.month, value.day)
    if kind == "string":
        return parse_date(value)
    raise Misfit


def _date_against_moment(literal: Literal, operator: Operator, zone: tzinfo) -> tuple[Operator, Value] | None:
    """Return the comparison of a date column with a timestamp.

    Spark compares a day as its midnight. A timestamp within a day is after that day's midnight, so `<` becomes `<=`.
    """
    local = literal.value if literal.kind == "timestamp_ntz" else _wall_clock_in(zone, literal.value)
    if local is None:
        return None
    midnight = datetime(local.year, local.month, local.day)
    exact = local == midnight
    if literal.kind == "timestamp":
        exact = _utc(midnight.replace(tzinfo=zone)) == literal.value
    if exact:
        return operator, midnight.date()
    match operator:
        case "<" | "<=":
            return "<=", midnight.date()
        case ">" | ">=":
            return ">", midnight.date()
    return None


def _moment(kind: str, value: Any, zone: tzinfo) -> datetime | None:
    match kind:
        case "timestamp":
            return _utc(value)
        case "timestamp_ntz":
            return _utc(value.replace(tzinfo=zone))
        case "date":
            return _utc(datetime(value.year, value.month, value.day, tzinfo=zone))
        case "string":
            moment = parse_timestamp(value)
            if moment is None:
                return None
            return _utc(moment if moment.tzinfo else moment.replace(tzinfo=zone))
    raise Misfit


def _wall_clock(kind: str, value: Any, zone: tzinfo) -> datetime | None:
    match kind:
        case "timestamp_ntz":
            return _as_datetime(value)
        case "date":
            return datetime(value.year, value.month, value.day)
        case "timestamp":
            # Spark converts the column to the session's time zone, which keeps the order only without daylight saving.
            return _as_datetime(value.replace(tzinfo=None)) if zone is UTC else None
        case "string":
            moment = parse_timestamp(value)
            return None if moment is None or moment.tzinfo is not None else moment
    raise Misfit


def _binary(kind: str, value: Any) -> bytes | None:
    if kind == "binary":
        return bytes(value)
    if kind == "string":
        return None
    raise Misfit


def _utc(moment: datetime) -> datetime | None:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return None


def _wall_clock_in(zone: tzinfo, moment: datetime) -> datetime | None:
    try:
        return moment.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        return None


def _as_datetime(value: datetime) -> datetime:
    return value


# -- texts and casts --------------------------------------------------------------------------------------------------


def parse_double(text: str) -> float:
    text = text.strip()
    if _NUMBER.fullmatch(text) or _SPECIAL.fullmatch(text):
        return float(text)
    raise Misfit


def parse_date(text: str) -> date | None:
    """Parse a day as Spark does: month, day and their leading zeros are optional, and a time is ignored."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise Misfit
    if found["sign"] or not 1 <= (year := int(found["year"])) <= 9999:
        return None
    try:
        return date(year, int(found["month"] or 1), int(found["day"] or 1))
    except ValueError:
        raise Misfit from None


def parse_timestamp(text: str) -> datetime | None:
    """Parse a date and time, with its time zone if it has one. Return None if only Spark knows its meaning."""
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        if _TIME_OF_TODAY.fullmatch(text.strip()):
            return None
        raise Misfit
    zone = None
    if found["zone"]:
        zone = zone_of(found["zone"])
        if zone is None:
            return None
    if found["sign"] or not 1 <= (year := int(found["year"])) <= 9999:
        return None
    try:
        moment = datetime(
            year,
            int(found["month"] or 1),
            int(found["day"] or 1),
            int(found["hour"] or 0),
            int(found["minute"] or 0),
            int(found["second"] or 0),
            int((found["fraction"] or "").ljust(6, "0")[:6]),
        )
    except ValueError:
        raise Misfit from None
    return moment.replace(tzinfo=zone)


def cast(literal: Literal, to: PrimitiveType, zone: tzinfo) -> Literal | None:
    """Return the CAST of a literal, or None if only Spark knows the result."""
    kind, value = literal.kind, literal.value
    if kind == "void":
        return literal
    match to.name:
        case "string":
            text = value if kind == "string" else str(value) if kind in INTEGERS else None
            return None if text is None else Literal("string", text)
        case "boolean":
            return Literal("boolean", _boolean(kind, value))
        case "byte" | "short" | "integer" | "long" as name:
            return _cast_whole(kind, value, name)
        case "float" | "double" as name:
            number = _cast_floating(kind, value)
            return Literal(name, to_single(number) if name == "float" else number)
        case "date":
            return _cast_date(kind, value, zone)
        case "timestamp":
            moment = _moment(kind, value, zone)
            return None if moment is None else Literal("timestamp", moment)
        case "timestamp_ntz":
            return _cast_wall_clock(kind, value, zone)
        case "binary":
            data = value if kind == "binary" else value.encode() if kind == "string" else None
            return None if data is None else Literal("binary", data)
        case _:
            return _cast_decimal(kind, value, to)


def _cast_whole(kind: str, value: Any, name: str) -> Literal | None:
    if kind == "string":
        if not _NUMBER.fullmatch(value.strip()):
            raise Misfit
        number = Decimal(value.strip())
    elif kind in INTEGERS or kind == "decimal":
        number = Decimal(value)
    elif kind in ("float", "double", "boolean"):
        return None
    else:
        raise Misfit
    if number != number.to_integral_value():
        return None
    bits = INTEGERS[name]
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Misfit
    return Literal(name, int(number))


def _cast_floating(kind: str, value: Any) -> float:
    if kind == "string":
        return parse_double(value)
    if kind in INTEGERS or kind in ("decimal", "float", "double"):
        return float(value)
    raise Misfit


def _cast_date(kind: str, value: Any, zone: tzinfo) -> Literal | None:
    if kind == "timestamp":
        local = _wall_clock_in(zone, value)
        return None if local is None else Literal("date", local.date())
    if kind == "timestamp_ntz":
        return Literal("date", value.date())
    day = _date(kind, value)
    return None if day is None else Literal("date", day)


def _cast_wall_clock(kind: str, value: Any, zone: tzinfo) -> Literal | None:
    moment = _wall_clock_in(zone, value) if kind == "timestamp" else _wall_clock(kind, value, zone)
    return None if moment is None else Literal("timestamp_ntz", moment)


def _cast_decimal(kind: str, value: Any, to: PrimitiveType) -> Literal | None:
    if kind == "string":
        if not _NUMBER.fullmatch(value.strip()):
            raise Misfit
        value = Decimal(value.strip())
    elif kind not in INTEGERS and kind != "decimal":
        return None
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    fits = -exponent <= to.scale and (not number or number.adjusted() < to.precision - to.scale)
    return Literal("decimal", number) if fits else None
