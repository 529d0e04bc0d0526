"""Frames so small that a job to write them costs more than their rows: fetched, and written by this process.

Spark must say so of the plan, before anything runs: rows that the plan holds itself, a range, or one row, and over them
nothing that makes more rows of them. A list that the driver handed to Spark has no size there: it is fetched up to a
limit, and one beyond that is left to Spark. What is only believed to be small (a file, the result of a join) is not
taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from deltars.spark.schema import schema_from_spark

SMALL_BYTES = 4 * 1024 * 1024
SMALL_ROWS = 10_000

_ROWS = frozenset({"LocalRelation", "Range", "OneRowRelation"})
_NO_MORE_ROWS = frozenset({"Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Union", "Repartition"})


def small_rows(frame: DataFrame) -> pa.Table | None:
    """All rows of a small frame; None of another, and always with Spark Connect, whose plans are elsewhere."""
    classic = getattr(frame, "_jdf", None)
    if classic is None or not _is_for_arrow(frame):
        return None
    plan = classic.queryExecution().optimizedPlan()
    leaves = list(_leaves(plan))
    if all(leaf is not None and leaf.nodeName() in _ROWS for leaf in leaves):
        return frame.toArrow() if int(plan.stats().sizeInBytes()) <= SMALL_BYTES else None
    if all(leaf is not None and leaf.nodeName() == "LogicalRDD" and _is_list(leaf.rdd()) for leaf in leaves):
        rows = frame.limit(SMALL_ROWS + 1).toArrow()
        return rows if rows.num_rows <= SMALL_ROWS else None
    return None


def _is_for_arrow(frame: DataFrame) -> bool:
    """`toArrow` stumbles over a null struct whose fields are never null."""
    return all(field.nullable for path, field in schema_from_spark(frame.schema).walk() if len(path) > 1)


def _leaves(plan: Any) -> Iterator[Any]:
    """Where its rows come from; None for each operator on the way that may make more of them."""
    children = plan.children()
    if children.isEmpty():
        yield plan
    elif plan.nodeName() not in _NO_MORE_ROWS:
        yield None
    else:
        for at in range(children.size()):
            yield from _leaves(children.apply(at))


def _is_list(rdd: Any) -> bool:
    """Whether these are rows that the driver held, only decoded since."""
    while (name := rdd.getClass().getSimpleName()) == "MapPartitionsRDD" and rdd.dependencies().size() == 1:
        rdd = rdd.dependencies().apply(0).rdd()
    return bool(name == "ParallelCollectionRDD")
