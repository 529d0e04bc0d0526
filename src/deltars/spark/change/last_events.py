"""SCD 1: the last event of each key, which alone decides what the table has of it.

events ──older than what is known of the key: dropped──> newer ones ──last of each key──> one row for a merge
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.change_feed import SEQUENCE
from deltars.data.column_names import free_names
from deltars.spark.change.events import Events
from deltars.spark.read.columns import quoted


def last_events(events: Events, known: DataFrame | None, *, ignore_nulls: bool) -> tuple[DataFrame, str]:
    """Return the last event of each key, and the name of a column that says whether a delete came before it.

    `known` has keys and a SEQUENCE: events up to it change nothing. With `ignore_nulls`, a null takes the value of the
    event before it, up to a delete.
    """
    keys = [F.col(quoted(key)) for key in events.columns.keys]
    taken = {name.lower() for name in (*events.names, SEQUENCE)}
    reset, number, known_to = free_names(("reset", "number", "known_to"), taken)
    frame = events.frame if known is None else _newer(events, known, known_to)
    in_order = Window.partitionBy(*keys).orderBy(events.sequence)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    frame = frame.withColumn(reset, F.sum(F.col(events.deleted).cast("int")).over(so_far))
    if ignore_nulls:
        since_delete = Window.partitionBy(*keys, reset).orderBy(events.sequence)
        since_delete = since_delete.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        values = {name: F.last(quoted(name), ignorenulls=True).over(since_delete) for name in events.columns.values}
        others = [quoted(name) for name in frame.columns if name not in values]
        frame = frame.select(*others, *(value.alias(name) for name, value in values.items()))
    last_first = Window.partitionBy(*keys).orderBy(F.col(events.sequence).desc())
    last = frame.withColumn(number, F.row_number().over(last_first)).where(F.col(number) == 1).drop(number)
    return last.withColumn(reset, F.col(reset) > 0), reset


def _newer(events: Events, known: DataFrame, known_to: str) -> DataFrame:
    keys = list(events.columns.keys)
    latest = known.groupBy(*map(quoted, keys)).agg(F.max(SEQUENCE).alias(known_to))
    joined = events.frame.join(latest, keys, "left")
    is_newer = F.col(known_to).isNull() | (F.col(events.sequence) > F.col(known_to))
    return joined.where(is_newer).select(*map(quoted, events.names))
