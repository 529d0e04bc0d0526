"""Changes of large files beside a Spark session: few values are searched without a job; Spark rewrites the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.spark.change import plane as spark_changes
from deltars.spark.change import purge as spark_purge
from deltars.transaction import read_size

pytestmark = pytest.mark.backends("sqlite")
COUNT = 200


@pytest.fixture(autouse=True)
def large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_size, "SMALL_BYTES", 2_000)
    monkeypatch.setattr(spark_purge, "HERE_BYTES", 0)


@pytest.fixture
def spark_work(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Spark was asked to do: find rows by a statement, or rewrite files."""
    asked: list[str] = []

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*given: Any) -> Any:
            asked.append(name)
            return real(*given)

        return ask

    for name in ("delete_rows", "update_rows", "merge_rows", "purge_by_spark"):
        monkeypatch.setattr(spark_changes, name, watched(name, getattr(spark_changes, name)))
    return asked


def _table(catalog: deltars.Catalog, vectors: str) -> deltars.Table:
    ids = range(COUNT)
    rows = pa.table({"id": ids, "a": [[i] for i in ids], "name": [f"name {i}" for i in ids]})
    catalog.write("t", rows, properties={"delta.enableDeletionVectors": vectors})
    return catalog.table("t")


def _names(table: deltars.Table) -> dict[int, str]:
    rows = table.to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_are_searched_without_spark_and_files_rewritten_by_it(
    catalog: deltars.Catalog, spark: SparkSession, spark_work: list[str], vectors: str
) -> None:
    table = _table(catalog, vectors)
    assert table.delete("id % 10 = 3").rows_deleted == 20
    source = pa.table({"id": [3, 4, 5], "a": [[0]] * 3, "name": ["x"] * 3})
    done = table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.rows_updated, done.rows_inserted) == (2, 1)
    assert spark_work == ([] if vectors == "true" else ["purge_by_spark"] * 2)
    expected = {i: f"name {i}" for i in range(COUNT) if i % 10 != 3} | dict.fromkeys((3, 4, 5), "x")
    assert _names(table) == expected
    read = table.read(spark=spark).select("id", "name").collect()
    assert {row.id: row.name for row in read} == expected


def test_spark_finds_rows_if_more_is_read(catalog: deltars.Catalog, spark: SparkSession, spark_work: list[str]) -> None:
    table = _table(catalog, "true")
    assert table.update({"name": "'y'"}, "id = 1").rows_updated == 1
    assert table.delete("size(a) = 1 AND id = 2").rows_deleted == 1
    merge = table.merge(pa.table({"id": [4]}), "t.id = s.id").when_matched_update({"name": "concat(t.name, '!')"})
    assert merge.execute().rows_updated == 1
    assert spark_work == ["update_rows", "delete_rows", "merge_rows"]
    names = _names(table)
    assert (names[1], 2 in names, names[4]) == ("y", False, "name 4!")


def test_spark_finds_rows_if_the_values_are_many(
    catalog: deltars.Catalog, spark: SparkSession, spark_work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(catalog, "true")
    monkeypatch.setattr(read_size, "MAX_VALUES", COUNT - 1)
    assert table.delete("id = 2").rows_deleted == 1
    assert spark_work == ["delete_rows"]


def test_a_source_from_files_needs_no_job_but_its_own(
    catalog: deltars.Catalog, spark: SparkSession, spark_work: list[str], tmp_path: Path
) -> None:
    table = _table(catalog, "true")
    spark.range(190, 210, 1, 2).selectExpr("id", "array(id) a", "'x' name").write.parquet(str(tmp_path / "source"))
    source = spark.read.parquet(str(tmp_path / "source")).where("id % 2 = 0")
    context = spark.sparkContext
    context.setJobGroup("one merge", "one merge")
    try:
        merge = table.merge(source.select("id", "name"), "t.id = s.id").when_matched_delete()
        assert merge.execute().rows_deleted == 5
        jobs = context.statusTracker().getJobIdsForGroup("one merge")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert len(jobs) == 1
    assert spark_work == []
