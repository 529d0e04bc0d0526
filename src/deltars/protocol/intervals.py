"""Intervals in table properties: `interval 1 week`, `7 days`, `interval 1 day 12 hours`."""

from __future__ import annotations

import re

_UNITS_MS = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
_PART = re.compile(rf"(\d+)\s+({'|'.join(_UNITS_MS)})s?", re.IGNORECASE)
_SPAN = re.compile(rf"\s*(?:interval\s+)?((?:{_PART.pattern}\s*)+)", re.IGNORECASE)


def parse_interval_ms(text: str) -> int | None:
    """Return the milliseconds, or None if it is not an interval. Months and years, which vary in length, are not."""
    span = _SPAN.fullmatch(text)
    if span is None:
        return None
    return sum(int(count) * _UNITS_MS[unit.lower()] for count, unit in _PART.findall(span[1]))
