"""Corrections for bounds that known writers get wrong: each moves a bound outward as far as such a writer may err.

    bound in the statistics ──low_… / high_…──▶ bound that is correct for every writer    (`log.value_ranges`)
    numbers of a condition  ──loosened────────▶ wider numbers, to compare with uncorrected bounds in the database

A file does not say which software wrote its statistics, so each correction applies to every file. It can cost an
unnecessary read of a file, never a row. `docs/decisions/0046-bounds-that-are-not-bounds.md` lists the writers.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

from deltars.protocol import DataType, PrimitiveType

CUTOVER_DAY = date(1582, 10, 15)
"""First day of the Gregorian calendar. Engines with the hybrid calendar write earlier days differently."""

CUTOVER_MOMENT = datetime(1900, 1, 1, tzinfo=UTC)
"""Spark rebases all timestamps before this one, because the hybrid calendar's library has other time zones there."""

CUTOVER_WALL_CLOCK = datetime(1582, 10, 15)
"""`CUTOVER_DAY` for timestamp_ntz, which has no time zone."""

CUT_OFF = timedelta(milliseconds=1)
"""Writers cut timestamps to milliseconds. A maximum is then too low; before 1970 a minimum may be too high."""

LAST_ODD_OFFSET = datetime(1973, 1, 1, tzinfo=UTC)
"""Until 1972 some zones had offsets with seconds, which delta-spark 3.2 and 3.3 omitted from the text."""

OFFSET_SECONDS = timedelta(minutes=1)
ANY_ZONE = timedelta(days=1)
"""A timestamp without a zone may be in any zone."""

CUT_LENGTH = 32
"""Strings with at least this many characters may have been cut."""

Interval: TypeAlias = tuple[float, float]

_REPLACEMENT = "\ufffd"
_TIE_BREAKERS = (_REPLACEMENT, "\U0010ffff")
_SURROGATE = re.compile("[\ud800-\udfff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def low_day(day: date) -> date | None:
    return None if day < CUTOVER_DAY else day


def high_day(day: date) -> date:
    """Return the day, or the cut-over for an earlier day: all values are then only known to be before the cut-over."""
    return max(day, CUTOVER_DAY)


def low_moment(moment: datetime, *, has_zone: bool) -> datetime | None:
    if moment < CUTOVER_MOMENT:
        return None
    if not has_zone:
        return _shifted(moment, -ANY_ZONE)
    return moment - OFFSET_SECONDS if moment < LAST_ODD_OFFSET else moment


def high_moment(moment: datetime, *, has_zone: bool) -> datetime:
    slack = OFFSET_SECONDS if moment < LAST_ODD_OFFSET else CUT_OFF
    return max(_shifted(moment, slack if has_zone else ANY_ZONE), CUTOVER_MOMENT)


def low_wall_clock(moment: datetime) -> datetime | None:
    if moment < CUTOVER_WALL_CLOCK:
        return None
    return moment - CUT_OFF if moment <= _EPOCH.replace(tzinfo=None) else moment


def high_wall_clock(moment: datetime) -> datetime:
    return max(_shifted(moment, CUT_OFF), CUTOVER_WALL_CLOCK)


def names_zone(text: str) -> bool:
    """Return whether the text of a timestamp ends with a zone: Z, or an offset after the time."""
    return text.endswith(("Z", "z")) or "+" in text[10:] or "-" in text[10:]


def low_text(text: str) -> str:
    """Return the minimum up to the first half of a surrogate pair, which a cut may have left."""
    if text.isascii():
        return text
    half = _SURROGATE.search(text)
    return text[: half.start()] if half else text


def high_text(text: str) -> str | None:
    """Return an upper bound of all strings that may have been cut to this one, or None if there is none.

    Old writers cut between the halves of a surrogate pair, which then becomes a `?`. They append U+FFFD, which in
    UTF-8 sorts before every character of four bytes.
    """
    if len(text) < CUT_LENGTH and text.isascii():
        return text
    half = _SURROGATE.search(text)
    if half:
        return _after_all(text[: half.start()])
    if text.endswith(_REPLACEMENT) or (len(text) > CUT_LENGTH and text.endswith(_TIE_BREAKERS)):
        return _after_all(text[:-1].removesuffix("?"))
    return _after_all(text) if len(text) >= CUT_LENGTH else text


def loosened(interval: Interval, type_: DataType) -> Interval:
    """Widen an interval of numbers (`log.bounds`) to cover the bounds of every file that may have a value in it.

    Bounds in the database are rounded but not corrected, so the interval of the condition is corrected instead.
    """
    low, high = interval
    match type_:
        case PrimitiveType("date"):
            cutover = float(CUTOVER_DAY.toordinal())
        case PrimitiveType("timestamp"):
            cutover, odd = _microseconds(CUTOVER_MOMENT), _microseconds(LAST_ODD_OFFSET)
            minute, cut_off = _microseconds_of(OFFSET_SECONDS), _microseconds_of(CUT_OFF)
            low -= minute if low - minute < odd else cut_off
            high += minute if high < odd else 0
        case PrimitiveType("timestamp_ntz"):
            cutover = _microseconds(CUTOVER_WALL_CLOCK.replace(tzinfo=UTC))
            cut_off = _microseconds_of(CUT_OFF)
            low, high = low - cut_off, high + (cut_off if high <= 0 else 0)
        case _:
            return interval
    return -math.inf if low <= cutover else low, max(high, cutover)


def _shifted(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return (datetime.min if by < timedelta(0) else datetime.max).replace(tzinfo=moment.tzinfo)


def _microseconds(moment: datetime) -> float:
    return _microseconds_of(moment - _EPOCH)


def _microseconds_of(span: timedelta) -> float:
    return float(span // _MICROSECOND)


def _after_all(prefix: str) -> str | None:
    """Return the smallest string that sorts after every string with the prefix, or None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
