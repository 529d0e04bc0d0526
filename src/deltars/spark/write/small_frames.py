"""Detection of small frames. This process writes them, because one file per task would cost more than the rows.

    leaves of the plan                                  writer
    literal rows, ranges, one row,                      this process: the rows are fetched, since Spark knows an upper
      and Spark estimates that they are few               limit of their number before anything runs
    RDDs of unknown size                                their tasks, each of which hands its rows over to this
      (a Python list is one for Spark)                    process if there are few
    anything else                                       Spark's tasks

Operators above the leaves must not add rows, nor ask for several files (`repartition(10)`). Frames whose small size is
only an estimate (a file, the result of a join) are not treated as small, and no frame is evaluated twice. The source of
a merge is another case: see `estimated_rows`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.column_names import free_names
from deltars.spark.schema import schema_from_spark

SMALL_BYTES = 4 * 1024 * 1024

_UNKNOWN_BYTES = 2**62
"""Spark reports an unknown size as a number above this."""
_BOUNDED_LEAVES = frozenset({"LocalRelation", "Range", "OneRowRelation"})
_NO_MORE_ROWS = frozenset({"Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Union", "Repartition"})
_FEWER_ROWS = frozenset({"Aggregate", "Distinct", "Deduplicate"})
_FILES = "LogicalRelation"
_ROW_BITS = 2**33 - 1
_NO_MORE_TASKS = frozenset({"Project", "Filter", "Union"})


def small_rows(frame: DataFrame) -> pa.Table | None:
    """Return all rows of a small frame. Return None for other frames, and with Spark Connect, which hides its plans."""
    plan = plan_of(frame)
    if plan is None or not can_become_arrow(frame):
        return None
    return frame.toArrow() if _is_bounded(plan) and int(plan.stats().sizeInBytes()) <= SMALL_BYTES else None


def estimated_rows(frame: DataFrame, *, max_bytes: int, max_rows: int) -> pa.Table | None:
    """Return all rows of a frame that Spark estimates to be small, from files. Return None for other frames.

    A frame that turns out to have more than `max_rows` gives None too: then its rows were evaluated for nothing. No
    task fetches more than that. A plan with UDFs is not tried.
    """
    plan = plan_of(frame)
    if plan is None or not _is_estimate(plan) or int(plan.stats().sizeInBytes()) > max_bytes:
        return None
    # The id has the number of the row in its task in the lower bits.
    [number] = free_names(("number",), {name.lower() for name in frame.columns})
    numbered = frame.withColumn(number, F.monotonically_increasing_id().bitwiseAND(_ROW_BITS))
    rows: pa.Table = numbered.where(F.col(number) < max_rows).toArrow()
    largest = pc.max(rows[number]).as_py()
    is_whole = largest is None or largest < max_rows - 1
    return rows.drop_columns([number]) if is_whole and rows.num_rows < max_rows else None


def bytes_to_hand_over(frame: DataFrame) -> int | None:
    """Return how many bytes each task may hand over for the total to stay small; None if tasks must write files."""
    plan = plan_of(frame)
    tasks = None if plan is None else _tasks_of_unknown(plan)
    return SMALL_BYTES // tasks or None if tasks and SMALL_BYTES > 0 else None


def plan_of(frame: DataFrame) -> Any:
    classic = getattr(frame, "_jdf", None)
    return None if classic is None else classic.queryExecution().optimizedPlan()


def can_become_arrow(frame: DataFrame) -> bool:
    """Return whether `toArrow` works: it fails for a null struct with NOT NULL fields."""
    return all(field.nullable for path, field in schema_from_spark(frame.schema).walk() if len(path) > 1)


def _is_bounded(plan: Any) -> bool:
    if (name := plan.nodeName()) in _BOUNDED_LEAVES:
        return True
    return name in _NO_MORE_ROWS and not _asks_for_files(plan) and all(map(_is_bounded, _children(plan)))


def _asks_for_files(plan: Any) -> bool:
    """Return whether the program asked for several files: repartition(10) is how programs for Spark do so."""
    return bool(plan.nodeName() == "Repartition" and plan.shuffle() and plan.numPartitions() > 1)


def _is_estimate(plan: Any) -> bool:
    """Return whether a plan reads files, and has no operator that adds rows."""
    name = plan.nodeName()
    if name == _FILES or name in _BOUNDED_LEAVES:
        return True
    return name in _NO_MORE_ROWS | _FEWER_ROWS and all(map(_is_estimate, _children(plan)))


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
