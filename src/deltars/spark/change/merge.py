"""MERGE: which target rows match which source rows, and what the clauses make of them.

    target ──inner join── source ──clauses, once──> matches ──bitmaps──> rows that go · source rows that matched
                                                       └──────────────> rows that come
    source without those that matched ──clauses────────────────────────> rows that come
    target without the matches, by bitmap ──clauses, once──────────────> rows that go, rows that come

The source is never the preserved side of an outer join: Spark would have to shuffle the target for that. If all source
rows come as they are (update and insert of all columns, without conditions), only the keys of the target are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.column_names import free_names
from deltars.data.row_change import Merge, RowChanges, several_matches
from deltars.data.scan import Scan
from deltars.errors import ValidationError
from deltars.protocol import PrimitiveType
from deltars.spark.change.clauses import Clauses
from deltars.spark.change.expressions import checked_condition
from deltars.spark.change.materialize import materialized
from deltars.spark.change.positions import Found, collect_bitmaps, is_large
from deltars.spark.change.rows import needed_columns, rows_like
from deltars.spark.change.source import SparkSource
from deltars.spark.change.target import TargetRows, place_columns, target_rows, with_row_ids
from deltars.spark.read.columns import quoted
from deltars.spark.write.checks import translate_task_errors

_SOURCE = -1
"""Group of the numbers of source rows, next to the groups of target rows."""

_MadeRows = list[tuple[tuple[str, ...], DataFrame]]


@dataclass(frozen=True, slots=True)
class _Matches:
    positions: list[dict[int, BitMap64]]
    """Rows that each clause applies to. The last item has those to which none applies."""
    num_changes: int
    """Number of pairs of rows to which a clause applies."""
    num_pairs: int
    source_rows: BitMap64


def merge_rows(spark: SparkSession, scan: Scan, statement: Merge, source: SparkSource) -> RowChanges:
    with translate_task_errors([]):
        return _Merge(spark, scan, statement, source).changes()


class _Merge:
    """One merge, checked when it is created."""

    def __init__(self, spark: SparkSession, scan: Scan, statement: Merge, source: SparkSource) -> None:
        self._spark, self._scan, self._statement, self._source = spark, scan, statement, source
        self._numbered = source.numbered(spark)
        t, s = statement.target_alias, statement.source_alias
        if t.lower() == s.lower():
            raise ValidationError(f"target and source have the same alias {t!r}", field="alias", hint="Choose another.")
        self._place = place_columns(scan, *self._numbered.columns)
        taken = {name.lower() for name in (*scan.schema.names, *self._numbered.columns)}
        [self._clause] = free_names(("clause",), taken)
        target_like, source_like = rows_like(spark, scan).alias(t), self._numbered.drop(source.number).alias(s)
        both = target_like.crossJoin(source_like)
        self._on = checked_condition(both, statement.on, "the condition of the merge", "on")
        self._matched = Clauses(scan, statement.of_kind("matched"), both, target=t, source=s)
        self._not_matched = Clauses(scan, statement.of_kind("not_matched"), source_like, target=None, source=s)
        by_source = statement.of_kind("not_matched_by_source")
        self._by_source = Clauses(scan, by_source, target_like, target=t, source=None)

    def changes(self) -> RowChanges:
        quick = self._as_source() if self._is_all_of_source() else None
        if quick is not None:
            return quick
        target, pairs = self._joined(None)
        number = self._source.number
        rows = with_row_ids(self._matched.applied(pairs, self._clause, [*target.kept, number]), target, self._scan)
        # Without clauses, and with a source whose rows this process has, the bitmaps say all.
        if len(self._matched) or self._source.rows is None:
            rows = materialized(rows)
        matches = self._collect(rows, target, len(self._matched))
        self._refuse_several_matches(matches)
        made = self._matched.made(rows, self._clause, _ids(target)) if matches.num_changes else []
        inserted, inserts = self._inserts(matches, rows)
        gone, by_source, more = self._not_matched_by_source(matches)
        updated, deleted = self._matched.counts(matches.positions)
        positions = _united([*matches.positions[:-1], *gone])
        has_feed = self._statement.has_feed
        return RowChanges(
            positions,
            _frames([*made, *more] if has_feed else [*made, *inserts, *more]),
            inserted_rows=_frames(inserts) if has_feed else (),
            replaced=_united([*self._matched.replaced(matches.positions), *self._by_source.replaced(gone)]),
            updated=updated + by_source[0],
            deleted=deleted + by_source[1],
            inserted=inserted,
            metrics=self._metrics(updated, deleted, by_source),
        )

    # -- matches -----------------------------------------------------------------------------------------------------

    def _joined(self, columns: Sequence[str] | None) -> tuple[TargetRows, DataFrame]:
        target = target_rows(self._spark, self._scan, columns, place=self._place)
        statement, source = self._statement, self._source
        rows = target.frame.where(self._in_range()) if source.keys else target.frame
        of_source = self._numbered.alias(statement.source_alias)
        of_source = of_source if source.rows is None else F.broadcast(of_source)
        if source.keys is None:
            rows = rows.where(F.lit(False))
        return target, rows.alias(statement.target_alias).join(of_source, self._on, "inner")

    def _in_range(self) -> Column:
        """Return the range of the source's keys, by which Spark skips pages of the target's files."""
        conditions = [F.lit(True)]
        for key in self._source.keys or ():
            # A literal of a timestamp without a zone would be read in the session's zone.
            if len(key.column.path) == 1 and key.column.type != PrimitiveType("timestamp_ntz"):
                column = F.col(quoted(key.column.path[0]))
                conditions.append((column >= F.lit(key.smallest)) & (column <= F.lit(key.largest)))
        return reduce(Column.__and__, conditions)

    def _collect(self, rows: DataFrame, target: TargetRows, num_clauses: int) -> _Matches:
        """Return the bitmaps of the pairs, by one job: each row counts for its target and for its source."""
        clause = F.coalesce(F.col(self._clause), F.lit(num_clauses))
        code = F.col(self._place.part) * (num_clauses + 1) + clause
        path, row = F.col(self._place.path), F.col(self._place.row)
        of_target = F.struct(code.alias("group"), path.alias("path"), row.alias("n"))
        of_source = F.struct(
            F.lit(_SOURCE).alias("group"), F.lit("").alias("path"), F.col(self._source.number).alias("n")
        )
        each = rows.select(F.explode(F.array(of_target, of_source)).alias("each")).select("each.*")
        found = collect_bitmaps(each, [F.col("group"), F.col("path")], F.col("n"), is_large=is_large(self._scan))
        of_source_rows = found.pop((_SOURCE, ""), Found(BitMap64(), 0))
        positions = _by_clause(found, target, num_clauses + 1)
        num_changes = sum(
            group.num_found for (code, _), group in found.items() if code % (num_clauses + 1) < num_clauses
        )
        return _Matches(positions, num_changes, of_source_rows.num_found, of_source_rows.rows)

    def _refuse_several_matches(self, matches: _Matches) -> None:
        if self._statement.is_only_delete:
            return
        changed = _united(matches.positions[:-1])
        if matches.num_changes > sum(map(len, changed.values())):
            raise several_matches()

    # -- all of the source -------------------------------------------------------------------------------------------

    def _is_all_of_source(self) -> bool:
        clauses = self._statement.clauses
        if self._scan.hidden_columns:
            # Updated rows keep their ids, which the source does not have.
            return False
        # Updated and inserted rows would come together.
        if self._statement.has_feed:
            return False
        return sorted(clause.kind for clause in clauses) == ["matched", "not_matched"] and all(
            clause.is_source and clause.condition is None and clause.action in ("update", "insert")
            for clause in clauses
        )

    def _as_source(self) -> RowChanges | None:
        """Return the changes if the source itself is what comes; None if a source row matches several target rows."""
        target, pairs = self._joined(needed_columns(self._scan.table_schema, self._statement.on))
        places = pairs.select(*self._place.position, self._source.number, F.lit(0).alias(self._clause))
        matches = self._collect(places, target, 1)
        self._refuse_several_matches(matches)
        if matches.num_pairs != len(matches.source_rows):
            return None
        rows = self._numbered.alias(self._statement.source_alias)
        made = self._not_matched.made(self._not_matched.applied(rows, self._clause, ()), self._clause)
        updated = len(matches.source_rows)
        return RowChanges(
            matches.positions[0],
            _frames(made) if self._source.num_rows else (),
            updated=updated,
            inserted=self._source.num_rows - updated,
            metrics=self._metrics(updated, 0, (0, 0)),
        )

    # -- rows of one side only ---------------------------------------------------------------------------------------

    def _inserts(self, matches: _Matches, pairs: DataFrame) -> tuple[int, _MadeRows]:
        source = self._source
        unmatched = source.num_rows - len(matches.source_rows)
        if not len(self._not_matched) or not unmatched:
            return 0, []
        rows = self._unmatched(matches.source_rows, pairs).alias(self._statement.source_alias)
        applied = self._not_matched.applied(rows, self._clause, ())
        if self._not_matched.has_conditions:
            applied = materialized(applied)
            unmatched = applied.where(F.col(self._clause).isNotNull()).count()
        return unmatched, self._not_matched.made(applied, self._clause) if unmatched else []

    def _unmatched(self, matched: BitMap64, pairs: DataFrame) -> DataFrame:
        source = self._source
        if source.rows is None:
            return self._numbered.join(pairs.select(source.number), source.number, "left_anti")
        numbers = np.frombuffer(matched.to_array() if matched else b"", np.uint64).astype(np.int64)
        is_matched = np.isin(source.rows[source.number].to_numpy(), numbers)
        return self._spark.createDataFrame(source.rows.filter(pa.array(~is_matched)))

    def _not_matched_by_source(self, matches: _Matches) -> tuple[list[dict[int, BitMap64]], tuple[int, int], _MadeRows]:
        if not len(self._by_source):
            return [], (0, 0), []
        # Rows that matched are left out as deleted ones are, whether a clause applied to them or not.
        target = target_rows(self._spark, self._scan, hidden=_united(matches.positions), place=self._place)
        rows = target.frame.alias(self._statement.target_alias)
        applied = self._by_source.applied(rows, self._clause, target.kept)
        has_clause = F.col(self._clause).isNotNull()
        # Spark may evaluate the condition of a filter apart from the column, so the kept rows are filtered again.
        changed = materialized(with_row_ids(applied.where(has_clause), target, self._scan)).where(has_clause)
        count = len(self._by_source)
        group = F.col(self._place.part) * count + F.col(self._clause)
        keys = [group, F.col(self._place.path)]
        found = collect_bitmaps(changed, keys, F.col(self._place.row), is_large=is_large(self._scan))
        positions = _by_clause(found, target, count)
        made = self._by_source.made(changed, self._clause, _ids(target))
        return positions, self._by_source.counts(positions), made

    # -- result ------------------------------------------------------------------------------------------------------

    def _metrics(self, updated: int, deleted: int, by_source: tuple[int, int]) -> dict[str, int]:
        return {
            "numSourceRows": self._source.num_rows,
            "numTargetRowsMatchedUpdated": updated,
            "numTargetRowsMatchedDeleted": deleted,
            "numTargetRowsNotMatchedBySourceUpdated": by_source[0],
            "numTargetRowsNotMatchedBySourceDeleted": by_source[1],
        }


def _by_clause(found: Mapping[tuple[int, str], Found], target: TargetRows, count: int) -> list[dict[int, BitMap64]]:
    """Return the positions of each clause. A group's number is that of its part and its clause."""
    positions: list[dict[int, BitMap64]] = [{} for _ in range(count)]
    for (group, path), rows in found.items():
        part, clause = divmod(group, count)
        positions[clause][target.places[part, path]] = rows.rows
    return positions


def _united(positions: Iterable[Mapping[int, BitMap64]]) -> dict[int, BitMap64]:
    united: dict[int, BitMap64] = {}
    for found in positions:
        for place, rows in found.items():
            united[place] = united[place] | rows if place in united else rows
    return united


def _ids(target: TargetRows) -> dict[str, str]:
    return {} if target.row_id is None else {target.place.row_id: target.row_id}


def _frames(made: _MadeRows) -> list[DataFrame]:
    """Return one frame for all rows that have the same columns."""
    by_columns: dict[tuple[str, ...], list[DataFrame]] = {}
    for columns, frame in made:
        by_columns.setdefault(columns, []).append(frame)
    return [reduce(DataFrame.union, frames) for frames in by_columns.values()]
