"""Change feeds in this process, by Arrow: events, last states (SCD 1) and histories (SCD 2).

    events · rows of the table · hidden events
      └─ keys, sequences and values become numbers: equal ones the same, sequences in their order
           └─ each key's events in order, in Python ──numbers of rows──> Arrow takes these rows

Numbers are equal where Spark's values are: null and null, NaN and NaN, 0.0 and -0.0. `spark.change` does the same by
windows, for frames that are Spark's, or large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.arrow_merge import one_batch
from deltars.data.change_feed import (
    DELETED,
    END_AT,
    SEQUENCE,
    START_AT,
    ChangeFeed,
    FeedColumns,
    contradiction,
    no_order,
    no_start,
    null_in_events,
)
from deltars.data.column_names import free_names
from deltars.data.evaluation import RowCondition
from deltars.data.keys import KeyIndex, comparison_type, key_values, normalised
from deltars.data.plane import read_table
from deltars.data.read_schema import arrow_schema
from deltars.data.reader import read_scan
from deltars.data.row_change import KeyValues
from deltars.data.scan import Scan
from deltars.data.store_assignment import assigned
from deltars.data.write_schema import fit
from deltars.data.zones import UTC, depends_on_zone
from deltars.predicate import Column, only_spark
from deltars.protocol import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    schema_from_arrow,
    schema_to_arrow,
    type_to_arrow,
)

_HIDDEN, _ROW, _END, _NEW = range(4)
"""Where an event comes from. Of several at one sequence the first counts, so an event that is known stays as it is."""


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


class ArrowFeed:
    """`FeedPlane` of this process."""

    def __init__(self, zone: str = "UTC") -> None:
        """Read events. `zone` is that of the Spark session, if there is one: this process computes in UTC."""
        self._is_utc = zone in UTC
        self._zone = zone

    def opened(self, source: object) -> tuple[pa.Table, Sequence[str]]:
        """Return the rows of a frame, read once, in Delta's types, and the names of its columns."""
        table = read_table(source)
        schema = schema_from_arrow(table.schema)
        wanted = schema_to_arrow(schema)
        batches = [fit(batch, wanted) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, arrow_schema(schema)), schema.names

    def events(self, source: pa.Table, feed: ChangeFeed, given: FeedColumns, table: StructType | None) -> ArrowEvents:
        """Return the events of a frame. `table` is the schema of the target, if it exists."""
        columns = given if table is None else given.spelt_as(table)
        if not isinstance(feed.sequence_by, str):
            raise only_spark("sequence_by as a Spark Column")
        schema, rows = schema_from_arrow(source.schema), one_batch(source)
        sequence, deleted = free_names(("sequence", "deleted"), {name.lower() for name in schema.names})
        by = next(name for name in schema.names if name.lower() == feed.sequence_by.lower())
        self._refuse_zone(feed, schema)
        is_deleted = _deletes(feed, schema, rows)
        kinds = _kinds(feed, given, columns, schema, by, sequence, table)
        arrays = []
        for name, spelt in zip(given.kept, columns.kept, strict=True):
            values = rows.column(name)
            if name not in given.keys:
                values = pc.if_else(is_deleted, pa.scalar(None, values.type), values)
            arrays.append(self._assigned(values, kinds[spelt], spelt))
        arrays.append(self._assigned(rows.column(by), kinds[sequence], "sequence_by"))
        ready = pa.table([*arrays, is_deleted], names=[*columns.kept, sequence, deleted])
        once = _checked(ready, columns, sequence, deleted)
        return ArrowEvents(once, columns, sequence, deleted, kinds, _found_keys(once, columns, kinds))

    def _refuse_zone(self, feed: ChangeFeed, schema: StructType) -> None:
        text = feed.apply_as_deletes
        if not self._is_utc and isinstance(text, str) and depends_on_zone(text, schema):
            raise only_spark(f"a condition in the session's time zone {self._zone}")

    def _assigned(self, values: pa.Array, kind: DataType, column: str) -> pa.Array:
        target = type_to_arrow(kind)
        if not self._is_utc and values.type != target and any(map(types.is_timestamp, (values.type, target))):
            raise only_spark(f"a conversion in the session's time zone {self._zone}")
        return assigned(values, target, column)

    def rows(self, events: ArrowEvents, scan: Scan, columns: Sequence[str] | None) -> pa.Table:
        """Return the rows of a scan that have a key of the events."""
        keys = events.columns.keys
        index = KeyIndex([_array(events.rows[key]) for key in keys], _key_types(events), None)
        found = []
        for batch in read_scan(scan, columns=columns):
            is_known = pc.is_valid(index.find([batch.column(key) for key in keys]))
            found.append(batch.filter(is_known))
        chosen = scan.schema.names if columns is None else columns
        schema = StructType(tuple(scan.schema[name] for name in chosen))
        return pa.Table.from_batches(found, found[0].schema if found else arrow_schema(schema))

    # -- SCD 1 -----------------------------------------------------------------------------------------------------

    def last(self, events: ArrowEvents, known: Sequence[pa.Table], *, ignore_nulls: bool) -> tuple[pa.Table, str]:
        """Return the last event of each key, and the name of a column that says whether a delete came before it.

        `known` have keys and a sequence: events up to it change nothing. With `ignore_nulls`, a null takes the value
        of the event before it, up to a delete.
        """
        columns = events.columns
        [reset] = free_names(("reset",), {name.lower() for name in events.rows.column_names})
        # The last column is the sequence, whatever the table calls it.
        numbers = _Numbers(events, [(table, table.column_names[-1]) for table in known])
        until: dict[int, int] = {}
        for key, rank in numbers.known():
            until[key] = max(rank, until.get(key, -1))
        is_deleted = events.rows[events.deleted].to_pylist()
        valid = {name: events.rows[name].is_valid().to_pylist() for name in columns.values} if ignore_nulls else {}
        chosen: list[int] = []
        resets: list[bool] = []
        sources: dict[str, list[int]] = {name: [] for name in columns.values}
        for key, group in numbers.by_key():
            newer = [row for rank, row in group if rank > until.get(key, -1)]
            if not newer:
                continue
            deletes = [place for place, row in enumerate(newer) if is_deleted[row]]
            since = newer[deletes[-1] :] if deletes else newer
            chosen.append(newer[-1])
            resets.append(bool(deletes))
            for name, places in sources.items():
                given = [row for row in since if valid[name][row]] if ignore_nulls else ()
                places.append(given[-1] if given else newer[-1])
        last = {name: events.rows[name].take(pa.array(chosen, pa.int64())) for name in events.rows.column_names}
        last |= {name: events.rows[name].take(pa.array(rows, pa.int64())) for name, rows in sources.items()}
        return pa.table({**last, reset: pa.array(resets, pa.bool_())}), reset

    # -- SCD 2 -----------------------------------------------------------------------------------------------------

    def history(
        self, events: ArrowEvents, rows: pa.Table | None, hidden: pa.Table | None, *, ignore_nulls: bool
    ) -> tuple[pa.Table, pa.Table, str]:
        """Return what the events change in the history and in the hidden events, and the column of the action."""
        return _History(events, rows, hidden, ignore_nulls=ignore_nulls).changes()


class _Numbers:
    """Numbers of the keys and of the sequences in tables: equal keys the same, sequences in their order."""

    def __init__(self, events: ArrowEvents, others: Sequence[tuple[pa.Table, str]] = ()) -> None:
        tables = [(events.rows, events.sequence), *others]
        self._keys = _coded([[table[key] for key in events.columns.keys] for table, _ in tables])
        self._ranks = _ranked([table[sequence] for table, sequence in tables])

    def known(self) -> Iterator[tuple[int, int]]:
        """Yield key and sequence of each row of the other tables."""
        for keys, ranks in zip(self._keys[1:], self._ranks[1:], strict=True):
            yield from ((key, rank) for key, rank in zip(keys, ranks, strict=True) if rank is not None)

    def by_key(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Yield the events of each key: pairs of the sequence and the number of the row, in their order."""
        every = sorted(zip(self._keys[0], self._ranks[0], range(len(self._keys[0])), strict=True))
        for key, group in groupby(every, key=lambda one: one[0]):
            yield key, [(rank, row) for _, rank, row in group]


class _History:
    """History of the keys in a batch, made anew from all their events, and how the table differs from it."""

    def __init__(
        self, events: ArrowEvents, rows: pa.Table | None, hidden: pa.Table | None, *, ignore_nulls: bool
    ) -> None:
        self._events, self._columns, self._ignores_nulls = events, events.columns, ignore_nulls
        kind = type_to_arrow(events.sequence_type)
        self._of_rows = self._schema({START_AT: kind, END_AT: kind})
        self._of_hidden = self._schema({SEQUENCE: kind, DELETED: pa.bool_()})
        self._rows = _shaped(rows, self._of_rows)
        self._hidden = _shaped(hidden, self._of_hidden)
        if self._rows[START_AT].null_count:
            raise no_start()

    def _schema(self, more: Mapping[str, pa.DataType]) -> pa.Schema:
        own = {name: self._events.rows.schema.field(name).type for name in self._columns.kept}
        return pa.schema([*own.items(), *more.items()])

    def changes(self) -> tuple[pa.Table, pa.Table, str]:
        timeline = self._timeline()
        rows, hidden = self._told(timeline)
        keys, values = self._columns.keys, self._columns.values
        [action] = free_names(("action",), {name.lower() for name in (*self._of_rows.names, *self._of_hidden.names)})
        return (
            _difference(rows, self._rows, (*keys, START_AT), (*values, END_AT), action),
            _difference(hidden, self._hidden, (*keys, SEQUENCE), (*values, DELETED), action),
            action,
        )

    def _timeline(self) -> pa.Table:
        """Return all events of the keys: one for each key and sequence, the oldest known one, in order."""
        ended = self._rows.filter(self._rows[END_AT].is_valid())
        kept, at, gone = self._columns.kept, self._events.sequence, self._events.deleted
        nothing = {name: pa.nulls(ended.num_rows, self._of_rows.field(name).type) for name in self._columns.values}
        parts = [
            _event_table(self._hidden, kept, self._hidden[SEQUENCE], self._hidden[DELETED], _HIDDEN, at, gone),
            _event_table(self._rows, kept, self._rows[START_AT], _all(self._rows, False), _ROW, at, gone),
            # An end at which another row begins is no delete. The row's own event comes first there.
            _event_table(
                pa.table({**{key: ended[key] for key in self._columns.keys}, **nothing}),
                kept,
                ended[END_AT],
                _all(ended, True),
                _END,
                at,
                gone,
            ),
            _event_table(self._events.rows, kept, self._events.rows[at], self._events.rows[gone], _NEW, at, gone),
        ]
        every = pa.concat_tables(parts)
        [keys] = _coded([[every[key] for key in self._columns.keys]])
        [ranks] = _ranked([every[at]])
        origins = every[_ORIGIN].to_pylist()
        order: list[int] = []
        last: tuple[int, int] | None = None
        for key, rank, _, row in sorted(zip(keys, ranks, origins, range(len(keys)), strict=True)):
            if (key, rank) != last:
                order.append(row)
                last = key, rank
        self._keys = [keys[row] for row in order]
        return every.take(pa.array(order, pa.int64()))

    def _told(self, timeline: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows and the hidden events that the timeline makes."""
        if self._ignores_nulls:
            timeline = self._filled(timeline)
        gone = timeline[self._events.deleted].to_pylist()
        tracked = [_coded([[timeline[name]]])[0] for name in self._columns.tracked]
        untracked = [name for name in self._columns.values if name not in self._columns.tracked]
        loose = [_coded([[timeline[name]]])[0] for name in untracked]
        begins: list[bool] = []
        follows_delete: list[bool] = []
        for row, key in enumerate(self._keys):
            is_first = row == 0 or self._keys[row - 1] != key
            follows_delete.append(is_first or gone[row - 1])
            is_other = is_first or any(codes[row] != codes[row - 1] for codes in tracked)
            begins.append(gone[row] or follows_delete[row] or is_other)
        starts: list[int] = []
        lasts: list[int] = []
        ends: list[int | None] = []
        hidden: list[int] = []
        for run in _runs(begins):
            first, final = run[0], run[-1]
            if not gone[first]:
                starts.append(first)
                lasts.append(final)
                # The event that begins the next run of the same key ends this one.
                ends.append(
                    final + 1 if final + 1 < len(begins) and self._keys[final + 1] == self._keys[first] else None
                )
            for row in run:
                is_replaced = any(codes[row] != codes[final] for codes in loose)
                if follows_delete[row] if gone[row] else not begins[row] or is_replaced:
                    hidden.append(row)
        own = {name: _take(timeline[name], lasts if name in untracked else starts) for name in self._columns.kept}
        sequence = timeline[self._events.sequence]
        rows = pa.table({**own, START_AT: _take(sequence, starts), END_AT: _take(sequence, ends)})
        kept = {name: _take(timeline[name], hidden) for name in self._columns.kept}
        marks = {SEQUENCE: _take(sequence, hidden), DELETED: _take(timeline[self._events.deleted], hidden)}
        return rows, pa.table({**kept, **marks})

    def _filled(self, timeline: pa.Table) -> pa.Table:
        """Give nulls of new events the value before them, up to a delete. A null that the table has is a value."""
        gone = timeline[self._events.deleted].to_pylist()
        origins = timeline[_ORIGIN].to_pylist()
        for name in self._columns.values:
            valid = timeline[name].is_valid().to_pylist()
            source: list[int | None] = []
            for row, key in enumerate(self._keys):
                is_apart = row == 0 or self._keys[row - 1] != key or gone[row]
                counts = origins[row] < _NEW or valid[row]
                source.append(row if counts or is_apart else source[row - 1])
            filled = _take(timeline[name], source)
            timeline = timeline.set_column(timeline.column_names.index(name), name, filled)
        return timeline


_ORIGIN = "__deltars_origin"


def _event_table(
    table: pa.Table, kept: Sequence[str], sequence: Any, deleted: Any, origin: int, at: str, gone: str
) -> pa.Table:
    origins = pa.repeat(pa.scalar(origin, pa.int8()), table.num_rows)
    return pa.table({**{name: table[name] for name in kept}, at: sequence, gone: deleted, _ORIGIN: origins})


def _runs(begins: Sequence[bool]) -> Iterator[range]:
    """Yield the rows from each beginning up to the next one."""
    places = [row for row, is_begin in enumerate(begins) if is_begin]
    yield from map(range, places, [*places[1:], len(begins)])


def _difference(wanted: pa.Table, there: pa.Table, on: Sequence[str], compared: Sequence[str], action: str) -> pa.Table:
    """Return the rows to insert, update and delete, so that a table that has `there` has `wanted`."""
    names = [*on, *compared]
    wanted, there = wanted.select(names), there.select(names)
    new_keys, old_keys = _coded([[table[name] for name in on] for table in (wanted, there)])
    new_values, old_values = _coded([[table[name] for name in compared] for table in (wanted, there)])
    old = {key: row for row, key in enumerate(old_keys)}
    actions: list[tuple[int, str]] = []
    for row, key in enumerate(new_keys):
        before = old.pop(key, None)
        if before is None:
            actions.append((row, "insert"))
        elif new_values[row] != old_values[before]:
            actions.append((row, "update"))
    actions += [(wanted.num_rows + row, "delete") for row in old.values()]
    both = pa.concat_tables([wanted, there.cast(wanted.schema)])
    found = both.take(pa.array([row for row, _ in actions], pa.int64()))
    return found.append_column(action, pa.array([what for _, what in actions], pa.string()))


# -- events ----------------------------------------------------------------------------------------------------------


def _deletes(feed: ChangeFeed, schema: StructType, rows: pa.RecordBatch) -> pa.Array:
    condition = feed.apply_as_deletes
    if condition is None:
        return pa.repeat(pa.scalar(False), rows.num_rows)
    if not isinstance(condition, str):
        raise only_spark("apply_as_deletes as a Spark Column")
    return pc.fill_null(RowCondition(condition, schema, field="apply_as_deletes").mask(rows), False)


def _kinds(
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


def _checked(events: pa.Table, columns: FeedColumns, sequence: str, deleted: str) -> pa.Table:
    """Return one event for each key and sequence. Raise for nulls, and for two events that contradict each other."""
    for name in (*columns.keys, sequence):
        if events[name].null_count:
            raise null_in_events(None if name == sequence else name, events[name].null_count)
    [places] = _coded([[events[name] for name in (*columns.keys, sequence)]])
    [contents] = _coded([[events[name] for name in (deleted, *columns.values)]])
    first: dict[int, int] = {}
    for row, place in enumerate(places):
        known = first.setdefault(place, row)
        # Which of two different events is the later one would be chance.
        if contents[known] != contents[row]:
            key = {name: events[name][row].as_py() for name in columns.keys}
            raise contradiction(key, events[sequence][row].as_py())
    return events.take(pa.array(first.values(), pa.int64()))


def _found_keys(events: pa.Table, columns: FeedColumns, kinds: Mapping[str, DataType]) -> Sequence[KeyValues] | None:
    if not events.num_rows:
        return None
    found = []
    for name in columns.keys:
        kind = comparison_type(kinds[name], kinds[name])
        values = _array(events[name])
        known = None if kind is None else key_values(Column((name,), kinds[name]), normalised(values, kind))
        found += [] if known is None else [known]
    return found


def _key_types(events: ArrowEvents) -> list[pa.DataType]:
    found = []
    for key in events.columns.keys:
        kind = comparison_type(events.types[key], events.types[key])
        if kind is None:
            raise only_spark(f"the key {key} of type {events.types[key]}")
        found.append(kind)
    return found


# -- numbers ---------------------------------------------------------------------------------------------------------


def _coded(tables: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Return a number for each row of tables that have the same columns: the same one for equal rows."""
    sizes = [len(columns[0]) if columns else 0 for columns in tables]
    total = sum(sizes)
    rows: list[Any] = [0] * total
    for together in zip(*tables, strict=True):
        kind = together[0].type
        values = _array(pa.chunked_array([chunk for one in together for chunk in _cast(one, kind).chunks], kind))
        codes = _value_codes(values)
        seen: dict[tuple[int, int], int] = {}
        rows = [seen.setdefault(pair, len(seen)) for pair in zip(rows, codes, strict=True)]
    return _split(rows, sizes)


def _value_codes(values: pa.Array) -> list[int]:
    kind = values.type
    if types.is_nested(kind):
        seen: dict[Any, int] = {}
        return [seen.setdefault(_hashable(value), len(seen)) for value in values.to_pylist()]
    if types.is_floating(kind):
        values = normalised(values, kind).view(pa.int32() if kind == pa.float32() else pa.int64())
    codes: list[int] = pc.fill_null(values.dictionary_encode().indices, -1).to_pylist()
    return codes


def _hashable(value: Any) -> Any:
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case list():
            return tuple(map(_hashable, value))
        case tuple():
            return tuple(map(_hashable, value))
        case dict():
            return tuple((name, _hashable(part)) for name, part in value.items())
    return value


def _ranked(columns: Sequence[Any]) -> list[list[Any]]:
    """Return the places of values in the order of all of them; None for null."""
    kind = columns[0].type
    values = _array(pa.chunked_array([chunk for one in columns for chunk in _cast(one, kind).chunks], kind))
    values = normalised(values, kind)
    distinct = values.unique().drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    return _split(pc.index_in(values, value_set=distinct).to_pylist(), [len(one) for one in columns])


def _split(numbers: list[Any], sizes: Sequence[int]) -> list[list[Any]]:
    found, place = [], 0
    for size in sizes:
        found.append(numbers[place : place + size])
        place += size
    return found


# -- tables ----------------------------------------------------------------------------------------------------------


def _shaped(table: pa.Table | None, schema: pa.Schema) -> pa.Table:
    """Return a table with these columns and types; null where it lacks a column that the target got later."""
    if table is None:
        return schema.empty_table()
    there = {name.lower(): name for name in table.column_names}
    return pa.table(
        {
            field.name: _cast(table[there[field.name.lower()]], field.type)
            if field.name.lower() in there
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        },
        schema=schema,
    )


def _cast(values: Any, kind: pa.DataType) -> pa.ChunkedArray:
    whole = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return whole if whole.type == kind else whole.cast(kind)


def _array(values: Any) -> pa.Array:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _all(table: pa.Table, value: bool) -> pa.Array:
    return pa.repeat(pa.scalar(value), table.num_rows)


def _take(values: Any, rows: Sequence[int | None]) -> Any:
    return values.take(pa.array(rows, pa.int64()))


__all__ = ["ArrowEvents", "ArrowFeed", "has_order"]
