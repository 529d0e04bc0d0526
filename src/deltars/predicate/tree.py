"""A condition on rows as a tree, with its names and literals resolved.

    Predicate = And | Or | Comparison | In | StartsWith | Like | IsNull | Constant | Unknown

There is no Not: the parser pushes it down to the leaves, each of which has an opposite. SQL has three truth values, and
a leaf and its opposite are NULL for the same rows, so nothing is lost. To find whether a row *can* match, code has to
handle only And, Or and leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from deltars.protocol import DataType

Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime
"""A literal as a Python value. A timestamp has the time zone UTC, a timestamp_ntz has none.

A `float` and a column of another numeric type are compared as in Spark: both are converted to double.
"""

Operator: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]

OPPOSITE: dict[Operator, Operator] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED: dict[Operator, Operator] = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, by its logical names."""

    path: tuple[str, ...]
    type: DataType

    def __str__(self) -> str:
        return ".".join(self.path)

    def to_sql(self) -> str:
        return ".".join("`" + name.replace("`", "``") + "`" for name in self.path)


@dataclass(frozen=True, slots=True)
class Comparison:
    column: Column
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class In:
    """True if the column equals one of the values; negated: if it differs from all."""

    column: Column
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class StartsWith:
    column: Column
    prefix: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    """True if the column matches a pattern of `%`, `_` and characters. A backslash escapes these two and itself.

    Statistics cannot decide it.
    """

    column: Column
    pattern: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or NULL for every row."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """A valid condition that only a query engine can evaluate."""

    sql: str
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = And | Or | Comparison | In | StartsWith | Like | IsNull | Constant | Unknown

MANY = 16
"""Fewest parts that `grouped` must save to change the condition."""

TRUE = Constant(True)
FALSE = Constant(False)
NULL = Constant(None)


def conjunction(parts: Iterable[Predicate]) -> Predicate:
    """Return the AND of the parts, flattened and simplified."""
    flat = list(dict.fromkeys(_flattened(And, parts)))
    if FALSE in flat:
        return FALSE
    flat = [part for part in flat if part != TRUE]
    return And(tuple(flat)) if len(flat) > 1 else flat[0] if flat else TRUE


def disjunction(parts: Iterable[Predicate]) -> Predicate:
    """Return the OR of the parts, flattened and simplified."""
    flat = list(dict.fromkeys(_flattened(Or, parts)))
    if TRUE in flat:
        return TRUE
    flat = [part for part in flat if part != FALSE]
    return Or(tuple(flat)) if len(flat) > 1 else flat[0] if flat else FALSE


def _flattened(kind: type[And] | type[Or], parts: Iterable[Predicate]) -> Iterator[Predicate]:
    for part in parts:
        if isinstance(part, And | Or) and isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def negation(predicate: Predicate) -> Predicate:
    """Return the predicate that is true where this one is false, and NULL where it is NULL."""
    match predicate:
        case And(parts):
            return disjunction(map(negation, parts))
        case Or(parts):
            return conjunction(map(negation, parts))
        case Comparison(column, operator, value):
            return Comparison(column, OPPOSITE[operator], value)
        case In(column, values, negated):
            return In(column, values, not negated)
        case StartsWith(column, prefix, negated):
            return StartsWith(column, prefix, not negated)
        case Like(column, pattern, negated):
            return Like(column, pattern, not negated)
        case IsNull(column, negated):
            return IsNull(column, not negated)
        case Constant(value):
            return Constant(None if value is None else not value)
        case Unknown(sql, columns):
            return Unknown(sql[5:-1] if _is_negated(sql) else f"NOT ({sql})", columns)


def not_true(predicate: Predicate) -> Predicate:
    """Return the predicate that is true where this one is false or NULL, and false where it is true."""
    match predicate:
        case And(parts):
            return disjunction(map(not_true, parts))
        case Or(parts):
            return conjunction(map(not_true, parts))
        case Comparison(column) | In(column) | StartsWith(column) | Like(column):
            return disjunction([negation(predicate), IsNull(column)])
        case IsNull(column, negated):
            return IsNull(column, not negated)
        case Constant(value):
            return Constant(value is not True)
        case Unknown(sql, columns):
            return Unknown(f"NOT coalesce({sql}, FALSE)", columns)


def _is_negated(sql: str) -> bool:
    """Return whether `negation` made the text: its first parenthesis closes at the end."""
    if not sql.startswith("NOT (") or not sql.endswith(")"):
        return False
    depth = 0
    for place, character in enumerate(sql):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == ")":
            return place == len(sql) - 1
    return False


def leaves_of(predicate: Predicate) -> Iterator[Predicate]:
    if isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from leaves_of(part)
    else:
        yield predicate


def columns_of(predicate: Predicate) -> tuple[Column, ...]:
    """Return the columns that it reads, each once, in order of occurrence."""
    found: dict[Column, None] = {}
    for leaf in leaves_of(predicate):
        match leaf:
            case Unknown(_, columns):
                found.update(dict.fromkeys(columns))
            case Comparison(column) | In(column) | StartsWith(column) | Like(column) | IsNull(column):
                found[column] = None
    return tuple(found)


def partition_part(predicate: Predicate, partition_columns: Collection[str]) -> Predicate:
    """Return the part that partition values decide. Every row that matches the predicate also matches this part."""
    return _kept(predicate, lambda leaf: all(column.path[0] in partition_columns for column in columns_of(leaf)))


def known_part(predicate: Predicate) -> Predicate:
    """Return the part that needs no Spark. Every row that matches the predicate also matches this part."""
    return _kept(predicate, lambda leaf: not isinstance(leaf, Unknown))


def _kept(predicate: Predicate, keeps: Callable[[Predicate], bool]) -> Predicate:
    match predicate:
        case And(parts):
            return conjunction(_kept(part, keeps) for part in parts)
        case Or(parts):
            return disjunction(_kept(part, keeps) for part in parts)
        case _:
            return predicate if keeps(predicate) else TRUE


def grouped(predicate: Predicate) -> Predicate:
    """Return the condition with many values of one column as a list: `a = 1 OR a = 2 OR …` as `a IN (1, 2, …)`."""
    match predicate:
        case And(parts):
            return conjunction(_grouped(list(map(grouped, parts)), "<>"))
        case Or(parts):
            return disjunction(_grouped(list(map(grouped, parts)), "="))
    return predicate


def _grouped(parts: list[Predicate], operator: Operator) -> list[Predicate]:
    lists: dict[tuple[Column, bool], list[Value]] = {}
    others: list[Predicate] = []
    for part in parts:
        match part:
            case Comparison(column, found, value) if found == operator:
                values: tuple[Value, ...] = (value,)
            case In(column, values, negated) if negated is (operator == "<>"):
                pass
            case _:
                others.append(part)
                continue
        # Lists with a double are kept apart, because one double makes Spark compare all values as doubles.
        lists.setdefault((column, any(isinstance(value, float) for value in values)), []).extend(values)
    if len(parts) - len(others) - len(lists) < MANY:
        return parts
    for (column, _), of in lists.items():
        one_of = In(column, tuple(dict.fromkeys(of)), operator == "<>")
        others.append(Comparison(column, operator, of[0]) if len(of) == 1 else one_of)
    return others


def to_sql(predicate: Predicate) -> str:
    """Return the predicate in Spark SQL, with times in UTC. `parse` returns the same tree for it."""
    match predicate:
        case And(parts):
            return " AND ".join(f"({to_sql(part)})" if isinstance(part, Or) else to_sql(part) for part in parts)
        case Or(parts):
            return " OR ".join(f"({to_sql(part)})" if isinstance(part, And) else to_sql(part) for part in parts)
        case Comparison(column, operator, value):
            return f"{column.to_sql()} {operator} {literal_sql(value)}"
        case In(column, values, negated):
            return f"{column.to_sql()} {'NOT ' * negated}IN ({', '.join(map(literal_sql, values))})"
        case StartsWith(column, prefix, negated):
            return f"{'NOT ' * negated}startswith({column.to_sql()}, {literal_sql(prefix)})"
        case Like(column, pattern, negated):
            return f"{column.to_sql()} {'NOT ' * negated}LIKE {literal_sql(pattern)}"
        case IsNull(column, negated):
            return f"{column.to_sql()} IS {'NOT ' * negated}NULL"
        case Constant(value):
            return {True: "TRUE", False: "FALSE", None: "NULL"}[value]
        case Unknown(sql):
            return f"({sql})"


def literal_sql(value: Value) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return f"{value:f}BD"
        case str():
            return _string(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case datetime():
            return f"TIMESTAMP '{value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')}Z'"
        case date():
            return f"DATE '{value.isoformat()}'"


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0") + "'"
