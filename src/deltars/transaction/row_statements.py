"""The calls of a transaction that change rows: delete, update, merge, apply_changes; and purge, which moves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Unpack

from deltars.arguments import check_keywords, checks_calls
from deltars.data.row_change import Expression
from deltars.errors import ValidationError
from deltars.session import TableLike
from deltars.transaction.assignments import Assignments, as_expression, check_condition, refuse_condition_first
from deltars.transaction.change_metrics import ChangeMetrics
from deltars.transaction.merge_builder import GivenMerge, MergeBuilder, begin_merge
from deltars.transaction.open_transaction import OpenTransaction
from deltars.transaction.options import AliasedChangeOptions, ChangeOptions, CheckedChangeOptions
from deltars.transaction.plane import Frame
from deltars.transaction.staged_table import StagedTable, Step
from deltars.transaction.view import View

if TYPE_CHECKING:
    from deltars.transaction.row_change import RowChange

# The statements are imported late: they load sqlglot, which most transactions do not need.


@checks_calls
class RowStatements(OpenTransaction):
    """The calls that change rows. Each sees what the transaction staged before it."""

    def delete(
        self, table: TableLike, where: Expression | None = None, **options: Unpack[AliasedChangeOptions]
    ) -> ChangeMetrics:
        """Delete the rows for which `where` is true; without it, every row.

        `where` is SQL text or a Spark Column. Files without a matching row are not opened, and neither are files of
        which every row matches. See `AliasedChangeOptions` for the options.
        """
        from deltars.transaction.row_change import DeleteRows

        condition = check_condition(where, field="where")
        return self._change(table, "delete", options, lambda view, checked: DeleteRows(view, checked, condition))

    def update(
        self,
        table: TableLike,
        set: Assignments,
        where: Expression | None = None,
        **options: Unpack[AliasedChangeOptions],
    ) -> ChangeMetrics:
        """Give columns new values in the rows for which `where` is true; without it, in every row.

        `set` maps columns to values: SQL text such as `"score + 1"` or `"'text'"`, a Spark Column, or a number, date,
        time, bool or None. `a.b` is the field b of the struct a.
        """
        from deltars.transaction.row_change import UpdateRows

        refuse_condition_first("update", set, where, field="set", other="where")
        condition = check_condition(where, field="where")
        for column, value in (set or {}).items() if hasattr(set, "items") else ():
            as_expression(value, str(column), field="set")
        return self._change(table, "update", options, lambda view, checked: UpdateRows(view, checked, set, condition))

    def merge(
        self,
        table: TableLike,
        source: Frame,
        on: Expression,
        *,
        target_alias: str = "t",
        source_alias: str = "s",
        merge_schema: bool = False,
        **options: Unpack[ChangeOptions],
    ) -> MergeBuilder:
        """Begin a merge of a frame into a table. Add clauses to the result, then call its `execute()`.

        `on` says which rows match, as SQL text or a Spark Column: `"t.id = s.id"`. The source is read once.
        `merge_schema` adds new columns of the source to the table.
        """
        builder = begin_merge(
            lambda merge: self._merge(table, merge, options),
            source,
            on,
            target_alias=target_alias,
            source_alias=source_alias,
            evolves=merge_schema,
            options=options,
        )
        with self._lifetime.open():
            pending = builder._pending
            pending.table, pending.warns = str(table), False
            self._pending_merges.append(pending)
        return builder

    def _merge(self, table: TableLike, merge: GivenMerge, options: ChangeOptions) -> ChangeMetrics:
        from deltars.transaction.merge import MergeRows

        return self._change(table, "merge", options, lambda view, checked: MergeRows(view, checked, merge))

    def apply_changes(
        self,
        target: TableLike,
        df: Frame,
        *,
        keys: str | Sequence[str],
        sequence_by: Expression,
        apply_as_deletes: Expression | None = None,
        column_list: str | Sequence[str] | None = None,
        except_column_list: str | Sequence[str] | None = None,
        stored_as_scd_type: Literal[1, 2, "1", "2"] = 1,
        ignore_null_updates: bool = False,
        track_history_column_list: str | Sequence[str] | None = None,
        track_history_except_column_list: str | Sequence[str] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> ChangeMetrics:
        """Apply a batch of change events to a table: its last state (SCD 1), or every state with its time (SCD 2).

        `keys` name a row. `sequence_by` orders the events of a key: a column's name, or a Spark Column. Events may
        arrive late, in any order, and more than once. `apply_as_deletes` says which events delete, as SQL text or a
        Spark Column. `column_list` and `except_column_list` choose the columns of the table. With
        `ignore_null_updates`, a null in an event leaves the value as it is. The lists `track_history_…` choose the
        columns whose change begins a new row of an SCD 2 table.

        The commit creates a table that does not exist. A second table, `target__tombstones` or
        `target__hidden_events`, remembers what the table does not show. The result counts the rows of the table, and
        the files of both. Frames of Spark, large ones, and Spark Columns need Spark.
        """
        from deltars.data.change_feed import ChangeFeed
        from deltars.transaction.apply_changes import apply_changes

        feed = ChangeFeed.given(
            keys=keys,
            sequence_by=sequence_by,
            apply_as_deletes=apply_as_deletes,
            column_list=column_list,
            except_column_list=except_column_list,
            stored_as_scd_type=stored_as_scd_type,
            ignore_null_updates=ignore_null_updates,
            track_history_column_list=track_history_column_list,
            track_history_except_column_list=track_history_except_column_list,
        )
        return apply_changes(self, target, df, feed, options)

    def purge(
        self, table: TableLike, where: Expression | None = None, **options: Unpack[ChangeOptions]
    ) -> ChangeMetrics:
        """Write files with deletion vectors again without their deleted rows, as `REORG … APPLY (PURGE)` does.

        `where` limits it to files that may hold a matching row. No row changes.
        """
        from deltars.transaction.row_change import PurgeFiles

        condition = check_condition(where, field="where")
        return self._change(table, "purge", options, lambda view, checked: PurgeFiles(view, checked, condition))

    def _change(
        self,
        table: TableLike,
        call: str,
        options: ChangeOptions,
        make: Callable[[View, CheckedChangeOptions], RowChange],
    ) -> ChangeMetrics:
        """Carry out one statement, and stage its actions for the table as it is then."""
        check_keywords(call, options, AliasedChangeOptions if call in ("delete", "update") else ChangeOptions)
        checked = CheckedChangeOptions(**options)
        view = self._view_for(table)
        with self._lifetime.writing(view.name_of(view.session.name_or_id(table))):
            change = make(view, checked)
            while True:
                base = view.readable(table)
                if self._is_done(view, base, change):
                    return ChangeMetrics(skipped=True)
                # How many staged files it replaces is not known before, so they do not count yet.
                self._write_rows(change, base, self._limits.max_new_files(view.changed, base, overwrites=True))
                with self._lifetime.open():
                    now = view.readable(table)
                    if now is not base and self._is_done(view, now, change):
                        return ChangeMetrics(skipped=True)
                    if change.is_made_for(now):
                        if change.has_effect:
                            self._stage(view, now, *change.steps(now))
                            self._user_metadata = checked.user_metadata or self._user_metadata
                        return change.metrics
                # Another thread has staged changes of the table since: repeat for its new state.

    def _is_done(self, view: View, table: StagedTable, change: RowChange) -> bool:
        """Return whether the statement was committed before: by this transaction's id, or by its application."""
        if self._earlier is not None:
            # A statement that matched nothing made no version, so the table need not be among the committed ones.
            if self._is_committed(table):
                self._stage(view, table, (), Step(change.operation))
            return True
        return self._is_skipped(view, change.skipped(table))

    def _forget_merges(self) -> None:
        """Forget merges that were described and failed: a statement that fails changes nothing."""
        with self._lifetime.open():
            self._pending_merges = [pending for pending in self._pending_merges if pending.is_done]

    def _unexecuted(self) -> ValidationError | None:
        """Return the error for a merge that was described and never executed: its rows would be missing silently."""
        pending = next((pending for pending in self._pending_merges if not pending.is_executed), None)
        if pending is None:
            return None
        if pending.call != "merge":
            what, hint = f"{pending.call} did not finish", "Begin a new transaction, and repeat all of it."
        else:
            what, hint = "a merge was described, but never executed", "Call execute() at the end of the merge."
        return ValidationError(
            f"{what}; nothing of this transaction is committed", table=pending.table, txn_id=self.id, hint=hint
        )
