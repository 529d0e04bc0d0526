"""A program of its own: writes whose tasks fail and are tried again, or are so slow that Spark runs them twice at once.

    python -m tests.spark.attempts <directory>

In a process of its own because it needs executors of their own: a local session neither retries nor speculates. It
leaves the tables `flat` and `partitioned` in <directory>/lake.db, and what happened on the way in told.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import deltars

FAILS, LINGERS = 3, 5


def main(directory: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local-cluster[2,1,512]")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.task.maxFailures", "3")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "200ms")
        .config("spark.speculation.efficiency.enabled", "false")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.minTaskRuntime", "1s")
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    try:
        told = {}
        with deltars.connect(f"deltasql://sqlite/{directory}/lake.db") as catalog:
            for name, partition_by in (("flat", []), ("partitioned", ["p"])):
                signs = directory / name
                signs.mkdir()
                rows = spark.range(0, 800, 1, 8).selectExpr("id", "id % 4 as p")
                frame = rows.mapInArrow(troubled(str(signs)), "id BIGINT, p BIGINT")
                catalog.write(name, frame, partition_by=partition_by)
                told[name] = sorted(path.name for path in signs.iterdir())
        (directory / "told.json").write_text(json.dumps({"attempts": told}))
    finally:
        spark.stop()


def troubled(signs: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are; behind its last row the first attempt of one task fails, and of one lingers."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        number, attempt = context.partitionId(), context.attemptNumber()
        if number == FAILS and attempt == 0:
            open(f"{signs}/failed", "w").close()
            raise RuntimeError("the first attempt fails")
        if number == LINGERS and attempt == 0:
            time.sleep(120)
        if number == LINGERS and attempt > 0:
            open(f"{signs}/speculative", "w").close()

    return work


if __name__ == "__main__":
    main(Path(sys.argv[1]))
