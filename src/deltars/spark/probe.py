"""A session of its own, started as any other is here, shows what it can do.

python -m deltars.spark.probe                 it runs a job as tables are written, and says by which Python
python -m deltars.spark.probe <root> <path>   how it reads this file of an object store, as JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module

import pyarrow as pa
from pyspark.sql import SparkSession

from deltars.spark.access import access_to


def which_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import_module("deltars.data.writer")  # as a task that writes does: the executors' Python needs it
    for _ in batches:
        yield pa.record_batch({"python": [sys.executable]})


def main(*file: str) -> None:
    builder = SparkSession.builder.master("local[1]").appName("deltars doctor").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "512m").getOrCreate()
    try:
        if file:
            root, path = file
            print(json.dumps(access_to(spark, root, path)._asdict()))
        else:
            print(spark.range(3).coalesce(1).mapInArrow(which_python, "python string").first().python)  # type: ignore[union-attr]
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
