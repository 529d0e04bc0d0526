"""The range of a column's values in a file, from the log alone, and whether a condition can be true within it.

    partition value, or minValues / maxValues / nullCount ──▶ Span ──span_test(leaf)──▶ bool

A span is never narrower than the true range. Floating-point numbers have Spark's order: NaN equals itself and is
greater than every other number. Not every writer follows that order in its maxima, so a file may have NaN although its
maximum is a number (`has_nan`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from deltars.errors import ValidationError
from deltars.log import slack
from deltars.log.bounds import is_clamped
from deltars.predicate import Comparison, In, IsNull, StartsWith
from deltars.protocol import DataType, PrimitiveType, bound_decoder, parse_partition_value
from deltars.protocol.scalars import to_single

Leaf: TypeAlias = Comparison | In | StartsWith | IsNull
SpanTest: TypeAlias = "Callable[[Span], bool]"

NAN = (True, 0.0)
"""Sort key of NaN; the key of every other floating-point number is `(False, number)`."""

_FLOATS = (PrimitiveType("float"), PrimitiveType("double"))
EXACT_DIGITS = 15
"""A decimal with at most this many digits survives conversion to a double and back."""

DOUBLE_DIGITS = 17
"""Most digits of a number that was written as a double."""


class Span(NamedTuple):
    """The range of a column's values in a file: none is below `low` or above `high`. `None` means unknown."""

    low: Any = None
    high: Any = None
    has_values: bool = True
    has_nulls: bool = True
    has_nan: bool = False
    """Whether NaN may occur although `high` is less."""


ANYTHING = Span(has_nan=True)


def comparable(value: Any) -> Any:
    """Return the sort key of a value: a float as `(is NaN, number)`, any other value itself."""
    if isinstance(value, float):
        return NAN if value != value else (False, value)
    return value


def partition_span(text: str | None, type_: DataType) -> Span:
    """Return the span of a partition value, which every row of the file has."""
    try:
        value = parse_partition_value(text, type_)
        if value is None:
            return Span(has_values=False)
        if type_ == PrimitiveType("timestamp") and datetime.fromisoformat(text or "").tzinfo is None:
            # The writer's time zone is not known.
            return Span(value - slack.ANY_ZONE, value + slack.ANY_ZONE, has_nulls=False)
    except (ValidationError, ValueError, OverflowError):
        return ANYTHING
    return Span(comparable(value), comparable(value), has_nulls=False)


def stats_span(type_: DataType, *, is_nested: bool = False) -> Callable[[Any, Any, Any, Any], Span]:
    """Return a function from minimum, maximum, null count and `numRecords`, as decoded from JSON, to the span.

    `is_nested`: the column is a field of a struct. Not every writer counts the rows where the struct is null.
    """
    bounds, has_nan = _bounds(type_), type_ in _FLOATS
    # For arrays and maps some writers count null elements, so a null count equal to the rows does not mean no values.
    counts_rows = isinstance(type_, PrimitiveType)

    def span(minimum: Any, maximum: Any, nulls: Any, records: Any) -> Span:
        has_nulls, has_values = True, True
        if _is_count(nulls):
            has_nulls = nulls > 0 or is_nested
            has_values = not (counts_rows and nulls == records and _is_count(records))
        return Span(*bounds(minimum, maximum), has_values, has_nulls, has_nan)

    return span


def _bounds(type_: DataType) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return a function that turns minimum and maximum of the statistics into true bounds for the type."""
    if not isinstance(type_, PrimitiveType):
        return lambda minimum, maximum: (None, None)
    decode = bound_decoder(type_)

    def plain(minimum: Any, maximum: Any) -> tuple[Any, Any]:
        return decode(minimum), decode(maximum)

    def days(minimum: Any, maximum: Any) -> tuple[Any, Any]:
        low, high = decode(minimum), decode(maximum)
        return None if low is None else slack.low_day(low), None if high is None else slack.high_day(high)

    def moments(minimum: Any, maximum: Any) -> tuple[Any, Any]:
        low, high = decode(minimum), decode(maximum)
        return (
            None if low is None else slack.low_moment(low, has_zone=slack.names_zone(minimum)),
            None if high is None else slack.high_moment(high, has_zone=slack.names_zone(maximum)),
        )

    def wall_clocks(minimum: Any, maximum: Any) -> tuple[Any, Any]:
        low, high = decode(minimum), decode(maximum)
        return None if low is None else slack.low_wall_clock(low), None if high is None else slack.high_wall_clock(high)

    def texts(minimum: Any, maximum: Any) -> tuple[Any, Any]:
        low, high = decode(minimum), decode(maximum)
        return None if low is None else slack.low_text(low), None if high is None else slack.high_text(high)

    def decimals(minimum: Any, maximum: Any) -> tuple[Any, Any]:
        return _decimal_outward(decode(minimum), down=True), _decimal_outward(decode(maximum), down=False)

    def floats(minimum: Any, maximum: Any) -> tuple[Any, Any]:
        low = decode(minimum)
        # A minimum is NaN if the file has only NaN, or if the writer does not sort NaN last.
        return None if low is not None and math.isnan(low) else comparable(low), comparable(decode(maximum))

    match type_.name:
        case "float" | "double":
            return floats
        case "date":
            return days
        case "timestamp":
            return moments
        case "timestamp_ntz":
            return wall_clocks
        case "string":
            return texts
    return decimals if type_.is_decimal and type_.precision > EXACT_DIGITS else plain


def _decimal_outward(bound: Decimal | None, *, down: bool) -> Decimal | None:
    """Move a bound outward: some writers convert decimals to a double, or clamp them to 64 bits."""
    if bound is None or is_clamped(bound, down=down):
        return None
    digits = "".join(map(str, bound.as_tuple().digits)).strip("0")
    if len(digits) > DOUBLE_DIGITS:
        return bound
    return Decimal(math.nextafter(float(bound), -math.inf if down else math.inf))


def widened(span: Span) -> Span:
    """Widen the span of a double column that was float before: a bound may mean the float nearest to it."""

    def outward(bound: Any, choose: Callable[[float, float], float]) -> Any:
        return bound if bound is None or bound == NAN else comparable(choose(bound[1], to_single(bound[1])))

    return span._replace(low=outward(span.low, min), high=outward(span.high, max))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def span_test(leaf: Leaf, *, nan_matches: bool = True) -> SpanTest:
    """Return a test whether the condition can be true for some row of a span.

    `nan_matches` is False if another condition already excludes NaN.
    """
    match leaf:
        case IsNull(_, negated):
            return (lambda span: span.has_values) if negated else (lambda span: span.has_nulls)
        case StartsWith(_, prefix, negated):
            return _not_prefix(prefix) if negated else _prefix(prefix)
    values = (leaf.value,) if isinstance(leaf, Comparison) else leaf.values
    by_double = any(isinstance(value, float) for value in values) and leaf.column.type not in _FLOATS
    test = _comparison(leaf, nan_matches) if isinstance(leaf, Comparison) else _in(leaf, nan_matches)
    return (lambda span: test(_as_doubles(span))) if by_double else test


def is_below_nan(leaf: Any) -> bool:
    """Return whether the condition is never true for NaN, because it has an upper limit."""
    match leaf:
        case Comparison(_, "=" | "<=", value):
            return value == value
        case Comparison(_, "<"):
            return True
        case In(_, values, False):
            return all(value == value for value in values)
    return False


def _as_doubles(span: Span) -> Span:
    """Return the span with its bounds as doubles. Rounding keeps the order, so they remain bounds."""

    def double(bound: Any) -> Any:
        return (False, float(bound)) if isinstance(bound, int | Decimal) else bound

    return Span(double(span.low), double(span.high), span.has_values, span.has_nulls)


def _comparison(leaf: Comparison, nan_matches: bool) -> SpanTest:
    value = comparable(leaf.value)

    def equal(span: Span) -> bool:
        between = (span.low is None or span.low <= value) and (span.high is None or value <= span.high)
        return span.has_values and (between or (value == NAN and nan_matches and span.has_nan))

    def different(span: Span) -> bool:
        only = span.low is not None and span.low == span.high == value
        return span.has_values and (not only or (value != NAN and nan_matches and span.has_nan))

    def less(span: Span) -> bool:
        return span.has_values and (span.low is None or span.low < value)

    def at_most(span: Span) -> bool:
        return span.has_values and (span.low is None or span.low <= value)

    def greater(span: Span) -> bool:
        above = span.high is None or span.high > value
        return span.has_values and (above or (value != NAN and nan_matches and span.has_nan))

    def at_least(span: Span) -> bool:
        return span.has_values and (span.high is None or span.high >= value or (nan_matches and span.has_nan))

    tests = {"=": equal, "<>": different, "<": less, "<=": at_most, ">": greater, ">=": at_least}
    return tests[leaf.operator]


def _in(leaf: In, nan_matches: bool) -> SpanTest:
    values = sorted(map(comparable, leaf.values))
    members = set(values)

    def one_of(span: Span) -> bool:
        if not span.has_values:
            return False
        place = 0 if span.low is None else bisect_left(values, span.low)
        between = place < len(values) and (span.high is None or values[place] <= span.high)
        return between or (NAN in members and nan_matches and span.has_nan)

    def none_of(span: Span) -> bool:
        only = span.low is not None and span.low == span.high and span.low in members
        return span.has_values and (not only or (NAN not in members and nan_matches and span.has_nan))

    return none_of if leaf.negated else one_of


def _prefix(prefix: str) -> SpanTest:
    """Return a test whether some string between the bounds can start with `prefix`."""

    def begins(span: Span) -> bool:
        above = span.high is None or span.high >= prefix
        return span.has_values and above and (span.low is None or span.low[: len(prefix)] <= prefix)

    return begins


def _not_prefix(prefix: str) -> SpanTest:
    def begins_otherwise(span: Span) -> bool:
        known = span.low is not None and span.high is not None
        return span.has_values and not (known and span.low.startswith(prefix) and span.high.startswith(prefix))

    return begins_otherwise
