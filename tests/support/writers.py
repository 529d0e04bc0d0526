"""Statistics as other writers are known to write them, made from the rows of a file.

    WRITERS[name](value, type, down=…) ──▶ what that writer calls the minimum or the maximum, where this is the true one

`docs/decisions/0046-bounds-that-are-not-bounds.md` says who they are. None of this shares code with what reads bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, TypeAlias

from deltars.protocol import PrimitiveType

Bound: TypeAlias = str | None
"""`None`: this writer does nothing special here."""

CUTOVER = date(1582, 10, 15)
NEAR_CUTOVER = (
    *(date(1582, 10, day) for day in (4, 5, 10, 14, 15, 16)),
    *(date(1, 1, 1), date(1, 1, 3), date(300, 1, 1), date(1500, 2, 28), date(1500, 3, 1)),
)
CUT_IN_TWO = ("x" * 31 + "😀" + "y" * 5, "x" * 32 + "😀", "x" * 32 + "\uffff", "x" * 40, "x" * 31 + "?z")
_JULIAN_DAY = 1_721_425
_SHIFT = timedelta(minutes=22, seconds=58)
"""How far the time zones of the two calendars' libraries are apart for Los Angeles before 1883."""


def julian_text(day: date) -> str:
    """The name of a day in the hybrid calendar; years before Christ without their era."""
    if day >= CUTOVER:
        return day.isoformat()
    since = day.toordinal() + _JULIAN_DAY + 32_082
    years = (4 * since + 3) // 1461
    days = since - 1461 * years // 4
    months = (5 * days + 2) // 153
    year, month = years - 4800 + months // 10, months + 3 - 12 * (months // 10)
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{days - (153 * months + 2) // 5 + 1:02}"


def gregorian_text(day: date) -> str:
    """The name that the day has in the proleptic calendar which the hybrid one calls so."""
    if day > CUTOVER:
        return day.isoformat()
    if day >= date(1582, 10, 5):
        return "1582-10-10"  # days that the hybrid calendar leaves out become the first one after them
    years, months = day.year + 4800 - (day.month < 3), (day.month + 9) % 12
    number = day.day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32_083 - _JULIAN_DAY
    return date.fromordinal(number).isoformat() if number > 0 else "0000-12-30"


def _calendar(name: Callable[[date], str]) -> Callable[..., Bound]:
    def bound(value: Any, type_: PrimitiveType, *, down: bool) -> Bound:
        match type_.name:
            case "date":
                return name(value)
            case "timestamp":
                shift = _SHIFT if value < datetime(1883, 1, 1, tzinfo=UTC) and value.year > 1 else timedelta(0)
                local = value.astimezone(UTC) - shift
                return f"{name(local.date())}T{local:%H:%M:%S}.{local.microsecond // 1000:03}Z"
        return None

    return bound


def _offset_in_minutes(value: Any, type_: PrimitiveType, *, down: bool) -> Bound:
    """delta-spark 3.2 and 3.3: the offset has no seconds, though the local time was made with them."""
    if type_.name != "timestamp" or not 2 < value.year < 1970:
        return None
    seconds = timedelta(minutes=53, seconds=28)
    local = value.astimezone(timezone(seconds if down else -seconds))
    return f"{local.replace(tzinfo=None).isoformat(timespec='milliseconds')}{'+' if down else '-'}00:53"


def _without_zone(value: Any, type_: PrimitiveType, *, down: bool) -> Bound:
    if type_.name != "timestamp" or not 2 < value.year < 9998:
        return None
    local: datetime = value.astimezone(UTC) + timedelta(hours=14 if down else -12)
    return local.replace(tzinfo=None).isoformat()


def _toward_zero(value: Any, type_: PrimitiveType, *, down: bool) -> Bound:
    if type_.name not in ("timestamp", "timestamp_ntz"):
        return None
    is_moment = type_.name == "timestamp"
    epoch = datetime(1970, 1, 1, tzinfo=UTC if is_moment else None)
    microseconds = (value - epoch) // timedelta(microseconds=1)
    milliseconds = abs(microseconds) // 1000 * (1 if microseconds > 0 else -1)
    cut = (epoch + timedelta(milliseconds=milliseconds)).replace(tzinfo=None)
    return cut.isoformat(timespec="milliseconds") + "Z" * is_moment


def _cut(value: Any, type_: PrimitiveType, *, down: bool) -> Bound:
    """delta-spark before 3.1: by units of UTF-16, and with U+FFFD behind a maximum that was cut."""
    if type_.name != "string":
        return None
    units = value.encode("utf-16-le")
    if len(units) <= 64:
        return None
    end = 64
    while not down and end < len(units) and units[end : end + 2] >= b"\xfd\xff" and units[end + 1] == 0xFF:
        end += 2
    prefix = re.sub("[\ud800-\udfff]", "?", units[:end].decode("utf-16-le", "surrogatepass"))
    return prefix if down else prefix + "\ufffd"


def _cut_plainly(value: Any, type_: PrimitiveType, *, down: bool) -> Bound:
    """Without a character behind it."""
    return value[:32] if type_.name == "string" else None


WRITERS: Mapping[str, Callable[..., Bound]] = {
    "hybrid calendar": _calendar(julian_text),
    "read as hybrid": _calendar(gregorian_text),
    "offset in minutes": _offset_in_minutes,
    "without zone": _without_zone,
    "toward zero": _toward_zero,
    "cut in two": _cut,
    "cut": _cut_plainly,
}
