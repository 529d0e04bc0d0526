"""Test of a new Spark session, started with this machine's settings. `deltars doctor` runs it.

python -m deltars.spark.probe                 run a job like those that write tables; print the executors' Python
python -m deltars.spark.probe <root> <path>   print how the session reads this file of an object store, as JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module

import pyarrow as pa
from pyspark.sql import SparkSession

from deltars.spark.access import access_to
from deltars.spark.session import use_own_python


def which_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import_module("deltars.data.writer")  # as a writing task does: it fails if the executors' Python lacks a package
    for _ in batches:
        yield pa.record_batch({"python": [sys.executable]})


def main(*file: str) -> None:
    builder = SparkSession.builder.master("local[1]").appName("deltars doctor").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "512m").getOrCreate()
    use_own_python(spark)
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
