"""A condition on rows, as a small tree: what is left of a `where` once its names and literals are understood.

    Predicate = And | Or | Comparison | In | StartsWith | Like | IsNull | Constant | Unknown

There is no Not: it is pushed down to the leaves as the text is read, where every leaf has its opposite. SQL has three
truth values, and a leaf and its opposite are both NULL for the same rows; so nothing is lost, and whoever asks whether
a row *can* match need only look at AND, OR and leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from deltars.protocol import DataType

Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime
"""A literal, as Python holds it. A moment has the zone UTC, a timestamp_ntz has none.

A `float` met by a column of another kind of number is compared as Spark does: after both became doubles.
"""

Operator: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">="]

OPPOSITE: dict[Operator, Operator] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED: dict[Operator, Operator] = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, by the names that its schema gives it."""

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
    """Equal to one of the values; negated: different from all."""

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
    """Fits a pattern of `%`, `_` and characters, where a backslash escapes these three. No statistics tell."""

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
    """A legal condition that only a query engine can judge."""

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
"""Parts that `grouped` must save to be worth another form of the condition."""

TRUE = Constant(True)
FALSE = Constant(False)
NULL = Constant(None)


def conjunction(parts: Iterable[Predicate]) -> Predicate:
    """All of them, as flat as can be."""
    flat = list(dict.fromkeys(_flattened(And, parts)))
    if FALSE in flat:
        return FALSE
    flat = [part for part in flat if part != TRUE]
    return And(tuple(flat)) if len(flat) > 1 else flat[0] if flat else TRUE


def disjunction(parts: Iterable[Predicate]) -> Predicate:
    """Any of them, as flat as can be."""
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
    """True where this one is false, and NULL where it is NULL."""
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


def _is_negated(sql: str) -> bool:
    """Whether the text is one that `negation` made: its parenthesis closes at the end only."""
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
    """The columns that it reads, each once, in the order in which they come."""
    found: dict[Column, None] = {}
    for leaf in leaves_of(predicate):
        match leaf:
            case Unknown(_, columns):
                found.update(dict.fromkeys(columns))
            case Comparison(column) | In(column) | StartsWith(column) | Like(column) | IsNull(column):
                found[column] = None
    return tuple(found)


def partition_part(predicate: Predicate, partition_columns: Collection[str]) -> Predicate:
    """What partition values alone decide of it: every row that matches the whole matches this too."""
    return _kept(predicate, lambda leaf: all(column.path[0] in partition_columns for column in columns_of(leaf)))


def known_part(predicate: Predicate) -> Predicate:
    """What of it can be judged outside Spark: every row that matches the whole matches this too."""
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
    """The same condition, with many values for one column as one list: `a = 1 OR a = 2 OR …` as `a IN (1, 2, …)`."""
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
        # A double among them would make all of them double.
        lists.setdefault((column, any(isinstance(value, float) for value in values)), []).extend(values)
    if len(parts) - len(others) - len(lists) < MANY:
        return parts
    for (column, _), of in lists.items():
        one_of = In(column, tuple(dict.fromkeys(of)), operator == "<>")
        others.append(Comparison(column, operator, of[0]) if len(of) == 1 else one_of)
    return others


def to_sql(predicate: Predicate) -> str:
    """As Spark SQL, in UTC; `parse` reads the same tree from it."""
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
