"""Writes to clustered tables: each sorts its rows by the curve that OPTIMIZE sorts by."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.data import z_order
from deltars.data.write_target import WriteTarget
from deltars.data.writer import write_table
from deltars.protocol import schema_from_ddl, uri_to_path
from deltars.spark.write import small_frames

pytestmark = pytest.mark.backends("sqlite")

IDS = random.Random(7).sample(range(900), 900)


def files_of(table: deltars.Table) -> list[pa.Table]:
    """The rows of each file, in its order, newest file last."""
    listed = sorted(table.files().to_pylist(), key=lambda file: (file["version"], file["path"]))
    return [pq.read_table(Path(table.location, uri_to_path(file["path"]))) for file in listed]


def test_rows_of_a_write_are_sorted_and_null_is_first_and_nan_last(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, x DOUBLE", cluster_by="x")
    values: list[Any] = [math.nan, 2.5, None, -1.0, math.inf, -math.inf]
    table.write(pa.table({"ID": range(6), "x": values}))
    [rows] = files_of(table)
    assert rows["id"].to_pylist()[:4] == [2, 5, 3, 1]
    assert sorted(rows["id"].to_pylist()[4:]) == [0, 4]


def test_neighbours_of_each_of_two_columns_are_written_together(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "a INT, n STRUCT<b: INT>", cluster_by=["a", "n.b"])
    table.write(pa.table({"a": [i // 30 for i in IDS], "n": [{"b": i % 30} for i in IDS]}), target_file_size=600)
    spans = [{name: _span(rows, name) for name in ("a", "b")} for rows in files_of(table)]
    assert len(spans) >= 4
    assert all(span < 29 for one in spans for span in one.values()), "each file has a part of each column's values"
    assert sorted(row["a"] * 30 + row["n"]["b"] for row in table.to_arrow().to_pylist()) == list(range(900))


def _span(rows: pa.Table, name: str) -> int:
    values = [row["a"] if name == "a" else row["n"]["b"] for row in rows.to_pylist()]
    return int(max(values) - min(values))


def test_updated_and_merged_rows_are_sorted_and_rewritten_files_keep_their_order(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, x INT", properties={"delta.enableChangeDataFeed": "true"})
    table.write(pa.table({"id": IDS, "x": pa.array([0] * 900, pa.int32())}))
    with catalog.begin() as tx:
        tx.alter("t").cluster_by("id")
        tx.update("t", {"x": "1"}, "id < 300")
    rewritten, updated = sorted(files_of(table), key=lambda rows: -rows.num_rows)
    assert rewritten["id"].to_pylist() == [i for i in IDS if i >= 300]
    assert updated["id"].to_pylist() == list(range(300))
    source = pa.table({"id": [905, 901, 7, 903], "x": pa.array([5, 5, 5, 5], pa.int32())})
    table.merge(source, "t.id = s.id").when_not_matched_insert_all().execute()
    assert files_of(table)[-1]["id"].to_pylist() == [901, 903, 905]
    assert table.verify(deep=True).is_ok


def test_clustering_that_ended_sorts_no_more(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", cluster_by="id")
    table.alter.cluster_by(None)
    table.write(pa.table({"id": [3, 1, 2]}))
    assert files_of(table)[0]["id"].to_pylist() == [3, 1, 2]


def test_long_write_is_sorted_in_runs_and_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(z_order.sorted_runs, "__defaults__", (800,))
    target = WriteTarget(str(tmp_path), schema_from_ddl("id BIGINT"), cluster_by=(("id",),))
    batches = pa.table({"id": IDS}).to_batches(max_chunksize=50)
    [file] = write_table(target, batches)
    found = pq.read_table(tmp_path / file.add.path)["id"].to_pylist()
    assert found == [i for start in range(0, 900, 100) for i in sorted(IDS[start : start + 100])]


def test_spark_tasks_sort_their_rows(
    catalog: deltars.Catalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_frames, "SMALL_BYTES", -1)
    table = catalog.create_table("t", "id BIGINT, x DOUBLE", cluster_by="id")
    table.write(spark.range(0, 900, 1, 2).selectExpr("id * 7 % 900 AS id", "0.5D AS x"))
    files = [rows["id"].to_pylist() for rows in files_of(table)]
    assert len(files) == 2
    assert all(ids == sorted(ids) for ids in files)
    assert sorted(id_ for ids in files for id_ in ids) == list(range(900))
