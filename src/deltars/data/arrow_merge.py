"""MERGE in this process, by Arrow.

    keys of the target ──KeyIndex of the source──▶ matched rows ──first clause that holds──▶ positions, updated rows
                                               ├──▶ rows not matched by the source ─────▶ the same
                                               └──▶ source rows that matched nothing ───▶ inserted rows

Key columns are read first; the other columns only for rows to which a clause may apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from deltars.data.evaluation import RowCondition
from deltars.data.filter import PredicateFilter
from deltars.data.keys import KeyIndex, comparison_type, values_of
from deltars.data.new_rows import NewRows, SourceRows
from deltars.data.read_schema import arrow_schema
from deltars.data.reader import PlacedRows, read_each_file
from deltars.data.row_change import Clause, ClauseKind, Merge, MergeSource, RowChanges, several_matches
from deltars.data.row_ids import read_rows, with_row_ids
from deltars.data.scan import Scan
from deltars.errors import ValidationError
from deltars.predicate import TRUE, JoinCondition, Sides, columns_of, only_spark, parse_join
from deltars.protocol import StructType

_METRICS: dict[tuple[ClauseKind, str], str] = {
    ("matched", "update"): "numTargetRowsMatchedUpdated",
    ("matched", "delete"): "numTargetRowsMatchedDeleted",
    ("not_matched_by_source", "update"): "numTargetRowsNotMatchedBySourceUpdated",
    ("not_matched_by_source", "delete"): "numTargetRowsNotMatchedBySourceDeleted",
}


class Rows(NamedTuple):
    """Rows to which clauses apply: of the target, of the source, or pairs of both."""

    target: pa.RecordBatch | None
    source: pa.RecordBatch | None
    given: pa.RecordBatch
    """The sides as structs, named by their aliases: what conditions and values refer to."""

    def filter(self, mask: pa.Array) -> Rows:
        target, source = (None if side is None else side.filter(mask) for side in (self.target, self.source))
        return Rows(target, source, self.given.filter(mask))


class MergeClause:
    """A clause of a merge, ready to be applied."""

    def __init__(self, clause: Clause, statement: Merge, target: StructType, source: StructType) -> None:
        sides = {
            "matched": ((statement.target_alias, target), (statement.source_alias, source)),
            "not_matched": ((statement.source_alias, source),),
            "not_matched_by_source": ((statement.target_alias, target),),
        }[clause.kind]
        names = Sides(sides)
        self.kind = clause.kind
        self.action = clause.action
        self.is_source = clause.is_source
        self.condition = None if clause.condition is None else RowCondition(clause.condition, names, field="condition")
        self._source_rows = SourceRows(target, source) if clause.is_source else None
        self._new_rows = NewRows(clause.values, target, names) if not clause.is_source else None

    @property
    def needs_no_target(self) -> bool:
        """Whether it applies to every row, and its result does not depend on the target's other columns."""
        return self.condition is None and (self.action == "delete" or self.is_source)

    def holds(self, rows: Rows) -> pa.Array:
        if self.condition is None:
            return pa.repeat(pa.scalar(True), rows.given.num_rows)
        return pc.fill_null(self.condition.mask(rows.given), False)

    def new_rows(self, rows: Rows) -> pa.RecordBatch:
        if self._source_rows is not None:
            assert rows.source is not None
            return self._source_rows.of(rows.source)
        assert self._new_rows is not None
        if self.action == "insert":
            return self._new_rows.inserted(rows.given)
        assert rows.target is not None
        return self._new_rows.updated(rows.target, rows.given)


@dataclass
class _Outcome:
    """What the clauses did so far."""

    scan: Scan
    positions: dict[int, BitMap64] = field(default_factory=dict)
    replaced: dict[int, BitMap64] = field(default_factory=dict)
    """Positions of rows that are updated."""
    batches: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    """New rows by clause."""
    counts: dict[tuple[ClauseKind, str], int] = field(default_factory=dict)

    def add(self, clause: MergeClause, count: int) -> None:
        key = (clause.kind, clause.action)
        self.counts[key] = self.counts.get(key, 0) + count

    def replace(self, place: int, rows: BitMap64) -> None:
        self.replaced[place] = self.replaced.get(place, BitMap64()) | rows

    def total(self, action: str) -> int:
        return sum(count for (_, of), count in self.counts.items() if of == action)


class MergePlan:
    """A merge whose names and types are resolved. Raise what cannot be done, before a row is read."""

    def __init__(self, statement: Merge, target: StructType, source: StructType) -> None:
        self._statement = statement
        self._target, self._source = target, source
        self.join = join_of(statement, target, source)
        self.kinds = []
        for equality in self.join.equalities:
            kind = comparison_type(equality.target.type, equality.source.type)
            if kind is None:
                raise only_spark(
                    f"{equality.target} = {equality.source} of {equality.target.type} and {equality.source.type}"
                )
            self.kinds.append(kind)
        if not self.join.equalities or not self.join.is_known:
            raise only_spark(f"a merge on {statement.on}")
        self._clauses = [MergeClause(clause, statement, target, source) for clause in statement.clauses]
        self._try_on_nothing()

    def _try_on_nothing(self) -> None:
        """Evaluate everything without rows: what fails then would fail in the middle of the work."""
        target, source = (
            pa.RecordBatch.from_pylist([], schema=arrow_schema(schema)) for schema in (self._target, self._source)
        )
        PredicateFilter(self.join.target_only).mask(target)
        for clause in self._clauses:
            rows = {
                "matched": self._pair(target, source),
                "not_matched": self._pair(None, source),
                "not_matched_by_source": self._pair(target, None),
            }[clause.kind]
            clause.holds(rows)
            if clause.action != "delete":
                clause.new_rows(rows)

    def _pair(self, target: pa.RecordBatch | None, source: pa.RecordBatch | None) -> Rows:
        aliases = (self._statement.target_alias, self._statement.source_alias)
        sides = {
            alias: pa.StructArray.from_arrays(side.columns, fields=list(side.schema))
            for alias, side in zip(aliases, (target, source), strict=True)
            if side is not None
        }
        return Rows(target, source, pa.RecordBatch.from_pydict(sides))

    @property
    def columns(self) -> list[str]:
        """Columns of the target that `on` compares."""
        columns = {equality.target.path[0]: None for equality in self.join.equalities}
        return list(columns | {column.path[0]: None for column in columns_of(self.join.target_only)})

    @property
    def reads_only_keys(self) -> bool:
        """Whether `columns` are all that is read of the target. Row ids are not considered."""
        kinds: tuple[ClauseKind, ...] = ("matched", "not_matched_by_source")
        first = [clauses[0] for kind in kinds if (clauses := self._of_kind(kind))]
        return all(clause.needs_no_target for clause in first)

    def _of_kind(self, kind: ClauseKind) -> list[MergeClause]:
        return [clause for clause in self._clauses if clause.kind == kind]

    # -- rows --------------------------------------------------------------------------------------------------------

    def run(self, scan: Scan, source: MergeSource) -> RowChanges:
        assert isinstance(source.frame, pa.Table)
        rows = one_batch(source.frame)
        keys = [values_of(equality.source, rows) for equality in self.join.equalities]
        index = KeyIndex(keys, self.kinds, candidates(self.join, rows))
        outcome = _Outcome(scan)
        matches = _Matches(self, scan, index)
        matches.find(with_others=bool(self._of_kind("not_matched_by_source")))
        self._change_matched(scan, rows, index, matches, outcome)
        self._change_others(scan, matches, outcome)
        self._insert(rows, matches.source_rows(), outcome)
        return RowChanges(
            positions={place: found for place, found in outcome.positions.items() if found},
            rows=self._made(outcome, inserted=False),
            inserted_rows=self._made(outcome, inserted=True),
            replaced=outcome.replaced,
            updated=outcome.total("update"),
            deleted=outcome.total("delete"),
            inserted=outcome.total("insert"),
            metrics={"numSourceRows": source.num_rows}
            | {name: outcome.counts.get(key, 0) for key, name in _METRICS.items()},
        )

    def _made(self, outcome: _Outcome, *, inserted: bool) -> list[pa.Table]:
        """Return the new rows, a table for each clause: those that are inserted, or the others.

        Without a feed, all of them are others.
        """
        return [
            pa.Table.from_batches(batches)
            for place, batches in sorted(outcome.batches.items())
            if (self._statement.has_feed and self._clauses[place].action == "insert") == inserted
        ]

    def _change_matched(
        self, scan: Scan, source: pa.RecordBatch, index: KeyIndex, matches: _Matches, outcome: _Outcome
    ) -> None:
        clauses = self._of_kind("matched")
        if not clauses:
            return
        # An updated row keeps its id, which only the old row has.
        has_all = clauses[0].action == "delete" or not scan.hidden_columns
        if clauses[0].needs_no_target and has_all:
            self._change_by_source(clauses[0], source, index, matches, outcome)
            return
        for placed in read_rows(scan, only=matches.matched):
            places, source_rows = index.source_rows(matches.codes_of(placed.rows))
            pairs = self._pair(placed.rows.take(places), source.take(source_rows))
            self._apply(clauses, placed.file, placed.numbers.take(places), pairs, outcome)

    def _change_by_source(
        self, clause: MergeClause, source: pa.RecordBatch, index: KeyIndex, matches: _Matches, outcome: _Outcome
    ) -> None:
        """Apply a clause to all matched rows without reading them."""
        outcome.positions |= matches.matched
        if clause.action == "delete":
            outcome.add(clause, sum(map(len, matches.matched.values())))
            if not self._statement.is_only_delete:
                for codes in matches.codes:
                    _refuse_repeated(index.source_rows(codes)[0])
            return
        for place, rows in matches.matched.items():
            outcome.replace(place, rows)
        for codes in matches.codes:
            places, source_rows = index.source_rows(codes)
            _refuse_repeated(places)
            self._emit(clause, self._pair(None, source.take(source_rows)), outcome)

    def _change_others(self, scan: Scan, matches: _Matches, outcome: _Outcome) -> None:
        clauses = self._of_kind("not_matched_by_source")
        if not clauses:
            return
        if clauses[0].needs_no_target:
            for place, numbers in matches.others.items():
                outcome.positions[place] = outcome.positions.get(place, BitMap64()) | numbers
            outcome.add(clauses[0], sum(map(len, matches.others.values())))
            return
        for placed in read_rows(scan, only=matches.others):
            self._apply(clauses, placed.file, placed.numbers, self._pair(placed.rows, None), outcome)

    def _insert(self, source: pa.RecordBatch, matched: pa.Array, outcome: _Outcome) -> None:
        clauses = self._of_kind("not_matched")
        if not clauses or not source.num_rows:
            return
        numbers = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), source.num_rows)), 1)
        left = source.filter(pc.invert(pc.is_in(numbers, value_set=matched)))
        for clause, rows in _by_clause(clauses, self._pair(None, left)):
            self._emit(clause, rows, outcome)

    def _apply(
        self, clauses: Sequence[MergeClause], file: int, numbers: pa.Array, rows: Rows, outcome: _Outcome
    ) -> None:
        changed = []
        numbered = Rows(rows.target, rows.source, rows.given.append_column("", numbers))
        for clause, of in _by_clause(clauses, numbered):
            changed.append(of.given.column(of.given.num_columns - 1))
            if clause.action == "delete":
                outcome.add(clause, of.given.num_rows)
            else:
                outcome.replace(file, bitmap_of(changed[-1]))
                self._emit(clause, of, outcome)
        if not changed:
            return
        all_changed = pa.concat_arrays(changed)
        _refuse_repeated(all_changed)
        outcome.positions[file] = outcome.positions.get(file, BitMap64()) | bitmap_of(all_changed)

    def _emit(self, clause: MergeClause, rows: Rows, outcome: _Outcome) -> None:
        if rows.given.num_rows:
            outcome.add(clause, rows.given.num_rows)
            new = clause.new_rows(rows)
            if clause.action == "update" and rows.target is not None:
                new = with_row_ids(new, rows.target, outcome.scan)
            outcome.batches.setdefault(self._clauses.index(clause), []).append(new)


class _Matches:
    """Rows of the target by whether a source row matches them."""

    def __init__(self, plan: MergePlan, scan: Scan, index: KeyIndex) -> None:
        self._join = plan.join
        self._columns = plan.columns
        self._scan = scan
        self._index = index
        self._filter = PredicateFilter(plan.join.target_only) if plan.join.target_only != TRUE else None
        self.matched: dict[int, BitMap64] = {}
        self.others: dict[int, BitMap64] = {}
        """Rows that no source row matches. They are only collected on demand."""
        self.codes: list[pa.Array] = []
        """Codes of the matched rows, in the order of reading."""

    def find(self, *, with_others: bool) -> None:
        found = read_each_file(self._scan, partial(self._split, with_others=with_others), columns=self._columns)
        for place, (matched, others, codes) in enumerate(found):
            self.codes += codes
            if matched:
                self.matched[place] = matched
            if others:
                self.others[place] = others

    def _split(self, file: Iterable[PlacedRows], *, with_others: bool) -> tuple[BitMap64, BitMap64, list[pa.Array]]:
        """Return the rows of a file that match, those that do not if they are wanted, and the codes of the first."""
        matched, others, found = BitMap64(), BitMap64(), []
        for _, numbers, rows in file:
            codes = self.codes_of(rows)
            is_matched = pc.is_valid(codes)
            matched.update(bitmap_of(numbers.filter(is_matched)))
            found.append(codes.drop_null())
            if with_others:
                others.update(bitmap_of(numbers.filter(pc.invert(is_matched))))
        return matched, others, found

    def codes_of(self, rows: pa.RecordBatch) -> pa.Array:
        codes = self._index.find([values_of(equality.target, rows) for equality in self._join.equalities])
        if self._filter is None:
            return codes
        return pc.if_else(pc.fill_null(self._filter.mask(rows), False), codes, pa.scalar(None, codes.type))

    def source_rows(self) -> pa.Array:
        """Return the numbers of the source rows that match a row of the target."""
        codes = pa.concat_arrays(self.codes) if self.codes else pa.array([], pa.int32())
        return self._index.matched_rows(codes.unique())


def join_of(statement: Merge, target: StructType, source: StructType) -> JoinCondition:
    return parse_join(statement.on, target, source, statement.target_alias, statement.source_alias)


def candidates(join: JoinCondition, source: pa.RecordBatch) -> pa.Array | None:
    """Return which source rows can match, or None for all."""
    return None if join.source_only == TRUE else PredicateFilter(join.source_only).mask(source)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise ValidationError("the source of the merge is too large for this process", hint="Use Spark.")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def bitmap_of(numbers: pa.Array) -> BitMap64:
    if not len(numbers):
        return BitMap64()
    return BitMap64(memoryview(numbers.buffers()[1]).cast("Q")[numbers.offset : numbers.offset + len(numbers)])


def _by_clause(clauses: Iterable[MergeClause], rows: Rows) -> Iterator[tuple[MergeClause, Rows]]:
    """Yield the rows to which each clause applies. The first clause that holds for a row applies."""
    for clause in clauses:
        if not rows.given.num_rows:
            return
        holds = clause.holds(rows)
        applies = rows.filter(holds)
        if applies.given.num_rows:
            yield clause, applies
        rows = rows.filter(pc.invert(holds))


def _refuse_repeated(rows: pa.Array) -> None:
    if pc.count_distinct(rows).as_py() < len(rows):
        raise several_matches()
