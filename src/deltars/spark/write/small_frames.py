"""Frames so small that files of their own for every task cost more than their rows: one process writes them.

    what the plan is made of                            who writes
    rows that it holds itself, ranges, one row,         this process: the rows are fetched, for Spark says before
      and Spark estimates that they are few               anything runs how many there can be
    RDDs of a size that Spark does not know             their tasks, each of which hands its rows over to this
      (a Python list is one to Spark)                     process if they turn out to be few
    anything else                                       Spark's tasks

Over them may be only what makes no more rows of them. What is only believed to be small (a file, the result of a join)
is not taken. No frame is evaluated twice.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from deltars.spark.schema import schema_from_spark

SMALL_BYTES = 4 * 1024 * 1024

_UNKNOWN_BYTES = 2**62
"""What Spark says of a size that it does not know is greater."""
_ROWS = frozenset({"LocalRelation", "Range", "OneRowRelation"})
_NO_MORE_ROWS = frozenset({"Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Union", "Repartition"})
_NO_MORE_TASKS = frozenset({"Project", "Filter", "Union"})


def small_rows(frame: DataFrame) -> pa.Table | None:
    """All rows of a small frame; None of another, and always with Spark Connect, whose plans are elsewhere."""
    plan = _plan_of(frame)
    if plan is None or not _is_for_arrow(frame):
        return None
    return frame.toArrow() if _is_told(plan) and int(plan.stats().sizeInBytes()) <= SMALL_BYTES else None


def bytes_to_hand_over(frame: DataFrame) -> int | None:
    """So much each task may hand over, for all of them to be few; None where tasks are to write files."""
    plan = _plan_of(frame)
    tasks = None if plan is None else _tasks_of_unknown(plan)
    return SMALL_BYTES // tasks or None if tasks and SMALL_BYTES > 0 else None


def _plan_of(frame: DataFrame) -> Any:
    classic = getattr(frame, "_jdf", None)
    return None if classic is None else classic.queryExecution().optimizedPlan()


def _is_for_arrow(frame: DataFrame) -> bool:
    """`toArrow` stumbles over a null struct whose fields are never null."""
    return all(field.nullable for path, field in schema_from_spark(frame.schema).walk() if len(path) > 1)


def _is_told(plan: Any) -> bool:
    if (name := plan.nodeName()) in _ROWS:
        return True
    return name in _NO_MORE_ROWS and all(map(_is_told, _children(plan)))


def _tasks_of_unknown(plan: Any) -> int | None:
    """How many tasks have rows of RDDs of unknown size, where there is nothing else; none of them shuffles."""
    name = plan.nodeName()
    if name == "LogicalRDD":
        return int(plan.rdd().getNumPartitions()) if int(plan.stats().sizeInBytes()) > _UNKNOWN_BYTES else None
    is_narrow = name in _NO_MORE_TASKS or (name == "Sort" and not getattr(plan, "global")())
    found = [_tasks_of_unknown(child) for child in _children(plan)] if is_narrow else [None]
    return None if None in found else sum(tasks for tasks in found if tasks)


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(at) for at in range(children.size())]
