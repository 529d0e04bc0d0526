"""Change feeds applied to tables: SCD 1 and SCD 2.

    events ──read once, checked──┐
    target, companion ──rows of their keys──┴──▶ what is different ──▶ one merge into each of the two tables

The companion remembers what the target does not show, so that the order in which events arrive does not matter:

    SCD 1    target__tombstones        last delete of each key that is gone
    SCD 2    target__hidden_events     events that begin and end no row of the history

Everything that can be refused is refused before the first change is staged. `data.arrow_feed` finds what is different
in this process, and `spark.change.feed_plane` on Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deltars.arguments import check_keywords
from deltars.data.arrow_feed import ArrowFeed
from deltars.data.change_feed import DELETED, END_AT, SEQUENCE, START_AT, ChangeFeed, Events, FeedPlane
from deltars.errors import PredicateError, ValidationError, located
from deltars.protocol import StructType
from deltars.session import TableLike
from deltars.store.names import name_key
from deltars.transaction.assignments import check_condition, quoted
from deltars.transaction.change_metrics import ChangeMetrics, with_files_of
from deltars.transaction.merge import key_condition, key_filter
from deltars.transaction.merge_builder import MergeBuilder, Pending
from deltars.transaction.options import ChangeOptions, CheckedChangeOptions
from deltars.transaction.plane import Frame, plane_for, running_spark, spark_plane
from deltars.transaction.read_size import SMALL_BYTES, is_small
from deltars.transaction.spark_only import only_with_spark
from deltars.transaction.staged_table import StagedTable, Step
from deltars.transaction.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltars.transaction.row_statements import RowStatements

TOMBSTONES = "__tombstones"
HIDDEN_EVENTS = "__hidden_events"


def apply_changes(
    tx: RowStatements, table: TableLike, df: Frame, feed: ChangeFeed, options: ChangeOptions
) -> ChangeMetrics:
    """Apply the events of a frame to a table, which is created if it does not exist."""
    check_keywords("apply_changes", options, ChangeOptions)
    checked = CheckedChangeOptions(**options)
    check_condition(feed.apply_as_deletes, field="apply_as_deletes")
    plane_for(df)
    view = tx._view_for(table)
    name = view.session.name_or_id(table)
    found = view.find(name)
    if found is None and isinstance(name, UUID):
        found = view.seen(name)
    target = str(name) if found is None else found.name
    with tx._lifetime.writing(), _lock_of(tx, target), located(table=target, txn_id=tx.id):
        return _Application(tx, view, target, feed, options, checked).run(df)


class _Application:
    """One batch of events for one table."""

    def __init__(
        self,
        tx: RowStatements,
        view: View,
        target: str,
        feed: ChangeFeed,
        options: ChangeOptions,
        checked: CheckedChangeOptions,
    ) -> None:
        self._tx, self._view, self._feed, self._checked = tx, view, feed, checked
        self._target = target
        self._companion = target + (HIDDEN_EVENTS if feed.has_history else TOMBSTONES)
        self._options = options
        self._companion_options: ChangeOptions = {**options, "app_id": None, "app_version": None}

    def run(self, df: Frame) -> ChangeMetrics:
        if self._is_done():
            return ChangeMetrics(skipped=True)
        plane, events = self._read(df)
        return self._history(plane, events) if self._feed.has_history else self._last(plane, events)

    def _read(self, df: Frame) -> tuple[FeedPlane, Events]:
        """Read the events once, and choose who applies them: this process, if there is little to read."""
        session = running_spark(self._checked.spark or getattr(df, "sparkSession", None))
        source: object = self._held(df) if _is_of_spark(df) else df
        if not _is_of_spark(source):
            here = ArrowFeed("UTC" if session is None else spark_plane().zone(session))
            rows, names = here.opened(source)
            source = rows
            try:
                found = self._events(here, rows, names)
                if session is None or self._is_small(found, rows.nbytes):
                    return here, found
            except PredicateError as error:
                # An error without a position says that the text is valid, but only Spark can compute it.
                if error.position is not None:
                    raise
                if session is None:
                    raise only_with_spark(error.message) from error
        by_spark = self._spark_feed(session)
        return by_spark, self._events(by_spark, *by_spark.opened(source))

    def _held(self, df: Any) -> Any:
        """Return the rows of a Spark frame, as an Arrow table if they are few. Columns of Spark need it as it is."""
        given = (self._feed.sequence_by, self._feed.apply_as_deletes)
        if not all(isinstance(one, str | None) for one in given):
            return df
        table = self._table(self._target)
        if table is not None and table.metadata is not None:
            _check_table(table.metadata.schema, self._feed)
        return spark_plane().hold_events(df, self._feed)

    def _events(self, plane: FeedPlane, source: object, names: Sequence[str]) -> Events:
        given = self._feed.columns(names)
        table = self._table(self._target)
        schema = None if table is None or table.metadata is None else table.metadata.schema
        if schema is not None:
            _check_table(schema, self._feed)
        events: Events = plane.events(source, self._feed, given, schema)
        return events

    def _is_small(self, events: Events, source_bytes: int) -> bool:
        """Return whether this process applies the events as fast as Spark, or faster."""
        for name in (self._target, self._companion):
            table = self._table(name)
            if table is not None and table.metadata is not None:
                predicate, _ = key_condition(events.found_keys, table.metadata)
                if not is_small(self._view.files_to_move(table, predicate), source_bytes=source_bytes):
                    return False
        return source_bytes <= SMALL_BYTES

    def _spark_feed(self, session: SparkSession | None) -> FeedPlane:
        spark_plane()  # says what to install if pyspark is not there
        from deltars.spark.change.feed_plane import SparkFeed
        from deltars.spark.session import running_session

        return SparkFeed(running_session(session))

    def _is_done(self) -> bool:
        """Return whether the batch was committed before: by this transaction's id, or by its application."""
        tx, view = self._tx, self._view
        table = self._table(self._target)
        if tx._earlier is not None:
            for found in (table, self._table(self._companion)):
                if found is not None and tx._is_committed(found):
                    tx._stage(view, found, (), Step("MERGE"))
            return True
        if table is None or table.metadata is None:
            return False
        return tx._is_skipped(view, self._checked.skipped(table.name, lambda app_id: view.progress(table, app_id)))

    # -- SCD 1 -----------------------------------------------------------------------------------------------------

    def _last(self, plane: FeedPlane, events: Events) -> ChangeMetrics:
        columns = events.columns
        sequence = columns.sequence or SEQUENCE
        ignores_nulls = self._feed.ignore_null_updates
        tombstones = self._rows(plane, events, self._companion, [*columns.keys, SEQUENCE])
        known = [] if tombstones is None else [tombstones]
        has_tombstones = bool(known) or self._feed.apply_as_deletes is not None
        if ignores_nulls and self._has(self._target, sequence):
            # Which events of the batch are late decides which nulls of it count.
            known.append(self._rows(plane, events, self._target, [*columns.keys, sequence]))
        source, reset = plane.last(events, known, ignore_nulls=ignores_nulls)
        with self._staging():
            metrics = self._merge_last(events, source, sequence, reset)
            return with_files_of(metrics, self._merge_tombstones(events, source)) if has_tombstones else metrics

    def _merge_last(self, events: Events, source: Any, sequence: str, reset: str) -> ChangeMetrics:
        columns, at, deleted = events.columns, _of_source(events.sequence), _of_source(events.deleted)
        values = {name: _of_source(name) for name in columns.values if name != sequence}
        inserted = {key: _of_source(key) for key in columns.keys} | values | {sequence: at}
        if self._feed.ignore_null_updates:
            values = {
                name: f"CASE WHEN {_of_source(reset)} THEN {value} ELSE coalesce({value}, t.{quoted(name)}) END"
                for name, value in values.items()
            }
        # A row without a sequence is older than every event: it was there before the first one.
        newer = f"(t.{quoted(sequence)} IS NULL OR {at} > t.{quoted(sequence)})"
        self._prepare(self._target, events.schema_with({} if columns.sequence else {SEQUENCE: events.sequence_type}))
        return (
            self._merge(self._target, source, columns.keys, self._options)
            .when_matched_delete(f"{deleted} = true AND {newer}")
            .when_matched_update(values | {sequence: at}, f"{deleted} = false AND {newer}")
            .when_not_matched_insert(inserted, f"{deleted} = false")
            .execute()
        )

    def _merge_tombstones(self, events: Events, source: Any) -> ChangeMetrics:
        """Keep the last delete of each key. A newer upsert removes it; older events are not in the source."""
        keys, at, deleted = events.columns.keys, _of_source(events.sequence), _of_source(events.deleted)
        self._prepare(self._companion, events.schema_with({SEQUENCE: events.sequence_type}, only_keys=True))
        return (
            self._merge(self._companion, source, keys, self._companion_options)
            .when_matched_delete(f"{deleted} = false")
            .when_matched_update({SEQUENCE: at})
            .when_not_matched_insert({key: _of_source(key) for key in keys} | {SEQUENCE: at}, f"{deleted} = true")
            .execute()
        )

    # -- SCD 2 -----------------------------------------------------------------------------------------------------

    def _history(self, plane: FeedPlane, events: Events) -> ChangeMetrics:
        columns, kind = events.columns, events.sequence_type
        of_rows = events.schema_with({START_AT: kind, END_AT: kind})
        of_hidden = events.schema_with({SEQUENCE: kind, DELETED: "boolean"})
        rows = self._rows(plane, events, self._target, of_rows.names)
        hidden = self._rows(plane, events, self._companion, None)
        ignores_nulls = self._feed.ignore_null_updates
        row_source, hidden_source, action = plane.history(events, rows, hidden, ignore_nulls=ignores_nulls)
        with self._staging():
            self._prepare(self._target, of_rows)
            self._prepare(self._companion, of_hidden)
            on = (*columns.keys, START_AT)
            merge = self._merge(self._target, row_source, on, self._options)
            metrics = _by_action(merge, action, on, (*columns.values, END_AT))
            on = (*columns.keys, SEQUENCE)
            merge = self._merge(self._companion, hidden_source, on, self._companion_options)
            return with_files_of(metrics, _by_action(merge, action, on, (*columns.values, DELETED)))

    # -- parts that both share -------------------------------------------------------------------------------------

    def _table(self, name: str) -> StagedTable | None:
        return self._view.find(name)

    def _has(self, table: str, column: str) -> bool:
        found = self._table(table)
        return found is not None and found.metadata is not None and column in found.metadata.schema.names

    def _rows(self, plane: FeedPlane, events: Events, name: str, columns: Sequence[str] | None) -> Any:
        """Return the rows of a table that have a key of the events; None if there is no table.

        Only rows with such keys count as read, so transactions that change other keys do not conflict.
        """
        table = self._table(name)
        if table is None or table.metadata is None:
            return None
        metadata, view = table.metadata, self._view
        predicate, keys = key_condition(events.found_keys, metadata)
        files = view.change_files(table, predicate, keys=keys, row_filter=key_filter(predicate, keys))
        return plane.rows(events, view.scan_of(table, metadata, files), columns)

    def _prepare(self, name: str, schema: StructType) -> None:
        """Create a table, or add the columns of the schema that it lacks."""
        table = self._table(name)
        if table is None:
            return self._tx.create_table(name, schema, if_not_exists=True)
        if table.metadata is None:
            return self._tx.create_table(name, schema, replace=True)
        there = {column.lower() for column in table.metadata.schema.names}
        lacking = tuple(field for field in schema.fields if field.name.lower() not in there)
        if lacking:
            self._tx.alter(name).add_columns(StructType(lacking))
        return None

    def _merge(self, table: str, source: Any, on: Sequence[str], options: ChangeOptions) -> MergeBuilder:
        same = " AND ".join(f"t.{quoted(name)} = {_of_source(name)}" for name in on)
        return self._tx.merge(table, source, same, **options)

    @contextmanager
    def _staging(self) -> Iterator[None]:
        """Refuse to commit the transaction if not all changes of both tables are staged."""
        pending = Pending(self._target, "apply_changes", warns=False)
        with self._tx._lifetime.open():
            self._tx._pending_merges.append(pending)
        yield
        pending.is_executed = True


def _by_action(merge: MergeBuilder, action: str, on: Sequence[str], values: Sequence[str]) -> ChangeMetrics:
    """Carry out a merge whose source says what to do with each row."""
    assigned = {name: _of_source(name) for name in values}
    return (
        merge.when_matched_delete(f"{_of_source(action)} = 'delete'")
        .when_matched_update(assigned, f"{_of_source(action)} = 'update'")
        .when_not_matched_insert({name: _of_source(name) for name in on} | assigned, f"{_of_source(action)} = 'insert'")
        .execute()
    )


def _of_source(name: str) -> str:
    return f"s.{quoted(name)}"


def _is_of_spark(frame: object) -> bool:
    return type(frame).__module__.startswith("pyspark.")


def _check_table(table: StructType, feed: ChangeFeed) -> None:
    """Raise ValidationError if the table is not of the feed's type."""
    for name in (START_AT, END_AT):
        if (name in table.names) != feed.has_history:
            asked, found = (2, 1) if feed.has_history else (1, 2)
            raise ValidationError(
                f"stored_as_scd_type is {asked}, but the table {'lacks' if asked == 2 else 'has'} the column {name}",
                field="stored_as_scd_type",
                hint=f"Pass stored_as_scd_type={found}, or choose another table.",
            )


def _lock_of(tx: RowStatements, target: str) -> threading.Lock:
    """Return the lock of a target: what a batch finds in its two tables must not change before it is staged."""
    with tx._lifetime.lock:
        return tx._applying.setdefault(name_key(target), threading.Lock())


__all__ = ["apply_changes"]
