"""Times as users write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from deltars.errors import ValidationError
from deltars.log.moments import from_milliseconds, parse_moment, to_microseconds, to_milliseconds

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("moment", "parsed"),
    [
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31 12:00", NOON),
        ("2026-01-31T13:00+01:00", NOON),
        (NOON, NOON),
        (NOON.replace(tzinfo=None), NOON),
        ("yesterday", None),
        ("", None),
        (7, None),
        (None, None),
    ],
)
def test_moment_is_a_datetime_or_its_text(moment: Any, parsed: datetime | None) -> None:
    assert parse_moment(moment) == parsed


def test_moment_without_a_zone_gets_the_given_one() -> None:
    assert parse_moment("2026-01-31 13:00", zone=BERLIN) == NOON
    assert parse_moment("2026-01-31 12:00", zone=None) == NOON.replace(tzinfo=None)
    assert parse_moment("2026-01-31 12:00Z", zone=BERLIN) == NOON


def test_units_since_1970_are_rounded_as_asked() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 0, 1_500, tzinfo=UTC)
    assert (to_milliseconds(moment), to_milliseconds(moment, up=True), to_microseconds(moment)) == (1, 2, 1_500)
    assert from_milliseconds(to_milliseconds(NOON)) == NOON


@pytest.mark.parametrize("wrong", ["yesterday", 5])
def test_what_is_not_a_time_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="time"):
        to_milliseconds(wrong)
