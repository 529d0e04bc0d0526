"""Detection of small frames. This process writes them, because one file per task would cost more than the rows.

    leaves of the plan                                  writer
    literal rows, ranges, one row,                      this process: the rows are fetched, since Spark knows an upper
      and Spark estimates that they are few               limit of their number before anything runs
    RDDs of unknown size                                their tasks, each of which hands its rows over to this
      (a Python list is one for Spark)                    process if there are few
    anything else                                       Spark's tasks

Operators above the leaves must not add rows. Frames whose small size is only an estimate (a file, the result of a join)
are not treated as small. No frame is evaluated twice.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from deltars.spark.schema import schema_from_spark

SMALL_BYTES = 4 * 1024 * 1024

_UNKNOWN_BYTES = 2**62
"""Spark reports an unknown size as a number above this."""
_BOUNDED_LEAVES = frozenset({"LocalRelation", "Range", "OneRowRelation"})
_NO_MORE_ROWS = frozenset({"Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Union", "Repartition"})
_NO_MORE_TASKS = frozenset({"Project", "Filter", "Union"})


def small_rows(frame: DataFrame) -> pa.Table | None:
    """Return all rows of a small frame. Return None for other frames, and with Spark Connect, which hides its plans."""
    plan = _plan_of(frame)
    if plan is None or not _can_become_arrow(frame):
        return None
    return frame.toArrow() if _is_bounded(plan) and int(plan.stats().sizeInBytes()) <= SMALL_BYTES else None


def bytes_to_hand_over(frame: DataFrame) -> int | None:
    """Return how many bytes each task may hand over for the total to stay small; None if tasks must write files."""
    plan = _plan_of(frame)
    tasks = None if plan is None else _tasks_of_unknown(plan)
    return SMALL_BYTES // tasks or None if tasks and SMALL_BYTES > 0 else None


def _plan_of(frame: DataFrame) -> Any:
    classic = getattr(frame, "_jdf", None)
    return None if classic is None else classic.queryExecution().optimizedPlan()


def _can_become_arrow(frame: DataFrame) -> bool:
    """Return whether `toArrow` works: it fails for a null struct with NOT NULL fields."""
    return all(field.nullable for path, field in schema_from_spark(frame.schema).walk() if len(path) > 1)


def _is_bounded(plan: Any) -> bool:
    if (name := plan.nodeName()) in _BOUNDED_LEAVES:
        return True
    return name in _NO_MORE_ROWS and all(map(_is_bounded, _children(plan)))


def _tasks_of_unknown(plan: Any) -> int | None:
    """Return the number of tasks, if the plan has only RDDs of unknown size and no shuffle; otherwise None."""
    name = plan.nodeName()
    if name == "LogicalRDD":
        return int(plan.rdd().getNumPartitions()) if int(plan.stats().sizeInBytes()) > _UNKNOWN_BYTES else None
    is_narrow = name in _NO_MORE_TASKS or (name == "Sort" and not getattr(plan, "global")())
    found = [_tasks_of_unknown(child) for child in _children(plan)] if is_narrow else [None]
    return None if None in found else sum(tasks for tasks in found if tasks)


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(at) for at in range(children.size())]
