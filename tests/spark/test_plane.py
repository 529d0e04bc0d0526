"""DataFrames to data files and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data import ArrowPlane, Scan, WriteTarget, WrittenFile, write_table
from deltars.errors import ConfigError, SchemaMismatch, StorageError, ValidationError
from deltars.protocol import StructType, schema_from_ddl
from deltars.spark import SparkPlane, active_session
from deltars.spark.write import small_frames
from deltars.spark.write.arrow import sorted_by_partition, write_by_arrow

PLANE = SparkPlane()

AWKWARD = [
    "a b",
    "a/b",
    "100%",
    "%2F",
    "x=y",
    "é😀東京",
    "quote'\"",
    "a:b#c?d",
    "{[*]}",
    "back\\slash",
    " ",
    "1",
    "null",
]

TYPES = {
    "byte": ("1Y", "-128Y"),
    "short": ("2S", "-32768S"),
    "integer": ("3", "-2147483648"),
    "long": ("4L", "-9223372036854775808L"),
    "float": ("1.5F", "float('NaN')"),
    "double": ("2.5D", "double('-Infinity')"),
    "boolean": ("true", "false"),
    "string": ("'é😀'", "''"),
    "binary": ("X'00FF'", "X''"),
    "date": ("date'0001-01-01'", "date'9999-12-31'"),
    "timestamp": ("timestamp'0001-01-02 00:00:00.000001Z'", "timestamp'9999-12-30 23:59:59.999999Z'"),
    "timestamp_ntz": ("timestamp_ntz'0001-01-01 00:00:00'", "timestamp_ntz'9999-12-31 23:59:59.999999'"),
    "decimal": ("1.23BD", "-9.99BD"),
    "large_decimal": ("cast(1e37 as decimal(38,0))", "cast(-1 as decimal(38,0))"),
    "array": ("array(1, null)", "array()"),
    "map": ("map('a', 1)", "map()"),
    "struct": ("named_struct('x', 1, 'y', named_struct('z', 'q'))", "named_struct('x', null, 'y', null)"),
    "structs": ("array(named_struct('x', 1))", "array(null)"),
}
ALL_TYPES = " union all ".join(
    "select " + ", ".join(f"{(*values, 'null')[row]} as {name}" for name, values in TYPES.items()) for row in range(3)
)


def target_of(root: Path, schema: StructType | str, *partition_columns: str) -> WriteTarget:
    return WriteTarget(str(root), schema_from_ddl(schema) if isinstance(schema, str) else schema, partition_columns)


def scan_of(target: WriteTarget, files: Sequence[WrittenFile]) -> Scan:
    return Scan(
        root=target.root,
        schema=target.schema,
        partition_columns=target.partition_columns,
        source=pa.table(
            {
                "path": pa.array([file.add.path for file in files], pa.string()),
                "size": pa.array([file.add.size for file in files], pa.int64()),
                "modification_time": pa.array([file.add.modification_time for file in files], pa.int64()),
                "partition_values": pa.array([json.dumps(file.add.partition_values) for file in files], pa.string()),
                "deletion_vector": pa.nulls(len(files), pa.string()),
            }
        ),
        table="features",
        version=3,
    )


def through(spark: SparkSession, frame: DataFrame, root: Path, *partition_columns: str) -> DataFrame:
    target = target_of(root, PLANE.schema(frame), *partition_columns)
    return PLANE.read(spark, scan_of(target, PLANE.write(frame, target)))


def rows_of(frame: DataFrame) -> list[str]:
    """The rows in an order of their own; NaN equals itself as text."""
    return sorted(map(repr, frame.collect()))


def data_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.parquet"))


@pytest.fixture(params=["UTC", "America/New_York"])
def in_zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", str(before))


def as_text(frame: DataFrame) -> DataFrame:
    """Times as Spark itself says them: Python's conversion depends on the machine's zone."""
    return frame.select(
        *(
            F.col(name).cast("string").alias(name) if kind in ("timestamp", "timestamp_ntz") else F.col(name)
            for name, kind in frame.dtypes
        )
    )


def test_every_type_comes_back_as_it_was(spark: SparkSession, tmp_path: Path, in_zone: str) -> None:
    frame = spark.sql(ALL_TYPES)
    back = through(spark, frame, tmp_path)
    assert back.dtypes == frame.dtypes
    assert rows_of(as_text(back)) == rows_of(as_text(frame))


def test_files_of_spark_have_the_same_statistics_as_files_of_arrow(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("select id, cast(id as string) name, id / 7 ratio from range(100)").coalesce(1)
    target = target_of(tmp_path, PLANE.schema(frame))
    (by_spark,) = PLANE.write(frame, target)
    (by_arrow,) = ArrowPlane().write(frame.toArrow(), target)
    assert by_spark.add.stats == by_arrow.add.stats
    assert [group.stats for group in by_spark.row_groups] == [group.stats for group in by_arrow.row_groups]
    footer = pq.read_metadata(tmp_path / by_spark.add.path)
    assert (footer.num_rows, by_spark.row_groups[0].num_rows) == (100, 100)


def test_each_task_writes_files_of_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_frames, "SMALL_BYTES", -1)
    frame = spark.range(0, 1000, 1, 4)
    target = target_of(tmp_path, "id BIGINT")
    files = PLANE.write(frame, target)
    assert [file.add.path[:10] for file in files] == [f"part-0000{task}" for task in range(4)]
    assert data_files(tmp_path) == sorted(file.add.path for file in files)
    assert PLANE.read(spark, scan_of(target, files)).agg(F.sum("id"), F.count("id")).first() == (
        499_500,
        1000,
    )


@pytest.mark.parametrize("rows", ["no tasks", "empty tasks"])
def test_an_empty_frame_makes_no_file_and_reads_as_an_empty_table(
    spark: SparkSession, tmp_path: Path, rows: str
) -> None:
    frame = spark.createDataFrame([], "id bigint, p string") if rows == "no tasks" else spark.range(9).where("id < 0")
    assert PLANE.write(frame, target_of(tmp_path, PLANE.schema(frame))) == []
    back = through(spark, frame, tmp_path)
    assert back.dtypes == frame.dtypes
    assert back.collect() == []


def test_awkward_partition_values_come_back_from_the_paths(spark: SparkSession, tmp_path: Path) -> None:
    values = [None, "", *AWKWARD]
    frame = spark.createDataFrame(list(enumerate(values)), "id int, p string").select("p", "id")
    target = target_of(tmp_path, PLANE.schema(frame), "p")
    files = PLANE.write(frame, target)
    assert {file.add.partition_values["p"] for file in files} == {None, *AWKWARD}
    back = PLANE.read(spark, scan_of(target, files))
    assert back.columns == ["p", "id"]
    # Delta has no empty string as a partition value: it is null.
    assert sorted((row.id, row.p) for row in back.collect()) == [(i, v or None) for i, v in enumerate(values)]
    assert "Union" not in plan_of(back)


def test_tables_in_directories_with_awkward_names_are_read(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "my [la]ke {1} %20 *?"
    frame = spark.sql("select id, 'a/b {x}' as p from range(3)")
    assert rows_of(through(spark, frame, root, "p")) == rows_of(frame)
    assert rows_of(through(spark, frame, root / "flat")) == rows_of(frame)


def test_partition_columns_keep_their_type_when_read_from_paths(spark: SparkSession, tmp_path: Path) -> None:
    columns = ["byte", "short", "integer", "long", "boolean", "date"]
    frame = spark.sql(ALL_TYPES).select(*columns, F.monotonically_increasing_id().alias("id"))
    back = through(spark, frame, tmp_path, *columns)
    assert back.dtypes == frame.dtypes
    assert rows_of(back) == rows_of(frame)
    assert "Union" not in plan_of(back)


def test_partition_columns_that_spark_would_misread_come_from_the_paths_as_text(
    spark: SparkSession, tmp_path: Path, in_zone: str
) -> None:
    columns = ["timestamp", "timestamp_ntz", "decimal", "double", "float"]
    frame = spark.sql(ALL_TYPES).select(*columns, F.monotonically_increasing_id().alias("id"))
    back = through(spark, frame, tmp_path, *columns)
    assert back.dtypes == frame.dtypes
    assert rows_of(as_text(back)) == rows_of(as_text(frame))
    assert "Union" not in plan_of(back)


def test_a_binary_partition_column_comes_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("select X'6162' as p, 1 as id union all select null, 2")
    assert rows_of(through(spark, frame, tmp_path, "p")) == rows_of(frame)


@pytest.mark.parametrize(
    ("value", "directory"),
    [("__HIVE_DEFAULT_PARTITION__", "p=__HIVE_DEFAULT_PARTITION__"), ("x" * 300, ""), ("a", "p=b"), (None, "p=a")],
    ids=["a value that paths take for null", "too long for a name", "another value", "null"],
)
def test_the_log_decides_where_a_path_says_something_else(
    spark: SparkSession, tmp_path: Path, value: str | None, directory: str
) -> None:
    target = target_of(tmp_path, "id BIGINT, p STRING", "p")
    files = write_table(target, [pa.record_batch({"id": [1], "p": pa.array([value], pa.string())})])
    os.makedirs(tmp_path / directory, exist_ok=True)
    os.rename(tmp_path / files[0].add.path, tmp_path / directory / "part.parquet")
    scan = scan_of(target, files)
    scan = replace(scan, source=scan.files.set_column(0, "path", pa.array([f"{directory}/part.parquet".lstrip("/")])))
    assert PLANE.read(spark, scan).collect() == [(1, value)]


def test_a_directory_that_looks_like_a_partition_is_none_where_the_table_has_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = target_of(tmp_path, "id BIGINT, day STRING")
    files = write_table(target, pa.table({"id": [1], "day": ["monday"]}).to_batches())
    os.makedirs(tmp_path / "day=sunday")
    os.rename(tmp_path / files[0].add.path, tmp_path / "day=sunday" / "part.parquet")
    scan = scan_of(target, files)
    scan = replace(scan, source=scan.files.set_column(0, "path", pa.array(["day=sunday/part.parquet"])))
    assert PLANE.read(spark, scan).collect() == [(1, "monday")]


def test_an_absolute_path_is_read_where_it_leads_into_the_table_and_refused_elsewhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = target_of(tmp_path / "my table", "id BIGINT")
    (file,) = write_table(target, pa.table({"id": [7]}).to_batches())
    uri = f"file://{tmp_path}/my%20table/{file.add.path}"
    for root, reads in ((target, True), (target_of(tmp_path / "another", "id BIGINT"), False)):
        scan = scan_of(root, [file])
        scan = replace(scan, source=scan.files.set_column(0, "path", pa.array([uri])))
        if reads:
            assert [row.id for row in PLANE.read(spark, scan).collect()] == [7]
        else:
            with pytest.raises(ValidationError, match="is outside the table"):
                PLANE.read(spark, scan)


def test_filters_and_columns_reach_sparks_own_parquet_reader(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("select id, id * 2 as twice, id % 3 as p from range(30)")
    plan = plan_of(through(spark, frame, tmp_path, "p").where("twice > 10 and p = 1").select("id"))
    assert "FileScan parquet" in plan
    assert "PushedFilters: [IsNotNull(twice), GreaterThan(twice,10)]" in plan
    assert "PartitionFilters: [isnotnull(p" in plan


def plan_of(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().toString()
    return text


def test_old_files_are_read_under_a_wider_schema(spark: SparkSession, tmp_path: Path) -> None:
    narrow = target_of(tmp_path, "id INT")
    files = PLANE.write(spark.sql("select 1 as id"), narrow)
    wide = target_of(tmp_path, "id BIGINT, added STRING")
    assert PLANE.read(spark, scan_of(wide, files)).collect() == [(1, None)]


def test_a_missing_data_file_is_named_with_its_version(spark: SparkSession, tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, p STRING", "p")
    files = PLANE.write(spark.sql("select id, 'a {b' as p from range(3)").coalesce(1), target)
    (path,) = data_files(tmp_path)
    os.unlink(tmp_path / path)
    with pytest.raises(StorageError) as caught:
        PLANE.read(spark, scan_of(target, files))
    assert (caught.value.path, caught.value.table, caught.value.version) == (path, "features", 3)
    assert path in str(caught.value)


def test_a_missing_file_is_not_passed_over_by_a_session_that_would(spark: SparkSession, tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT")
    files = PLANE.write(spark.range(10).coalesce(1), target)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = PLANE.read(spark, scan_of(target, files))
        os.unlink(tmp_path / files[0].add.path)
        with pytest.raises(Exception, match=files[0].add.path):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_failing_task_raises_and_leaves_whole_files_only(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 4).selectExpr("if(id = 999, raise_error('no such feature'), id) as id", "0 as p")
    target = target_of(tmp_path, "id BIGINT, p INT", "p")
    with pytest.raises(PySparkException, match="no such feature"):
        write_by_arrow(sorted_by_partition(frame, target), target, frame.columns)
    for path in data_files(tmp_path):
        assert pq.read_metadata(tmp_path / path).num_rows == 250
    assert len(data_files(tmp_path)) <= 3
    assert sorted(map(str, tmp_path.rglob("part-*"))) == [str(tmp_path / path) for path in data_files(tmp_path)]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select case when id < 9 then id end as id from range(10)", "column id is NOT NULL and has nulls"),
        ("select 5000000000 as id, 'a' as name", "holds a value that does not fit integer"),
    ],
)
def test_rows_that_do_not_fit_raise_the_same_error_from_a_task(
    spark: SparkSession, tmp_path: Path, query: str, reason: str
) -> None:
    with pytest.raises(SchemaMismatch, match=reason) as caught:
        PLANE.write(spark.sql(query), target_of(tmp_path, "id INT NOT NULL, name STRING"))
    assert "table: struct<id: integer not null, name: string>" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_schema_that_does_not_fit_is_refused_before_any_job(spark: SparkSession, tmp_path: Path) -> None:
    failing = spark.sql("select assert_true(false) is null as id")
    with pytest.raises(SchemaMismatch, match="column id is boolean in the data, long in the table"):
        PLANE.write(failing, target_of(tmp_path, "id BIGINT"))


def test_columns_are_matched_by_name_in_any_case_partition_columns_too(spark: SparkSession, tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, Day DATE, `od``d.name` STRING", "Day", "od`d.name")
    frame = spark.sql("select date'2024-01-01' as DAY, 'x' as `OD``d.name`, 7L as ID")
    files = PLANE.write(frame, target)
    assert files[0].add.partition_values == {"Day": "2024-01-01", "od`d.name": "x"}
    assert PLANE.read(spark, scan_of(target, files)).collect() == [(7, date(2024, 1, 1), "x")]


def test_missing_columns_and_columns_of_nulls_become_null(spark: SparkSession, tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, name STRING, score DOUBLE")
    files = PLANE.write(spark.sql("select 1L as id, null as name"), target)
    assert PLANE.read(spark, scan_of(target, files)).collect() == [(1, None, None)]


def test_rows_of_a_partition_come_sorted_so_a_task_writes_one_file_for_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(0, 7_000, 1, 1).select("id", (F.col("id") % 70).cast("int").alias("p"))
    target = target_of(tmp_path, "id BIGINT, p INT", "p")
    # Rows that come in their own order would need all 70 files open at once, batch after batch.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        files = PLANE.write(frame, target)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(files) == 70
    assert PLANE.read(spark, scan_of(target, files)).agg(F.sum("id"), F.count("id")).first() == (
        24_496_500,
        7_000,
    )


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("interval '1' day", "interval day"),
        ("interval '1' year", "interval year"),
        ("make_interval(1)", "interval"),
        ("named_struct('x', interval '1' day)", r"column c\.x"),
        ("time'10:00:00'", r"time\(6\)"),
        ("cast('a' as string collate UTF8_LCASE)", "collation"),
    ],
)
def test_types_that_delta_does_not_have_are_refused_by_name(spark: SparkSession, expression: str, named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        PLANE.schema(spark.sql(f"select {expression} as c"))


def test_a_schema_keeps_comments_and_drops_what_was_true_of_another_table(spark: SparkSession) -> None:
    metadata: dict[str, Any] = {
        "comment": "the key",
        "delta.generationExpression": "1",
        "CURRENT_DEFAULT": "0",
    }
    frame = spark.range(1).select(F.col("id").alias("id", metadata=metadata))
    assert dict(PLANE.schema(frame)["id"].metadata) == {"comment": "the key"}


def test_the_arrow_plane_leaves_spark_frames_alone(spark: SparkSession) -> None:
    frame = spark.range(1)
    assert PLANE.accepts(frame)
    assert not ArrowPlane().accepts(frame)
    assert not PLANE.accepts(pa.table({"id": [1]}))


def test_what_runs_on_executors_brings_no_sql_along() -> None:
    program = "import sys, deltars.spark.write.frame; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"sqlalchemy", "psycopg", "duckdb", "click", "deltars.catalog"} & set(loaded.split())


def test_the_active_session_is_used_when_none_is_given(spark: SparkSession, tmp_path: Path) -> None:
    target = target_of(tmp_path, "id BIGINT, d DECIMAL(5,2), t TIMESTAMP")
    rows = pa.table({"id": [1], "d": [Decimal("1.50")], "t": [datetime(2024, 1, 1, tzinfo=UTC)]})
    scan = scan_of(target, write_table(target, rows.to_batches()))
    assert PLANE.read(None, scan).select("id", "d", F.unix_micros("t")).collect() == [
        (1, Decimal("1.50"), 1_704_067_200_000_000)
    ]


def test_without_a_session_the_error_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    with pytest.raises(ConfigError, match=r"SparkSession\.builder\.getOrCreate\(\)"):
        active_session()
