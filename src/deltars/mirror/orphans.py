"""Orphans: files in a table's directory that no version names and that are too old to be committed yet.

listed ──▶ in the log, or named by it ──▶ no orphan
       └─▶ younger than `min_age`     ──▶ counted only: a running transaction may still commit the file
       └─▶ the rest                   ──▶ an orphan
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from deltars.errors import ValidationError
from deltars.storage import ObjectInfo

MIN_AGE = timedelta(days=1)
"""Default minimum age of an orphan."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Orphan:
    path: str
    size_bytes: int
    age: timedelta
    is_unfinished: bool
    """Whether a writer was killed before it finished the file."""

    @property
    def detail(self) -> str:
        what = "that a writer left unfinished" if self.is_unfinished else "that the log never named"
        return f"{self.size_bytes} bytes {what}, {_in_words(self.age)}"


@dataclass(frozen=True, slots=True)
class Orphans:
    old: tuple[Orphan, ...] = ()
    young_files: int = 0
    young_bytes: int = 0


def find_orphans(
    unnamed: Iterable[ObjectInfo], unfinished: Iterable[ObjectInfo], *, now_us: int, min_age: timedelta
) -> Orphans:
    """Split files that no version names into old and young ones. `now_us` is the time of the database."""
    # Use the earlier of both clocks: a file may then seem younger than it is, but never older.
    now = min(datetime.now(UTC), _EPOCH + timedelta(microseconds=now_us))
    found = [Orphan(info.path, info.size, now - info.modified, is_unfinished=False) for info in unnamed]
    found += [Orphan(info.path, info.size, now - info.modified, is_unfinished=True) for info in unfinished]
    # A file modified in the future has a negative age, so it counts as young.
    young = [orphan for orphan in found if min_age and orphan.age < min_age]
    old = [orphan for orphan in found if not min_age or orphan.age >= min_age]
    return Orphans(
        tuple(sorted(old, key=lambda orphan: orphan.path)), len(young), sum(orphan.size_bytes for orphan in young)
    )


def check_min_age(min_age: Any) -> None:
    if not isinstance(min_age, timedelta) or min_age < timedelta(0):
        raise ValidationError(
            f"min_age must be a timedelta of 0 or more, got {min_age!r}",
            field="min_age",
            hint="Example: min_age=timedelta(hours=6)",
        )


def _in_words(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    if seconds < 0:
        return "modified in the future"
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}{'' if count == 1 else 's'} old"
    return f"{seconds} s old"
