"""Make the archive of Spark's classes: `python -m tests.support.class_archive`.

A JVM that starts Spark parses and verifies some twenty thousand classes. With the archive it maps them into memory,
which saves two fifths of the processor time of each start. The JVM writes the archive when it exits by itself. The JVM
of a test is killed, so it cannot write one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tests.support.jvm import CLASS_ARCHIVE, SHORT_LIVED
from tests.support.spark import local_session


def main() -> None:
    CLASS_ARCHIVE.parent.mkdir(exist_ok=True)
    made = CLASS_ARCHIVE.with_name(f"{CLASS_ARCHIVE.name}.{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit='{made}' -Xlog:disable"
    with tempfile.TemporaryDirectory() as scratch:
        _use_spark(Path(scratch))
    made.replace(CLASS_ARCHIVE)


def _use_spark(scratch: Path) -> None:
    """Load the classes of an ordinary job."""
    with local_session(scratch) as spark:
        rows = spark.createDataFrame(pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"], "value": [0.5, None, 1.5]}))
        rows.write.partitionBy("day").parquet(str(scratch / "rows"))
        read = spark.read.parquet(str(scratch / "rows")).where("value > 0")
        read.mapInArrow(_unchanged, read.schema).join(rows.groupBy("id").count(), "id").collect()
        gateway = spark.sparkContext._gateway
        assert gateway is not None
    gateway.shutdown()
    # Spark's JVM ends by itself when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=120)


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
