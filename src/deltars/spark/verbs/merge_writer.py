"""The merge that `df.mergeInto(table, condition)` begins on a table of a catalog, with the methods of Spark's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pyspark.sql import Column, DataFrame

Kind = Literal["matched", "not_matched", "not_matched_by_source"]
Action = Literal["update", "delete", "insert"]


@dataclass(frozen=True, slots=True)
class MergeClause:
    kind: Kind
    action: Action
    condition: Column | None
    assignments: Mapping[str, Column] | None
    """None: every column, from the source's column of the same name."""


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What a program has set when it calls `merge()`."""

    frame: DataFrame
    name: tuple[str, ...]
    condition: Column
    clauses: tuple[MergeClause, ...] = field(default=())
    evolves: bool = False


class MergeIntoWriter:
    """Collects the clauses of a merge. `merge()` carries it out."""

    def __init__(self, request: MergeRequest, run: Callable[[MergeRequest], None]) -> None:
        self._request = request
        self._run = run

    def whenMatched(self, condition: Column | None = None) -> _Matched:  # noqa: N802
        return _Matched(self, "matched", condition)

    def whenNotMatched(self, condition: Column | None = None) -> _NotMatched:  # noqa: N802
        return _NotMatched(self, "not_matched", condition)

    def whenNotMatchedBySource(self, condition: Column | None = None) -> _Matched:  # noqa: N802
        return _Matched(self, "not_matched_by_source", condition)

    def withSchemaEvolution(self) -> MergeIntoWriter:  # noqa: N802
        self._request = replace(self._request, evolves=True)
        return self

    def merge(self) -> None:
        self._run(self._request)

    def _with(self, clause: MergeClause) -> MergeIntoWriter:
        self._request = replace(self._request, clauses=(*self._request.clauses, clause))
        return self


class _Clause:
    def __init__(self, writer: MergeIntoWriter, kind: Kind, condition: Any) -> None:
        self._writer = writer
        self._kind: Kind = kind
        self._condition = condition

    def _add(self, action: Action, assignments: Mapping[str, Column] | None = None) -> MergeIntoWriter:
        return self._writer._with(MergeClause(self._kind, action, self._condition, assignments))


class _Matched(_Clause):
    def updateAll(self) -> MergeIntoWriter:  # noqa: N802
        return self._add("update")

    def update(self, assignments: dict[str, Column]) -> MergeIntoWriter:
        return self._add("update", dict(assignments))

    def delete(self) -> MergeIntoWriter:
        return self._add("delete")


class _NotMatched(_Clause):
    def insertAll(self) -> MergeIntoWriter:  # noqa: N802
        return self._add("insert")

    def insert(self, assignments: dict[str, Column]) -> MergeIntoWriter:
        return self._add("insert", dict(assignments))


__all__ = ["MergeClause", "MergeIntoWriter", "MergeRequest"]
