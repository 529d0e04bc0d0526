"""Frames so small that a job to write them costs more than their rows: fetched, and written by this process.

Spark must say so of the plan, before anything runs: rows that the plan holds itself, a range, or one row, and over them
nothing that makes more rows of them. What is only believed to be small (a file, the result of a join) is not taken.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from deltars.spark.schema import schema_from_spark

SMALL_BYTES = 4 * 1024 * 1024

_ROWS = frozenset({"LocalRelation", "Range", "OneRowRelation"})
_NO_MORE_ROWS = frozenset({"Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Union", "Repartition"})


def small_rows(frame: DataFrame) -> pa.Table | None:
    """All rows of a small frame; None of another, and always with Spark Connect, whose plans are elsewhere."""
    classic = getattr(frame, "_jdf", None)
    if classic is None or not _is_for_arrow(frame):
        return None
    plan = classic.queryExecution().optimizedPlan()
    return frame.toArrow() if _is_told(plan) and int(plan.stats().sizeInBytes()) <= SMALL_BYTES else None


def _is_for_arrow(frame: DataFrame) -> bool:
    """`toArrow` stumbles over a null struct whose fields are never null."""
    return all(field.nullable for path, field in schema_from_spark(frame.schema).walk() if len(path) > 1)


def _is_told(plan: Any) -> bool:
    if (name := plan.nodeName()) in _ROWS:
        return True
    if name not in _NO_MORE_ROWS:
        return False
    children = plan.children()
    return all(_is_told(children.apply(at)) for at in range(children.size()))
