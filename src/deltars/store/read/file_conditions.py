"""Conditions on rows of `dl_add_files`, with their values apart, so that one statement serves all values.

    All(Test(at_least, (1,), (7.0,)), Test(text_compares, ("day", "="), ("2026-01-01",)))
      ├ shape_of  ──▶ the same without 7.0 and '2026-01-01': the key of a prepared statement
      ├ as_sql    ──▶ coalesce(maxs[1] >= :a_0, true) AND coalesce(partition_values ->> 'day' = :a_1, true)
      └ values_of ──▶ a_0 = 7.0, a_1 = '2026-01-01'

A test never excludes a file whose bound or partition value is NULL, except `is_inside`, which then is not certain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Double, Text, and_, bindparam, false, func, literal, not_, or_, true

from deltars.log.bounds import HIGHEST, LOWEST
from deltars.predicate import Operator
from deltars.store.backends import Backend
from deltars.store.schema import dl_add_files

Value: TypeAlias = float | str | tuple[str, ...]
Parameter: TypeAlias = Callable[[Value], Any]
"""Returns what stands for the next value of a condition in its SQL: for a tuple, what `in_` takes."""

_DIGITS = "0123456789"
_files = dl_add_files.c


@dataclass(frozen=True, slots=True)
class Test:
    """A test of one column of a file."""

    sql: Callable[..., ColumnElement[bool]]
    """One of the functions below. It takes the file, `about`, and a parameter for each value."""
    about: tuple[Hashable, ...]
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    parts: tuple[Condition, ...] = ()


Condition: TypeAlias = Test | All | Some

EVERY: Condition = All()
NONE: Condition = Some()


def every_of(parts: Iterable[Condition]) -> Condition:
    """Return the AND of the parts, simplified."""
    left = [part for part in parts if part != EVERY]
    if NONE in left:
        return NONE
    return left[0] if len(left) == 1 else All(tuple(left))


def some_of(parts: Iterable[Condition]) -> Condition:
    """Return the OR of the parts, simplified."""
    left = [part for part in parts if part != NONE]
    if EVERY in left:
        return EVERY
    return left[0] if len(left) == 1 else Some(tuple(left))


def shape_of(condition: Condition) -> Hashable:
    """Return what conditions with the same SQL have in common: all but the values."""
    if isinstance(condition, Test):
        kinds = (len(value) if isinstance(value, tuple) else type(value) for value in condition.values)
        return condition.sql, condition.about, *kinds
    return type(condition), *map(shape_of, condition.parts)


def values_of(condition: Condition, prefix: str) -> dict[str, Any]:
    """Return the values of a condition by the names that `Named` gave to their parameters."""
    return {f"{prefix}_{number}": value for number, value in enumerate(_single_values(condition))}


def count_values(condition: Condition) -> int:
    return sum(1 for _ in _single_values(condition))


def _single_values(condition: Condition) -> Iterator[float | str]:
    if isinstance(condition, Test):
        for value in condition.values:
            if isinstance(value, tuple):
                yield from value
            else:
                yield value
    else:
        for part in condition.parts:
            yield from _single_values(part)


class Named:
    """Parameters without values: `prefix_0`, `prefix_1`, and so on."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._next = 0

    def __call__(self, value: Value) -> Any:
        if isinstance(value, tuple):
            return list(map(self, value))
        name = f"{self._prefix}_{self._next}"
        self._next += 1
        return bindparam(name, type_=_type_of(value))


def valued(value: Value) -> Any:
    """Return a parameter that has its value."""
    return list(value) if isinstance(value, tuple) else literal(value, _type_of(value))


def _type_of(value: float | str) -> Text | Double[float]:
    return Text() if isinstance(value, str) else Double()


class File:
    """A row of `dl_add_files`, or another place of partition values, as the tests see it."""

    def __init__(self, backend: Backend, partition_values: ColumnElement[Any] = _files.partition_values) -> None:
        self.backend = backend
        self._partition_values = partition_values

    def minimum(self, place: int) -> ColumnElement[float]:
        return self.backend.bound(_files.mins, place)

    def maximum(self, place: int) -> ColumnElement[float]:
        return self.backend.bound(_files.maxs, place)

    def partition_value(self, name: str) -> ColumnElement[str]:
        return self.backend.entry(self._partition_values, name)


def as_sql(condition: Condition, file: File, parameter: Parameter = valued) -> ColumnElement[bool]:
    match condition:
        case Test(sql, about, values):
            return sql(file, *about, *map(parameter, values))
        case All(parts):
            return and_(true(), *[as_sql(part, file, parameter) for part in parts])
        case Some(parts):
            return or_(false(), *[as_sql(part, file, parameter) for part in parts])


# -- tests of bounds ---------------------------------------------------------------------------------------------------


def at_most(file: File, place: int, number: Any) -> ColumnElement[bool]:
    """Test that the minimum is not above a number."""
    return func.coalesce(file.minimum(place) <= number, true())


def at_least(file: File, place: int, number: Any) -> ColumnElement[bool]:
    """Test that the maximum is not below a number."""
    return func.coalesce(file.maximum(place) >= number, true())


def is_inside(file: File, place: int, is_range: bool, has_low: bool, has_high: bool, *ends: Any) -> ColumnElement[bool]:
    """Test that the minimum is below the first end and the maximum above the last one, as far as there are ends."""
    minimum, maximum = file.minimum(place), file.maximum(place)
    # The ends of the scale mean unknown bounds.
    known = [minimum > LOWEST, maximum < HIGHEST] if is_range else []
    below = [minimum < ends[0]] if has_low else []
    above = [maximum > ends[-1]] if has_high else []
    return func.coalesce(and_(*known, *below, *above), false())


# -- tests of partition values, which are text -------------------------------------------------------------------------


def is_null(file: File, name: str) -> ColumnElement[bool]:
    """Test for NULL. The empty string means it, and so may a missing key."""
    text = file.partition_value(name)
    return or_(text.is_(None), text == "")


def text_compares(file: File, name: str, operator: Operator, value: Any) -> ColumnElement[bool]:
    """Compare by bytes, as Spark does. This also orders ISO dates."""
    text = file.partition_value(name)
    ordered = text if operator in ("=", "<>") else file.backend.by_bytes(text)
    return func.coalesce(_COMPARISONS[operator](ordered, value), true())


def text_is_among(file: File, name: str, negated: bool, values: Any) -> ColumnElement[bool]:
    text = file.partition_value(name)
    return func.coalesce(text.not_in(values) if negated else text.in_(values), true())


def text_starts(file: File, name: str, negated: bool, length: int, prefix: Any) -> ColumnElement[bool]:
    beginning = func.substr(file.partition_value(name), 1, length)
    return func.coalesce(beginning != prefix if negated else beginning == prefix, true())


def is_odd_day(file: File, name: str, may_be_signed: bool) -> ColumnElement[bool]:
    """Test for other forms than 2026-01-31: 2026-1-31, and years of five digits, which begin with a sign."""
    text = file.partition_value(name)
    is_odd: ColumnElement[bool] = not_(text.like("____-__-__"))
    if not may_be_signed:
        is_odd = and_(is_odd, func.substr(text, 1, 1).not_in(["+", "-"]))
    return func.coalesce(is_odd, true())


def is_whole_among(file: File, name: str, values: Any) -> ColumnElement[bool]:
    """Test for whole numbers in their usual form. A sign, a leading zero and 7.0 are left to `Pruner`."""
    text = file.partition_value(name)
    is_plain = and_(file.backend.by_bytes(text) >= "1", func.ltrim(text, _DIGITS) == "")
    return func.coalesce(or_(text.in_(values), not_(is_plain)), true())


def number_is_between(file: File, name: str, has_low: bool, has_high: bool, *ends: Any) -> ColumnElement[bool]:
    # An infinite end is left out: not every driver can send an infinity.
    number = file.backend.number_of(file.partition_value(name))
    low = [number >= ends[0]] if has_low else []
    high = [number <= ends[-1]] if has_high else []
    return func.coalesce(and_(*low, *high), true())


def is_boolean(file: File, name: str, value: bool) -> ColumnElement[bool]:
    """Test for true or false. `Pruner` decides about other forms, such as 1 and 0."""
    return func.coalesce(func.lower(file.partition_value(name)) != str(not value).lower(), true())


_COMPARISONS: dict[Operator, Callable[[Any, Any], Any]] = {
    "=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip
