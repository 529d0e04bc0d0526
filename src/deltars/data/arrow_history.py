"""History of the keys in a batch of events (SCD 2), in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltars.data.arrow_events import ArrowEvents
from deltars.data.change_feed import DELETED, END_AT, SEQUENCE, START_AT, no_start
from deltars.data.column_names import free_names
from deltars.data.row_numbers import cast_to, coded, ranked
from deltars.protocol import type_to_arrow

_HIDDEN, _ROW, _END, _NEW = range(4)
"""Where an event comes from. Of several at one sequence the first counts, so an event that is known stays as it is."""
_ORIGIN = "__deltars_origin"


class History:
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
        [keys] = coded([[every[key] for key in self._columns.keys]])
        [ranks] = ranked([every[at]])
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
        tracked = [coded([[timeline[name]]])[0] for name in self._columns.tracked]
        untracked = [name for name in self._columns.values if name not in self._columns.tracked]
        loose = [coded([[timeline[name]]])[0] for name in untracked]
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
    new_keys, old_keys = coded([[table[name] for name in on] for table in (wanted, there)])
    new_values, old_values = coded([[table[name] for name in compared] for table in (wanted, there)])
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


def _shaped(table: pa.Table | None, schema: pa.Schema) -> pa.Table:
    """Return a table with these columns and types; null where it lacks a column that the target got later."""
    if table is None:
        return schema.empty_table()
    there = {name.lower(): name for name in table.column_names}
    return pa.table(
        {
            field.name: cast_to(table[there[field.name.lower()]], field.type)
            if field.name.lower() in there
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        },
        schema=schema,
    )


def _all(table: pa.Table, value: bool) -> pa.Array:
    return pa.repeat(pa.scalar(value), table.num_rows)


def _take(values: Any, rows: Sequence[int | None]) -> Any:
    return values.take(pa.array(rows, pa.int64()))
