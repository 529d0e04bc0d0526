"""Frames that somebody has cached: other reads find the files all the same, and no version is taken for another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.spark import SparkPlane
from deltars.spark.read import files as read_files
from deltars.spark.read import frame_cache
from tests.support.scans import scan_of_files, vector_of, write_file

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture(autouse=True)
def _nothing_is_kept(spark: SparkSession) -> Iterator[None]:
    frame_cache.forget()
    yield
    spark.catalog.clearCache()


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def cached(frame: DataFrame) -> DataFrame:
    """With its rows in memory."""
    frame = frame.cache()
    assert frame.count()
    assert frame.storageLevel.useMemory
    return frame


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["flat", "partitioned"])
@pytest.mark.parametrize("listed", [0, 32], ids=["manifest", "list"])
def test_a_cached_frame_does_not_break_other_reads(
    catalog: deltars.Catalog,
    spark: SparkSession,
    partition_by: tuple[str, ...],
    listed: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(read_files, "LISTED_FILES", listed)
    rows = pa.table({"id": [1, 2], "p": [1, 2], "d": [1.0, float("nan")]})
    catalog.write("t", rows, partition_by=partition_by, max_records_per_file=1)
    table = catalog.table("t")
    whole = cached(table.read(spark=spark))
    assert "InMemoryTableScan" in whole.select("id")._jdf.queryExecution().executedPlan().toString()
    assert ids(table.read(spark=spark)) == [1, 2]
    assert ids(table.read(spark=spark, where="id > 1", columns=["id"])) == [2]
    assert ids(catalog.sql("select id from t", spark=spark)) == [1, 2]
    # Spark's cache would leave NaN out.
    assert ids(table.read(spark=spark).where("d > 1")) == [2]
    assert not caplog.records


def test_rows_are_told_apart_by_their_files_beside_a_cached_frame(spark: SparkSession, tmp_path: Path) -> None:
    files = [write_file(tmp_path, f"{number}.parquet", {"id": [number, number + 100]}) for number in range(3)]
    plane = SparkPlane()
    whole = cached(plane.read(spark, scan_of_files(tmp_path, "id BIGINT", files)))
    # The same files, of which one vector after the other takes rows.
    first = scan_of_files(tmp_path, "id BIGINT", [replace(file, vector=vector_of([0])) for file in files])
    second = scan_of_files(tmp_path, "id BIGINT", [replace(file, vector=vector_of([1])) for file in files])
    assert ids(cached(plane.read(spark, first))) == [100, 101, 102]
    assert ids(plane.read(spark, second)) == [0, 1, 2]
    assert ids(plane.read(spark, first)) == [100, 101, 102]
    assert ids(whole) == [0, 1, 2, 100, 101, 102]


def test_no_version_is_answered_with_the_cached_rows_of_another(catalog: deltars.Catalog, spark: SparkSession) -> None:
    catalog.write("t", pa.table({"id": [1]}))
    table = catalog.table("t")
    before = cached(table.read(spark=spark))
    catalog.write("t", pa.table({"id": [2]}))
    after = cached(table.read(spark=spark))
    catalog.write("t", pa.table({"id": [3]}), "overwrite")
    assert [ids(frame) for frame in (table.read(spark=spark), after, before)] == [[3], [1, 2], [1]]
    assert [ids(table.read(spark=spark, version=version)) for version in range(3)] == [[1], [1, 2], [3]]
    spark.catalog.clearCache()
    assert [ids(frame) for frame in (table.read(spark=spark), after, before)] == [[3], [1, 2], [1]]
    catalog.drop_table("t")
    catalog.write("t", pa.table({"id": [4]}))
    assert ids(catalog.table("t").read(spark=spark)) == [4]


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["natively", "in tasks"])
@pytest.mark.parametrize("how", ["cached", "checkpointed"])
def test_frames_that_are_held_are_written_whole_and_over_their_own_table(
    catalog: deltars.Catalog, spark: SparkSession, partition_by: tuple[str, ...], how: str
) -> None:
    source = spark.range(0, 1000, 1, 3).selectExpr("id", "id % 2 AS p", "id / 3 AS d")
    held = cached(source) if how == "cached" else source.localCheckpoint()
    catalog.write("t", held, partition_by=partition_by)
    table = catalog.table("t")
    assert ids(table.read(spark=spark)) == list(range(1000))
    own = table.read(spark=spark).where("id < 10")
    own = cached(own) if how == "cached" else own.localCheckpoint()
    catalog.write("t", own, "overwrite")
    catalog.write("t", own)
    assert ids(table.read(spark=spark)) == sorted([*range(10), *range(10)])
    assert table.to_arrow().num_rows == 20
