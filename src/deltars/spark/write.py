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
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.cast import check_fits
from deltars.data.conditions import Condition
from deltars.data.files import WriteTarget, WrittenFile
from deltars.data.writer import check_writable, write_table
from deltars.errors import ConfigError, DeltarsError, SchemaMismatch, StorageError, ValidationError
from deltars.protocol import schema_to_arrow
from deltars.spark.completion import refused
from deltars.spark.schema import schema_from_spark

_VIOLATED = "deltars: a row breaks condition "
_OWN_ERROR = re.compile(r"\ndeltars\.errors\.(\w+): (.*)", re.DOTALL)
_RAISED_BY_TASKS: dict[str, type[DeltarsError]] = {
    kind.__name__: kind for kind in (SchemaMismatch, StorageError, ValidationError)
}


def write_frame(frame: DataFrame, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
    """Write the frame's rows as data files. What can be refused is refused before a job runs."""
    check_writable(target)
    check_fits(schema_to_arrow(schema_from_spark(frame.schema)), schema_to_arrow(target.schema))
    task = partial(write_batches, target, frame.columns)
    written = _arranged(_checked(frame, conditions, target), target).mapInArrow(task, "file binary")
    try:
        rows = written.collect()
    except PySparkException as error:
        own = _own_error(error) or _violated(error, conditions) or refused(error)
        if own is None:
            raise
        raise own from error
    return [msgspec.msgpack.decode(row.file, type=WrittenFile) for row in rows]


def _checked(frame: DataFrame, conditions: Sequence[Condition], target: WriteTarget) -> DataFrame:
    """The same rows; one that breaks a condition ends the job that writes them, so there is no pass of its own.

    A column that the frame lacks is null in the table, and so it is for the condition.
    """
    if not conditions:
        return frame
    present = {name.lower() for name in frame.columns}
    missing = {
        field.name: F.lit(None).cast(str(field.type)) for field in target.schema if field.name.lower() not in present
    }
    whole = frame.withColumns(missing) if missing else frame
    for number, condition in enumerate(conditions):
        holds = F.coalesce(F.expr(condition.sql), F.lit(False))
        whole = whole.where(F.when(holds, F.lit(True)).otherwise(F.raise_error(F.lit(f"{_VIOLATED}{number}"))))
    return whole.select(*(_quoted(name) for name in frame.columns)) if missing else whole


def _violated(error: PySparkException, conditions: Sequence[Condition]) -> ValidationError | None:
    said = (error.getMessageParameters() or {}).get("errorMessage", "")
    found = re.search(rf"{_VIOLATED}(\d+)", said or str(error))
    return conditions[int(found[1])].violated() if found else None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


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
