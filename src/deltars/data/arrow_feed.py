"""Change feeds in this process, by Arrow: events, last states (SCD 1) and histories (SCD 2).

    events · rows of the table · hidden events
      └─ keys, sequences and values become numbers (`row_numbers`)
           └─ each key's events in order, in Python ──numbers of rows──> Arrow takes these rows

`spark.change` does the same by windows, for large frames, and for Columns of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.arrow_events import ArrowEvents, checked, deletes, found_keys, key_types, types_in_table
from deltars.data.arrow_history import History
from deltars.data.arrow_merge import one_batch
from deltars.data.change_feed import ChangeFeed, FeedColumns
from deltars.data.column_names import free_names
from deltars.data.keys import KeyIndex
from deltars.data.plane import read_table
from deltars.data.read_schema import arrow_schema
from deltars.data.reader import read_scan
from deltars.data.row_numbers import coded, one_array, ranked
from deltars.data.scan import Scan
from deltars.data.store_assignment import assigned
from deltars.data.write_schema import fit
from deltars.data.zones import UTC, depends_on_zone
from deltars.predicate import only_spark
from deltars.protocol import DataType, StructType, schema_from_arrow, schema_to_arrow, type_to_arrow


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
        is_deleted = deletes(feed, schema, rows)
        kinds = types_in_table(feed, given, columns, schema, by, sequence, table)
        arrays = []
        for name, spelt in zip(given.kept, columns.kept, strict=True):
            values = rows.column(name)
            if name not in given.keys:
                values = pc.if_else(is_deleted, pa.scalar(None, values.type), values)
            arrays.append(self._assigned(values, kinds[spelt], spelt))
        arrays.append(self._assigned(rows.column(by), kinds[sequence], "sequence_by"))
        ready = pa.table([*arrays, is_deleted], names=[*columns.kept, sequence, deleted])
        once = checked(ready, columns, sequence, deleted)
        return ArrowEvents(once, columns, sequence, deleted, kinds, found_keys(once, columns, kinds))

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
        index = KeyIndex([one_array(events.rows[key]) for key in keys], key_types(events), None)
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
        return History(events, rows, hidden, ignore_nulls=ignore_nulls).changes()


class _Numbers:
    """Numbers of the keys and of the sequences in tables: equal keys the same, sequences in their order."""

    def __init__(self, events: ArrowEvents, others: Sequence[tuple[pa.Table, str]] = ()) -> None:
        tables = [(events.rows, events.sequence), *others]
        self._keys = coded([[table[key] for key in events.columns.keys] for table, _ in tables])
        self._ranks = ranked([table[sequence] for table, sequence in tables])

    def known(self) -> Iterator[tuple[int, int]]:
        """Yield key and sequence of each row of the other tables."""
        for keys, ranks in zip(self._keys[1:], self._ranks[1:], strict=True):
            yield from ((key, rank) for key, rank in zip(keys, ranks, strict=True) if rank is not None)

    def by_key(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Yield the events of each key: pairs of the sequence and the number of the row, in their order."""
        every = sorted(zip(self._keys[0], self._ranks[0], range(len(self._keys[0])), strict=True))
        for key, group in groupby(every, key=lambda one: one[0]):
            yield key, [(rank, row) for _, rank, row in group]
