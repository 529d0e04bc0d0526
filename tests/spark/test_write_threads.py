"""Spark frames written by many threads in one transaction, and writes that would make more files than they may."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.errors import TransactionClosed, TransactionTooLarge
from deltars.spark.write.file_limit import limit_files
from tests.support.together import Meanwhile

pytestmark = pytest.mark.backends("sqlite")

ROWS = 1_000


def _frame(spark: SparkSession, number: int) -> DataFrame:
    """Rows that Spark's tasks write: of a plan whose size is not told beforehand."""
    return spark.range(number * ROWS, (number + 1) * ROWS, 1, 2).distinct()


def _ids(table: deltars.Table) -> list[int]:
    return sorted(table.to_arrow(columns=["id"])["id"].to_pylist())


def _together(calls: list[Callable[[], Any]]) -> None:
    with ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(call) for call in calls]:
            future.result()


def _table_uri(catalog_uri: str, table: str) -> str:
    path, _, query = catalog_uri.partition("?")
    return f"{path}/{table}" + (f"?{query}" if query else "")


def test_frames_of_many_threads_are_all_in_their_tables(
    catalog: deltars.Catalog, catalog_uri: str, spark: SparkSession
) -> None:
    with deltars.begin() as tx:  # bound by whichever thread comes first
        tables = [_table_uri(catalog_uri, name) for name in ("one", "one", "one", "two", "three", "two", "one", "one")]
        _together([partial(tx.write, table, _frame(spark, number)) for number, table in enumerate(tables)])
    assert tx.result.versions == {"one": 0, "two": 0, "three": 0}
    written = [_ids(catalog.table(name)) for name in ("one", "two", "three")]
    assert [len(ids) // ROWS for ids in written] == [5, 2, 1]
    assert sorted(chain.from_iterable(written)) == list(range(8 * ROWS))


def test_partitioned_frames_and_arrow_frames_of_many_threads_are_all_there(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    catalog.create_table("facts", "id BIGINT, k BIGINT", partition_by=["k"])
    with catalog.begin() as tx:
        calls: list[Callable[[], Any]] = [
            partial(tx.write, "facts", _frame(spark, number).selectExpr("id", "id % 3 AS k")) for number in range(4)
        ]
        calls += [
            partial(tx.write, "facts", pa.table({"id": [4 * ROWS + number], "k": [number]})) for number in range(12)
        ]
        _together(calls)
    assert _ids(catalog.table("facts")) == list(range(4 * ROWS + 12))


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_frame_that_is_written_when_the_transaction_ends_is_refused(
    catalog: deltars.Catalog, spark: SparkSession, tmp_path: Path, end: str
) -> None:
    started = tmp_path / "started"

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started.touch()
        time.sleep(1.0)
        yield from batches

    tx = catalog.begin()
    tx.write("t", _frame(spark, 0))
    writing = Meanwhile(tx.write, "t", spark.range(3).mapInArrow(slow, "id BIGINT"))
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    getattr(tx, end)()
    assert isinstance(writing.error(), TransactionClosed)
    if end == "commit":
        assert _ids(catalog.table("t")) == list(range(ROWS))
    else:
        assert not catalog.table_exists("t")


# -- too many files ----------------------------------------------------------------------------------------------------


def _noted(place: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leaves a trace of each task, and takes a while."""
    (Path(place) / str(uuid4())).touch()
    time.sleep(0.2)
    yield from batches


@pytest.mark.parametrize("partition_by", [[], ["k"]], ids=["natively", "by Arrow"])
def test_job_is_cancelled_when_its_tasks_have_made_too_many_files(
    catalog: deltars.Catalog, spark: SparkSession, tmp_path: Path, partition_by: list[str]
) -> None:
    traces, tasks = tmp_path / "traces", 40
    traces.mkdir()
    rows = spark.range(0, tasks, 1, tasks).selectExpr("id", "1L AS k")
    slow = rows.mapInArrow(partial(_noted, str(traces)), "id BIGINT, k BIGINT")
    with catalog.begin(max_files_per_table=4) as tx:
        tx.write("first", pa.table({"id": [1]}))
        with pytest.raises(TransactionTooLarge, match="max_files_per_table is 4") as caught:
            tx.write("t", slow, partition_by=partition_by)
        assert (caught.value.limit, caught.value.table, caught.value.txn_id) == (4, "t", tx.id)
        assert "begin(max_files_per_table=" in str(caught.value)
    assert len(list(traces.iterdir())) < tasks // 2
    assert tx.result.versions == {"first": 0}
    # Another job of this thread is not in the way of what was cancelled.
    catalog.write("t", spark.range(0, 10, 1, 10).distinct())
    assert _ids(catalog.table("t")) == list(range(10))


def test_task_stops_at_the_limit_by_itself(catalog: deltars.Catalog, spark: SparkSession) -> None:
    rows = spark.range(0, 100, 1, 1).mapInArrow(lambda batches: batches, "id BIGINT").selectExpr("id", "id AS k")
    with catalog.begin(max_files_per_table=4) as tx:
        tx.write("first", pa.table({"id": [1]}))
        with pytest.raises(TransactionTooLarge, match="max_files_per_table is 4"):
            tx.write("t", rows, partition_by=["k"])
    assert catalog.warehouse is not None
    assert len(list((Path(catalog.warehouse) / "t").rglob("*.parquet"))) <= 4


def test_job_within_the_limit_is_left_alone(catalog: deltars.Catalog, spark: SparkSession) -> None:
    with catalog.begin(max_files_per_table=4) as tx:
        tx.write("first", pa.table({"id": [1]}))
        tx.write("t", _frame(spark, 0).repartition(4))
        tx.write("p", _frame(spark, 0).selectExpr("id", "id % 2 AS k").repartition(2), partition_by=["k"])
        tx.write("t", _frame(spark, 0).where("id < 0"))  # no row, and no room for a file
    assert tx.result.versions == {"first": 0, "t": 0, "p": 0}
    assert _ids(catalog.table("t")) == _ids(catalog.table("p")) == list(range(ROWS))


def test_the_one_file_of_a_write_without_rows_cancels_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be there for a while before its job ends, though there is no room for a file."""
    cancelled: list[str] = []
    looks: list[int] = []
    looked = Event()

    def count() -> int:
        looks.append(1)
        if len(looks) > 1:
            looked.set()
        return 1

    monkeypatch.setattr(spark.sparkContext, "cancelJobsWithTag", cancelled.append)
    with limit_files(spark, 0, count):
        assert looked.wait(60), cancelled
    assert not cancelled
    with pytest.raises(TransactionTooLarge), limit_files(spark, 0, lambda: 2):
        pass
