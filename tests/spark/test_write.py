"""The three ways of writing a DataFrame: the same files, and nothing of what failed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import deltars
from deltars import progress_bar
from deltars.data import ArrowPlane, WriteTarget, WrittenFile, write_table
from deltars.errors import SchemaMismatch, StorageError, ValidationError
from deltars.protocol import StructType, schema_from_ddl, schema_to_arrow
from deltars.spark import SparkPlane, progress
from deltars.spark.schema import schema_to_spark
from deltars.spark.write import arrow as write_by_arrow
from deltars.spark.write import native as write_natively
from deltars.spark.write import small_frames
from deltars.spark.write.native import native_columns
from deltars.spark.write.small_frames import bytes_to_hand_over, small_rows
from tests.mirror.test_readers import READERS
from tests.spark.test_round_trip import data_types as random_types
from tests.spark.test_round_trip import rows, structs
from tests.support.soak import scaled

PLANE = SparkPlane()

EXTREMES = """
    select * from values
    (1, double('NaN'), float('-0'), 'é' || repeat('x', 100), 1.5BD, cast(1e35 as decimal(38,2)),
     timestamp'0001-01-01 00:00:00.000001Z', timestamp_ntz'9999-12-31 23:59:59', date'1500-02-28', X'00', true,
     named_struct('a b', 1, 'c.d', 'x'), 9223372036854775807),
    (2, 1D, float('0'), 'b', -2.5BD, cast(-1 as decimal(38,2)),
     timestamp'9999-12-30 00:00:00Z', null, date'9999-12-31', X'ff', false, null, -9223372036854775808),
    (3, double('-Infinity'), null, null, null, null, null, null, null, null, null,
     named_struct('a b', null, 'c.d', ''), 0)
    as t(id, nan, zero, text, small_frames, large, ts, ntz, day, bytes, flag, `st.ruct`, long)
"""


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_frames, "SMALL_BYTES", -1)


def target_of(root: Path, schema: StructType | str, **options: Any) -> WriteTarget:
    return WriteTarget(str(root), schema_from_ddl(schema) if isinstance(schema, str) else schema, **options)


def table_of(root: Path, files: list[WrittenFile]) -> pa.Table:
    return pa.concat_tables([pq.read_table(root / file.add.path) for file in files], promote_options="default")


@contextmanager
def moments_written_as(spark: SparkSession, kind: str) -> Iterator[None]:
    name = "spark.sql.parquet.outputTimestampType"
    before = str(spark.conf.get(name))
    spark.conf.set(name, kind)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def natively(frame: DataFrame, root: Path, **options: Any) -> list[WrittenFile]:
    target = target_of(root, PLANE.schema(frame), **options)
    # From Spark 4.2 on we ask for it with each write; before, the session decides.
    with moments_written_as(frame.sparkSession, "TIMESTAMP_MICROS"):
        assert native_columns(frame, target)
        return PLANE.write(frame, target)


@pytest.mark.usefixtures("nothing_is_small")
def test_files_of_spark_are_described_as_those_of_arrow(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(EXTREMES).coalesce(1)
    (native,) = natively(frame, tmp_path)
    (by_arrow,) = ArrowPlane().write(
        pq.read_table(tmp_path / native.add.path), target_of(tmp_path, PLANE.schema(frame))
    )
    assert json.loads(native.add.stats or "") == json.loads(by_arrow.add.stats or "")
    assert [json.loads(group.stats or "") for group in native.row_groups] == [
        json.loads(group.stats or "") for group in by_arrow.row_groups
    ]
    status = os.stat(tmp_path / native.add.path)
    assert (native.add.size, native.add.modification_time) == (status.st_size, status.st_mtime_ns // 1_000_000)
    footer = pq.read_metadata(tmp_path / native.add.path)
    assert [(group.num_rows, group.ordinal) for group in native.row_groups] == [(3, 0)]
    assert native.row_groups[0].total_bytes < native.add.size
    assert {footer.row_group(0).column(at).physical_type for at in range(footer.num_columns)}.isdisjoint({"INT96"})
    # Nothing but the files, not even what Spark leaves beside them.
    assert sorted(os.listdir(tmp_path)) == sorted([native.add.path, by_arrow.add.path])


@pytest.mark.soak
@pytest.mark.usefixtures("nothing_is_small")
def test_bounds_from_footers_are_those_of_the_rows_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    @settings(max_examples=scaled(4, soak=200))
    @given(structs(random_types()).flatmap(lambda schema: rows(schema).map(lambda row: (schema, [row, row]))))
    def check(drawn: tuple[StructType, list[dict[str, Any]]]) -> None:
        schema, found = drawn
        root = tmp_path / uuid4().hex
        frame = spark.createDataFrame(pa.Table.from_pylist(found, schema_to_arrow(schema)), schema_to_spark(schema))
        for file in PLANE.write(frame.coalesce(1), target := target_of(root, schema, max_records_per_file=1)):
            (wanted,) = ArrowPlane().write(pq.read_table(root / file.add.path), target)
            told, exact = json.loads(file.add.stats or ""), json.loads(wanted.add.stats or "")
            assert told["numRecords"] == exact["numRecords"]
            for bounds in ("minValues", "maxValues", "nullCount"):
                assert _is_part(told[bounds], exact[bounds])

    check()


def _is_part(told: dict[str, Any], exact: dict[str, Any]) -> bool:
    return all(
        _is_part(value, exact[name]) if isinstance(value, dict) else value == exact[name]
        for name, value in told.items()
    )


@pytest.mark.backends("sqlite")
@pytest.mark.usefixtures("nothing_is_small")
def test_other_readers_read_what_spark_wrote(catalog: deltars.Catalog, spark: SparkSession) -> None:
    frame = spark.sql(
        "select id, named_struct('a', id, 'b', array(id)) as s, map('k', id) as m,"
        " timestamp'2024-01-01 00:00:00Z' as ts, cast(id as decimal(20,3)) as d, cast(id as string) as text"
        " from range(10)"
    )
    catalog.write("events", frame)
    location = catalog.table("events").location
    wanted = [str(number) for number in range(10)]
    for read in READERS.values():
        assert sorted(read(Path(location), None)["text"].to_pylist()) == wanted
    assert sorted(catalog.table("events").to_arrow()["text"].to_pylist()) == wanted


@pytest.mark.usefixtures("nothing_is_small")
def test_options_reach_sparks_writer(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 1)
    codecs = {"zstd": "ZSTD", "snappy": "SNAPPY", "gzip": "GZIP", "lz4": "LZ4", "none": "UNCOMPRESSED"}
    for compression, codec in codecs.items():
        files = natively(frame, tmp_path / compression, compression=compression, max_records_per_file=40)
        assert [file.row_groups[0].num_rows for file in files] == [40, 40, 20]
        for file in files:
            footer = pq.read_metadata(tmp_path / compression / file.add.path)
            assert footer.row_group(0).column(0).compression == codec


@pytest.mark.usefixtures("nothing_is_small")
def test_many_footers_are_read_by_a_job_and_huge_files_written_again_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_natively, "DESCRIBED_HERE", 2)
    monkeypatch.setattr(write_natively, "TARGET_FILE_SIZE", 100_000)
    frame = spark.range(0, 100_000, 1, 4).selectExpr("id", "if(id < 25000, uuid(), '') as text")
    files = natively(frame, tmp_path, target_file_size=100_000)
    sizes = sorted(file.add.size for file in files)
    assert len(files) > 5
    assert sizes[-1] < 300_000
    assert sorted(table_of(tmp_path, files)["id"].to_pylist()) == list(range(100_000))
    assert sorted(os.listdir(tmp_path)) == sorted(file.add.path for file in files)


@pytest.mark.usefixtures("nothing_is_small")
def test_rows_that_executors_wrote_elsewhere_are_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_natively, "_is_here", lambda frame: False)
    assert table_of(tmp_path, natively(spark.range(100), tmp_path)).num_rows == 100
    monkeypatch.setattr(write_natively, "_described", lambda *_: [])
    with pytest.raises(StorageError, match=r"Spark wrote 100 rows to .*, but the driver sees 0 of them"):
        natively(spark.range(100), tmp_path)


@pytest.mark.parametrize(
    ("query", "schema"),
    [
        ("select 1L as id, 'a' as p", "id INT, p STRING"),
        ("select named_struct('b', 1, 'a', 2) as s", "s STRUCT<a: INT, b: INT>"),
        ("select array(1, null) as a", "a ARRAY<INT>"),
    ],
    ids=["a cast", "fields in another order", "the same"],
)
def test_only_columns_that_are_the_tables_own_go_to_sparks_writer(
    spark: SparkSession, tmp_path: Path, query: str, schema: str
) -> None:
    is_same = "array" in query
    assert (native_columns(spark.sql(query), target_of(tmp_path, schema)) is not None) is is_same


def test_sessions_that_ask_for_other_files_are_left_to_arrow(spark: SparkSession, tmp_path: Path) -> None:
    frame, target = spark.range(3), target_of(tmp_path, "id BIGINT")
    for name, value in (
        ("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY"),
        ("spark.sql.parquet.writeLegacyFormat", "true"),
    ):
        assert native_columns(frame, target) is not None
        before = spark.conf.get(name)
        spark.conf.set(name, value)
        try:
            assert native_columns(frame, target) is None
        finally:
            spark.conf.set(name, str(before))


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_moments_are_never_written_as_int96(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select id, timestamp_micros(id) as at, array(timestamp_micros(id)) as all from range(0, 4, 1, 2)"
    )
    with moments_written_as(spark, kind):
        written = PLANE.write(frame, target_of(tmp_path, PLANE.schema(frame)))
    assert written
    for file in written:
        footer = pq.read_metadata(tmp_path / file.add.path).row_group(0)
        assert [footer.column(at).physical_type for at in range(3)] == ["INT64"] * 3
        assert "at" in json.loads(file.add.stats or "")["maxValues"]


@pytest.mark.usefixtures("nothing_is_small")
def test_not_null_is_kept_by_sparks_writer(spark: SparkSession, tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT NOT NULL, name STRING")
    frame = spark.sql("select if(id = 7, null, id) as id from range(10)")
    assert native_columns(frame, target)
    with pytest.raises(SchemaMismatch, match="column id is NOT NULL and has nulls in the data"):
        PLANE.write(frame, target)
    assert os.listdir(tmp_path) == []
    assert table_of(tmp_path, PLANE.write(frame.where("id < 5"), target)).num_rows == 5


@pytest.mark.backends("sqlite")
def test_condition_is_asked_of_the_frames_own_rows_only(catalog: deltars.Catalog, spark: SparkSession) -> None:
    catalog.create_table("events", "id BIGINT", properties={"delta.constraints.low": "id < 2"})
    left = spark.createDataFrame([(1,), (2,)], "id BIGINT")
    right = spark.createDataFrame([(1,)], "id BIGINT")
    catalog.write("events", left.join(right, "id"))
    assert catalog.table("events").to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(ValidationError, match="low"):
        catalog.write("events", left.join(right, "id", "left"))


# -- small frames ------------------------------------------------------------------------------------------------------


def test_files_that_executors_wrote_elsewhere_are_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = str(tmp_path / "of an executor")
    write = write_by_arrow.write_batches

    def write_elsewhere(target: WriteTarget, *rest: Any) -> Iterator[pa.RecordBatch]:
        yield from write(replace(target, root=elsewhere), *rest)

    monkeypatch.setattr(write_by_arrow, "write_batches", write_elsewhere)
    monkeypatch.setattr(small_frames, "SMALL_BYTES", -1)
    frame = spark.range(4).selectExpr("id", "id % 2 as p")
    target = target_of(tmp_path / "table", PLANE.schema(frame), partition_columns=("p",))
    with pytest.raises(StorageError, match="the driver does not see it") as caught:
        PLANE.write(frame, target)
    assert "disk that the driver and the executors share" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda spark: spark.createDataFrame(pa.table({"id": [1, 2]})), True),
        (lambda spark: spark.range(0, 1000, 1, 4).where("id > 5").limit(3), True),
        (lambda spark: spark.sql("select 1 as id union all select 2"), True),
        (lambda spark: spark.range(10_000_000), False),
        (lambda spark: spark.sql("select explode(sequence(1, 10)) as id"), False),
        (lambda spark: spark.range(10).join(spark.range(10).withColumnRenamed("id", "b")), False),
        (lambda spark: spark.createDataFrame([(1,)], "id int"), False),
    ],
    ids=["arrow", "part of a range", "literals", "a large range", "exploded", "joined", "list"],
)
def test_frame_is_small_only_where_its_plan_says_so(
    spark: SparkSession, make: Callable[[SparkSession], DataFrame], wanted: bool
) -> None:
    assert (small_rows(make(spark)) is not None) is wanted


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["flat", "partitioned"])
@pytest.mark.parametrize(
    ("make", "is_few"),
    [
        (lambda spark: spark.createDataFrame([(i, i % 2) for i in range(100)], "id BIGINT, p BIGINT"), True),
        (lambda spark: spark.sparkContext.parallelize([(i, i % 2) for i in range(100)], 4).toDF(["id", "p"]), True),
        (lambda spark: spark.createDataFrame([(i, 1) for i in range(100)], "id INT, p INT").where("id < 0"), True),
        (lambda spark: spark.sparkContext.parallelize([0, 1], 2).flatMap(many).toDF("id BIGINT, p BIGINT"), False),
        (lambda spark: spark.sparkContext.parallelize([0, 9], 2).flatMap(many).toDF("id BIGINT, p BIGINT"), None),
    ],
    ids=["list", "tuples", "nothing", "much", "much and few"],
)
def test_rdd_is_written_by_its_tasks_unless_they_find_few_rows(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[SparkSession], DataFrame],
    is_few: bool | None,
    partition_by: tuple[str, ...],
) -> None:
    frame = make(spark)
    wanted = sorted(map(tuple, frame.collect()))
    target = target_of(tmp_path, PLANE.schema(frame), partition_columns=partition_by)
    monkeypatch.setattr(small_frames, "SMALL_BYTES", 40_000)
    fetched: list[int] = []

    def by_driver(target: WriteTarget, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
        files = write_table(target, batches)
        fetched.append(sum(group.num_rows for file in files for group in file.row_groups))
        return files

    monkeypatch.setattr(write_by_arrow, "write_table", by_driver)
    files = PLANE.write(frame, target)
    rows = [row for file in files for row in rows_in(tmp_path, file)]
    assert sorted(rows) == wanted
    assert fetched == [{True: len(wanted), False: 0, None: 1}[is_few]]


def many(number: int) -> Iterator[tuple[int, int]]:
    """Far more rows than anybody would hand over; of 9 a single one."""
    yield from ((i, number) for i in range(10 if number == 9 else 0, 11 if number == 9 else 10_000))


def rows_in(root: Path, file: WrittenFile) -> list[tuple[Any, ...]]:
    rows = pq.ParquetFile(root / file.add.path).read().to_pylist()
    given = {name: int(value or 0) for name, value in file.add.partition_values.items()}
    return [(row["id"], (row | given)["p"]) for row in rows]


def test_frame_whose_size_is_known_is_not_handed_over(spark: SparkSession) -> None:
    listed = spark.createDataFrame([(1,)], "id BIGINT")
    assert bytes_to_hand_over(listed) == small_frames.SMALL_BYTES // listed.rdd.getNumPartitions()
    for other in (spark.range(10), listed.repartition(3), listed.orderBy("id"), listed.groupBy("id").count()):
        assert bytes_to_hand_over(other) is None
    assert bytes_to_hand_over(spark.range(10_000).localCheckpoint()) is None


def test_small_frame_becomes_one_file_with_its_rows_as_they_were_drawn(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr("id", "rand() as r").selectExpr("id", "r", "r as same", "id % 2 as p")
    files = PLANE.write(frame, target_of(tmp_path / "flat", PLANE.schema(frame)))
    (found,) = (pq.read_table(tmp_path / "flat" / file.add.path) for file in files)
    assert sorted(found["id"].to_pylist()) == list(range(100))
    assert found["r"] == found["same"]
    target = target_of(tmp_path / "parts", PLANE.schema(frame), partition_columns=("p",))
    assert sorted(file.add.partition_values["p"] or "" for file in PLANE.write(frame, target)) == ["0", "1"]


# -- what fails --------------------------------------------------------------------------------------------------------


def failing(spark: SparkSession) -> DataFrame:
    # Rows that come before it are written, and their files finished.
    return spark.range(0, 1000, 1, 4).selectExpr(
        "if(id = 999, raise_error('no such feature'), id) as id", "id % 3 as p"
    )


@pytest.mark.backends("sqlite")
@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["flat", "partitioned"])
def test_failed_job_changes_nothing(catalog: deltars.Catalog, spark: SparkSession, partition_by: list[str]) -> None:
    good = spark.range(10).selectExpr("id", "id % 3 as p")
    catalog.write("events", good, partition_by=partition_by)
    before = catalog.table("events").snapshot().files["path"].to_pylist()
    with pytest.raises(PySparkException, match="no such feature"):
        catalog.write("events", failing(spark))
    assert catalog.table("events").version == 0
    assert catalog.table("events").snapshot().files["path"].to_pylist() == before
    if not partition_by:
        assert {name for name in os.listdir(catalog.table("events").location) if name != "_delta_log"} == set(before)


@pytest.mark.backends("sqlite")
@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["flat", "partitioned"])
def test_cancelled_job_changes_nothing(catalog: deltars.Catalog, spark: SparkSession, partition_by: list[str]) -> None:
    group, raised = f"write {uuid4()}", []
    slow = spark.range(0, 8, 1, 8).selectExpr(
        "id", "id % 2 as p", "java_method('java.lang.Thread', 'sleep', 1000L * id) as slept"
    )

    def write() -> None:
        spark.sparkContext.setJobGroup(group, "a write that somebody cancels", interruptOnCancel=True)
        try:
            catalog.write("events", slow, partition_by=partition_by)
        except Exception as error:
            raised.append(error)

    writing = InheritableThread(target=write, session=spark)
    writing.start()
    while not spark.sparkContext.statusTracker().getJobIdsForGroup(group):
        time.sleep(0.05)
    spark.sparkContext.cancelJobGroup(group)
    writing.join()
    assert [str(error).count("SPARK_JOB_CANCELLED") > 0 for error in raised] == [True]
    assert not catalog.table_exists("events")
    catalog.write("events", spark.range(3).selectExpr("id", "id as p"), partition_by=partition_by)
    assert sorted(catalog.table("events").to_arrow()["id"].to_pylist()) == [0, 1, 2]


@pytest.mark.soak(only=True)
def test_task_that_is_tried_again_writes_no_row_twice_and_loses_none(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.attempts", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog:
        for name in ("flat", "partitioned"):
            assert (tmp_path / name).exists(), "no attempt failed"
            table = catalog.table(name)
            assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(400))
            assert not [entry for entry in os.listdir(table.location) if entry.startswith("write-")]


# -- progress ----------------------------------------------------------------------------------------------------------


def test_long_write_shows_how_far_it_is_to_who_watches(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "PATIENCE_S", 0.0)
    slow = spark.sql("select java_method('java.lang.Thread', 'sleep', 2000L) from range(0, 2, 1, 2)")
    for is_terminal in (True, False):
        screen = io.StringIO()
        with progress.shown(spark, "/lake/events", Console(file=screen, force_terminal=is_terminal, width=100)):
            slow.collect()
        assert ("writing /lake/events" in screen.getvalue()) is is_terminal
    monkeypatch.setenv("DELTARS_PROGRESS", "0")
    with progress.shown(spark, "/lake/events", Console(file=(screen := io.StringIO()), force_terminal=True)):
        slow.collect()
    assert screen.getvalue() == ""
