"""Change feeds on Spark: for large frames, and for Columns of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltars.data.change_feed import DELETED, END_AT, SEQUENCE, START_AT, ChangeFeed, FeedColumns
from deltars.data.scan import Scan
from deltars.protocol import StructType
from deltars.spark.change.events import Events, read_events
from deltars.spark.change.history import history_changes
from deltars.spark.change.last_events import last_events
from deltars.spark.change.source import as_frame, hold, refuse_repeated
from deltars.spark.plane import SparkPlane
from deltars.spark.schema import schema_from_spark, schema_to_spark


class SparkFeed:
    """`FeedPlane` of Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def opened(self, source: object) -> tuple[DataFrame, Sequence[str]]:
        frame = as_frame(self._spark, source)
        refuse_repeated(schema_from_spark(frame.schema))
        return frame, frame.columns

    def events(self, source: DataFrame, feed: ChangeFeed, given: FeedColumns, table: StructType | None) -> Events:
        return read_events(self._spark, source, feed, given, table)

    def rows(self, events: Events, scan: Scan, columns: Sequence[str] | None) -> DataFrame:
        return events.of_same_keys(SparkPlane().read(self._spark, scan, columns=columns))

    def last(
        self, events: Events, known: Sequence[DataFrame], *, ignore_nulls: bool
    ) -> tuple[DataFrame | pa.Table, str]:
        # The last column is the sequence, whatever the table calls it.
        named = [frame.toDF(*events.columns.keys, SEQUENCE) for frame in known]
        every = reduce(DataFrame.union, named) if named else None
        last, reset = last_events(events, every, ignore_nulls=ignore_nulls)
        return hold(self._spark, last), reset

    def history(
        self, events: Events, rows: DataFrame | None, hidden: DataFrame | None, *, ignore_nulls: bool
    ) -> tuple[DataFrame | pa.Table, DataFrame | pa.Table, str]:
        kind = events.sequence_type
        changes = history_changes(
            events,
            self._nothing(events.schema_with({START_AT: kind, END_AT: kind})) if rows is None else rows,
            self._nothing(events.schema_with({SEQUENCE: kind, DELETED: "boolean"})) if hidden is None else hidden,
            ignore_nulls=ignore_nulls,
        )
        return hold(self._spark, changes.rows), hold(self._spark, changes.hidden), changes.action

    def _nothing(self, schema: StructType) -> DataFrame:
        return self._spark.createDataFrame([], schema_to_spark(schema))
