"""Tables as plain lists of rows, and statements on them: what deltars must do, said in a few lines of Python."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

Row: TypeAlias = dict[str, Any]
Truth: TypeAlias = bool | None

IDS = st.one_of(st.none(), st.integers(0, 9))
PARTS = st.sampled_from(["a", "b", "c d", None])
VALUES = st.one_of(st.none(), st.integers(-3, 3))

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Condition:
    """A condition as SQL, and what it says of a row: true, false, or None for NULL."""

    sql: str
    of: Callable[[Row], Truth]

    def __repr__(self) -> str:
        return self.sql


@st.composite
def conditions(draw: st.DrawFn, *, prefix: str = "", depth: int = 2) -> Condition:
    kind = draw(st.sampled_from(["compare", "null", "in", "part", "computed"] + (["and", "or"] if depth else [])))
    if kind in ("and", "or"):
        left = draw(conditions(prefix=prefix, depth=depth - 1))
        right = draw(conditions(prefix=prefix, depth=depth - 1))
        join = _and if kind == "and" else _or
        return Condition(f"({left.sql}) {kind.upper()} ({right.sql})", lambda row: join(left.of(row), right.of(row)))
    column = draw(st.sampled_from(["id", "v"]))
    name = prefix + column
    if kind == "null":
        return Condition(f"{name} IS NULL", lambda row: row[column] is None)
    if kind == "in":
        values = draw(st.lists(st.integers(-3, 9), min_size=1, max_size=3))
        return Condition(
            f"{name} IN ({', '.join(map(str, values))})",
            lambda row: None if row[column] is None else row[column] in values,
        )
    if kind == "computed":
        rest = draw(st.integers(-2, 2))
        # As in Java, the rest has the sign of the number.
        return Condition(
            f"{name} % 3 = {rest}", lambda row: None if row[column] is None else math.fmod(row[column], 3) == rest
        )
    if kind == "part":
        part = draw(st.sampled_from(["a", "b", "c d"]))
        return Condition(f"{prefix}p = '{part}'", lambda row: None if row["p"] is None else row["p"] == part)
    sign, number = draw(st.sampled_from(sorted(_OPERATORS))), draw(st.integers(-3, 9))
    compare = _OPERATORS[sign]
    return Condition(
        f"{name} {sign} {number}", lambda row: None if row[column] is None else compare(row[column], number)
    )


def rows(*, unique_ids: bool = False, max_size: int = 6) -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries({"id": IDS, "p": PARTS, "v": VALUES})
    return st.lists(row, max_size=max_size, unique_by=(lambda row: row["id"]) if unique_ids else None)


def deleted(table: Sequence[Row], where: Condition | None) -> list[Row]:
    return [row for row in table if where is not None and where.of(row) is not True]


def updated(table: Sequence[Row], value: int | None, where: Condition | None) -> list[Row]:
    return [{**row, "v": value} if where is None or where.of(row) is True else row for row in table]


def merged(
    table: Sequence[Row],
    source: Sequence[Row],
    *,
    delete_if: Condition | None,
    inserts: bool,
    by_source: Condition | None,
) -> list[Row]:
    """On equal ids, which are unique in the source: delete if the condition on the target holds, else update all."""
    by_id = {row["id"]: row for row in source if row["id"] is not None}
    result: list[Row] = []
    for row in table:
        other = by_id.get(row["id"]) if row["id"] is not None else None
        if other is None:
            if by_source is None or by_source.of(row) is not True:
                result.append(row)
        elif delete_if is None or delete_if.of(row) is not True:
            result.append({**row, "p": other["p"], "v": other["v"]})
    if inserts:
        there = {row["id"] for row in table if row["id"] is not None}
        result += [row for row in source if row["id"] is None or row["id"] not in there]
    return result


def _and(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: Truth, right: Truth) -> Truth:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False
