"""DeltaMergeBuilder: a merge described clause by clause, as in delta-spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.row_change import ClauseKind
from deltars.predicate import named_in
from deltars.protocol.column_rules import is_computed
from deltars.spark.change.expressions import alias_of
from deltars.spark.session import auto_merges
from deltars.tables.binding import BoundTable
from deltars.tables.exceptions import deltas_errors, refuse
from deltars.tables.expressions import (
    check_condition,
    check_in_merge,
    check_values,
    rows_like,
    unresolved,
)
from deltars.tables.frames import merge_frame
from deltars.transaction.merge_builder import with_clause

_KINDS: dict[ClauseKind, str] = {
    "matched": "MATCHED",
    "not_matched": "NOT MATCHED",
    "not_matched_by_source": "NOT MATCHED BY SOURCE",
}
_TARGET, _SOURCE = "__deltars_target", "__deltars_source"
"""Aliases of sides that the program gave none."""


class _Clause:
    """One clause as the program gave it."""

    def __init__(
        self, kind: ClauseKind, action: str, condition: Any, values: Any = None, *, takes_all: bool = False
    ) -> None:
        self.kind = kind
        self.action = action
        self.condition = condition
        self.values: dict[str, str | Column] = values or {}
        self.takes_all = takes_all


class DeltaMergeBuilder:
    """Made by `DeltaTable.merge(…)`. Each method returns a builder with one more clause; `execute` merges."""

    def __init__(
        self,
        bound: BoundTable,
        alias: str | None,
        source: DataFrame,
        condition: str | Column,
        clauses: tuple[_Clause, ...] = (),
        *,
        evolves: bool = False,
    ) -> None:
        self._bound = bound
        self._alias = alias
        self._source = source
        self._condition = condition
        self._clauses = clauses
        self._evolves = evolves

    def whenMatchedUpdate(  # noqa: N802
        self, condition: str | Column | None = None, set: dict[str, str | Column] | None = None
    ) -> DeltaMergeBuilder:
        """Update a matched row. `set` maps columns to values."""
        check_values(set, "'set' in whenMatchedUpdate")
        return self._with("matched", "update", condition, set)

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:  # noqa: N802
        """Update every column of a matched row by the source's column of the same name."""
        return self._with("matched", "update", condition, takes_all=True)

    def whenMatchedDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:  # noqa: N802
        """Delete a matched row."""
        return self._with("matched", "delete", condition)

    def whenNotMatchedInsert(  # noqa: N802
        self, condition: str | Column | None = None, values: dict[str, str | Column] | None = None
    ) -> DeltaMergeBuilder:
        """Insert a source row that matches no row of the table. `values` maps columns to values."""
        check_values(values, "'values' in whenNotMatchedInsert")
        return self._with("not_matched", "insert", condition, values)

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:  # noqa: N802
        """Insert every column of a source row that matches no row of the table."""
        return self._with("not_matched", "insert", condition, takes_all=True)

    def whenNotMatchedBySourceUpdate(  # noqa: N802
        self, condition: str | Column | None = None, set: dict[str, str | Column] | None = None
    ) -> DeltaMergeBuilder:
        """Update a row of the table that no source row matches."""
        check_values(set, "'set' in whenNotMatchedBySourceUpdate")
        return self._with("not_matched_by_source", "update", condition, set)

    def whenNotMatchedBySourceDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:  # noqa: N802
        """Delete a row of the table that no source row matches."""
        return self._with("not_matched_by_source", "delete", condition)

    def withSchemaEvolution(self) -> DeltaMergeBuilder:  # noqa: N802
        """Add new columns of the source to the table."""
        return DeltaMergeBuilder(self._bound, self._alias, self._source, self._condition, self._clauses, evolves=True)

    def execute(self) -> DataFrame:
        """Carry the merge out. Return the numbers of rows that were updated, deleted and inserted."""
        target_alias, source_alias = self._alias or self._bound.name or _TARGET, alias_of(self._source) or _SOURCE
        if self._alias is None and target_alias.lower() == source_alias.lower():
            target_alias = _TARGET
        if not self._evolves and auto_merges(self._bound.spark):
            return self.withSchemaEvolution().execute()
        with deltas_errors():
            self._check_order()
            self._check(target_alias, source_alias)
            merge = self._bound.merge(self._source, self._on(), target_alias=target_alias, source_alias=source_alias)
            for clause in self._clauses:
                values = None if clause.takes_all else clause.values
                merge = with_clause(merge, clause.kind, clause.action, clause.condition, values)
            if self._evolves:
                merge = merge.with_schema_evolution()
            return merge_frame(self._bound.spark, merge.execute())

    def _on(self) -> str | Column:
        """Return the condition. One that does not compare both sides, such as `false`, is left to Spark."""
        on = self._condition
        if isinstance(on, str) and not all(
            named_in(on, side) for side in (self._bound.schema.names, self._source.columns)
        ):
            return F.expr(on)
        return on

    def _with(
        self, kind: ClauseKind, action: str, condition: Any, values: Any = None, *, takes_all: bool = False
    ) -> DeltaMergeBuilder:
        check_condition(condition)
        clause = _Clause(kind, action, condition, values, takes_all=takes_all)
        return DeltaMergeBuilder(
            self._bound,
            self._alias,
            self._source,
            self._condition,
            (*self._clauses, clause),
            evolves=self._evolves,
        )

    # -- checks ------------------------------------------------------------------------------------------------------

    def _check_order(self) -> None:
        """Raise for a merge without a clause, or with one that no row can reach."""
        if not self._clauses:
            raise refuse("DELTA_MERGE_MISSING_WHEN", "There must be at least one WHEN clause in a MERGE statement.")
        for kind, words in _KINDS.items():
            of_kind = [clause for clause in self._clauses if clause.kind == kind]
            if any(clause.condition is None for clause in of_kind[:-1]):
                name = words.replace(" ", "_")
                raise refuse(
                    f"DELTA_NON_LAST_{name}_CLAUSE_OMIT_CONDITION",
                    f"When there are more than one {words} clauses in a MERGE statement, only the last {words} clause"
                    " can omit the condition.",
                )

    def _check(self, target_alias: str, source_alias: str) -> None:
        """Raise for a name or an expression that cannot be resolved, before the source is read."""
        schema = self._bound.schema
        target = rows_like(self._bound.spark, schema, target_alias)
        source = self._source if source_alias != _SOURCE else self._source.alias(_SOURCE)
        both = target.crossJoin(source)
        check_in_merge(both, self._condition, "search condition")
        scopes = {"matched": both, "not_matched": source, "not_matched_by_source": target}
        known = {name.lower() for name in self._source.columns}
        shown = None if source_alias == _SOURCE else source_alias
        for clause in self._clauses:
            scope, verb = scopes[clause.kind], clause.action.upper()
            check_in_merge(scope, clause.condition, f"{verb} condition")
            for name, value in clause.values.items():
                if not self._evolves:
                    check_in_merge(target, F.col(name), f"{verb} clause")
                check_in_merge(scope, value, f"{verb} clause")
            if clause.takes_all and not self._evolves:
                missing = [column.name for column in schema.fields if column.name.lower() not in known]
                for column in schema.fields:
                    if column.name in missing and not is_computed(column):
                        raise unresolved(column.name, f"{verb} clause", self._source, shown)


__all__ = ["DeltaMergeBuilder"]
