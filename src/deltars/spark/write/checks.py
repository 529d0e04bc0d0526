"""Checks on every row, evaluated by the job that writes it; and translation of the errors of such jobs.

A check is part of the projection of a written column, not a filter: Spark may move a filter below a join, where it
would check rows that are not in the frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.conditions import Condition
from deltars.data.writer import too_many_files
from deltars.errors import ConfigError, DeltarsError, SchemaMismatch, StorageError, ValidationError
from deltars.protocol import StructType
from deltars.spark.read.columns import quoted
from deltars.spark.schema import schema_to_spark
from deltars.spark.write.computed_columns import value_error

_VIOLATED = "deltars: a row breaks check "
_OWN_ERROR = re.compile(r"\ndeltars\.errors\.(\w+): (.*)", re.DOTALL)
_TOO_MANY = re.compile(r"the write needs at least (\d+) files, but at most (\d+) more are allowed")
_RAISED_BY_TASKS: dict[str, type[DeltarsError]] = {
    kind.__name__: kind for kind in (SchemaMismatch, StorageError, ValidationError)
}


class Check(NamedTuple):
    holds: Column
    error: DeltarsError
    """Error for a row for which the check is not true."""


def checks_of(conditions: Sequence[Condition]) -> list[Check]:
    return [Check(F.expr(condition.sql), condition.violated()) for condition in conditions]


def with_checks(frame: DataFrame, checks: Sequence[Check], table: StructType) -> DataFrame:
    """Return the same rows. A row that violates a check fails the job that writes it, without a separate pass.

    A column that the frame lacks is null in the table, and therefore null for the check.
    """
    if not checks:
        return frame
    present = {name.lower() for name in frame.columns}
    missing = {
        field.name: F.lit(None).cast(field.dataType)
        for field in schema_to_spark(table)
        if field.name.lower() not in present
    }
    whole = frame.withColumns(missing) if missing else frame
    first, *others = (F.col(quoted(name)) for name in frame.columns)
    for number, check in reversed(list(enumerate(checks))):
        broken = ~F.coalesce(check.holds, F.lit(False))
        first = F.when(broken, F.raise_error(F.lit(f"{_VIOLATED}{number}"))).otherwise(first)
    return whole.select(first.alias(frame.columns[0]), *others)


@contextmanager
def translate_task_errors(checks: Sequence[Check]) -> Iterator[None]:
    """Raise our error where Spark reports, as text, that a task raised it or that a check failed."""
    try:
        yield
    except PySparkException as error:
        own = _own_error(error) or _violation(error, checks) or value_error(error)
        if own is None:
            raise
        raise own from error


def _violation(error: PySparkException, checks: Sequence[Check]) -> DeltarsError | None:
    said = (error.getMessageParameters() or {}).get("errorMessage", "")
    found = re.search(rf"{_VIOLATED}(\d+)", said or str(error))
    return checks[int(found[1])].error if found else None


def _own_error(error: PySparkException) -> DeltarsError | None:
    # Spark Connect has the traceback only in the message, followed by a line with the SQLSTATE.
    text = (error.getMessageParameters() or {}).get("traceback") or (error.getMessage() or "")
    traceback = text.partition("\n SQLSTATE: ")[0]
    if "No module named 'deltars'" in traceback:
        return ConfigError(
            "deltars is not installed in the Python of Spark's executors",
            hint="Install it there, or set PYSPARK_PYTHON to a Python that has it, before the session starts.",
        )
    found = _OWN_ERROR.search(traceback)
    if found and (counts := _TOO_MANY.search(found[2])):
        return too_many_files(int(counts[1]), int(counts[2]))
    if found and found[1] in _RAISED_BY_TASKS:
        return _RAISED_BY_TASKS[found[1]](found[2].strip())
    return None
