"""A program of its own: the driver of a job on a cluster, in client mode.

    python -m tests.spark.driver <master> <directory> <losses>

It writes and reads the tables `flat` and `partitioned` of $DELTARS_CATALOG, runs the suite of behaviours there, and
then writes to one table after the other in <losses> writes whose tasks wait, half-way, for somebody to have lost a
worker. What it saw is in told.json.

    <directory>/<number>/task-<partition>-<attempt>    is at work
    <directory>/<number>/go                            and may go on
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import deltars
from tests.spark.behaviours import chosen
from tests.support.cluster import NOT_ON_EXECUTORS, OF_THE_DRIVER
from tests.support.jvm import SHORT_LIVED

TABLES: dict[str, tuple[str, ...]] = {"partitioned": ("p",), "flat": ()}
ROWS, TASKS = 400, 4
PATIENCE_S = 120


def main(master: str, directory: Path, losses: int) -> None:
    spark = session_on(master, directory, {"spark.cores.max": "2", "spark.sql.shuffle.partitions": "2"})
    try:
        told: dict[str, Any] = {"executors": look_around(spark)}
        with deltars.connect() as catalog, deltars.connect() as other:
            told["read"] = write_and_read(spark, catalog)
            for behaviour in chosen().values():
                behaviour(spark, catalog)
            told["behaviours"] = list(chosen())
            told["versions"] = []
            for number in range(losses):
                signs = directory / str(number)
                signs.mkdir()
                first = ROWS * (number + 1)
                rows = spark.range(first, first + ROWS, 1, TASKS).selectExpr("id", "id % 4 as p")
                name = list(TABLES)[number % len(TABLES)]
                before = other.table(name).version
                with catalog.begin(timeout=600) as tx:
                    tx.write(name, rows.mapInArrow(waiting(str(signs)), "id BIGINT, p BIGINT"))
                    told["versions"].append([before, other.table(name).version])
        (directory / "told.json").write_text(json.dumps(told))
    finally:
        spark.stop()


def session_on(master: str, directory: Path, more: Mapping[str, str]) -> SparkSession:
    """A small driver, which begins when both workers are there."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S}s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.local.dir": str(directory / "local"),
    }
    return SparkSession.builder.master(master).config(map={**settings, **more}).getOrCreate()


def look_around(spark: SparkSession) -> list[list[str]]:
    """What each executor has that it should not have."""
    return [row.found for row in spark.range(0, 2, 1, 2).mapInArrow(found_here, "found ARRAY<STRING>").collect()]


def found_here(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = [name for name in os.environ if name.startswith(OF_THE_DRIVER)]
    for name in NOT_ON_EXECUTORS:
        try:
            import_module(name)
        except ModuleNotFoundError:
            continue
        found.append(name)
    for _ in batches:
        yield pa.record_batch({"found": pa.array([found], pa.list_(pa.string()))})


def write_and_read(spark: SparkSession, catalog: deltars.Catalog) -> dict[str, list[int]]:
    rows = spark.range(0, ROWS, 1, TASKS).selectExpr("id", "id % 4 as p")
    # Not so plain that the driver would write the rows by itself.
    frame = rows.mapInArrow(as_they_are, "id BIGINT, p BIGINT")
    with catalog.begin(timeout=600) as tx:
        for name, partition_by in TABLES.items():
            tx.write(name, frame, partition_by=partition_by)
    read = {name: catalog.table(name).read(spark=spark, where="p = 1", columns=["id"]) for name in TABLES}
    return {name: sorted(row.id for row in found.collect()) for name, found in read.items()}


def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def waiting(signs: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are; in the middle of them a task says so, and waits until it may go on."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            Path(signs, f"task-{context.partitionId()}-{context.attemptNumber()}").touch()
            deadline = time.monotonic() + PATIENCE_S
            while not Path(signs, "go").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch.slice(half)

    return work


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
