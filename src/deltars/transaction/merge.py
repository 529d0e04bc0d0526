"""MERGE: the change of a table that a merge makes.

tx.merge(table, source, on).when_matched_update_all().when_not_matched_insert_all().execute()
   │                         └ clauses, in order: the first whose condition is true for a row applies
   └ source read once ──▶ its keys ──▶ files of the target that can match ──▶ rows that go, rows that come
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from deltars.data.arrow_change import ArrowChanges, searched_columns
from deltars.data.filter import KeyFilter
from deltars.data.reader import RowFilter
from deltars.data.row_change import Clause, ClauseKind, Expression, KeyValues, Merge, MergeSource
from deltars.log.key_set import KeySet
from deltars.predicate import FALSE, TRUE, Comparison, In, Predicate, Unknown, conjunction, parse_join
from deltars.predicate.literals import zone_of
from deltars.protocol import Metadata, StructType, merged
from deltars.protocol.change_feed import has_feed
from deltars.protocol.identity import refuse_given, refuse_updated
from deltars.protocol.properties import boolean_property
from deltars.transaction.assignments import (
    is_spark_column,
    new_columns,
    of_source,
    resolved,
)
from deltars.transaction.change_metrics import ChangeMetrics
from deltars.transaction.merge_builder import GivenMerge
from deltars.transaction.metadata import changed
from deltars.transaction.options import CheckedChangeOptions
from deltars.transaction.plane import plane_for
from deltars.transaction.read_size import is_small
from deltars.transaction.row_change import Planes, RowChange, row_filter
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.view import View

MANY_KEYS = 1_000
"""Up to this number, the keys of the source are a list in the condition on the target. More are a range, and a set."""


_NO_FILES = pa.table({"size": pa.array([], pa.int64())})


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
        found = self._view.change_files(table, predicate, keys=keys, row_filter=key_filter(predicate, keys))
        scan = self._scan(table, metadata, found)
        planes, merge, source = self._for_size(planes, merge, source, metadata, data, found, scan.root)
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
        new = new_columns(data, None if is_all else named)
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
            if clause.action == "insert":
                refuse_given(table, values)
            else:
                refuse_updated(table, values)
            clauses.append(
                Clause(clause.kind, clause.action, clause.condition, values, is_source)  # type: ignore[arg-type]
            )
        tells_apart = self._metadata is not None and has_feed(self._metadata.configuration)
        return Merge(
            self._opened, given.on, tuple(clauses), given.target_alias, given.source_alias, has_feed=tells_apart
        )

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
        # Whether the target is small is known later.
        planes = self._spark_planes(reason) if is_spark else self._planes(reason, _NO_FILES)
        source = planes.changes.source(merge, metadata.schema)
        self._source = planes, metadata.schema, merge, source
        return planes, merge, source

    def _for_size(
        self,
        planes: Planes,
        merge: Merge,
        source: MergeSource,
        metadata: Metadata,
        data: StructType,
        files: pa.Table,
        root: str,
    ) -> tuple[Planes, Merge, MergeSource]:
        """Change the plane if the size of the target, known only now, requires it: a small one needs no job."""
        is_arrow = isinstance(planes.changes, ArrowChanges)
        held: Any = source.frame if is_arrow else getattr(source, "rows", None)
        reason: str | None = None
        if not is_arrow:
            reason = "the source is large" if held is None else self._refusal(merge, metadata.schema, data)
        if reason is None and self._fits(merge, source.schema, metadata, held.nbytes, files, root):
            by_arrow = self._arrow_planes(files)
            if is_arrow:
                return by_arrow, merge, source
            merge = replace(merge, source=source.frame)
            return by_arrow, merge, by_arrow.changes.source(merge, metadata.schema)
        if not is_arrow:
            return planes, merge, source
        by_spark = self._spark_planes("the target is large")
        merge = replace(merge, source=source.frame)
        return by_spark, merge, by_spark.changes.source(merge, metadata.schema)

    def _fits(
        self, merge: Merge, source: StructType, metadata: Metadata, source_bytes: int, files: pa.Table, root: str
    ) -> bool:
        """Return whether this process carries out the merge, which Arrow can compute."""
        if self._spark() is None:
            return True
        # Row ids are read with all other columns of the rows that change.
        searched = None if self._keeps_ids else searched_columns(merge, metadata.schema, source)
        return is_small(files, root=root, searched=searched, source_bytes=source_bytes)

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
        zone = self._zone()
        is_known = zone_of(zone) is not None
        join = parse_join(
            merge.on,
            metadata.schema,
            source.schema,
            merge.target_alias,
            merge.source_alias,
            zone if is_known else "UTC",
        )
        # In a zone that Python does not know, literals may mean other moments than they do in UTC.
        target_only = join.target_only if is_known else TRUE
        return key_condition(source.keys, metadata, target_only)


def key_condition(
    keys: Sequence[KeyValues] | None, metadata: Metadata, and_also: Predicate = TRUE
) -> tuple[Predicate, KeySet | None]:
    """Return a condition that rows with these keys fulfil, and the keys if they are many. None: no row has them."""
    if keys is None:
        return FALSE, None
    predicate = conjunction([and_also, *map(_values_condition, keys)])
    many = next((key for key in keys if key.values is not None and len(key.values) > MANY_KEYS), None)
    if many is None or many.values is None:
        return predicate, None
    return predicate, KeySet(many.column, many.values, metadata, predicate)


def key_filter(predicate: Predicate | None, keys: KeySet | None) -> RowFilter | None:
    """Return a filter that finds the rows with these keys in any file; None if only Spark can."""
    found = row_filter(predicate)
    if found is None or predicate is None or keys is None:
        return found
    return KeyFilter(predicate, keys.column, keys.values)


def _values_condition(key: KeyValues) -> Predicate:
    if key.values is not None and len(key.values) <= MANY_KEYS:
        return In(key.column, tuple(key.values))
    return conjunction([Comparison(key.column, ">=", key.smallest), Comparison(key.column, "<=", key.largest)])


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


__all__ = ["MergeRows", "key_condition", "key_filter"]
