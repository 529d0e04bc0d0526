"""SCD 2: the history of the keys in a batch, made anew from all their events, and how the table differs from it.

    rows of the table    each begins with an upsert, and ends with the next row or with a delete
    hidden events        what no row shows: repeated values, deletes of what was deleted, values replaced in place
    new events
      └── all of a key, by sequence ──equal tracked values collapse──> rows · hidden events ──> what is different

A late event can split a row, so the events that the row absorbed are needed: without the hidden ones, the history would
depend on the order in which the events arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.change_feed import DELETED, END_AT, SEQUENCE, START_AT, no_start
from deltars.data.column_names import free_names
from deltars.spark.change.events import Events, comparable
from deltars.spark.change.materialize import materialized
from deltars.spark.read.columns import quoted
from deltars.spark.write.checks import translate_task_errors

_HIDDEN, _ROW, _END, _NEW = range(4)
"""Where an event comes from. Of several at one sequence the first counts, so an event that is known stays as it is."""


@dataclass(frozen=True, slots=True)
class HistoryChanges:
    """Rows to insert, update and delete. The column `action` says which."""

    rows: DataFrame
    hidden: DataFrame
    action: str


def history_changes(events: Events, rows: DataFrame, hidden: DataFrame, *, ignore_nulls: bool) -> HistoryChanges:
    """Return what the events change. `rows` and `hidden` are those of the events' keys."""
    with translate_task_errors([]):
        return _History(events, rows, hidden, ignore_nulls=ignore_nulls).changes()


class _History:
    def __init__(self, events: Events, rows: DataFrame, hidden: DataFrame, *, ignore_nulls: bool) -> None:
        self._events, self._columns, self._ignore_nulls = events, events.columns, ignore_nulls
        self._rows, self._hidden = rows, hidden
        self._types = {field.name: field.dataType for field in events.frame.schema.fields}
        self._sequence, self._deleted = events.sequence, events.deleted
        taken = {name.lower() for name in (*events.names, START_AT, END_AT, SEQUENCE, DELETED)}
        untracked = [name for name in self._columns.values if name not in self._columns.tracked]
        words = ["origin", "number", "epoch", "begins", "run", "until", "is_hidden", "action"]
        shown = [f"shown{at}" for at in range(len(untracked))]
        names = free_names([*words, *shown], taken)
        self._origin, self._number, self._epoch, self._begins, self._run, self._until, self._is_hidden = names[:7]
        self._action = names[7]
        self._shown = dict(zip(untracked, names[8:], strict=True))
        """Columns with the values that a row shows of the columns without a history: the last ones."""

    def changes(self) -> HistoryChanges:
        shaped = materialized(self._shaped(self._timeline()))
        if not shaped.where(F.col(self._sequence).isNull()).isEmpty():
            raise no_start()
        keys, values = self._columns.keys, self._columns.values
        is_row = F.col(self._begins) & ~F.col(self._deleted)
        shown = [F.col(quoted(self._shown.get(name, name))).alias(name) for name in values]
        start, until = F.col(self._sequence).alias(START_AT), F.col(self._until).alias(END_AT)
        rows = shaped.where(is_row).select(*map(quoted, keys), *shown, start, until)
        own = [F.col(self._sequence).alias(SEQUENCE), F.col(self._deleted).alias(DELETED)]
        hidden = shaped.where(self._is_hidden).select(*map(quoted, self._columns.kept), *own)
        return HistoryChanges(
            self._difference(rows, self._rows, (*keys, START_AT), (*values, END_AT)),
            self._difference(hidden, self._with_all_values(self._hidden), (*keys, SEQUENCE), (*values, DELETED)),
            self._action,
        )

    # -- all events of the keys --------------------------------------------------------------------------------------

    def _timeline(self) -> DataFrame:
        """Return one event for each key and sequence: the oldest known one."""
        rows, hidden = self._rows, self._with_all_values(self._hidden)
        kept = [F.col(quoted(name)) for name in self._columns.kept]
        keys = kept[: len(self._columns.keys)]
        nothing = [F.lit(None).cast(self._types[name]).alias(name) for name in self._columns.values]
        parts = [
            hidden.select(*kept, *self._marks(F.col(SEQUENCE), F.col(DELETED), _HIDDEN)),
            rows.select(*kept, *self._marks(F.col(START_AT), F.lit(False), _ROW)),
            # An end at which another row begins is no delete. The row's own event comes first there.
            rows.where(F.col(END_AT).isNotNull()).select(
                *keys, *nothing, *self._marks(F.col(END_AT), F.lit(True), _END)
            ),
            self._events.frame.select(*kept, *self._marks(F.col(self._sequence), F.col(self._deleted), _NEW)),
        ]
        at_one_sequence = Window.partitionBy(*keys, self._sequence).orderBy(self._origin)
        every = reduce(DataFrame.union, parts).withColumn(self._number, F.row_number().over(at_one_sequence))
        return every.where(F.col(self._number) == 1).drop(self._number)

    def _marks(self, sequence: Column, deleted: Column, origin: int) -> list[Column]:
        return [sequence.alias(self._sequence), deleted.alias(self._deleted), F.lit(origin).alias(self._origin)]

    def _with_all_values(self, hidden: DataFrame) -> DataFrame:
        """Add columns that the table got after the hidden events were stored."""
        there = {name.lower() for name in hidden.columns}
        lacking = [name for name in self._columns.values if name.lower() not in there]
        return hidden.select("*", *(F.lit(None).cast(self._types[name]).alias(name) for name in lacking))

    # -- rows and hidden events --------------------------------------------------------------------------------------

    def _shaped(self, timeline: DataFrame) -> DataFrame:
        keys = [F.col(quoted(key)) for key in self._columns.keys]
        in_order = Window.partitionBy(*keys).orderBy(self._sequence)
        so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        after = in_order.rowsBetween(1, Window.unboundedFollowing)
        deleted = F.col(self._deleted)
        if self._ignore_nulls:
            timeline = self._filled(timeline.withColumn(self._epoch, F.sum(deleted.cast("int")).over(so_far)), keys)
        before = F.lag(deleted).over(in_order)
        follows_delete = before.isNull() | before
        is_other = _any(~self._equals_previous(name, in_order) for name in self._columns.tracked)
        framed = timeline.withColumn(self._begins, deleted | follows_delete | is_other)
        begins = F.col(self._begins)
        framed = framed.withColumns(
            {
                self._run: F.sum(begins.cast("int")).over(so_far),
                self._until: F.first(F.when(begins, F.col(self._sequence)), ignorenulls=True).over(after),
            }
        )
        run = Window.partitionBy(*keys, self._run).orderBy(self._sequence)
        run = run.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        framed = framed.select("*", *(F.last(quoted(name)).over(run).alias(at) for name, at in self._shown.items()))
        is_replaced = _any(
            ~comparable(name, self._types[name]).eqNullSafe(comparable(at, self._types[name]))
            for name, at in self._shown.items()
        )
        is_hidden = F.when(deleted, follows_delete).otherwise(~begins | is_replaced)
        return framed.withColumn(self._is_hidden, is_hidden)

    def _equals_previous(self, name: str, in_order: WindowSpec) -> Column:
        value = comparable(name, self._types[name])
        return value.eqNullSafe(F.lag(value).over(in_order))

    def _filled(self, timeline: DataFrame, keys: Sequence[Column]) -> DataFrame:
        """Give nulls of new events the value before them, up to a delete. A null that the table has is a value."""
        since_delete = Window.partitionBy(*keys, self._epoch).orderBy(self._sequence)
        since_delete = since_delete.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        values = self._columns.values
        filled = []
        for name in values:
            column = F.col(quoted(name))
            counts = (F.col(self._origin) < _NEW) | column.isNotNull()
            boxed = F.when(counts, F.struct(column.alias("value")))
            filled.append(F.last(boxed, ignorenulls=True).over(since_delete).getField("value").alias(name))
        others = [quoted(name) for name in timeline.columns if name not in values]
        return timeline.select(*others, *filled)

    # -- what is different -------------------------------------------------------------------------------------------

    def _difference(self, wanted: DataFrame, there: DataFrame, on: Sequence[str], compared: Sequence[str]) -> DataFrame:
        types = {field.name: field.dataType for field in wanted.schema.fields}

        def side(frame: DataFrame, name: str) -> DataFrame:
            columns = [F.col(quoted(column)).alias(f"c{at}") for at, column in enumerate(compared)]
            forms = [comparable(column, types[column]).alias(f"f{at}") for at, column in enumerate(compared)]
            whole = F.struct(F.struct(*columns).alias("c"), F.struct(*forms).alias("f"))
            return frame.select(*map(quoted, on), whole.alias(name))

        new, old = free_names(("new", "old"), {name.lower() for name in (*on, *compared)})
        both = side(wanted, new).join(side(there, old), list(on), "full")
        is_same = F.col(f"{new}.f").eqNullSafe(F.col(f"{old}.f"))
        action = (
            F.when(F.col(new).isNull(), "delete").when(F.col(old).isNull(), "insert").when(~is_same, "update")
        ).alias(self._action)
        values = [F.col(f"{new}.c.c{at}").alias(column) for at, column in enumerate(compared)]
        return both.select(*map(quoted, on), *values, action).where(F.col(self._action).isNotNull())


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(Column.__or__, conditions, F.lit(False))


__all__ = ["HistoryChanges", "history_changes"]
