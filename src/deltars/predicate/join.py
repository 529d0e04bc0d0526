"""Parser of the `on` of a merge.

    t.id = s.id AND t.day > '2026-01-01' AND s.ok AND t.a < s.b
    └ equalities     └ target_only            └ source_only └ rest: only the whole `on` says it

Equalities and `target_only` find the files that may match before a row of the table is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo

from sqlglot import exp

from deltars.errors import ValidationError
from deltars.predicate.literals import zone_of
from deltars.predicate.parser import COMPARE, Binder
from deltars.predicate.sides import Sides
from deltars.predicate.source import Source
from deltars.predicate.syntax import check_legal, delta_type, not_too_deep, operands
from deltars.predicate.tree import (
    TRUE,
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    columns_of,
    conjunction,
    disjunction,
    known_part,
    leaves_of,
    partition_part,
)
from deltars.protocol import DataType, PrimitiveType, StructType

_VALUES = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.DPipe, exp.Concat)
"""Nodes that are never a condition."""
_TIMES = ("date", "timestamp", "timestamp_ntz")
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")


@dataclass(frozen=True, slots=True)
class Equality:
    """Columns of target and source that must be equal, each without its alias. Null equals nothing."""

    target: Column
    source: Column


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """What `on` demands of a pair of rows. All parts must hold."""

    equalities: tuple[Equality, ...]
    target_only: Predicate
    """Condition that every target row fulfils that matches, without `Unknown` parts. TRUE if nothing is known."""
    source_only: Predicate = TRUE
    """Condition that every source row fulfils that matches, without `Unknown` parts."""
    is_known: bool = False
    """Whether the equalities, `target_only` and `source_only` together are all of `on`."""


def parse_join(
    on: str, target: StructType, source: StructType, target_alias: str, source_alias: str, zone: str = "UTC"
) -> JoinCondition:
    """Return the parts of `on`. Raise PredicateError, which says the position, for names and types that do not fit.

    `zone` is the time zone of literals that have none.
    """
    found = zone_of(zone)
    if found is None:
        raise ValidationError(f"there is no time zone {zone!r}", field="zone")
    text = Source(on, "on")
    return _JoinBinder(text, Sides(((target_alias, target), (source_alias, source))), found).join(text.condition())


class _JoinBinder(Binder):
    def __init__(self, source: Source, sides: Sides, zone: tzinfo) -> None:
        super().__init__(source, sides, zone)
        self._aliases = [alias for alias, _ in sides.tables]

    def join(self, tree: exp.Expr) -> JoinCondition:
        check_legal(self._source, tree)
        with not_too_deep(self._source):
            return self._joined(tree)

    def _joined(self, tree: exp.Expr) -> JoinCondition:
        target, source = self._aliases
        equalities: dict[Equality, None] = {}
        others: list[Predicate] = []
        for node in _conjuncts(tree):
            equality = self._equality(node)
            if equality is None:
                others.append(self.condition(node))
            else:
                equalities[equality] = None
        whole = conjunction(others)
        if not equalities and not any(column.path[0] == target for column in columns_of(whole)):
            raise self._source.error_at(
                "the condition names no column of the target", 0, hint=f"Compare both sides: {target}.id = {source}.id."
            )
        target_only, source_only = (known_part(partition_part(whole, [side])) for side in (target, source))
        return JoinCondition(
            tuple(equalities),
            _without_alias(target_only),
            source_only=_without_alias(source_only),
            is_known=_is_same(whole, conjunction([target_only, source_only])),
        )

    def _equality(self, node: exp.Expr) -> Equality | None:
        if not isinstance(node, exp.EQ):
            return None
        one, other = self._column(node.this), self._column(node.expression)
        if one is None or other is None:
            return None
        self._refuse_unlike(node, one, other)
        by_side = {column.path[0]: column for column in (one, other)}
        has_order = all(_is_atomic(column.type) and column.path not in self._unordered for column in (one, other))
        if len(by_side) < 2 or not has_order:
            return None
        target, source = (by_side[alias] for alias in self._aliases)
        return Equality(replace(target, path=target.path[1:]), replace(source, path=source.path[1:]))

    def _comparison(self, node: exp.Expr, left: exp.Expr, operator: Operator, right: exp.Expr) -> Predicate:
        one, other = self._column(left), self._column(right)
        if one is not None and other is not None:
            self._refuse_unlike(node, one, other)
        return super()._comparison(node, left, operator, right)

    def _refuse_unlike(self, node: exp.Expr, one: Column, other: Column) -> None:
        """Raise for types that Spark would cast while it reads rows, so that a value such as 'x' fails the job."""
        families = {_family(one.type), _family(other.type)} - {"void"}
        if len(families) > 1:
            raise self._source.error(
                f"{one} is of type {one.type} and {other} of type {other.type}: they cannot be compared",
                node,
                hint="Cast one of them to the other's type.",
            )

    def _bare(self, node: exp.Expr) -> Predicate:
        is_cast = isinstance(node, exp.Cast) and delta_type(node.to) != PrimitiveType("boolean")
        if isinstance(node, _VALUES) or is_cast:
            raise self._source.error("not a condition", node, hint=COMPARE)
        return super()._bare(node)


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.And):
        yield node
        return
    for part in operands(node, exp.And):
        yield from _conjuncts(part)


def _is_atomic(type_: DataType) -> bool:
    return isinstance(type_, PrimitiveType) and type_.name != "variant"


def _family(type_: DataType) -> str:
    if not isinstance(type_, PrimitiveType):
        return str(type(type_))
    if type_.name in _TIMES:
        return "time"
    return "number" if type_.is_decimal or type_.name in _NUMBERS else type_.name


def _is_same(whole: Predicate, parts: Predicate) -> bool:
    """Return whether two conjunctions have the same parts, in any order."""

    def of(predicate: Predicate) -> set[Predicate]:
        return set(predicate.parts) if isinstance(predicate, And) else {predicate}

    return of(whole) - {TRUE} == of(parts) - {TRUE}


def _without_alias(predicate: Predicate) -> Predicate:
    match predicate:
        case And(parts):
            return conjunction(map(_without_alias, parts))
        case Or(parts):
            return disjunction(map(_without_alias, parts))
        case Comparison(column) | In(column) | StartsWith(column) | Like(column) | IsNull(column):
            return replace(predicate, column=replace(column, path=column.path[1:]))
    assert not isinstance(predicate, Unknown), list(leaves_of(predicate))
    return predicate
