"""A transaction: read and stage any number of tables, commit them all at once or not at all.

begin ── take a snapshot: every table's version at this moment
  read(table, where) ─── read the snapshot with staged changes, `files` only its list of files; remember what was read
  write(table, df) ───── write data files, stage their add actions; nothing is visible yet
  delete, update, merge ── find the rows, write files or deletion vectors, stage their actions
  stage(table, actions)
commit ── in one SQL transaction: check every table as the isolation level demands, then advance all tables
  ├─ settle a conflict by rows, where others changed other rows only, and try again
  └─ publish each table's new version to `_delta_log`, then compact the tables whose properties ask for it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, Unpack
from uuid import UUID

from deltars.arguments import checks_calls
from deltars.errors import DeltarsError, ValidationError
from deltars.log.commit import Commit, Committed, Drop
from deltars.log.stages import PUBLISH, in_order
from deltars.observe import Lineage, Outcome, Stopwatch, TransactionEnded, emit
from deltars.observe.channel import is_heard
from deltars.session import HasSession, TableLike, after_commit
from deltars.transaction.auto_compaction import compact_after_write
from deltars.transaction.current import Entered, enter, leave
from deltars.transaction.feed import write_change_data
from deltars.transaction.lifetime import Phase
from deltars.transaction.lineage import lineage_of
from deltars.transaction.options import BeginOptions
from deltars.transaction.result import TransactionResult
from deltars.transaction.settle import Settler
from deltars.transaction.statement_calls import StatementCalls

if TYPE_CHECKING:
    from deltars.catalog.changes import Changes


@checks_calls
class Transaction(StatementCalls):
    """A transaction, made by `catalog.begin()` or `deltars.begin()`. Use it as a context manager.

    It commits on clean exit and rolls back on any exception. Threads may share it: they write rows at the same time,
    and the result is as if the calls had been made one after the other. A call that is still running when the
    transaction ends raises `TransactionClosed` and stages nothing.
    """

    _result: TransactionResult | None = None
    _entered: tuple[Entered, ...] = ()
    _changes: Callable[[TableLike], Changes] | None = None
    """Set by `each_batch` for a batch of a transaction stream."""

    @property
    def result(self) -> TransactionResult:
        """Versions that were committed. Raise if there are none: `CommitUnknown` if the outcome is not known."""
        if self._result is None:
            raise self._lifetime.why_no_result()
        return self._result

    @property
    def is_repeated(self) -> bool:
        """Whether a transaction with this id was committed before. Then this one changes nothing."""
        return self._earlier is not None

    def changes(self, table: TableLike) -> Changes:
        """Return the rows that the batch of a transaction stream changed in a table.

        Only a function that `each_batch` runs on a `transactions_stream` has them. `table` is one of the stream's.
        """
        if self._changes is None:
            raise ValidationError(
                "this transaction has no batch of a transaction stream",
                txn_id=self.id,
                field="table",
                hint="Call it in the function of each_batch(fn) on transactions_stream(…). Elsewhere,"
                " catalog.table(name).changes(start) has the rows that versions changed.",
            )
        return self._changes(table)

    def commit(self) -> TransactionResult:
        """Commit everything staged in one SQL transaction, then publish it. The context manager calls this."""
        self._lifetime.end(Phase.COMMITTING)
        return self._commit()

    def _commit(self) -> TransactionResult:
        if (unexecuted := self._unexecuted()) is not None:
            self._lifetime.phase = Phase.ROLLED_BACK
            self._roll_back()
            raise unexecuted
        view, skipped = self._view, tuple(self._skipped)
        if view is None or not (view.changed or view.dropped or self._is_repeated_drop):
            self._result = TransactionResult(self.id, None, skipped=skipped)
            self._lifetime.phase = Phase.COMMITTED
            if view is not None:
                view.session.heartbeat.end(self.id, withdraw=True)
            self._emit_end(Outcome.EMPTY)
            return self._result
        changed, dropped, session = view.changed, view.dropped, view.session
        names = {staged.table_id: staged.name for staged in changed}
        spent, watch = self._lifetime.spent(), Stopwatch("validate")
        try:
            committed = self._repeated(names.keys()) or session.commit(
                self._as_commit(spent), timeout_s=self._timeout_s, watch=watch, settle=Settler(view)
            )
            # Set before publication: a failure there does not undo the commit.
            self._result = TransactionResult(
                self.id,
                committed.commit_ts,
                {names[table_id]: version for table_id, version in committed.versions.items()},
                dict(committed.versions),
                skipped=skipped,
                stages=in_order(spent | watch.stages),
            )
            publishing = time.perf_counter()
            self._lifetime.phase = Phase.COMMITTED
            session.heartbeat.end(self.id, withdraw=committed is self._earlier)
        except BaseException as error:
            self._fail(error, watch, names)
            raise
        with after_commit(self.id):
            if committed is self._earlier:
                self._emit_end(Outcome.REPEATED, self._result.versions)
            else:
                lineage = partial(lineage_of, view, committed.versions, committed.commit_ts, self._committer)
                self._emit_end(Outcome.COMMITTED, self._result.versions, lineage=lineage)
            outcomes = session.publish(committed.versions, mirror=self._mirror, next_version=committed.next_version)
            for staged in (*(table for table in changed if table.new), *dropped):
                session.publish_registration(staged.table_id)
            for outcome in outcomes.values():
                if outcome.failure is not None:
                    outcome.failure.located(txn_id=self.id)
            self._result = replace(
                self._result,
                mirror={names[table_id]: outcome for table_id, outcome in outcomes.items()},
                stages={**self._result.stages, PUBLISH: time.perf_counter() - publishing},
            )
            if committed is not self._earlier:
                written = {table.table_id: (table.name, table.metadata) for table in changed if table.metadata}
                compact_after_write(session, written, self._mirror)
        return self._result

    def _fail(self, error: BaseException, watch: Stopwatch, names: Mapping[UUID, str]) -> None:
        """Record the phase after an error: rolled back if the commit certainly did not happen, else unknown."""
        if self._result is not None:
            self._lifetime.phase = Phase.COMMITTED
            return
        outcome = Outcome.of(error, watch.stage)
        self._lifetime.phase = Phase.UNKNOWN if outcome is Outcome.UNKNOWN else Phase.ROLLED_BACK
        if self._view is not None:
            # If the outcome is not known, a commit may still be running: the announcement stays.
            self._view.session.heartbeat.end(self.id, withdraw=outcome is not Outcome.UNKNOWN)
        if isinstance(error, DeltarsError) and error.table_id is not None:
            error.located(table=names.get(UUID(error.table_id)))
        self._emit_end(outcome, error=error)

    def _repeated(self, tables: Collection[UUID]) -> Committed | None:
        """Return the earlier commit with this id, if it wrote the same tables."""
        return self._earlier if self._earlier and self._earlier.versions.keys() == set(tables) else None

    def rollback(self) -> None:
        """Discard everything staged. Data files that were already written stay, until a full vacuum deletes them."""
        self._lifetime.end(Phase.ROLLED_BACK)
        self._roll_back()

    def _roll_back(self) -> None:
        self._emit_end(Outcome.ROLLED_BACK)
        if self._view is not None:
            self._view.session.heartbeat.end(self.id, withdraw=True)
            self._view.forget()

    def _emit_end(
        self,
        outcome: Outcome,
        versions: Mapping[str, int] | None = None,
        error: BaseException | None = None,
        lineage: Callable[[], Lineage] | None = None,
    ) -> None:
        if self._view is not None and (error is not None or is_heard(TransactionEnded)):
            tables = versions or dict.fromkeys(staged.name for staged in self._view.changed)
            took_s = time.perf_counter() - self._began
            source = self._view.session.database.source
            emit(TransactionEnded(source, self.id, outcome, took_s, tables, error, lineage))

    def __enter__(self) -> Self:
        self._lifetime.refuse_closed()
        self._entered = (*self._entered, enter(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._entered:
            *outer, entered = self._entered
            self._entered = tuple(outer)
            leave(self, entered)
        # The block, or another thread, may have ended the transaction already.
        if kind is None and self._lifetime.try_end(Phase.COMMITTING):
            self._commit()
        elif kind is not None and self._lifetime.try_end(Phase.ROLLED_BACK):
            self._roll_back()

    def __reduce__(self) -> NoReturn:
        raise ValidationError(
            "a transaction belongs to the process that began it, and cannot be pickled or copied",
            txn_id=self.id,
            hint="Send the catalog, and begin a transaction there; or write the rows there, and commit them here.",
        )

    def __repr__(self) -> str:
        phase = self._lifetime.phase
        changed, dropped = (self._view.changed, self._view.dropped) if self._view else ((), ())
        staged = ", ".join([*(table.name for table in changed), *(f"drop {table.name}" for table in dropped)])
        resolve = f" (catalog.resolve({str(self.id)!r}) finds out)" if phase is Phase.UNKNOWN else ""
        return f"<Transaction {self.id} {phase}{resolve}: {staged or 'nothing staged'}>"

    def _as_commit(self, spent: Mapping[str, float] | None = None) -> Commit:
        """Return what is staged as a commit for the store. `spent` has the seconds of each stage so far."""
        view = self._view
        if view is None:
            raise ValidationError("the transaction has staged nothing yet", txn_id=self.id)
        changed = view.changed
        return Commit(
            self.id,
            [staged.as_commit(write_change_data(view, staged)) for staged in changed],
            [staged.new for staged in changed if staged.new],
            committer=self._committer,
            user_metadata=self._user_metadata,
            isolation=self._isolation or view.session.isolation,
            read=view.reads,
            is_repeatable=self._is_repeatable,
            bases=view.bases,
            drops=[Drop(table.table_id, table.version) for table in view.dropped],
            announced=view.session.heartbeat.pause(self.id),
            spent=spent or {},
        )


class MultiTableTransaction(Transaction):
    """Same as `catalog.begin(**options)`."""

    def __init__(self, catalog: HasSession, **options: Unpack[BeginOptions]) -> None:
        super().__init__(catalog._session, **options)
