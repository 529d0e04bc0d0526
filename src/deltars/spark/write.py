"""Writing a DataFrame: the Arrow writer of `data`, run by Spark's tasks.

    frame ──sorted within tasks by partition──> mapInArrow(write_batches) ──> one row a file: its WrittenFile
                                                  on the executors            on the driver

The driver gets the rows of successful attempts only. Files of attempts that failed, or that lost a race of
speculation, are in no row, and VACUUM finds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from deltars.data.cast import check_fits
from deltars.data.files import WriteTarget, WrittenFile
from deltars.data.writer import check_writable, write_table
from deltars.errors import ConfigError, DeltarsError, SchemaMismatch, StorageError, ValidationError
from deltars.protocol import schema_to_arrow
from deltars.spark.schema import schema_from_spark

_OWN_ERROR = re.compile(r"\ndeltars\.errors\.(\w+): (.*)", re.DOTALL)
_RAISED_BY_TASKS: dict[str, type[DeltarsError]] = {
    kind.__name__: kind for kind in (SchemaMismatch, StorageError, ValidationError)
}


def write_frame(frame: DataFrame, target: WriteTarget) -> list[WrittenFile]:
    """Write the frame's rows as data files. What can be refused is refused before a job runs."""
    check_writable(target)
    check_fits(schema_to_arrow(schema_from_spark(frame.schema)), schema_to_arrow(target.schema))
    task = partial(write_batches, target, frame.columns)
    written = _arranged(frame, target).mapInArrow(task, "file binary")
    try:
        rows = written.collect()
    except PySparkException as error:
        own = _own_error(error)
        if own is None:
            raise
        raise own from error
    return [msgspec.msgpack.decode(row.file, type=WrittenFile) for row in rows]


def write_batches(
    target: WriteTarget, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task's part, on an executor."""
    context = TaskContext.get()
    named = (batch.rename_columns(names) for batch in batches)
    files = write_table(target, named, task=context.partitionId() if context else 0)
    yield pa.record_batch({"file": pa.array([msgspec.msgpack.encode(file) for file in files], pa.binary())})


def _arranged(frame: DataFrame, target: WriteTarget) -> DataFrame:
    """Each task meets one partition after the other, not all at once: fewer open files, and larger ones.

    The columns get plain names on the way: mapInArrow cannot take one with a dot or a backquote in it.
    """
    plain = {name.lower(): f"c{index}" for index, name in enumerate(frame.columns)}
    arranged = frame.toDF(*plain.values())
    order = [plain[name.lower()] for name in target.partition_columns if name.lower() in plain]
    return arranged.sortWithinPartitions(*order) if order else arranged


def _own_error(error: PySparkException) -> DeltarsError | None:
    """What a task of ours raised: Spark brings it here as text."""
    traceback = (error.getMessageParameters() or {}).get("traceback", "")
    if "No module named 'deltars'" in traceback:
        return ConfigError(
            "the Python of Spark's executors has no deltars",
            hint="Install it there, or set PYSPARK_PYTHON to a Python that has it before the session starts.",
        )
    if (found := _OWN_ERROR.search(traceback)) and found[1] in _RAISED_BY_TASKS:
        return _RAISED_BY_TASKS[found[1]](found[2].strip())
    return None
