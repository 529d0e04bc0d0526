"""Events of a change feed, read once: columns as the table has them, checked, one event for each key and sequence.

frame ──columns, types, sequence, is it a delete?──> read once ──nulls, contradictions: refused──> events
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from deltars.data.change_feed import (
    SEQUENCE,
    START_AT,
    ChangeFeed,
    FeedColumns,
    contradiction,
    no_order,
    null_in_events,
)
from deltars.data.column_names import free_names
from deltars.data.row_change import KeyValues, Merge
from deltars.protocol import StructType
from deltars.spark.change.assignment import assigned
from deltars.spark.change.expressions import analysis_errors, checked_condition
from deltars.spark.change.source import as_frame, hold, read_source, refuse_repeated
from deltars.spark.read.columns import quoted
from deltars.spark.schema import schema_from_spark, schema_to_spark, table_schema
from deltars.spark.write.checks import translate_task_errors

_UNORDERED = (T.MapType, T.VariantType)
_COUNT, _FIRST, _LAST = "__deltars_count", "__deltars_first", "__deltars_last"


@dataclass(frozen=True, slots=True)
class Events:
    """Events, of which every use gives the same rows: `columns.kept`, `sequence` and `deleted`.

    The values of an event that deletes are null.
    """

    frame: DataFrame
    columns: FeedColumns
    sequence: str
    deleted: str
    sequence_type: T.DataType
    found_keys: Sequence[KeyValues] | None
    """Values of the keys that are in the events; None if there are no events."""

    def schema_with(self, more: Mapping[str, T.DataType | str], *, only_keys: bool = False) -> StructType:
        """Return the schema of a table with the kept columns, or only the keys, and more columns."""
        names = self.columns.keys if only_keys else self.columns.kept
        schema = T.StructType()
        for name in names:
            schema.add(name, self.frame.schema[name].dataType)
        for name, kind in more.items():
            schema.add(name, kind)
        return table_schema(schema)

    def of_same_keys(self, rows: DataFrame) -> DataFrame:
        """Return the rows that have a key of the events."""
        keys = list(self.columns.keys)
        return rows.join(self.frame.select(*map(quoted, keys)).distinct(), keys, "left_semi")

    @property
    def names(self) -> list[str]:
        return [*self.columns.kept, self.sequence, self.deleted]


def read_events(
    spark: SparkSession, frame: DataFrame, feed: ChangeFeed, given: FeedColumns, table: StructType | None
) -> Events:
    """Read the events once. `table` is the schema of the target, if it exists."""
    columns = given if table is None else given.spelt_as(table)
    chosen, sequence, deleted, types = _chosen(frame, feed, given)
    wanted = _wanted(types, feed, given, columns, sequence, table)
    is_deleted = F.col(deleted)
    casts = []
    for name, spelt in zip(given.kept, columns.kept, strict=True):
        value = assigned(F.col(quoted(name)), types[name], wanted[name], spelt)
        casts.append((value if name in given.keys else F.when(~is_deleted, value)).alias(spelt))
    casts.append(assigned(F.col(sequence), types[sequence], wanted[sequence], "sequence_by").alias(sequence))
    ready = chosen.select(*casts, is_deleted)
    source = read_source(spark, Merge(ready, _equal_keys(columns.keys), ()), table_schema(ready.schema))
    events = source.numbered(spark).drop(source.number)
    with translate_task_errors([]):
        _check(events, columns, sequence, deleted)
    once = events.dropDuplicates([*columns.keys, sequence])
    return Events(once, columns, sequence, deleted, wanted[sequence], source.keys)


def hold_events(frame: DataFrame, feed: ChangeFeed) -> DataFrame | pa.Table:
    """Check the columns of a frame of events, and evaluate it once. Return its rows, as an Arrow table if few."""
    opened = as_frame(frame.sparkSession, frame)
    refuse_repeated(schema_from_spark(opened.schema))
    _chosen(opened, feed, feed.columns(opened.columns))
    return hold(frame.sparkSession, opened)


def _equal_keys(keys: Sequence[str]) -> str:
    """Return the condition of a merge on keys."""
    return " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)


def comparable(name: str, kind: T.DataType) -> Column:
    """Return a column in a form that can be compared and grouped."""
    column = F.col(quoted(name))
    return column if _has_order(kind) else F.to_json(F.struct(column))


def _chosen(
    frame: DataFrame, feed: ChangeFeed, columns: FeedColumns
) -> tuple[DataFrame, str, str, dict[str, T.DataType]]:
    """Return the events with their sequence and whether they delete, the names of these two columns, and all types."""
    sequence, deleted = free_names(("sequence", "deleted"), {name.lower() for name in frame.columns})
    by = feed.sequence_by
    if isinstance(by, str):
        by = F.col(quoted(next(name for name in frame.columns if name.lower() == by.lower())))
    is_deleted = F.lit(False)
    if feed.apply_as_deletes is not None:
        is_deleted = checked_condition(frame, feed.apply_as_deletes, "apply_as_deletes", "apply_as_deletes")
    kept = [F.col(quoted(name)) for name in columns.kept]
    with analysis_errors("sequence_by", "sequence_by"):
        chosen = frame.select(*kept, by.alias(sequence), F.coalesce(is_deleted, F.lit(False)).alias(deleted))
        # Spark Connect analyses the frame only now.
        types = {field.name: field.dataType for field in chosen.schema.fields}
    if not _has_order(types[sequence]):
        raise no_order(types[sequence].simpleString())
    return chosen, sequence, deleted, types


def _wanted(
    types: dict[str, T.DataType],
    feed: ChangeFeed,
    given: FeedColumns,
    columns: FeedColumns,
    sequence: str,
    table: StructType | None,
) -> dict[str, T.DataType]:
    """Return the types of the events' columns in the table."""
    if table is None:
        return types
    there = {field.name: field.dataType for field in schema_to_spark(table).fields}
    wanted = {name: there[spelt] for name, spelt in zip(given.kept, columns.kept, strict=True)}
    holder = START_AT if feed.has_history else columns.sequence or SEQUENCE
    return {**wanted, sequence: there.get(holder, types[sequence])}


def _check(events: DataFrame, columns: FeedColumns, sequence: str, deleted: str) -> None:
    """Raise for null keys and sequences, and if two different events of one key have one sequence. One job."""
    types = {field.name: field.dataType for field in events.schema.fields}
    names = [*columns.keys, sequence]
    # Which of two different events is the later one would be chance.
    whole = F.struct(F.col(deleted), *(comparable(name, types[name]).alias(f"v_{name}") for name in columns.values))
    grouped = events.groupBy(*map(quoted, names)).agg(
        F.count(F.lit(1)).alias(_COUNT), F.min(whole).alias(_FIRST), F.max(whole).alias(_LAST)
    )
    nulls = [F.sum(F.when(F.col(quoted(name)).isNull(), F.col(_COUNT))) for name in names]
    is_contradiction = ~F.col(_FIRST).eqNullSafe(F.col(_LAST))
    example = F.struct(*(F.col(quoted(name)).cast("string").alias(f"e{at}") for at, name in enumerate(names)))
    found = [*nulls, F.first(F.when(is_contradiction, example), ignorenulls=True)]
    [row] = grouped.agg(*(column.alias(f"c{at}") for at, column in enumerate(found))).collect()
    *counts, pair = row
    for name, count in zip(names, counts, strict=True):
        if count:
            raise null_in_events(None if name == sequence else name, count)
    if pair is not None:
        *key, at = pair
        raise contradiction(dict(zip(columns.keys, key, strict=True)), at)


def _has_order(kind: T.DataType) -> bool:
    match kind:
        case T.StructType():
            return all(_has_order(field.dataType) for field in kind.fields)
        case T.ArrayType():
            return _has_order(kind.elementType)
    return not isinstance(kind, _UNORDERED)
