"""Search of live files by index: by the range of the range column, and by partition.

    [low, high] ──▶ one range of the index per class of widths ──▶ files
    condition on partition values ──▶ the table's partitions, one look-up each ──▶ those that match ──▶ files

The range index is a B-tree over (slot, class, minimum, maximum) of live files. A class holds files of similar width.
A file of width w that reaches `low` begins at `low - w` or later, so every class needs one short range of minima. A
file of the last class may have any width: there the index only has the end of the range.

A search finds every file that the condition keeps, and some more. The condition itself is always checked too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import (
    CTE,
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Double,
    FromClause,
    Integer,
    and_,
    func,
    literal_column,
    select,
)

from deltars.log.bounds import LOWEST
from deltars.log.slack import Interval
from deltars.store.schema import RANGE_KEYS, RANGE_WIDTHS, dl_add_files

if TYPE_CHECKING:
    from deltars.store.backends import Backend

MAX_PARTITIONS = 10_000
"""A table with more partitions is scanned: looking up all of them may take longer than reading its files."""

_PROBES = (Column("class", BigInteger), Column("start", Double), Column("low", Double), Column("high", Double))
"""Columns of the ranges to look up in the index: minima from `start` to `high`, with a maximum of `low` or more."""


@dataclass(frozen=True, slots=True)
class Search:
    """Search of live files by an index."""

    is_hit: ColumnElement[bool]
    """True for the files that the index finds."""
    applies: ColumnElement[bool]
    """Whether the index is worth using; evaluated once per query. Otherwise `is_hit` is false for every file."""


def by_range(backend: Backend, looked_up: BindParameter[str], most: int | None = None) -> Search:
    """Return the search for files in the ranges of the index that `probes` returned.

    With `most`, it may not apply if it finds more files.
    """
    probe, files = backend.rows(looked_up, _PROBES), dl_add_files.alias("ranged")
    keys: list[ColumnElement[Any]] = [literal_column(key) for key in RANGE_KEYS[backend.dialect]]
    class_, low, high = keys
    matches = and_(
        files.c.removed_version.is_(None),
        class_ == probe.c["class"],
        low >= probe.c.start,
        low <= probe.c.high,
        high >= probe.c.low,
    )
    return Search(*backend.is_found(dl_add_files, files, probe, matches, most))


def by_partition(backend: Backend, partitions: CTE, matches: ColumnElement[bool], slot: ColumnElement[int]) -> Search:
    """Return the search for files of the partitions that match."""
    key = backend.partition_text(dl_add_files)
    wanted = select(partitions.c.value).where(partitions.c.value.is_not(None), matches)
    is_small = select(func.count(partitions.c.value)).scalar_subquery() <= MAX_PARTITIONS
    is_hit = and_(backend.equals_if(is_small, dl_add_files.c.slot, slot), backend.among(key, wanted))
    return Search(is_hit, is_small)


def partitions_of(backend: Backend, slot: ColumnElement[int]) -> CTE:
    """Return the partitions of a table's live files, as text: one look-up in the index finds the next one."""

    def least(files: FromClause, *conditions: ColumnElement[bool]) -> ColumnElement[Any]:
        key = backend.partition_text(files)
        query = select(func.min(key)).where(files.c.slot == slot, files.c.removed_version.is_(None), *conditions)
        return query.scalar_subquery()

    first, later = dl_add_files.alias("first_files"), dl_add_files.alias("later_files")
    number = literal_column("1", Integer)
    found = select(number.label("number"), least(first).label("value")).cte("partitions", recursive=True)
    following = least(later, backend.partition_text(later) > found.c.value)
    # The last value is NULL, or the one that makes the table too large.
    has_next = and_(found.c.value.is_not(None), found.c.number <= MAX_PARTITIONS)
    return found.union_all(select(found.c.number + number, following).where(has_next))


def probes(intervals: Sequence[Interval], slot: int) -> str:
    """Return the ranges of the index to look up, as a JSON document, for intervals on the scale of the range column."""
    rows = []
    for interval in intervals:
        # One double further on each side, because not every database parses digits exactly to the last bit.
        low, high = math.nextafter(interval[0], -math.inf), math.nextafter(interval[1], math.inf)
        for class_, width in enumerate((*RANGE_WIDTHS, -2 * LOWEST), start=slot * 32):
            # The database rounded the width when it subtracted the bounds.
            start = low - width - (abs(low) + width) * 2.0**-48
            rows.append({"class": class_, "start": start, "low": low, "high": high})
    return msgspec.json.encode(rows).decode()
