"""MERGE by Spark, against a plain model of what the clauses mean."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.row_change import Clause, KeyValues, Merge, RowChanges
from deltars.data.scan import Scan
from deltars.errors import ValidationError
from deltars.predicate import Column
from deltars.protocol import StructField, StructType, schema_from_ddl
from deltars.protocol.column_rules import GENERATION
from deltars.spark import SparkPlane
from deltars.spark.change import SparkChanges, materialize
from deltars.spark.change import source as change_source
from deltars.spark.write.small_frames import estimated_rows, small_rows
from tests.support.scans import TestFile, scan_of_files, write_file
from tests.support.spark import connected
from tests.support.spark_changes import Rows, ordered, rows_after

Row = dict[str, Any]
ON = "t.id = s.id"


@pytest.fixture
def changes(spark: SparkSession) -> SparkChanges:
    return SparkChanges(spark)


def target_scan(root: Path, count: int = 4) -> Scan:
    """Files of three rows with the ids 0, 1, 2 · 10, 11, 12 · …; some are deleted, and one path is live twice."""
    files: list[TestFile] = []
    for n in range(count):
        rows = {"id": [10 * n, 10 * n + 1, 10 * n + 2], "v": [f"old {10 * n}", None, "c"]}
        files.append(write_file(root, f"p={n}/part.parquet", rows, {"p": str(n)}, [[], [1], [0, 2]][n % 3]))
    files.append(replace(files[1], vector=files[2].vector))
    return scan_of_files(root, "id BIGINT, v STRING, p INT", files, ["p"])


def merged(changes: SparkChanges, scan: Scan, statement: Merge) -> RowChanges:
    return changes.merge(scan, statement, changes.source(statement, scan.schema))


def star(kind: str, action: str, condition: str | None = None) -> Clause:
    return Clause(kind, action, condition, is_source=True)  # type: ignore[arg-type]


SOURCE = [
    (1, "one", 100),
    (2, None, 100),
    (11, "eleven", 7),
    (12, "twelve", 7),
    (99, "new", 9),
    (98, "new", 8),
    (None, "null", 1),
]
COLUMNS = "id BIGINT, v STRING, p INT"

Case = tuple[
    Sequence[Clause], Callable[[Row, Row], Row | None], Callable[[Row], Row | None], Callable[[Row], Row | None]
]


def _same(t: Row, *_: Row) -> Row | None:
    return t


def _nothing(_: Row) -> Row | None:
    return None


CASES: dict[str, Case] = {
    "upsert": ([star("matched", "update"), star("not_matched", "insert")], lambda t, s: s, lambda s: s, _same),
    "update only": ([star("matched", "update")], lambda t, s: s, _nothing, _same),
    "insert only": ([star("not_matched", "insert")], _same, lambda s: s, _same),
    "delete": ([Clause("matched", "delete")], lambda t, s: None, _nothing, _same),
    "conditions in order": (
        [
            Clause("matched", "delete", "s.v = 'eleven'"),
            Clause("matched", "update", "t.v IS NULL OR s.v > 'a'", {"v": "concat(s.v, '!')"}),
            Clause("matched", "update", None, {"p": "t.p + s.p"}),
            Clause("not_matched", "insert", "s.p = 9", {"id": "id", "v": "upper(v)"}),
            Clause("not_matched", "insert", "s.id IS NOT NULL", {"id": "s.id * 10", "p": "s.p"}),
        ],
        lambda t, s: (
            None
            if s["v"] == "eleven"
            else {**t, "v": s["v"] and s["v"] + "!"}
            if t["v"] is None or (s["v"] or "") > "a"
            else {**t, "p": t["p"] + s["p"]}
        ),
        lambda s: (
            {"id": s["id"], "v": s["v"].upper(), "p": None}
            if s["p"] == 9
            else {"id": s["id"] * 10, "v": None, "p": s["p"]}
            if s["id"] is not None
            else None
        ),
        _same,
    ),
    "by source": (
        [
            Clause("matched", "update", "s.v IS NOT NULL", {"v": "s.v"}),
            star("not_matched", "insert", "s.id = 99"),
            Clause("not_matched_by_source", "update", "t.v = 'c'", {"v": "concat(t.v, p)"}),
            Clause("not_matched_by_source", "delete", "id % 10 = 0"),
        ],
        lambda t, s: t if s["v"] is None else {**t, "v": s["v"]},
        lambda s: s if s["id"] == 99 else None,
        lambda t: {**t, "v": f"c{t['p']}"} if t["v"] == "c" else None if t["id"] % 10 == 0 else t,
    ),
}


def model(before: Rows, source: Rows, case: Case) -> tuple[Rows, dict[str, int]]:
    _, matched, not_matched, by_source = case
    after: list[Row] = []
    used: set[int] = set()
    count = dict.fromkeys(("updated", "deleted", "inserted"), 0)
    for row in before:
        found = [s for s in source if s["id"] is not None and s["id"] == row["id"]]
        used |= {id(s) for s in found}
        made = matched(row, found[0]) if found else by_source(row)
        count["deleted"] += made is None
        count["updated"] += made is not None and made is not row
        if made is not None:
            after.append(made)
    for s in source:
        if id(s) not in used and (made := not_matched(s)) is not None:
            after.append(made)
            count["inserted"] += 1
    return ordered(after), count


LARGE = {
    "by source": (),
    "insert only": (pytest.mark.soak(only=True),),
    "conditions in order": (pytest.mark.soak(only=True),),
}
"""Cases that are run with a large source too, with their marks."""


@pytest.mark.parametrize(
    ("case", "held"),
    [
        *(pytest.param(case, True, id=case) for case in CASES),
        *(pytest.param(case, False, id=f"{case}, large", marks=marks) for case, marks in LARGE.items()),
    ],
)
def test_merge_does_what_its_clauses_say(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path, case: str, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not held:
        monkeypatch.setattr(change_source, "MAX_HELD_ROWS", 0)
        monkeypatch.setattr(change_source, "small_rows", lambda frame: None)
    scan = target_scan(tmp_path)
    frame = spark.createDataFrame(SOURCE, COLUMNS)
    statement = Merge(frame, ON, CASES[case][0])
    before = rows_after(scan, RowChanges({}))
    source = [dict(zip(("id", "v", "p"), row, strict=True)) for row in SOURCE]
    after, count = model(before, source, CASES[case])
    found = merged(changes, scan, statement)
    assert rows_after(scan, found) == after
    assert {"updated": found.updated, "deleted": found.deleted, "inserted": found.inserted} == count
    assert found.metrics["numSourceRows"] == len(SOURCE)
    by_source = found.metrics["numTargetRowsNotMatchedBySourceUpdated"]
    assert found.metrics["numTargetRowsMatchedUpdated"] + by_source == count["updated"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "batch", "range", "the table itself"])
def test_source_may_be_any_frame(spark: SparkSession, changes: SparkChanges, tmp_path: Path, kind: str) -> None:
    scan = target_scan(tmp_path)
    table = pa.table({"ID": [1, 50], "v": pa.array(["x", "y"], pa.large_string()), "p": pa.array([5, 6], pa.uint8())})
    sources: dict[str, Callable[[], Any]] = {
        "pandas": lambda: pd.DataFrame({"ID": [1, 50], "v": ["x", "y"], "p": [5, 6]}),
        "polars": lambda: pl.DataFrame({"ID": [1, 50], "v": ["x", "y"], "p": [5, 6]}),
        "arrow": lambda: table,
        "batch": lambda: table.to_batches()[0],
        "the table itself": lambda: (
            SparkPlane()
            .read(spark, scan, where="id IN (1, 2)")
            .selectExpr("if(id = 1, 1, 50) ID", "if(id = 1, 'x', 'y') v", "if(id = 1, 5, 6) p")
        ),
        "range": lambda: spark.range(1, 51, 49).selectExpr("id ID", "if(id = 1, 'x', 'y') v", "if(id = 1, 5, 6) p"),
    }
    found = merged(changes, scan, Merge(sources[kind](), ON, CASES["upsert"][0]))
    assert (found.updated, found.inserted) == (1, 1)
    rows = rows_after(scan, found)
    assert {"id": 1, "v": "x", "p": 5} in rows
    assert {"id": 50, "v": "y", "p": 6} in rows


def test_keys_of_the_source_are_its_values_without_null(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = schema_from_ddl("id BIGINT, v STRING, d DOUBLE")
    frame = spark.createDataFrame([(3, "b", 1.0), (1, None, 2.0), (3, "a", None)], "k INT, v STRING, d DOUBLE")
    statement = Merge(frame, "s.k = t.id AND t.v = s.v AND t.d = s.d", [Clause("matched", "delete")])

    def keys(statement: Merge) -> Any:
        return changes.source(statement, schema).keys

    expected = [
        KeyValues(Column(("id",), schema["id"].type), 1, 3, [1, 3]),
        KeyValues(Column(("v",), schema["v"].type), "a", "b", ["a", "b"]),
    ]
    assert keys(statement) == expected
    nothing = [(None, "b", 1.0)]
    assert keys(replace(statement, source=spark.createDataFrame(nothing, frame.schema))) is None
    assert keys(replace(statement, source=frame.where("k > 5"))) is None
    assert list(keys(replace(statement, on=F.col("t.id") == F.col("s.k")))) == []
    monkeypatch.setattr(change_source, "MAX_HELD_ROWS", 0)
    monkeypatch.setattr(change_source, "small_rows", lambda frame: None)
    assert keys(statement) == expected
    assert keys(replace(statement, source=frame.where("k > 5"))) is None
    monkeypatch.setattr(change_source, "MAX_KEY_VALUES", 1)
    assert keys(statement) == [replace(key, values=None) for key in expected]


def test_several_source_rows_for_one_row_are_refused_unless_it_is_only_deleted(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path
) -> None:
    scan = target_scan(tmp_path)
    frame = spark.createDataFrame([(1, "x", 1), (1, "y", 2), (2, "z", 3)], COLUMNS)
    for clauses in (
        CASES["upsert"][0],
        [Clause("matched", "update", "s.p < 9", {"v": "s.v"})],
        [Clause("matched", "delete", "s.p < 9")],
        [Clause("matched", "delete"), Clause("matched", "update", None, {"v": "s.v"})],
    ):
        with pytest.raises(ValidationError, match="multiple source rows matched"):
            merged(changes, scan, Merge(frame, ON, clauses))
    found = merged(changes, scan, Merge(frame, ON, [Clause("matched", "delete")]))
    assert found.deleted == 2
    # A pair to which no clause applies does not count.
    found = merged(changes, scan, Merge(frame, ON, [Clause("matched", "update", "s.p <> 2", {"v": "s.v"})]))
    assert found.updated == 2


def test_one_source_row_may_change_several_rows(spark: SparkSession, changes: SparkChanges, tmp_path: Path) -> None:
    file = write_file(tmp_path, "a.parquet", {"id": [1, 1, 2, None], "v": ["a", "b", "c", "d"]})
    scan = scan_of_files(tmp_path, "id BIGINT, v STRING", [file])
    frame = spark.createDataFrame([(1, "new"), (5, "five"), (None, "none")], "id BIGINT, v STRING")
    found = merged(changes, scan, Merge(frame, ON, CASES["upsert"][0]))
    assert (found.updated, found.inserted) == (2, 2)
    assert sorted((row["id"] or 0, row["v"]) for row in rows_after(scan, found)) == [
        (0, "d"),
        (0, "none"),
        (1, "new"),
        (1, "new"),
        (2, "c"),
        (5, "five"),
    ]
    assert merged(changes, scan, Merge(frame, F.col("t.id") == F.col("s.id"), CASES["upsert"][0])).updated == 2
    # Null-safe equality matches null with null.
    found = merged(changes, scan, Merge(frame, "t.id <=> s.id", CASES["upsert"][0]))
    assert (found.updated, found.inserted) == (3, 1)


def test_names_are_told_apart_by_their_sides(spark: SparkSession, changes: SparkChanges, tmp_path: Path) -> None:
    names = ["id", "t", "s", "a.b", "c`d", "__deltars_clause_0", "__deltars_at_row_0", "__deltars_0_raw_0_0"]
    rows = pa.table({name: [f"{name} {n}" for n in range(2)] for name in names})
    schema = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in names)
    scan = scan_of_files(tmp_path, schema, [write_file(tmp_path, "a.parquet", rows)])
    source = spark.createDataFrame(
        [(f"id {n}", "new t", "new s", "new ab", "CD", "x", "y") for n in range(1, 3)],
        "ID STRING, T STRING, s STRING, `a.b` STRING, `C``D` STRING, __deltars_source_row_0 STRING, extra STRING",
    )
    clauses = [
        Clause("matched", "update", "extra = 'y' AND t.t <> s.t", {"t": "s.t", "a.b": "s.`a.b`", "s": "t.s || s.s"}),
        Clause("not_matched", "insert", None, {"id": "s.id", "c`d": "s.`c``d`", "t": "t"}),
    ]
    found = merged(changes, scan, Merge(source, ON, clauses))
    by_id = {row["id"]: row for row in rows_after(scan, found)}
    assert {**dict.fromkeys(names), **by_id["id 1"]} == {
        **{name: f"{name} 1" for name in names},
        "t": "new t",
        "a.b": "new ab",
        "s": "s 1new s",
    }
    assert by_id["id 2"] == {**dict.fromkeys(names), "id": "id 2", "c`d": "CD", "t": "new t"}
    other = Merge(source, "`the table`.id = x.id", [Clause("matched", "delete")], "the table", "x")
    assert merged(changes, scan, other).deleted == 1


REFUSED: dict[str, tuple[str, Sequence[Clause], str]] = {
    "unlike keys": ("t.id = s.v", [Clause("matched", "delete")], "cannot be compared"),
    "unknown key": ("t.id = s.nope", [Clause("matched", "delete")], "nope"),
    "ambiguous": (ON, [Clause("matched", "delete", "v = 'x'")], "ambiguous"),
    "target in an insert": (ON, [Clause("not_matched", "insert", "t.v = 'x'", {"id": "s.id"})], "cannot be resolved"),
    "source in a row without": (ON, [Clause("not_matched_by_source", "delete", "s.v = 'x'")], "cannot be resolved"),
    "not a condition": (ON, [Clause("matched", "delete", "s.v")], "not a boolean"),
    "aggregate": (ON, [Clause("matched", "update", None, {"v": "max(s.v)"})], "aggregate"),
    "type": (
        ON,
        [Clause("matched", "update", None, {"p": "s.v"})],
        "column p is of type int, but its value is of type str",
    ),
    "column": (ON, [Clause("not_matched", "insert", None, {"nope": "s.v"})], "there is no column 'nope'"),
}


def test_wrong_merges_are_refused_before_the_table_is_read(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path
) -> None:
    scan = scan_of_files(tmp_path / "gone", "id BIGINT, v STRING, p INT", [TestFile("none.parquet", 1, {}, None)])
    frame = spark.createDataFrame(pa.table({"id": [1], "v": ["x"], "p": pa.array([1], pa.int32())}))
    for on, clauses, message in REFUSED.values():
        with pytest.raises(ValidationError, match=message):
            merged(changes, scan, Merge(frame, on, clauses))


def test_sources_that_cannot_be_merged_are_refused(spark: SparkSession, changes: SparkChanges, tmp_path: Path) -> None:
    schema = schema_from_ddl("id BIGINT")
    twice = spark.range(3).selectExpr("id", "id AS ID")
    with pytest.raises(ValidationError, match="more than one column 'ID'"):
        changes.source(Merge(twice, ON, []), schema)
    with pytest.raises(ValidationError, match="must be a Spark, pandas, Polars or Arrow frame, got list"):
        changes.source(Merge([1], ON, []), schema)
    with pytest.raises(ValidationError, match="is a stream"):
        changes.source(Merge(spark.readStream.format("rate").load(), "t.id = s.value", []), schema)
    with pytest.raises(ValidationError, match="same alias"):
        changes.source(Merge(spark.range(3), ON, [], "x", "X"), schema)


def test_values_that_do_not_fit_fail_the_merge(spark: SparkSession, changes: SparkChanges, tmp_path: Path) -> None:
    scan = target_scan(tmp_path)
    frame = spark.createDataFrame([(1, 3_000_000_000), (77, 1)], "id BIGINT, p BIGINT")
    clauses = [Clause("matched", "update", None, {"p": "s.p"})]
    with pytest.raises(ValidationError, match="a value for column p does not fit int"):
        merged(changes, scan, Merge(frame, ON, clauses))
    # A value of a row that the clause does not apply to is not evaluated.
    guarded = [Clause("matched", "update", "s.p < 5", {"p": "s.p"})]
    assert merged(changes, scan, Merge(frame, ON, guarded)).updated == 0


def test_generated_columns_are_computed_again_where_they_are_not_assigned(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path
) -> None:
    id_, v, twice = schema_from_ddl("id BIGINT, v BIGINT, twice BIGINT").fields
    schema = StructType((id_, v, StructField("twice", twice.type, metadata={GENERATION: "v * 2"})))
    rows = {"id": [1, 2, 3], "v": [1, 2, 3], "twice": [2, 4, 6]}
    scan = scan_of_files(tmp_path, schema, [write_file(tmp_path, "a.parquet", rows)])
    clauses = [
        Clause("matched", "update", "t.id = 1", {"v": "10"}),
        Clause("matched", "update", "t.id = 2", {"v": "11"}),
        Clause("matched", "update", None, {"v": "20", "twice": "40"}),
        Clause("not_matched", "insert", None, {"v": "s.id", "id": "s.id"}),
    ]
    found = merged(changes, scan, Merge(spark.range(1, 5), ON, clauses))
    frames = {tuple(frame.columns): frame for frame in found.rows if isinstance(frame, DataFrame)}
    assert {columns: sorted(map(tuple, frame.collect())) for columns, frame in frames.items()} == {
        ("id", "v"): [(1, 10), (2, 11), (4, 4)],
        ("id", "v", "twice"): [(3, 20, 40)],
    }


@pytest.mark.parametrize("held", [True, False], ids=["held", "in Spark"])
def test_everything_comes_from_one_evaluation_of_the_source(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not held:
        monkeypatch.setattr(change_source, "MAX_HELD_ROWS", 0)
    scan = scan_of_files(
        tmp_path, "id BIGINT, v DOUBLE", [write_file(tmp_path, "a.parquet", {"id": list(range(100)), "v": [0.0] * 100})]
    )
    chance = F.udf(lambda _: random.random(), "double")
    key = F.udf(lambda _: random.randrange(10**12), "bigint")
    frame = (
        spark.range(100).union(spark.range(100, 200)).select("id", chance("id").alias("v"), key("id").alias("other"))
    )
    frame = frame.select(F.when(F.col("v") < 0.5, F.col("id")).otherwise(F.col("other")).alias("id"), "v")
    statement = Merge(frame, ON, [Clause("matched", "update", None, {"v": "s.v + 1"}), star("not_matched", "insert")])
    source = changes.source(statement, scan.schema)
    spark.catalog.clearCache()
    found = changes.merge(scan, statement, source)
    spark.catalog.clearCache()
    rows = rows_after(scan, found)
    assert rows == rows_after(scan, found)
    assert len(rows) == 100 + found.inserted
    assert found.updated + found.inserted == 200
    updated = {row["id"] for row in rows if row["v"] >= 1}
    assert updated == set(found.positions.get(0, ()))
    assert found.updated == len(updated)


@pytest.mark.parametrize("held", [True, False], ids=["held", "large"])
def test_each_batch_of_a_stream_can_be_merged(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not held:
        monkeypatch.setattr(change_source, "MAX_HELD_ROWS", 0)
    scan = target_scan(tmp_path / "table")
    write_file(tmp_path / "stream", "a.parquet", {"id": [1, 70], "v": ["x", "y"], "p": pa.array([1, 2], pa.int32())})
    found: list[Rows] = []

    def merge(batch: DataFrame, _: int) -> None:
        found.append(rows_after(scan, merged(changes, scan, Merge(batch, ON, CASES["upsert"][0]))))

    stream = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "stream"))
    query = stream.writeStream.foreachBatch(merge).option("checkpointLocation", str(tmp_path / "state"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    assert {"id": 1, "v": "x", "p": 1} in found[0]
    assert {"id": 70, "v": "y", "p": 2} in found[0]
    assert len(found[0]) == len(rows_after(scan, RowChanges({}))) + 1


def test_rows_are_kept_in_files_where_tasks_may_run_twice(
    spark: SparkSession,
    changes: SparkChanges,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(materialize, "is_speculative", lambda spark: True)
    scan = target_scan(tmp_path / "table")
    statement = Merge(spark.range(1, 3), ON, [Clause("matched", "update", None, {"v": "'new'"})])
    if spark.sparkContext.getCheckpointDir() is None:
        assert merged(changes, scan, statement).updated == 2
        assert "set spark.checkpoint.dir" in caplog.text
    spark.sparkContext.setCheckpointDir(str(tmp_path / "checkpoints"))
    found = merged(changes, scan, statement)
    assert list((tmp_path / "checkpoints").rglob("part-*"))
    assert sum(row["v"] == "new" for row in rows_after(scan, found)) == found.updated == 2


def test_a_small_source_is_broadcast_and_only_keys_are_read(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []
    frames = type(spark.range(1))
    original = frames.toArrow

    def watched(frame: DataFrame) -> pa.Table:
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        return original(frame)

    monkeypatch.setattr(frames, "toArrow", watched)
    scan = target_scan(tmp_path)
    frame = spark.createDataFrame(pa.table({"id": [1, 60], "v": ["x", "y"], "p": pa.array([1, 2], pa.int32())}))
    merged(changes, scan, Merge(frame, ON, CASES["upsert"][0]))
    last = plans[-1]
    assert "BroadcastHashJoin" in last
    assert "SortMergeJoin" not in last
    assert "LeftAnti" not in last
    scans = re.findall(r"FileScan parquet \[(.*?)\]", last)
    assert len(scans) == 3
    assert not any("v#" in columns for columns in scans)
    assert last.count("GreaterThanOrEqual(id,1), LessThanOrEqual(id,60)") == 3


@pytest.mark.soak(only=True)
def test_merge_by_spark_connect(connect_url: str, tmp_path: Path) -> None:
    scan = target_scan(tmp_path)
    before = rows_after(scan, RowChanges({}))
    source = [dict(zip(("id", "v", "p"), row, strict=True)) for row in SOURCE]
    with connected(connect_url) as remote:
        changes = SparkChanges(remote)
        frame = remote.createDataFrame(SOURCE, COLUMNS)
        for case in ("upsert", "conditions in order", "by source"):
            found = merged(changes, scan, Merge(frame, ON, CASES[case][0]))
            after, count = model(before, source, CASES[case])
            assert rows_after(scan, found) == after
            assert (found.updated, found.deleted, found.inserted) == tuple(count.values())
        for empty in (frame.where("id < 0"), pa.table(dict.fromkeys(("id", "v", "p"), pa.array([], pa.int64())))):
            found = merged(changes, scan, Merge(empty, ON, CASES["by source"][0]))
            assert rows_after(scan, found) == model(before, [], CASES["by source"])[0]
        unsteady = remote.sql("SELECT id, uuid() AS v, 1 AS p FROM range(0, 60)")
        found = merged(
            changes,
            scan,
            Merge(unsteady, ON, [Clause("matched", "update", None, {"v": "s.v"}), CASES["insert only"][0][0]]),
        )
        assert rows_after(scan, found) == rows_after(scan, found)
        for case in ("ambiguous", "target in an insert", "type"):
            on, wrong, message = REFUSED[case]
            with pytest.raises(ValidationError, match=message):
                merged(changes, scan, Merge(frame, on, wrong))


@pytest.mark.soak(only=True)
def test_a_source_of_files_that_holds_more_rows_than_estimated_stays_in_spark(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = target_scan(tmp_path / "t")
    spark.range(0, 40, 1, 2).selectExpr("id", "'x' v", "1 p").write.parquet(str(tmp_path / "s"))
    frame = spark.read.parquet(str(tmp_path / "s"))
    statement = Merge(frame, ON, CASES["upsert"][0])
    for most, held in ((41, True), (40, False), (20, False), (19, False), (1, False)):
        monkeypatch.setattr(change_source, "MAX_HELD_ROWS", most)
        monkeypatch.setattr(change_source, "_can_be_held", lambda *given: False)
        source = changes.source(statement, scan.schema)
        assert (source.rows is not None) is held, most
        assert source.num_rows == 40
    assert merged(changes, scan, statement).inserted + merged(changes, scan, statement).updated >= 40


def test_a_source_with_a_udf_is_not_fetched_on_trial(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "s"))
    files = spark.read.parquet(str(tmp_path / "s"))
    fetched: list[DataFrame] = []

    def fetch(frame: DataFrame) -> pa.Table:
        fetched.append(frame)
        raise AssertionError("the frame was evaluated")

    # No UDF runs here: a frame that is not fetched is evaluated once, by its checkpoint.
    monkeypatch.setattr(type(files), "toArrow", fetch)
    text = F.udf(lambda value: str(value))
    for frame in (
        files.withColumn("v", text("id")),
        files.where(text("id") == "1"),
        files.groupBy(text("id").alias("v")).count(),
        files.select("id").union(files.select(text("id").cast("bigint"))),
        files.mapInArrow(lambda batches: batches, "id bigint"),
    ):
        assert small_rows(frame) is None
        assert estimated_rows(frame, max_bytes=1 << 30, max_rows=1_000) is None
    assert fetched == []
    with pytest.raises(AssertionError, match="was evaluated"):
        estimated_rows(files, max_bytes=1 << 30, max_rows=1_000)
