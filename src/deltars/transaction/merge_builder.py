"""Builder of a merge: what the caller gives, before the table and the source are looked at.

tx.merge(table, source, on).when_matched_update_all().when_not_matched_insert_all().execute()
                            └ clauses, in order: the first whose condition is true for a row applies
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltars.arguments import check_flags, check_keywords, checks_calls
from deltars.data.row_change import ClauseKind, Expression
from deltars.errors import ValidationError
from deltars.protocol import as_names
from deltars.transaction.assignments import Assignments, check_condition, refuse_condition_first
from deltars.transaction.change_metrics import ChangeMetrics
from deltars.transaction.options import ChangeOptions, CheckedChangeOptions
from deltars.transaction.plane import plane_for
from deltars.verbs_to_come import RefusesVerbs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GivenClause:
    """A clause as the caller gave it, before the table and the source are known."""

    call: str
    kind: ClauseKind
    action: str
    condition: Expression | None
    values: Assignments | None = None
    """Values by column; None for those of the source's columns of the same name."""
    except_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GivenMerge:
    """A merge as the caller gave it."""

    source: object
    on: Expression
    target_alias: str
    source_alias: str
    clauses: tuple[GivenClause, ...] = ()
    evolves: bool = False

    def check(self) -> None:
        """Raise ValidationError for a merge that no table can have."""
        if not self.clauses:
            raise ValidationError(
                "the merge has no clause",
                field="merge",
                hint="Add one before execute(), for example when_matched_update_all().",
            )
        for kind in ("matched", "not_matched", "not_matched_by_source"):
            for clause in [clause for clause in self.clauses if clause.kind == kind][:-1]:
                if clause.condition is None:
                    raise ValidationError(
                        f"{clause.call} has no condition, so the clause after it never applies",
                        field="condition",
                        hint="Give it a condition, or put it last.",
                    )


@dataclass
class Pending:
    """Whether a merge, or another call of several steps, was executed to its end. Builders of one merge share it."""

    table: str = ""
    call: str = "merge"
    warns: bool = True
    """Whether to warn of a merge that is lost without `execute()`. A transaction refuses to commit instead."""
    is_executed: bool = False
    is_done: bool = False
    """Whether the execution succeeded."""

    def refuse_done(self) -> None:
        """Raise ValidationError if the merge was carried out."""
        if self.is_done:
            raise ValidationError(
                "this merge was executed already",
                field="merge",
                hint="Add every clause before execute(); begin another merge to change more rows.",
            )

    def __del__(self) -> None:
        if self.warns and not self.is_executed:
            message = "a merge was described, but never executed: call execute() at its end"
            # Most programs hide a ResourceWarning, but all show a log line of this level.
            _log.warning("%s", message)
            warnings.warn(message, ResourceWarning, stacklevel=2)


def begin_merge(
    execute: Callable[[GivenMerge], ChangeMetrics],
    source: object,
    on: Expression,
    *,
    target_alias: Any,
    source_alias: Any,
    evolves: bool,
    options: ChangeOptions,
) -> MergeBuilder:
    """Return a builder without clauses. Raise ValidationError for arguments that no merge can have."""
    condition = check_condition(on, field="on")
    if condition is None:
        raise ValidationError("on must be a condition, got None", field="on", hint='Write on="t.id = s.id".')
    for name, alias in (("target_alias", target_alias), ("source_alias", source_alias)):
        if not isinstance(alias, str) or not alias:
            raise ValidationError(f"{name} must be a name, got {alias!r}", field=name)
    if target_alias.lower() == source_alias.lower():
        raise ValidationError(f"target and source have the same alias {target_alias!r}", field="source_alias")
    check_flags(merge_schema=evolves)
    check_keywords("merge", options, ChangeOptions)
    CheckedChangeOptions(**options)
    plane_for(source)
    return MergeBuilder(execute, GivenMerge(source, condition, target_alias, source_alias, evolves=evolves))


@checks_calls
class MergeBuilder(RefusesVerbs):
    """A merge being described. Each method returns a builder with one more clause; `execute` carries the merge out.

    Conditions and values are SQL text or Spark Columns. `t` is the target and `s` the source, unless `merge` was given
    other aliases.
    """

    def __init__(
        self, execute: Callable[[GivenMerge], ChangeMetrics], merge: GivenMerge, pending: Pending | None = None
    ) -> None:
        self._execute = execute
        self._merge = merge
        self._pending = pending or Pending()

    def when_matched_update(self, set: Assignments, condition: Expression | None = None) -> MergeBuilder:
        """Update a target row that a source row matches. `set` maps columns to values."""
        return self._with(
            "when_matched_update", "matched", "update", condition, _given("when_matched_update", set, condition, "set")
        )

    def when_matched_update_all(
        self, condition: Expression | None = None, *, except_columns: str | Sequence[str] = ()
    ) -> MergeBuilder:
        """Update every column of a matched row by the source's column of the same name."""
        return self._with("when_matched_update_all", "matched", "update", condition, None, except_columns)

    def when_matched_delete(self, condition: Expression | None = None) -> MergeBuilder:
        """Delete a target row that a source row matches."""
        return self._with("when_matched_delete", "matched", "delete", condition, {})

    def when_not_matched_insert(self, values: Assignments, condition: Expression | None = None) -> MergeBuilder:
        """Insert a source row that matches no target row. Columns left out get their default or null."""
        return self._with(
            "when_not_matched_insert",
            "not_matched",
            "insert",
            condition,
            _given("when_not_matched_insert", values, condition, "values"),
        )

    def when_not_matched_insert_all(
        self, condition: Expression | None = None, *, except_columns: str | Sequence[str] = ()
    ) -> MergeBuilder:
        """Insert every column of a source row that matches no target row."""
        return self._with("when_not_matched_insert_all", "not_matched", "insert", condition, None, except_columns)

    def when_not_matched_by_source_update(
        self,
        set: Assignments,
        condition: Expression | None = None,
    ) -> MergeBuilder:
        """Update a target row that no source row matches."""
        values = _given("when_not_matched_by_source_update", set, condition, "set")
        return self._with("when_not_matched_by_source_update", "not_matched_by_source", "update", condition, values)

    def when_not_matched_by_source_delete(self, condition: Expression | None = None) -> MergeBuilder:
        """Delete a target row that no source row matches."""
        return self._with("when_not_matched_by_source_delete", "not_matched_by_source", "delete", condition, {})

    def with_schema_evolution(self) -> MergeBuilder:
        """Add new columns of the source to the table, as `merge_schema=True` does."""
        self._pending.refuse_done()
        return MergeBuilder(self._execute, replace(self._merge, evolves=True), self._pending)

    def execute(self) -> ChangeMetrics:
        """Carry the merge out, and return what it changed. Nothing is visible before the transaction commits."""
        self._pending.refuse_done()
        self._pending.is_executed = True
        self._merge.check()
        metrics = self._execute(self._merge)
        self._pending.is_done = True
        return metrics

    def _with(
        self,
        call: str,
        kind: ClauseKind,
        action: str,
        condition: Expression | None,
        values: Assignments | None,
        except_columns: str | Sequence[str] = (),
    ) -> MergeBuilder:
        self._pending.refuse_done()
        condition = check_condition(condition, field="condition")
        clause = GivenClause(call, kind, action, condition, values, tuple(as_names(except_columns)))
        merge = replace(self._merge, clauses=(*self._merge.clauses, clause))
        return MergeBuilder(self._execute, merge, self._pending)


def with_clause(
    merge: MergeBuilder,
    kind: ClauseKind,
    action: str,
    condition: Expression | None,
    values: Assignments | None,
) -> MergeBuilder:
    """Return the merge with one more clause. Without `values`, an update or insert takes every column."""
    match kind, action:
        case "matched", "delete":
            return merge.when_matched_delete(condition)
        case "matched", _ if values is None:
            return merge.when_matched_update_all(condition)
        case "matched", _:
            assert values is not None
            return merge.when_matched_update(values, condition)
        case "not_matched", _ if values is None:
            return merge.when_not_matched_insert_all(condition)
        case "not_matched", _:
            assert values is not None
            return merge.when_not_matched_insert(values, condition)
        case _, "delete":
            return merge.when_not_matched_by_source_delete(condition)
    if values is None:
        raise ValidationError(
            "a row that no source row matches has no source columns to take",
            field="updateAll",
            hint="Name the columns and their values: update({…}).",
        )
    return merge.when_not_matched_by_source_update(values, condition)


def _given(call: str, values: object, condition: object, field: str) -> Assignments:
    refuse_condition_first(call, values, condition, field=field, other="condition")
    if not isinstance(values, Mapping) or not values:
        raise ValidationError(
            f"{field} must map at least one column to a value, got {values!r}",
            field=field,
            hint=f'Write {field}={{"column": "expression"}}.',
        )
    return dict(values)


__all__ = ["GivenMerge", "MergeBuilder", "Pending", "begin_merge", "with_clause"]
