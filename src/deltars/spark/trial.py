"""`python -m deltars.spark.trial`: a session of its own runs a job as tables are written, and says by which Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

import pyarrow as pa
from pyspark.sql import SparkSession


def which_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import_module("deltars.data.writer")  # as a task that writes does: the executors' Python needs it
    for _ in batches:
        yield pa.record_batch({"python": [sys.executable]})


def main() -> None:
    builder = SparkSession.builder.master("local[1]").appName("deltars doctor").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "512m").getOrCreate()
    try:
        print(spark.range(3).coalesce(1).mapInArrow(which_python, "python string").first().python)  # type: ignore[union-attr]
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
