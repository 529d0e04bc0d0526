"""A program of its own: writes with a task that fails behind its last row, and is tried again.

    python -m tests.spark.attempts <directory>

In a process of its own because the session of the tests tries nothing twice. It leaves the tables `flat` and
`partitioned` in <directory>/lake.db, and a file of the same name for each task that failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import deltars

FAILS = 2


def main(directory: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.driver.memory", "600m")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    try:
        with deltars.connect(f"deltasql://sqlite/{directory}/lake.db") as catalog:
            for name, partition_by in (("flat", []), ("partitioned", ["p"])):
                rows = spark.range(0, 400, 1, 4).selectExpr("id", "id % 4 as p")
                frame = rows.mapInArrow(troubled(str(directory / name)), "id BIGINT, p BIGINT")
                catalog.write(name, frame, partition_by=partition_by)
    finally:
        spark.stop()


def troubled(sign: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are; behind its last row the first attempt of one task fails."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == FAILS and context.attemptNumber() == 0:
            open(sign, "x").close()
            raise RuntimeError("the first attempt fails")

    return work


if __name__ == "__main__":
    main(Path(sys.argv[1]))
