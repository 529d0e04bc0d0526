"""DELETE and UPDATE by Spark: which rows go, and which come."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.row_change import Delete, RowChanges, Update
from deltars.data.scan import Scan
from deltars.errors import PredicateError, SchemaMismatch, ValidationError
from deltars.protocol import StructField, StructType, schema_from_ddl
from deltars.protocol.column_rules import GENERATION
from deltars.spark.change import SparkChanges
from deltars.spark.change import positions as change_positions
from deltars.spark.read import arrow as arrow_read
from deltars.spark.read import deleted_rows
from tests.support.scans import TestFile, scan_of_files, write_file
from tests.support.spark import connected
from tests.support.spark_changes import ordered, positions_in, rows_after

DELETED: tuple[list[int], ...] = ([], [1], [0, 2])


@pytest.fixture
def changes(spark: SparkSession) -> SparkChanges:
    return SparkChanges(spark)


def numbered(root: Path, kind: str, count: int) -> Scan:
    """`count` files of three rows; some have lost some, and the last path is live twice."""
    files: list[TestFile] = []
    for n in range(count):
        directory = {"by paths": f"p={n}/", "by join": f"{n}+/", "by literals": f"{n} é/"}.get(kind, "")
        values = {"p": str(n)} if kind.startswith("by ") else {}
        rows = {"id": [10 * n, 10 * n + 1, 10 * n + 2], "v": ["a", None, "c"]}
        hidden = "_" if kind == "hidden" or (kind == "some hidden" and n % 2) else ""
        files.append(write_file(root, f"{directory}{hidden}part é {n}.parquet", rows, values, DELETED[n % 3]))
    files.append(replace(files[1], vector=files[2].vector))
    columns, partitioned = (", p INT", ("p",)) if kind.startswith("by ") else ("", ())
    return scan_of_files(root, f"id BIGINT, v STRING{columns}", files, partitioned)


@pytest.mark.parametrize("kind", ["flat", "by paths", "by literals", "by join", "hidden", "some hidden"])
def test_delete_finds_the_live_rows_for_which_the_condition_is_true(
    changes: SparkChanges, tmp_path: Path, kind: str
) -> None:
    scan = numbered(tmp_path / "odd é%+&'~:@ name", kind, 20 if kind == "by join" else 4)
    found = changes.delete(scan, Delete("v <> 'c' OR id = 32"))
    expected = {}
    for place, path in enumerate(scan.files["path"].to_pylist()):
        n = 1 if place == scan.files.num_rows - 1 else place
        deleted = DELETED[2] if place == scan.files.num_rows - 1 else DELETED[n % 3]
        rows = [row for row in (0, *([2] if n == 3 else [])) if row not in deleted]
        if rows:
            expected[f"{path}#{place}"] = rows
    assert positions_in(scan, found) == expected
    assert (found.deleted, list(found.rows)) == (sum(map(len, expected.values())), [])


def test_names_of_files_that_repeat_and_vectors_that_are_too_large_are_no_obstacle(
    changes: SparkChanges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write_file(tmp_path, f"{n}/part.parquet", {"id": [n, n + 100, n + 200]}, deleted=[n]) for n in range(3)]
    scan = scan_of_files(tmp_path, "id BIGINT", files)
    expected = {f"{n}/part.parquet#{n}": [row for row in (1, 2) if row != n] for n in range(3)}
    assert positions_in(scan, changes.delete(scan, Delete("id >= 100"))) == expected
    monkeypatch.setattr(deleted_rows, "MAX_BROADCAST_BYTES", 0)
    monkeypatch.setattr(change_positions, "MAX_COLLECTED_BYTES", 0)
    assert positions_in(scan, changes.delete(scan, Delete("id >= 100"))) == expected


def test_rows_beyond_the_first_bitmap_are_found(changes: SparkChanges, tmp_path: Path) -> None:
    count = 100_000
    gone = random.Random(7).sample(range(count), 500)
    file = write_file(tmp_path, "a.parquet", pa.table({"id": list(range(count))}), deleted=sorted(gone))
    scan = scan_of_files(tmp_path, "id BIGINT", [file])
    found = changes.delete(scan, Delete("id % 3 = 0 OR id IN (32767, 32768, 65535, 65536)"))
    expected = {n for n in range(count) if n % 3 == 0 or n in (32767, 32768, 65535, 65536)} - set(gone)
    assert set(found.positions[0]) == expected
    everything = changes.delete(scan, Delete(None))
    assert set(everything.positions[0]) == set(range(count)) - set(gone)


def test_a_delete_is_one_job_over_one_scan(spark: SparkSession, changes: SparkChanges, tmp_path: Path) -> None:
    files = [write_file(tmp_path, f"{n}.parquet", {"id": [n], "v": [n]}) for n in range(3)]
    scan = scan_of_files(tmp_path, "id BIGINT, v BIGINT", files)
    context = spark.sparkContext
    context.setJobGroup("one delete", "one delete")
    try:
        changes.delete(scan, Delete("id > 0"))
        jobs = context.statusTracker().getJobIdsForGroup("one delete")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    # With adaptive execution, Spark counts the stage before the shuffle as a job of its own.
    assert len(jobs) <= 2


def test_conditions_follow_sql_for_null_nan_and_negative_zero(changes: SparkChanges, tmp_path: Path) -> None:
    rows = pa.table({"id": [0, 1, 2, 3, 4], "d": [float("nan"), -0.0, None, 1.0, 0.0]})
    scan = scan_of_files(tmp_path, "id BIGINT, d DOUBLE", [write_file(tmp_path, "a.parquet", rows)])
    conditions = {
        "d > 1": [0],
        "d = 0": [1, 4],
        "NOT d = 1": [0, 1, 4],
        "d IS NULL": [2],
        "cast(NULL AS BOOLEAN)": [],
        "d = double('NaN')": [0],
    }
    for where, expected in conditions.items():
        assert list(changes.delete(scan, Delete(where)).positions.get(0, ())) == expected, where
    assert list(changes.delete(scan, Delete(F.col("d").isNull() | (F.col("id") > 3))).positions[0]) == [2, 4]


# -- updates -----------------------------------------------------------------------------------------------------------


def test_update_gives_matching_rows_new_values(changes: SparkChanges, tmp_path: Path) -> None:
    scan = numbered(tmp_path, "by literals", 4)
    before = rows_after(scan, RowChanges({}))
    found = changes.update(scan, Update({"v": "concat(v, id)", "p": "p + 100L"}, "id % 10 <> 1"))
    expected = [
        {**row, "v": row["v"] and f"{row['v']}{row['id']}", "p": row["p"] + 100} if row["id"] % 10 != 1 else row
        for row in before
    ]
    assert rows_after(scan, found) == ordered(expected)
    assert found.updated == sum(row["id"] % 10 != 1 for row in before)
    assert (found.deleted, found.inserted) == (0, 0)


def test_an_update_that_matches_nothing_brings_nothing(changes: SparkChanges, tmp_path: Path) -> None:
    scan = numbered(tmp_path, "flat", 3)
    assert changes.update(scan, Update({"v": "'x'"}, "id < 0")) == RowChanges({})
    nothing = scan_of_files(tmp_path, "id BIGINT", [])
    assert changes.update(nothing, Update({"id": "1"}, None)) == RowChanges({})
    assert changes.delete(nothing, Delete(None)) == RowChanges({})


def test_fields_of_structs_and_odd_names_are_assigned(changes: SparkChanges, tmp_path: Path) -> None:
    schema = "id BIGINT, s STRUCT<a: INT, in: STRUCT<b: STRING, c: INT>>, `d.o``t` INT, __deltars_row_0 STRING"
    inner = pa.struct([("b", pa.string()), ("c", pa.int32())])
    rows = pa.table(
        {
            "id": pa.array([1, 2]),
            "s": pa.array([{"a": 1, "in": {"b": "x", "c": 2}}, None], pa.struct([("a", pa.int32()), ("in", inner)])),
            "d.o`t": pa.array([1, 2], pa.int32()),
            "__deltars_row_0": ["p", "q"],
        }
    )
    scan = scan_of_files(tmp_path, schema, [write_file(tmp_path, "a.parquet", rows)])
    found = changes.update(
        scan,
        Update({"S.in.b": "concat('new', id)", "s.A": "id", "d.o`t": "`d.o``t` + 1", "__deltars_row_0": "'r'"}, None),
    )
    odd = {"__deltars_row_0": "r"}
    assert rows_after(scan, found) == [
        {"id": 1, "s": {"a": 1, "in": {"b": "new1", "c": 2}}, "d.o`t": 2, **odd},
        {"id": 2, "s": {"a": 2, "in": {"b": "new2", "c": None}}, "d.o`t": 3, **odd},
    ]
    for values in ({"s": "s", "s.a": "1"}, {"s.a": "1", "s": "s"}, {"s.a": "1", "S.A": "2"}):
        with pytest.raises(ValidationError, match="assigned twice"):
            changes.update(scan, Update(values, None))


def test_generated_columns_are_left_out_unless_they_are_assigned(changes: SparkChanges, tmp_path: Path) -> None:
    id_, day = schema_from_ddl("id BIGINT, twice BIGINT").fields
    schema = StructType((id_, StructField(day.name, day.type, metadata={GENERATION: "id * 2"})))
    scan = scan_of_files(tmp_path, schema, [write_file(tmp_path, "a.parquet", {"id": [1], "twice": [2]})])
    [frame] = changes.update(scan, Update({"id": "5"}, None)).rows
    assert frame.columns == ["id"]  # type: ignore[attr-defined]
    [frame] = changes.update(scan, Update({"id": "5", "twice": "10"}, None)).rows
    assert frame.columns == ["id", "twice"]  # type: ignore[attr-defined]


@pytest.fixture(
    params=[pytest.param(True, id="ansi"), pytest.param(False, id="not ansi", marks=pytest.mark.soak(only=True))]
)
def _ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(request.param).lower())
    yield
    spark.conf.set("spark.sql.ansi.enabled", str(before))


TYPES = (
    "i INT, b TINYINT, d DOUBLE, f FLOAT, n DECIMAL(4, 2), s STRING, day DATE, at TIMESTAMP, x BOOLEAN,"
    " a ARRAY<INT>, m MAP<STRING, INT>, r STRUCT<p: INT, q: STRING>"
)


@pytest.mark.usefixtures("_ansi")
def test_values_are_assigned_as_spark_stores_them_whatever_the_session_says(
    changes: SparkChanges, tmp_path: Path
) -> None:
    scan = scan_of_files(tmp_path, TYPES, [write_file(tmp_path, "a.parquet", {"i": pa.array([1], pa.int32())})])

    def value(column: str, sql: str | Column) -> Any:
        [row] = rows_after(scan, changes.update(scan, Update({column: sql}, None)))
        return row[column]

    assert value("i", "1.9") == 1
    assert value("d", "0.5") == 0.5
    assert value("i", "NULL") is None
    assert str(value("n", "1.005")) == "1.01"
    assert value("s", "12") == "12"
    assert value("a", "array(1L, null)") == [1, None]
    assert value("m", "map('k', 2L)") == {"k": 2}
    assert value("r", "named_struct('q', 'x', 'P', 3L)") == {"p": 3, "q": "x"}
    assert value("i", F.lit(7)) == 7
    for column, sql in {
        "i": "3000000000",
        "b": "i + 200",
        "n": "100",
        "a": "array(3000000000)",
        "m": "map('k', 3000000000)",
    }.items():
        with pytest.raises(ValidationError, match=f"a value for column {column} does not fit"):
            value(column, sql)
    for column, sql in {"i": "'1'", "x": "1", "day": "'2026-01-01'", "a": "1", "r": "array(1)", "d": "true"}.items():
        with pytest.raises(SchemaMismatch, match=f"column {column} is of type .*, but its value is of type") as caught:
            value(column, sql)
        assert (caught.value.field, caught.value.table) == (column, "features")


REFUSED: dict[str, tuple[Delete | Update, str]] = {
    "unknown column": (Delete("nope = 1"), "nope"),
    "not boolean": (Delete("id + 1"), "BOOLEAN|boolean"),
    "syntax": (Delete("id = = 1"), "syntax error|Syntax error"),
    "subquery": (Delete("id IN (SELECT 1)"), "subquery"),
    "aggregate": (Delete("max(id) > 1"), "aggregate"),
    "value of an unknown column": (Update({"v": "nope"}, None), "nope"),
    "window": (Update({"v": "row_number() OVER (ORDER BY id)"}, None), "window"),
    "no such target": (Update({"w": "1"}, None), "there is no column 'w'"),
    "our own column": (Delete("__deltars_at_row_0 = 1"), "cannot be resolved"),
    "no expression": (Delete(7), "must be SQL text or a Spark column, got 7"),
}


def test_wrong_expressions_are_refused_before_anything_runs(changes: SparkChanges, tmp_path: Path) -> None:
    scan = scan_of_files(tmp_path / "gone", "id BIGINT, v STRING", [TestFile("not there.parquet", 1, {}, None)])
    for statement, message in REFUSED.values():
        with pytest.raises(ValidationError, match=message) as caught:
            changes.delete(scan, statement) if isinstance(statement, Delete) else changes.update(scan, statement)
        assert caught.value.table == "features"


def test_columns_with_aggregates_or_windows_are_refused(changes: SparkChanges, tmp_path: Path) -> None:
    scan = numbered(tmp_path, "flat", 3)
    for wrong in (F.max("id") > 1, F.col("nope") > 1, F.lit(1)):
        with pytest.raises(PredicateError, match="the condition is not valid"):
            changes.delete(scan, Delete(wrong))
    for value in (F.max("v"), F.expr("row_number() OVER (ORDER BY id)"), F.explode(F.array(F.lit("x")))):
        with pytest.raises(PredicateError, match="the value of column v in SET is not valid"):
            changes.update(scan, Update({"v": value}, None))


def test_positions_and_rows_of_an_update_come_from_one_evaluation(
    spark: SparkSession, changes: SparkChanges, tmp_path: Path
) -> None:
    rows = {"id": list(range(1000)), "v": [0.0] * 1000}
    scan = scan_of_files(tmp_path, "id BIGINT, v DOUBLE", [write_file(tmp_path, "a.parquet", rows)])
    # Spark takes the function for deterministic, so nothing but a single evaluation keeps its values.
    chance = F.udf(lambda _: random.random(), "double")
    found = changes.update(scan, Update({"v": chance("id") + 1}, chance("id") < 0.5))
    first = rows_after(scan, found)
    spark.catalog.clearCache()
    assert rows_after(scan, found) == first
    assert {row["id"] for row in first if row["v"]} == set(found.positions[0])
    assert len(first) == 1000
    assert 300 < found.updated < 700


# -- Spark Connect -----------------------------------------------------------------------------------------------------


@pytest.mark.soak(only=True)
def test_changes_by_spark_connect(connect_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = numbered(tmp_path / "a b", "by literals", 4)
    with connected(connect_url) as remote:
        changes = SparkChanges(remote)
        assert changes.delete(scan, Delete("id % 10 = 0")).deleted == 3
        found = changes.update(scan, Update({"v": "uuid()"}, "id % 10 = 2"))
        first = rows_after(scan, found)
        assert rows_after(scan, found) == first
        assert found.updated == 3
        for statement, message in (REFUSED["unknown column"], REFUSED["not boolean"], REFUSED["aggregate"]):
            assert isinstance(statement, Delete)
            with pytest.raises(ValidationError, match=message):
                changes.delete(scan, statement)
        with pytest.raises(SchemaMismatch, match="column p is of type int"):
            changes.update(scan, Update({"p": "'x'"}, None))
        with pytest.raises(ValidationError, match="a value for column p does not fit int"):
            changes.update(scan, Update({"p": "3000000000L"}, None))
        monkeypatch.setattr(arrow_read, "MAX_TASKS", 2)
        hidden = numbered(tmp_path / "hidden", "hidden", 4)
        assert changes.delete(hidden, Delete("id % 10 = 0")).deleted == 3
