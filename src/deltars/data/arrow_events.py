"""Events of a change feed in this process, one for each key and sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.change_feed import (
    SEQUENCE,
    START_AT,
    ChangeFeed,
    FeedColumns,
    contradiction,
    no_order,
    null_in_events,
)
from deltars.data.evaluation import RowCondition
from deltars.data.keys import comparison_type, key_values, normalised
from deltars.data.row_change import KeyValues
from deltars.data.row_numbers import coded, one_array
from deltars.predicate import Column, only_spark
from deltars.protocol import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType


@dataclass(frozen=True, slots=True)
class ArrowEvents:
    """Events, one for each key and sequence: `columns.kept`, `sequence` and `deleted`.

    The values of an event that deletes are null.
    """

    rows: pa.Table
    columns: FeedColumns
    sequence: str
    deleted: str
    types: Mapping[str, DataType]
    """Types of the kept columns and of the sequence."""
    found_keys: Sequence[KeyValues] | None
    """Values of the keys that are in the events; None if there are no events."""

    @property
    def sequence_type(self) -> DataType:
        return self.types[self.sequence]

    def schema_with(self, more: Mapping[str, DataType | str], *, only_keys: bool = False) -> StructType:
        """Return the schema of a table with the kept columns, or only the keys, and more columns."""
        names = self.columns.keys if only_keys else self.columns.kept
        every = {name: self.types[name] for name in names} | {
            name: PrimitiveType(kind) if isinstance(kind, str) else kind for name, kind in more.items()
        }
        return StructType(tuple(StructField(name, kind) for name, kind in every.items()))


def deletes(feed: ChangeFeed, schema: StructType, rows: pa.RecordBatch) -> pa.Array:
    """Return whether each row is an event that deletes."""
    condition = feed.apply_as_deletes
    if condition is None:
        return pa.repeat(pa.scalar(False), rows.num_rows)
    if not isinstance(condition, str):
        raise only_spark("apply_as_deletes as a Spark Column")
    return pc.fill_null(RowCondition(condition, schema, field="apply_as_deletes").mask(rows), False)


def types_in_table(
    feed: ChangeFeed,
    given: FeedColumns,
    columns: FeedColumns,
    source: StructType,
    by: str,
    sequence: str,
    table: StructType | None,
) -> dict[str, DataType]:
    """Return the types of the events' columns in the table."""
    found = {spelt: source[name].type for name, spelt in zip(given.kept, columns.kept, strict=True)}
    found[sequence] = source[by].type
    if not has_order(found[sequence]):
        raise no_order(str(found[sequence]))
    if table is not None:
        holder = START_AT if feed.has_history else columns.sequence or SEQUENCE
        found |= {name: table[name].type for name in columns.kept}
        found[sequence] = table[holder].type if holder in table.names else found[sequence]
    for name in (*columns.keys, sequence):
        if not isinstance(found[name], PrimitiveType):
            what = "a sequence" if name == sequence else f"the key {name}"
            raise only_spark(f"{what} of type {found[name]}")
    return found


def has_order(kind: DataType) -> bool:
    """Return whether values of a type can be sorted."""
    match kind:
        case StructType():
            return all(has_order(field.type) for field in kind.fields)
        case ArrayType(element):
            return has_order(element)
        case MapType():
            return False
    return kind.name not in ("variant", "void")


def checked(events: pa.Table, columns: FeedColumns, sequence: str, deleted: str) -> pa.Table:
    """Return one event for each key and sequence. Raise for nulls, and for two events that contradict each other."""
    for name in (*columns.keys, sequence):
        if events[name].null_count:
            raise null_in_events(None if name == sequence else name, events[name].null_count)
    [places] = coded([[events[name] for name in (*columns.keys, sequence)]])
    [contents] = coded([[events[name] for name in (deleted, *columns.values)]])
    first: dict[int, int] = {}
    for row, place in enumerate(places):
        known = first.setdefault(place, row)
        # Which of two different events is the later one would be chance.
        if contents[known] != contents[row]:
            key = {name: events[name][row].as_py() for name in columns.keys}
            raise contradiction(key, events[sequence][row].as_py())
    return events.take(pa.array(first.values(), pa.int64()))


def found_keys(events: pa.Table, columns: FeedColumns, kinds: Mapping[str, DataType]) -> Sequence[KeyValues] | None:
    """Return the values of the keys, as far as files can be found by them; None if there are no events."""
    if not events.num_rows:
        return None
    found = []
    for name in columns.keys:
        kind = comparison_type(kinds[name], kinds[name])
        values = one_array(events[name])
        known = None if kind is None else key_values(Column((name,), kinds[name]), normalised(values, kind))
        found += [] if known is None else [known]
    return found


def key_types(events: ArrowEvents) -> list[pa.DataType]:
    """Return the types in which keys are compared."""
    found = []
    for key in events.columns.keys:
        kind = comparison_type(events.types[key], events.types[key])
        if kind is None:
            raise only_spark(f"the key {key} of type {events.types[key]}")
        found.append(kind)
    return found
