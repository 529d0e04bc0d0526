"""Translation of a predicate to conditions on rows of `dl_add_files`, so that the database skips files.

    id > 7 AND day = '2026-01-01' ──▶ maxs[1] >= 7 AND partition_values ->> 'day' = '2026-01-01'

A condition never excludes a matching file, but often keeps files that do not match: bounds are rounded outward,
intervals are closed, and unknown values keep the file. `log.pruning.Pruner` decides exactly about the files returned.

Every row of a table carries its bounds in the layout of the table's current metadata (`commit.bounds_rewrite`). A
reader with older metadata would look in the wrong places. `filter_sql.layout_is` checks this in the same statement, and
files are then pruned by partition values only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache, reduce
from itertools import chain, pairwise

from deltars.log.bounds import Bounds, number_range, on_scale, once_single, prefix_range
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
    partition_part,
)
from deltars.protocol import Metadata, PrimitiveType, SchemaKey, StructType, physical_paths
from deltars.store.read.file_conditions import (
    EVERY,
    NONE,
    Condition,
    Test,
    at_least,
    at_most,
    every_of,
    is_boolean,
    is_inside,
    is_null,
    is_odd_day,
    is_whole_among,
    number_is_between,
    some_of,
    text_compares,
    text_is_among,
    text_starts,
)

MAX_INTERVALS = 16
"""A longer list of values becomes this many ranges: each costs one more comparison per file."""

MAX_PARTS = 200
"""A condition with more parts is not sent: SQLite accepts about a thousand, and each is evaluated for every file."""
MAX_DEPTH = 25
"""A condition that is nested deeper is not sent: SQLite's parser accepts about thirty levels of it."""
MAX_LISTED = 1_000
"""A longer list of values is not sent: SQLite accepts about thirty thousand."""

MAX_KEPT = 100
"""How many definitions of tables have their translation kept."""

EVERYWHERE: Interval = (-math.inf, math.inf)

_EXACT = 2.0**53
"""Integers below this are exact as doubles; the next integer above it is rounded to it."""
_LEAVES = (Comparison, In, StartsWith, IsNull)
_WHOLE = tuple(map(PrimitiveType, ("byte", "short", "integer", "long")))
_FLOATS = (PrimitiveType("float"), PrimitiveType("double"))


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Predicate of a read, as conditions on rows of `dl_add_files`."""

    whole: Condition
    """Condition by bounds and partition values."""
    partition: Condition
    """Condition by partition values alone."""
    is_by_partition: bool
    """Whether the predicate only uses partition columns, so that `whole` and `partition` are the same."""
    certain: Condition
    """True for files that certainly match, among those that `whole` keeps; `Pruner` can skip them."""
    intervals: Sequence[Interval] | None
    """Ranges on the scale of the range column, one of which every matching file overlaps; None if there is no limit."""


def file_filter(predicate: Predicate, metadata: Metadata) -> FileFilter:
    translation, partition = translation_of(metadata), partition_part(predicate, metadata.partition_columns)
    return FileFilter(
        translation.condition(predicate),
        translation.condition(partition),
        partition == predicate,
        translation.certainty(predicate),
        translation.ranges(predicate),
    )


def translation_of(metadata: Metadata) -> Translation:
    """Return the translation for tables of this definition, which is kept."""
    properties = tuple(metadata.configuration.items())
    return _translation(SchemaKey(metadata.schema), tuple(metadata.partition_columns), properties)


@lru_cache(maxsize=MAX_KEPT)
def _translation(
    key: SchemaKey, partition_columns: tuple[str, ...], properties: tuple[tuple[str, str], ...]
) -> Translation:
    return Translation(key.schema, partition_columns, dict(properties))


class Translation:
    """Translation of predicates on tables of one definition. It does not change, so threads share it."""

    def __init__(self, schema: StructType, partition_columns: Sequence[str], properties: Mapping[str, str]) -> None:
        self._physical = physical_paths(schema)
        self._partition_columns = partition_columns
        self._bounds = Bounds(schema, partition_columns, properties)
        self._once_single = once_single(schema)

    def condition(self, predicate: Predicate) -> Condition:
        """Return the condition for files that may hold a matching row; EVERY if the database cannot tell."""
        flat = grouped(predicate)
        return EVERY if _depth(flat) > MAX_DEPTH else self._of(flat, frozenset())

    def ranges(self, predicate: Predicate) -> list[Interval] | None:
        """Return the ranges on the scale of the range column, one of which every matching file overlaps.

        None if there is no limit.
        """
        intervals = self._ranges(grouped(predicate), frozenset())
        return None if intervals is None else [(on_scale(low), on_scale(high)) for low, high in intervals]

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

    def certainty(self, predicate: Predicate) -> Condition:
        """Return the condition for files that certainly match, so that `Pruner` can skip them; NONE for none."""
        return NONE if _depth(predicate) > MAX_DEPTH else self._certainty(predicate)

    def _certainty(self, predicate: Predicate) -> Condition:
        match predicate:
            case And(parts) if len(parts) <= MAX_PARTS:
                return every_of(map(self._certainty, parts))
            case Or(parts) if len(parts) <= MAX_PARTS:
                return some_of(map(self._certainty, parts))
            case Constant(value):
                return EVERY if value else NONE
            case Unknown() | Like():
                return EVERY
            case Comparison(column, operator, value) if column.path[0] not in self._partition_columns:
                return self._is_inside(column, operator, value)
        return NONE

    def _of(self, predicate: Predicate, without_nan: frozenset[Column]) -> Condition:
        match predicate:
            case And(parts):
                return self._all(parts[:MAX_PARTS], without_nan)
            case Or(parts) if len(parts) > MAX_PARTS:
                return EVERY
            case Or(parts):
                return some_of(self._of(part, without_nan) for part in parts)
            case Constant(value):
                return EVERY if value else NONE
            case Unknown() | Like():
                return EVERY
        if predicate.column.path[0] in self._partition_columns:
            return self._partition(predicate)
        intervals = self._intervals(predicate, without_nan)
        if intervals is None:
            return EVERY
        return some_of(self._overlaps(predicate.column, interval) for interval in intervals)

    def _all(self, parts: Sequence[Predicate], without_nan: frozenset[Column]) -> Condition:
        """Combine conditions with AND. Conditions on one column become one interval, for one index look-up."""
        without_nan |= _below_nan(parts)
        intervals: dict[Column, Interval] = {}
        conditions: list[Condition] = []
        for part in parts:
            one = None
            if isinstance(part, Comparison | StartsWith) and part.column.path[0] not in self._partition_columns:
                one = self._intervals(part, without_nan)
            if one is None or isinstance(part, And | Or | Constant | Unknown | Like | In | IsNull):
                conditions.append(self._of(part, without_nan))
                continue
            [(low, high)] = one
            before = intervals.get(part.column, EVERYWHERE)
            intervals[part.column] = max(before[0], low), min(before[1], high)
        conditions += [self._overlaps(column, interval) for column, interval in intervals.items()]
        return every_of(conditions)

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

    def _overlaps(self, column: Column, interval: Interval) -> Condition:
        path = self._physical.get(column.path, ())
        place = self._bounds.places.get(path)
        if place is None:
            return EVERY
        is_range = path == self._bounds.range_column
        low, high = map(on_scale, interval) if is_range else interval
        about = (1 if is_range else place,)
        return every_of(
            [
                *([] if interval[1] == math.inf else [Test(at_most, about, (high,))]),
                *([] if interval[0] == -math.inf else [Test(at_least, about, (low,))]),
            ]
        )

    def _is_inside(self, column: Column, operator: Operator, value: Value) -> Condition:
        """Return the condition for files that certainly hold a matching value, allowing for rounded bounds."""
        path = self._physical.get(column.path, ())
        place, numbers = self._bounds.places.get(path), number_range(value)
        # The bound of a float may be further off than the rounding of a double.
        is_single = column.type == PrimitiveType("float") or column.path in self._once_single
        if place is None or numbers is None or operator == "<>" or is_single:
            return NONE
        low, high = _widened(numbers)
        is_range = path == self._bounds.range_column
        has_low, has_high = operator[0] in "<=", operator[0] in ">="
        ends = (low, high)[not has_low : 1 + has_high]
        return Test(is_inside, (1 if is_range else place, is_range, has_low, has_high), ends)

    # -- partition values --------------------------------------------------------------------------------------------

    def _partition(self, leaf: Leaf) -> Condition:
        [name] = self._physical.get(leaf.column.path, ("",))
        if not name or name[0] in "$/" or '"' in name:
            # Not every database can look up such a key.
            return EVERY
        if isinstance(leaf, IsNull):
            return EVERY if leaf.negated else Test(is_null, (name,))
        match leaf.column.type:
            case PrimitiveType("string"):
                return _text(leaf, name)
            case PrimitiveType("date"):
                return _date(leaf, name)
            case PrimitiveType("boolean"):
                return _truth(leaf, name)
            case PrimitiveType("byte" | "short" | "integer" | "long"):
                return self._number(leaf, name)
            case PrimitiveType() as type_ if type_.is_decimal:
                return self._number(leaf, name)
        return EVERY

    def _number(self, leaf: Leaf, name: str) -> Condition:
        wanted = _whole_numbers(leaf)
        if wanted is not None:
            return Test(is_whole_among, (name,), (wanted,))
        intervals = self._intervals(leaf, frozenset())
        if intervals is None:
            return EVERY
        if leaf.column.type not in _WHOLE:
            intervals = [_widened(interval) for interval in intervals]
        return some_of(_between(name, interval) for interval in intervals)


def _text(leaf: Leaf, name: str) -> Condition:
    match leaf:
        case Comparison(_, operator, str() | date() as value) if not isinstance(value, datetime):
            wanted = value if isinstance(value, str) else value.isoformat()
            return Test(text_compares, (name, operator), (wanted,)) if _is_sendable(wanted) else EVERY
        case In(_, values, negated) if len(values) <= MAX_LISTED:
            listed = tuple(value if isinstance(value, str) else str(value) for value in values)
            return Test(text_is_among, (name, negated), (listed,)) if all(map(_is_sendable, listed)) else EVERY
        case StartsWith(_, prefix, negated) if _is_sendable(prefix):
            return Test(text_starts, (name, negated, len(prefix)), (prefix,))
    return EVERY


def _date(leaf: Leaf, name: str) -> Condition:
    # `Pruner` decides about other forms. A year of five digits cannot equal a given day.
    is_equality = (isinstance(leaf, Comparison) and leaf.operator == "=") or (isinstance(leaf, In) and not leaf.negated)
    return some_of([_text(leaf, name), Test(is_odd_day, (name, not is_equality))])


def _between(name: str, interval: Interval) -> Condition:
    has_low, has_high = interval[0] > -math.inf, interval[1] < math.inf
    if not has_low and not has_high:
        return EVERY
    ends = interval[not has_low : 1 + has_high]
    return Test(number_is_between, (name, has_low, has_high), ends)


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


def _depth(predicate: Predicate) -> int:
    match predicate:
        case And(parts) | Or(parts):
            return 1 + max(map(_depth, parts), default=0)
    return 0


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


def _whole_numbers(leaf: Leaf) -> tuple[str, ...] | None:
    """Return the integers that an integer column is compared with for equality; None for other predicates."""
    match leaf:
        case Comparison(column, "=", value):
            values: tuple[Value, ...] = (value,)
        case In(column, values, False):
            pass
        case _:
            return None
    is_listed = column.type in _WHOLE and len(values) <= MAX_LISTED and all(isinstance(value, int) for value in values)
    return tuple(map(str, values)) if is_listed else None


def _truth(leaf: Leaf, name: str) -> Condition:
    match leaf:
        case Comparison(_, "=" | "<>" as operator, bool() as value):
            return Test(is_boolean, (name, value is (operator == "=")))
    return EVERY


def _is_sendable(text: str) -> bool:
    """Return whether databases can store a text: PostgreSQL refuses NUL, and all refuse half a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
