"""The Arrow writer of `data`, run by Spark's tasks: straight to the final paths, nothing is renamed.

    frame ──sorted within tasks by partition──> mapInArrow(write_batches) ──> one row a file: its WrittenFile
                                                  on the executors            on the driver

The driver gets the rows of successful attempts only. Files of attempts that failed, or that lost a race of
speculation, are in no row, and VACUUM finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from deltars.data.files import WriteTarget, WrittenFile
from deltars.data.writer import write_table


def write_by_arrow(frame: DataFrame, target: WriteTarget) -> list[WrittenFile]:
    task = partial(write_batches, target, frame.columns)
    return decoded(arranged(frame, target).mapInArrow(task, "file binary"))


def write_batches(
    target: WriteTarget, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task's part, on an executor."""
    context = TaskContext.get()
    named = (batch.rename_columns(names) for batch in batches)
    yield encoded(write_table(target, named, task=context.partitionId() if context else 0))


def encoded(files: Sequence[WrittenFile]) -> pa.RecordBatch:
    return pa.record_batch({"file": pa.array([msgspec.msgpack.encode(file) for file in files], pa.binary())})


def decoded(rows: DataFrame) -> list[WrittenFile]:
    return [msgspec.msgpack.decode(row.file, type=WrittenFile) for row in rows.collect()]


def arranged(frame: DataFrame, target: WriteTarget) -> DataFrame:
    """Each task meets one partition after the other, not all at once: fewer open files, and larger ones.

    The columns get plain names on the way: mapInArrow cannot take one with a dot or a backquote in it.
    """
    plain = {name.lower(): f"c{index}" for index, name in enumerate(frame.columns)}
    renamed = frame.toDF(*plain.values())
    order = [plain[name.lower()] for name in target.partition_columns if name.lower() in plain]
    return renamed.sortWithinPartitions(*order) if order else renamed
