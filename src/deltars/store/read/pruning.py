"""Translation of a predicate to SQL conditions on rows of `dl_add_files`, so that the database skips files.

    id > 7 AND day = '2026-01-01' ──▶ maxs[1] >= 7 AND partition_values ->> 'day' = '2026-01-01'

A condition never excludes a matching file, but often keeps files that do not match: bounds are rounded outward,
intervals are closed, and unknown values keep the file. `log.pruning.Pruner` decides exactly about the files returned.

Every row of a table carries its bounds in the layout of the table's current metadata (`commit.bounds_rewrite`). A
reader with older metadata would look in the wrong places. `layout_is` checks this in the same statement, and files
are then pruned by partition values only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from functools import reduce
from itertools import chain, pairwise
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, false, func, not_, or_, select, true
from sqlalchemy.sql.elements import True_

from deltars.log.bounds import HIGHEST, LOWEST, Bounds, number_range, on_scale, once_single, prefix_range
from deltars.log.slack import Interval, loosened
from deltars.log.value_ranges import Leaf, is_below_nan
from deltars.predicate import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    Value,
    grouped,
)
from deltars.protocol import Metadata, PrimitiveType
from deltars.store.backends import Backend
from deltars.store.file_search import Search, by_partition, by_range, partitions_of
from deltars.store.schema import dl_add_files, dl_tables

MAX_INTERVALS = 16
"""A longer list of values becomes this many ranges: each costs one more comparison per file."""

MAX_PARTS = 200
"""A condition with more parts is not sent: SQLite accepts about a thousand, and each is evaluated for every file."""
MAX_LISTED = 1_000
"""A longer list of values is not sent: SQLite accepts about thirty thousand."""

EVERYWHERE: Interval = (-math.inf, math.inf)

_EXACT = 2.0**53
"""Integers below this are exact as doubles; the next integer above it is rounded to it."""
_LEAVES = (Comparison, In, StartsWith, IsNull)
_WHOLE = tuple(map(PrimitiveType, ("byte", "short", "integer", "long")))
_FLOATS = (PrimitiveType("float"), PrimitiveType("double"))
_DIGITS = "0123456789"
_files = dl_add_files.c


def layout_is(table_id: UUID, metadata_version: int) -> ColumnElement[bool]:
    """Return the condition that the bounds of a table's files have the layout of this metadata version."""
    current = select(dl_tables.c.metadata_version).where(dl_tables.c.table_id == table_id).scalar_subquery()
    return current == metadata_version


class Translation:
    """Translation of predicates on one table."""

    def __init__(
        self,
        metadata: Metadata,
        slot: int,
        backend: Backend,
        partition_values: ColumnElement[Any] = dl_add_files.c.partition_values,
    ) -> None:
        schema = metadata.schema
        self._metadata = metadata
        self._partition_values = partition_values
        names = (path for path, _ in schema.leaves())
        self._physical = dict(zip(names, (path for path, _ in schema.leaves(physical=True)), strict=True))
        self._partition_columns = metadata.partition_columns
        self._bounds = Bounds(schema, metadata.partition_columns, metadata.configuration)
        self._once_single = once_single(schema)
        self._slot = slot
        self._backend = backend

    def condition(self, predicate: Predicate) -> ColumnElement[bool]:
        """Return the condition for files that may hold a matching row; TRUE if the database cannot tell."""
        return self._of(grouped(predicate), frozenset())

    def search(self, predicate: Predicate, partition: Predicate) -> Search | None:
        """Return a search by index for the live files that the condition keeps; None if no index helps.

        `partition` is the part of the predicate about partition columns.
        """
        if not self._backend.has_file_indexes:
            return None
        intervals = self._ranges(grouped(predicate), frozenset())
        if intervals is not None:
            return by_range(self._backend, [(on_scale(low), on_scale(high)) for low, high in intervals], self._slot)
        if isinstance(partition, Constant):
            return None
        partitions = partitions_of(self._backend, self._slot)
        values = self._backend.document(partitions.c.value)
        matches = Translation(self._metadata, self._slot, self._backend, values).condition(partition)
        if isinstance(matches, True_):
            return None
        return by_partition(self._backend, partitions, matches, self._slot)

    def _ranges(self, predicate: Predicate, without_nan: frozenset[Column]) -> list[Interval] | None:
        """Return intervals such that every matching file's range column overlaps one; None if there is no limit."""
        match predicate:
            case And(parts):
                without_nan |= _below_nan(parts)
                common: list[Interval] | None = None
                for part in parts[:MAX_PARTS]:
                    intervals = self._ranges(part, without_nan)
                    if intervals is not None:
                        common = intervals if common is None else _both(common, intervals)
                return common
            case Or(parts):
                found = [self._ranges(part, without_nan) for part in parts[:MAX_PARTS]]
                known = [intervals for intervals in found if intervals is not None]
                return None if len(known) < len(parts) else _few(list(chain(*known)))
            case Constant() | Unknown() | Like():
                return None
        is_range = self._physical.get(predicate.column.path) == self._bounds.range_column
        return self._intervals(predicate, without_nan) if is_range else None

    def certainty(self, predicate: Predicate) -> ColumnElement[bool]:
        """Return the condition for files that certainly match, so that `Pruner` can skip them; FALSE for none."""
        match predicate:
            case And(parts) if len(parts) <= MAX_PARTS:
                return and_(true(), *map(self.certainty, parts))
            case Or(parts) if len(parts) <= MAX_PARTS:
                return or_(false(), *map(self.certainty, parts))
            case Constant(value):
                return true() if value else false()
            case Unknown() | Like():
                return true()
            case Comparison(column, operator, value) if column.path[0] not in self._partition_columns:
                return self._is_inside(column, operator, value)
        return false()

    def _of(self, predicate: Predicate, without_nan: frozenset[Column]) -> ColumnElement[bool]:
        match predicate:
            case And(parts):
                return self._all(parts[:MAX_PARTS], without_nan)
            case Or(parts) if len(parts) > MAX_PARTS:
                return true()
            case Or(parts):
                return or_(false(), *(self._of(part, without_nan) for part in parts))
            case Constant(value):
                return true() if value else false()
            case Unknown() | Like():
                return true()
        if predicate.column.path[0] in self._partition_columns:
            return self._partition(predicate)
        intervals = self._intervals(predicate, without_nan)
        if intervals is None:
            return true()
        return or_(false(), *(self._overlaps(predicate.column, interval) for interval in intervals))

    def _all(self, parts: Sequence[Predicate], without_nan: frozenset[Column]) -> ColumnElement[bool]:
        """Combine conditions with AND. Conditions on one column become one interval, for one index look-up."""
        without_nan |= _below_nan(parts)
        intervals: dict[Column, Interval] = {}
        conditions: list[ColumnElement[bool]] = []
        for part in parts:
            one = None
            if isinstance(part, Comparison | StartsWith) and part.column.path[0] not in self._partition_columns:
                one = self._intervals(part, without_nan)
            if one is None or isinstance(part, And | Or | Constant | Unknown | Like | In | IsNull):
                conditions.append(self._of(part, without_nan))
                continue
            [(low, high)] = one
            before = intervals.get(part.column, (-math.inf, math.inf))
            intervals[part.column] = max(before[0], low), min(before[1], high)
        conditions += [self._overlaps(column, interval) for column, interval in intervals.items()]
        return and_(true(), *conditions)

    # -- bounds ------------------------------------------------------------------------------------------------------

    def _intervals(self, leaf: Leaf, without_nan: frozenset[Column]) -> list[Interval] | None:
        """Return the intervals that a matching file's bounds must overlap; None if there is no limit."""
        found: list[Interval] | None = None
        match leaf:
            case Comparison(column, operator, value):
                interval = _interval(operator, number_range(value))
                is_open = operator in (">", ">=") and column.type in _FLOATS and column not in without_nan
                found = None if interval is None or is_open else [interval]
            case StartsWith(_, prefix, False):
                interval = _interval("=", prefix_range(prefix))
                found = None if interval is None else [interval]
            case In(_, values, False):
                found = _few_intervals(values)
        wide = None if found is None else [loosened(interval, leaf.column.type) for interval in found]
        return None if wide is None or EVERYWHERE in wide else wide

    def _overlaps(self, column: Column, interval: Interval) -> ColumnElement[bool]:
        path = self._physical.get(column.path, ())
        place = self._bounds.places.get(path)
        if place is None:
            return true()
        is_range = path == self._bounds.range_column
        low, high = map(on_scale, interval) if is_range else interval
        mins, maxs = self._ends(1 if is_range else place)
        conditions: list[ColumnElement[bool]] = [
            *([] if interval[1] == math.inf else [func.coalesce(mins <= high, true())]),
            *([] if interval[0] == -math.inf else [func.coalesce(maxs >= low, true())]),
        ]
        return and_(true(), *conditions)

    def _ends(self, place: int) -> tuple[ColumnElement[float], ColumnElement[float]]:
        return self._backend.bound(_files.mins, place), self._backend.bound(_files.maxs, place)

    def _is_inside(self, column: Column, operator: Operator, value: Value) -> ColumnElement[bool]:
        """Return the condition for files that certainly hold a matching value, allowing for rounded bounds."""
        path = self._physical.get(column.path, ())
        place, numbers = self._bounds.places.get(path), number_range(value)
        # The bound of a float may be further off than the rounding of a double.
        is_single = column.type == PrimitiveType("float") or column.path in self._once_single
        if place is None or numbers is None or operator == "<>" or is_single:
            return false()
        low, high = _widened(numbers)
        is_range = path == self._bounds.range_column
        mins, maxs = self._ends(1 if is_range else place)
        sides = {"<": [mins < low], ">": [maxs > high]}
        conditions = sides.get(operator[0]) or [*sides["<"], *sides[">"]]
        # The ends of the scale mean unknown bounds.
        known = [mins > LOWEST, maxs < HIGHEST] if is_range else []
        return func.coalesce(and_(*known, *conditions), false())

    # -- partition values --------------------------------------------------------------------------------------------

    def _partition(self, leaf: Leaf) -> ColumnElement[bool]:
        """Return the condition on a partition value, which is text. NULL keeps the file: the key may be missing."""
        [name] = self._physical.get(leaf.column.path, ("",))
        if not name or name[0] in "$/" or '"' in name:
            # Not every database can look up such a key.
            return true()
        text = self._partition_values[name].as_string()
        if isinstance(leaf, IsNull):
            return true() if leaf.negated else or_(text.is_(None), text == "")
        match leaf.column.type:
            case PrimitiveType("string"):
                found = self._text(leaf, text)
            case PrimitiveType("date"):
                found = self._date(leaf, text)
            case PrimitiveType("boolean"):
                found = _truth(leaf, func.lower(text))
            case PrimitiveType("byte" | "short" | "integer" | "long"):
                found = self._number(leaf, text)
            case PrimitiveType() as type_ if type_.is_decimal:
                found = self._number(leaf, text)
            case _:
                found = true()
        return func.coalesce(found, true())

    def _text(self, leaf: Leaf, text: ColumnElement[str]) -> ColumnElement[bool]:
        """Compare text by bytes, as Spark does. This also orders ISO dates."""
        match leaf:
            case Comparison(_, operator, str() | date() as value) if not isinstance(value, datetime):
                wanted_text = value if isinstance(value, str) else value.isoformat()
                ordered = text if operator in ("=", "<>") else self._backend.by_bytes(text)
                return _compare(ordered, operator, wanted_text) if _is_sendable(wanted_text) else true()
            case In(_, values, negated) if len(values) <= MAX_LISTED:
                wanted = [value if isinstance(value, str) else str(value) for value in values]
                if not all(map(_is_sendable, wanted)):
                    return true()
                return text.not_in(wanted) if negated else text.in_(wanted)
            case StartsWith(_, prefix, negated) if _is_sendable(prefix):
                beginning = func.substr(text, 1, len(prefix))
                return beginning != prefix if negated else beginning == prefix
        return true()

    def _date(self, leaf: Leaf, text: ColumnElement[str]) -> ColumnElement[bool]:
        # `Pruner` decides about other forms: 2026-1-1, and years of five digits, which begin with a sign. The latter
        # cannot equal a given day.
        is_odd: ColumnElement[bool] = not_(text.like("____-__-__"))
        if (isinstance(leaf, Comparison) and leaf.operator == "=") or (isinstance(leaf, In) and not leaf.negated):
            is_odd = and_(is_odd, func.substr(text, 1, 1).not_in(["+", "-"]))
        return or_(self._text(leaf, text), is_odd)

    def _number(self, leaf: Leaf, text: ColumnElement[str]) -> ColumnElement[bool]:
        wanted = _whole_numbers(leaf)
        if wanted is not None:
            # The usual form of a number. `Pruner` decides about a sign, a leading zero and 7.0.
            is_plain = and_(self._backend.by_bytes(text) >= "1", func.ltrim(text, _DIGITS) == "")
            return or_(text.in_(wanted), not_(is_plain))
        intervals = self._intervals(leaf, frozenset())
        if intervals is None:
            return true()
        if leaf.column.type not in _WHOLE:
            intervals = [_widened(interval) for interval in intervals]
        number = self._backend.number_of(text)
        return or_(false(), *(_between(number, interval) for interval in intervals))


def _between(number: ColumnElement[float], interval: Interval) -> ColumnElement[bool]:
    # An infinite end is left out: not every driver can send an infinity.
    ends = [number >= interval[0]] if interval[0] > -math.inf else []
    return and_(true(), *ends, *([number <= interval[1]] if interval[1] < math.inf else []))


def _widened(interval: Interval) -> Interval:
    """Widen an interval by two doubles on each side: a decimal may be rounded to the nearest double or the next one."""
    low, high = interval
    for _ in range(2):
        low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    return low, high


def _interval(operator: Operator, numbers: tuple[float, float] | None) -> Interval | None:
    """Return a closed interval; for `<` and `>` it ends at the adjacent double."""
    if numbers is None or operator == "<>":
        return None
    low = -math.inf if operator in ("<", "<=") else _step(numbers[0], up=True, outward=operator != ">")
    high = math.inf if operator in (">", ">=") else _step(numbers[1], up=False, outward=operator != "<")
    return low, high


def _step(number: float, *, up: bool, outward: bool) -> float:
    """Return the end of an interval: the number itself, or the next double inside the interval."""
    if number.is_integer() and abs(number) < _EXACT:
        return number if outward else math.nextafter(number, math.inf if up else -math.inf)
    # Not every database parses the digits of other numbers exactly to the last bit, so widen a little.
    for _ in range(2):
        number = math.nextafter(number, -math.inf if up else math.inf)
    return number


def _few_intervals(values: Sequence[Value]) -> list[Interval] | None:
    """Return intervals that cover all values; many values are split only at the widest gaps between them."""
    found = [_interval("=", number_range(value)) for value in values]
    intervals = [interval for interval in found if interval is not None]
    return None if len(intervals) < len(found) else _few(intervals)


def _both(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """Return the intervals that two lists have in common, or the shorter list if these are many."""
    if len(one) * len(other) > MAX_INTERVALS:
        return min(one, other, key=len)
    return [(max(a, c), min(b, d)) for a, b in one for c, d in other]


def _below_nan(parts: Sequence[Predicate]) -> frozenset[Column]:
    """Return the columns that cannot be NaN where all parts are true."""
    return frozenset(part.column for part in parts if isinstance(part, _LEAVES) and is_below_nan(part))


def _few(intervals: list[Interval]) -> list[Interval]:
    """Return few intervals that cover all of these."""
    intervals = sorted(intervals)
    gaps = sorted(range(1, len(intervals)), key=lambda i: intervals[i - 1][1] - intervals[i][0])
    cuts = [0, *sorted(gaps[: MAX_INTERVALS - 1]), len(intervals)]
    pieces = [intervals[start:end] for start, end in pairwise(cuts)]
    return [reduce(lambda a, b: (min(a[0], b[0]), max(a[1], b[1])), piece) for piece in pieces if piece]


def _whole_numbers(leaf: Leaf) -> list[str] | None:
    """Return the integers that an integer column is compared with for equality; None for other predicates."""
    match leaf:
        case Comparison(column, "=", value):
            values: tuple[Value, ...] = (value,)
        case In(column, values, False):
            pass
        case _:
            return None
    is_listed = column.type in _WHOLE and len(values) <= MAX_LISTED and all(isinstance(value, int) for value in values)
    return [str(value) for value in values] if is_listed else None


def _truth(leaf: Leaf, text: ColumnElement[str]) -> ColumnElement[bool]:
    match leaf:
        case Comparison(_, "=" | "<>" as operator, bool() as value):
            # `Pruner` decides about other forms, such as 1 and 0.
            return text != str(value is (operator == "<>")).lower()
    return true()


def _compare(text: ColumnElement[Any], operator: Operator, value: str) -> ColumnElement[bool]:
    match operator:
        case "=":
            return text == value
        case "<>":
            return text != value
        case "<":
            return text < value
        case "<=":
            return text <= value
        case ">":
            return text > value
        case ">=":
            return text >= value


def _is_sendable(text: str) -> bool:
    """Return whether databases can store a text: PostgreSQL refuses NUL, and all refuse half a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
