"""Statements that can be run by deltars and, as SQL, by another engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import deltars


@dataclass(frozen=True)
class Delete:
    where: str | None = None

    def sql(self, target: str) -> str:
        return f"DELETE FROM {target}" + (f" WHERE {self.where}" if self.where else "")

    def run(self, table: deltars.Table, source: Any = None) -> deltars.ChangeMetrics:
        return table.delete(self.where)


@dataclass(frozen=True)
class Update:
    values: Mapping[str, str]
    where: str | None = None

    def sql(self, target: str) -> str:
        values = ", ".join(f"{column} = {value}" for column, value in self.values.items())
        return f"UPDATE {target} SET {values}" + (f" WHERE {self.where}" if self.where else "")

    def run(self, table: deltars.Table, source: Any = None) -> deltars.ChangeMetrics:
        return table.update(self.values, self.where)


@dataclass(frozen=True)
class Clause:
    kind: str
    """`matched`, `not_matched` or `not_matched_by_source`."""
    action: str
    """`update`, `delete` or `insert`."""
    condition: str | None = None
    values: Mapping[str, str] | None = None
    """None for `*`."""

    def sql(self) -> str:
        when = {
            "matched": "WHEN MATCHED",
            "not_matched": "WHEN NOT MATCHED",
            "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
        }[self.kind]
        when += f" AND {self.condition}" if self.condition else ""
        if self.action == "delete":
            return f"{when} THEN DELETE"
        if self.values is None:
            return f"{when} THEN {'UPDATE SET' if self.action == 'update' else 'INSERT'} *"
        if self.action == "update":
            return f"{when} THEN UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"{when} THEN INSERT ({', '.join(self.values)}) VALUES ({', '.join(self.values.values())})"

    def on(self, builder: deltars.MergeBuilder) -> deltars.MergeBuilder:
        name = f"when_{self.kind}_{self.action}" + ("_all" if self.values is None and self.action != "delete" else "")
        arguments = [] if self.values is None else [self.values]
        result: deltars.MergeBuilder = getattr(builder, name)(*arguments, condition=self.condition)
        return result


@dataclass(frozen=True)
class Merge:
    clauses: Sequence[Clause]
    on: str = "t.id = s.id"
    source: Mapping[str, list[Any]] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    def sql(self, target: str, source: str = "s") -> str:
        clauses = " ".join(clause.sql() for clause in self.clauses)
        return f"MERGE INTO {target} t USING {source} s ON {self.on} {clauses}"

    def run(self, table: deltars.Table, source: Any) -> deltars.ChangeMetrics:
        builder = table.merge(source, self.on)
        for clause in self.clauses:
            builder = clause.on(builder)
        return builder.execute()
