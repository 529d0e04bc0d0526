"""Times as users write them: parsed once, for every call that takes a time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, TypeAlias

from deltars.errors import ValidationError, brief

Moment: TypeAlias = date | str
"""A `datetime`, a date (its first moment), or the text in ISO 8601. Without a time zone it is in UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)


def parse_moment(moment: Any, *, zone: tzinfo | None = UTC) -> datetime | None:
    """Return the time, or None if `moment` is not one. A time without a zone gets `zone`; None leaves it without."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            return None
    if type(moment).__module__ == "numpy" and type(moment).__name__ == "datetime64":
        moment = moment.astype("datetime64[us]").item()
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    # pandas' NaT is a datetime that does not equal itself.
    if not isinstance(moment, datetime) or moment != moment:
        return None
    return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment


def to_milliseconds(moment: Moment, *, up: bool = False) -> int:
    """Return the milliseconds since 1970, rounded down, or up if `up`. Raise `ValidationError` if it is not a time."""
    since = _required(moment) - _EPOCH
    return -(-since // _MILLISECOND) if up else since // _MILLISECOND


def to_microseconds(moment: Moment) -> int:
    """Return the microseconds since 1970. Raise `ValidationError` if it is not a time."""
    return (_required(moment) - _EPOCH) // _MICROSECOND


def from_milliseconds(milliseconds: int) -> datetime:
    return _EPOCH + milliseconds * _MILLISECOND


def from_microseconds(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def _required(moment: Moment) -> datetime:
    parsed = parse_moment(moment)
    if parsed is not None:
        return parsed
    if isinstance(moment, str):
        raise ValidationError(f"{moment!r} is not a time", field="timestamp", hint="Write it as 2026-01-31T12:00:00Z.")
    raise ValidationError(
        f"a time is a datetime or its text, not {brief(moment)}", field="timestamp", hint="Versions go to version=."
    )
