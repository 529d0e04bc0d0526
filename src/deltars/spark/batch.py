"""Micro-batch of a stream, evaluated once.

    batch ── checkpoint ──▶ blocks of Spark ──┬─ few bytes ──▶ rows in the plan: this process writes and merges them
                                              └─ else ──────▶ the blocks

A stream's batch is read from its source again by every action on it. A function that writes three tables would read it
three times, and a source that is not deterministic would give each table other rows.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from deltars.spark.change.materialize import materialized
from deltars.spark.write.small_frames import SMALL_BYTES, can_become_arrow, plan_of

_QUERY_ID = "sql.streaming.queryId"


def batch_rows(batch: DataFrame) -> DataFrame:
    """Run the batch's job, and return its rows: every use of them gives the same."""
    blocks = materialized(batch)
    rows = _small_rows(blocks)
    if rows is None:
        return blocks
    local = batch.sparkSession.createDataFrame(rows, batch.schema)
    return local if local.schema == batch.schema else blocks


def query_id(batch: DataFrame) -> str | None:
    """Return the id of the streaming query that a batch belongs to. Spark Connect does not tell it."""
    context = getattr(batch.sparkSession, "_sc", None)
    return None if context is None else context.getLocalProperty(_QUERY_ID)


def _small_rows(blocks: DataFrame) -> pa.Table | None:
    """Return the rows of a small frame; None for others, and with Spark Connect, which hides sizes."""
    plan = plan_of(blocks)
    if plan is None or not can_become_arrow(blocks):
        return None
    size_bytes = _stored_bytes(blocks, plan)
    return blocks.toArrow() if size_bytes is not None and size_bytes <= SMALL_BYTES else None


def _stored_bytes(blocks: DataFrame, plan: Any) -> int | None:
    """Return the size of a checkpoint's blocks; None if they are in files."""
    if plan.nodeName() != "LogicalRDD":
        return None
    number = plan.rdd().id()
    stored = blocks.sparkSession.sparkContext._jsc.sc().getRDDStorageInfo()
    return next((int(rdd.memSize() + rdd.diskSize()) for rdd in stored if rdd.id() == number), None)
