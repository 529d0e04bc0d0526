"""MERGE: the builder that describes it, and the change of the target that it makes.

tx.merge(table, source, on).when_matched_update_all().when_not_matched_insert_all().execute()
   │                         └ clauses, in order: the first whose condition is true for a row applies
   └ source read once ──▶ its keys ──▶ files of the target that can match ──▶ rows that go, rows that come
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from deltars.data.arrow_change import ArrowChanges
from deltars.data.row_change import Clause, ClauseKind, Expression, KeyValues, Merge, MergeSource
from deltars.errors import ValidationError
from deltars.log.key_set import KeySet
from deltars.predicate import FALSE, Comparison, In, Predicate, Unknown, conjunction, parse_join
from deltars.protocol import Metadata, StructType, as_names, merged
from deltars.protocol.properties import boolean_property
from deltars.transaction.assignments import (
    Assignments,
    check_condition,
    is_spark_column,
    new_columns,
    of_source,
    resolved,
)
from deltars.transaction.change_metrics import ChangeMetrics
from deltars.transaction.metadata import changed
from deltars.transaction.options import ChangeOptions, CheckedChangeOptions, check_keywords
from deltars.transaction.plane import plane_for
from deltars.transaction.row_change import SMALL_BYTES, Planes, RowChange, row_filter, size_of
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.view import View

MANY_KEYS = 1_000
"""Up to this number, the keys of the source are a list in the condition on the target. More are a range, and a set."""


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


@dataclass(slots=True)
class Pending:
    """Whether a merge that a transaction began was executed."""

    table: str
    is_executed: bool = False


def merge_builder(
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
    check_keywords("merge", options, ChangeOptions)
    CheckedChangeOptions(**options)
    plane_for(source)
    return MergeBuilder(execute, GivenMerge(source, condition, target_alias, source_alias, evolves=evolves))


class MergeBuilder:
    """A merge being described. Each method returns a builder with one more clause; `execute` carries the merge out.

    Conditions and values are SQL text or Spark Columns. `t` is the target and `s` the source, unless `merge` was given
    other aliases.
    """

    def __init__(
        self, execute: Callable[[GivenMerge], ChangeMetrics], merge: GivenMerge, pending: Pending | None = None
    ) -> None:
        self._execute = execute
        self._merge = merge
        self._pending = pending or Pending("")

    def pending(self, table: str) -> Pending:
        """Return the record of whether this merge, with whatever clauses, was executed."""
        self._pending.table = table
        return self._pending

    def when_matched_update(self, set: Assignments, condition: Expression | None = None) -> MergeBuilder:
        """Update a target row that a source row matches. `set` maps columns to values."""
        return self._with("when_matched_update", "matched", "update", condition, _given(set, "set"))

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
        return self._with("when_not_matched_insert", "not_matched", "insert", condition, _given(values, "values"))

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
        values = _given(set, "set")
        return self._with("when_not_matched_by_source_update", "not_matched_by_source", "update", condition, values)

    def when_not_matched_by_source_delete(self, condition: Expression | None = None) -> MergeBuilder:
        """Delete a target row that no source row matches."""
        return self._with("when_not_matched_by_source_delete", "not_matched_by_source", "delete", condition, {})

    def with_schema_evolution(self) -> MergeBuilder:
        """Add new columns of the source to the table, as `merge_schema=True` does."""
        return MergeBuilder(self._execute, replace(self._merge, evolves=True), self._pending)

    def execute(self) -> ChangeMetrics:
        """Carry the merge out, and return what it changed. Nothing is visible before the transaction commits."""
        self._pending.is_executed = True
        self._merge.check()
        return self._execute(self._merge)

    def _with(
        self,
        call: str,
        kind: ClauseKind,
        action: str,
        condition: Expression | None,
        values: Assignments | None,
        except_columns: str | Sequence[str] = (),
    ) -> MergeBuilder:
        condition = check_condition(condition, field="condition")
        clause = GivenClause(call, kind, action, condition, values, tuple(as_names(except_columns)))
        merge = replace(self._merge, clauses=(*self._merge.clauses, clause))
        return MergeBuilder(self._execute, merge, self._pending)


class MergeRows(RowChange):
    """MERGE of a source into a table."""

    operation = "MERGE"

    def __init__(self, view: View, options: CheckedChangeOptions, merge: GivenMerge) -> None:
        super().__init__(view, options)
        self._given = merge
        self._plane = plane_for(merge.source)
        # Opened as late as possible, and once: a stream cannot be opened again for a second run.
        self._opened: object | None = None
        self._source: tuple[Planes, StructType, Merge, MergeSource] | None = None

    def _run(self, table: StagedTable, metadata: Metadata) -> ChangeMetrics:
        began = time.perf_counter()
        given = self._given
        if self._opened is None:
            self._opened = self._plane.opened(given.source)
        data = self._plane.schema(self._opened)
        self._metadata = metadata = self._evolved(metadata, data)
        merge = self._statement(metadata.schema, data)
        self._params = _parameters(given)
        if any(clause.kind != "not_matched" for clause in merge.clauses):
            self._refuse_for(table, metadata, moves_rows=True)
        planes, merge, source = self._read_source(merge, metadata, data)
        predicate, keys = self._condition(merge, source, metadata)
        found = self._view.change_files(table, predicate, keys=keys, row_filter=row_filter(predicate))
        planes, merge, source = self._for_size(planes, merge, source, metadata, data, size_of(found))
        scan = self._scan(table, metadata, found)
        changes = planes.changes.merge(scan, merge, source)
        scanned = time.perf_counter()
        self._store(table, metadata, found, scan, changes, planes)
        return self._measured(changes, changes.deleted, scanned - began, time.perf_counter() - scanned)

    # -- the statement ---------------------------------------------------------------------------------------------

    def _evolved(self, metadata: Metadata, data: StructType) -> Metadata:
        """Return the table's metadata after the merge: with the source's new columns, if it may add them."""
        if not self._given.evolves:
            return metadata
        is_all = any(clause.values is None for clause in self._given.clauses)
        left_out = {name.lower() for clause in self._given.clauses for name in clause.except_columns}
        named = {name for clause in self._given.clauses for name in clause.values or ()}
        new = new_columns(data, metadata.schema, None if is_all else named)
        kept = StructType(tuple(field for field in new.fields if field.name.lower() not in left_out))
        can_widen = boolean_property(metadata.configuration, "delta.enableTypeWidening")
        schema = merged(metadata.schema, kept, can_widen=can_widen)
        return metadata if schema == metadata.schema else changed(metadata, schema_string=schema.to_json())

    def _statement(self, table: StructType, data: StructType) -> Merge:
        given = self._given
        clauses = []
        for clause in given.clauses:
            values: Mapping[str, Expression] = {}
            is_source = False
            if clause.values is None:
                values, is_source = of_source(
                    table,
                    data,
                    given.source_alias,
                    without=clause.except_columns,
                    may_lack=given.evolves,
                    clause=clause.call,
                )
            elif clause.values:
                field = "values" if clause.action == "insert" else "set"
                values = resolved(clause.values, table, field=field, alias=given.target_alias)
            clauses.append(
                Clause(clause.kind, clause.action, clause.condition, values, is_source)  # type: ignore[arg-type]
            )
        return Merge(self._opened, given.on, tuple(clauses), given.target_alias, given.source_alias)

    # -- the source ------------------------------------------------------------------------------------------------

    def _read_source(self, merge: Merge, metadata: Metadata, data: StructType) -> tuple[Planes, Merge, MergeSource]:
        """Read the source once, even if the statement is run again for a newer state of the table."""
        if self._source is not None and self._source[1] == metadata.schema:
            planes, _, known, source = self._source
            return planes, replace(merge, source=known.source), source
        if self._source is not None:
            merge = replace(merge, source=self._source[3].frame)
        is_spark = type(self._given.source).__module__.startswith("pyspark.")
        reason = self._refusal(merge, metadata.schema, data)
        if is_spark:
            reason = reason or "the source is a Spark DataFrame"
        planes = self._planes(reason, 0)
        source = planes.changes.source(merge, metadata.schema)
        self._source = planes, metadata.schema, merge, source
        return planes, merge, source

    def _for_size(
        self, planes: Planes, merge: Merge, source: MergeSource, metadata: Metadata, data: StructType, size_bytes: int
    ) -> tuple[Planes, Merge, MergeSource]:
        """Change the plane if the size of the target, known only now, asks for it: a small one needs no job."""
        is_small = size_bytes <= SMALL_BYTES and (source.size_bytes or SMALL_BYTES) < SMALL_BYTES
        is_arrow = isinstance(planes.changes, ArrowChanges)
        if is_arrow and size_bytes > SMALL_BYTES and self._spark() is not None:
            by_spark = self._planes("the target is large", size_bytes)
            merge = replace(merge, source=source.frame)
            return by_spark, merge, by_spark.changes.source(merge, metadata.schema)
        held = getattr(source, "rows", None)
        if held is not None and is_small and self._refusal(merge, metadata.schema, data) is None:
            by_arrow = self._planes(None, 0)
            merge = replace(merge, source=held.drop_columns([source.number]))  # type: ignore[attr-defined]
            return by_arrow, merge, by_arrow.changes.source(merge, metadata.schema)
        return planes, merge, source

    def _condition(
        self, merge: Merge, source: MergeSource, metadata: Metadata
    ) -> tuple[Predicate | None, KeySet | None]:
        """Return a condition that every target row fulfils that the merge may read, and the keys if they are many."""
        if merge.of_kind("not_matched_by_source"):
            return None, None
        if source.keys is None:
            return FALSE, None
        if is_spark_column(merge.on):
            return Unknown("a Spark Column"), None
        join = parse_join(
            merge.on, metadata.schema, source.schema, merge.target_alias, merge.source_alias, self._zone()
        )
        predicate = conjunction([join.target_only, *map(_key_condition, source.keys)])
        many = next((key for key in source.keys if key.values is not None and len(key.values) > MANY_KEYS), None)
        if many is None or many.values is None:
            return predicate, None
        return predicate, KeySet(many.column, many.values, metadata, predicate)


def _key_condition(key: KeyValues) -> Predicate:
    if key.values is not None and len(key.values) <= MANY_KEYS:
        return In(key.column, tuple(key.values))
    return conjunction([Comparison(key.column, ">=", key.smallest), Comparison(key.column, "<=", key.largest)])


def _given(values: object, field: str) -> Assignments:
    if not isinstance(values, Mapping) or not values:
        raise ValidationError(
            f"{field} must map at least one column to a value, got {values!r}",
            field=field,
            hint=f'Write {field}={{"column": "expression"}}.',
        )
    return dict(values)


def _parameters(merge: GivenMerge) -> dict[str, Any]:
    """Return the merge as Delta's history shows it."""

    def clauses(kind: ClauseKind) -> str:
        shown = []
        for clause in merge.clauses:
            if clause.kind == kind:
                condition = {} if clause.condition is None else {"predicate": f"({clause.condition})"}
                shown.append({"actionType": clause.action, **condition})
        return msgspec.json.encode(shown).decode()

    return {
        "predicate": msgspec.json.encode([f"({merge.on})"]).decode(),
        "matchedPredicates": clauses("matched"),
        "notMatchedPredicates": clauses("not_matched"),
        "notMatchedBySourcePredicates": clauses("not_matched_by_source"),
    }


__all__ = ["GivenMerge", "MergeBuilder", "MergeRows", "Pending", "merge_builder"]
