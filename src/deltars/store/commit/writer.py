"""Writer of commits: one commit is one database transaction, over any number of tables.

    validate ── no lock yet ────────▶ BEGIN ─▶ lock ─▶ check ─▶ write ─▶ COMMIT
                                        │       │       │        │         └ connection lost? settle by abort marker
                                        │       │       │        └ actions, transaction, versions, tables
                                        │       │       └ every table is at the expected version, or only commits that
                                        │       │         do not conflict came in between (`log.conflicts`);
                                        │       │         otherwise VersionTaken
                                        │       └ every table's row, in table_id order, before anything is written
                                        └ any failure from here on rolls everything back

Locking is a separate statement because a statement sees the data as of its start: a statement that first waited for
the lock and then wrote would miss what the previous holder of the lock had committed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Connection, select

from deltars.errors import (
    DeltarsError,
    TableNotFound,
    ValidationError,
    VersionConflict,
)
from deltars.log.commit import (
    Base,
    Commit,
    CommitOutcome,
    Committed,
    Conflict,
    Isolation,
    TableCommit,
    TableState,
    VersionTaken,
)
from deltars.log.conflicts import evidence, find_conflicts, level_of
from deltars.log.new_table import NO_VERSION
from deltars.log.table_rules import check_state
from deltars.log.validation import check_commit
from deltars.observe import CommitEnded, Stopwatch, emit
from deltars.observe.channel import is_heard
from deltars.protocol import Metadata
from deltars.store.backends import Opening
from deltars.store.commit import drop as drops
from deltars.store.commit.batch_commit import Batch, BatchCommits
from deltars.store.commit.bounds_rewrite import rewrite_bounds
from deltars.store.commit.bulk import BATCH_ROWS
from deltars.store.commit.concurrent_commits import Winners, files_read, find_expired, find_replaced
from deltars.store.commit.direct_commit import DirectCommits, ReadyCommit, driver_error, locked_table
from deltars.store.commit.event import commit_ended
from deltars.store.commit.group_commit import GroupCommits, ReplyLost
from deltars.store.commit.identity_marks import with_latest_marks, without_counting
from deltars.store.commit.missing_files import find_missing
from deltars.store.commit.next_version import next_version
from deltars.store.commit.plan import ROW_GROUPS, LockedTable, Plan
from deltars.store.commit.settlement import find_committed, resolve, settle
from deltars.store.commit.state_cache import UNCOMMITTED, KnownState, StateCache
from deltars.store.commit.statements import REMOVES, TRANSACTION, VERSIONS, CommitStatements, Shape, key_of
from deltars.store.database import Database
from deltars.store.imports.table_hold import refuse_diverged
from deltars.store.mirror.statements import DIVERGED
from deltars.store.registry import create, find_named
from deltars.store.schema import dl_add_files, dl_transactions
from deltars.store.vacuum_marks import refuse_condemned
from deltars.store.writers import withdraw_for_commit

COPY_THRESHOLD = 1_000

_CREATED_BY_SAME_ID = (
    "a concurrent transaction with the same id created the table: a new attempt with this id returns that transaction's"
    " result"
)

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Written:
    """Commit that is checked, what is left to write of it, and the results so far."""

    commit: Commit
    plan: Plan
    locked: Mapping[UUID, LockedTable]
    shape: Shape
    values: dict[str, Any]
    removed: int
    commit_ts: int = 0


class LogWriter:
    """Writer of commits to the tables of one database."""

    def __init__(
        self,
        database: Database,
        *,
        copy_threshold: int = COPY_THRESHOLD,
        allow_diverged: bool = False,
        records_reads: bool = True,
    ) -> None:
        self._database = database
        self._allow_diverged = allow_diverged
        self._copy_threshold = copy_threshold
        self._records_reads = records_reads
        self._statements = database.backend.shared(CommitStatements)
        self._states = StateCache()
        self._winners = database.backend.shared(Winners)
        self._direct = DirectCommits(
            database,
            self._statements,
            self._states,
            most_actions=copy_threshold,
            records_reads=records_reads,
            allow_diverged=allow_diverged,
        )
        self._batches = BatchCommits(database, self._statements, self._direct, allow_diverged=allow_diverged)
        self._groups = GroupCommits(database, self._direct, self._batches)

    def commit(self, commit: Commit, *, timeout_s: float, watch: Stopwatch | None = None) -> CommitOutcome:
        """Commit, or return the conflicting version. `watch` holds the stage that was reached, also after an error."""
        watch = watch or Stopwatch("validate")
        try:
            answer = self._commit(commit, timeout_s, watch)
        except BaseException as error:
            emit(commit_ended(self._database.source, commit, error, watch))
            raise
        watch.stop()
        if is_heard(CommitEnded):
            emit(commit_ended(self._database.source, commit, answer, watch))
        return answer

    def _commit(self, commit: Commit, timeout_s: float, watch: Stopwatch) -> CommitOutcome:
        deadline = time.monotonic() + timeout_s
        try:
            self._validate(commit)
            watch.enter("lock")
            ready = self._direct.ready(commit, watch)
            if ready is not None:
                direct = (
                    self._groups.commit(ready, timeout_s) if ready.is_blind else self._direct.commit(ready, timeout_s)
                )
                if direct is not None:
                    return direct
            watch.enter("lock")
            opening = self._locks(commit.existing_tables, commit.checked_reads)
            with self._database.write(max(0.001, deadline - time.monotonic()), opening) as connection:
                done = self._run(connection, commit, _locked_tables(opening), watch)
                if not isinstance(done, _Written):
                    _roll_back(connection)
                    return done
                watch.enter("commit")
        except ReplyLost as lost:
            return settle(self._database, commit.txn_id, deadline, lost.error)
        except DeltarsError as error:
            if watch.stage == "commit" and self._database.backend.is_outcome_unknown(driver_error(error)):
                return settle(self._database, commit.txn_id, deadline, error)
            raise error.located(stage=watch.stage, txn_id=commit.txn_id, **_place(commit, error)) from error.__cause__
        return self._committed(done)

    def _run(
        self,
        connection: Connection,
        commit: Commit,
        locked: dict[UUID, LockedTable],
        watch: Stopwatch,
        *,
        is_last: bool = True,
    ) -> _Written | CommitOutcome:
        """Check and write a commit whose tables are locked. Return an outcome if there is nothing to commit."""
        watch.enter("check")
        outcome = self._check(connection, commit, locked)
        if outcome is not None:
            return outcome
        watch.enter("write")
        if commit.committer is None:
            self._direct.user = self._database.backend.user(connection)
            commit = replace(commit, committer=self._direct.user)
        commit = with_latest_marks(commit, lambda table_id: self._metadata(connection, locked, table_id))
        plan = self._plan(connection, commit, locked)
        rewrite_bounds(connection, self._database.backend, plan.moved)
        written = self._begin_writing(connection, commit, plan, locked, watch)
        # Only the write shows whether a removed file was live, so COMMIT must wait for its result. A drop needs
        # the write's time stamp.
        and_commit = is_last and self._database.backend.chains_writes and not plan.removals and not commit.drops
        watch.enter("commit" if and_commit else "write")
        if commit.tables:
            self._write(connection, written, and_commit=and_commit)
        if commit.drops:
            self._drop(connection, commit, written)
        if plan.removals and written.removed < plan.removals + plan.tolerated:
            return find_missing(connection, commit, locked, plan) or written
        return written

    def _committed(self, written: _Written) -> Committed:
        commit, plan, locked, commit_ts = written.commit, written.plan, written.locked, written.commit_ts
        key = key_of(commit.txn_id, commit_ts)
        for table_id, state in plan.states.items():
            self._states.remember(table_id, state if state.key else replace(state, key=key))
        following = next_version(commit, plan, locked[commit.tables[0].table_id], commit_ts) if commit.tables else None
        return Committed(commit.txn_id, commit_ts, plan.versions, following)

    # -- several at once -----------------------------------------------------------------------------------------

    def commit_all(
        self, commits: Sequence[Commit], *, timeout_s: float, watch: Stopwatch | None = None
    ) -> list[Committed] | VersionTaken:
        """Commit blind appends to one table in one database transaction, in this order: all of them, or none.

        Return the conflicting version if there is one. See `commit`.
        """
        watch = watch or Stopwatch("validate")
        try:
            answer = self._commit_all(commits, timeout_s, watch)
        except BaseException as error:
            self._emit_all(commits, [error] * len(commits), watch)
            raise
        watch.stop()
        if is_heard(CommitEnded):
            answers: Sequence[CommitOutcome] = [answer] * len(commits) if isinstance(answer, VersionTaken) else answer
            self._emit_all(commits, answers, watch)
        return answer

    def _emit_all(
        self, commits: Sequence[Commit], answers: Sequence[CommitOutcome | BaseException], watch: Stopwatch
    ) -> None:
        for commit, answer in zip(commits, answers, strict=True):
            emit(commit_ended(self._database.source, commit, answer, watch))

    def _commit_all(
        self, commits: Sequence[Commit], timeout_s: float, watch: Stopwatch
    ) -> list[Committed] | VersionTaken:
        deadline = time.monotonic() + timeout_s
        try:
            for commit in commits:
                self._validate(commit)
            watch.enter("lock")
            if (batch := self._batch(commits, watch)) is not None:
                done = self._together(batch, timeout_s, watch)
                if done is not None:
                    return done
            return self._one_by_one(commits, max(0.001, deadline - time.monotonic()), watch)
        except DeltarsError as error:
            first = commits[0]
            if watch.stage == "commit" and self._database.backend.is_outcome_unknown(driver_error(error)):
                # All have the same outcome. If the first one did not commit, `settle` raises an error.
                return [settle(self._database, commit.txn_id, deadline, error) for commit in commits]
            raise error.located(stage=watch.stage, txn_id=first.txn_id, **_place(first, error)) from error.__cause__

    def _batch(self, commits: Sequence[Commit], watch: Stopwatch) -> Sequence[ReadyCommit] | None:
        """Return the commits as a batch; None if they cannot be written together."""
        batch: Batch | None = None
        for commit in commits:
            ready = self._direct.ready(commit, watch)
            if ready is None or not ready.is_blind:
                return None
            if batch is None:
                batch = Batch(ready)
            elif not batch.add(ready):
                return None
        return None if batch is None else batch.commits

    def _together(self, batch: Sequence[ReadyCommit], timeout_s: float, watch: Stopwatch) -> list[Committed] | None:
        """Commit a batch. Return None if the table is not as expected."""
        try:
            done = self._batches.commit(batch, timeout_s, lambda: watch.enter("commit"))
        except DeltarsError as error:
            if not self._database.backend.is_outcome_unknown(driver_error(error)):
                watch.enter("lock")
            raise
        if done is None:
            watch.enter("lock")
            return None
        watch.enter("commit")
        watch.move("commit", "lock", done.waited_s)
        return done.committed

    def _one_by_one(
        self, commits: Sequence[Commit], timeout_s: float, watch: Stopwatch
    ) -> list[Committed] | VersionTaken:
        """Take the usual way for each commit, in one database transaction."""
        written: list[_Written] = []
        opening = self._locks(commits[0].existing_tables)
        with self._database.write(timeout_s, opening) as connection:
            for commit in commits:
                if written:
                    self._database.backend.open(connection, opening := self._locks(commit.existing_tables))
                done = self._run(connection, commit, _locked_tables(opening), watch, is_last=False)
                if isinstance(done, VersionTaken):
                    _roll_back(connection)
                    return done
                assert isinstance(done, _Written)
                written.append(done)
            watch.enter("commit")
        return [self._committed(one) for one in written]

    def resolve(self, txn_id: UUID, *, timeout_s: float) -> Committed | None:
        """Return the result of a transaction. `None` means that it did not commit and never can from now on."""
        return resolve(self._database, txn_id, timeout_s=timeout_s)

    def find_committed(self, txn_id: UUID) -> Committed | None:
        """Return the result of a transaction; None if it did not commit (so far)."""
        with self._database.read() as connection:
            return find_committed(connection, txn_id)

    # -- validate ------------------------------------------------------------------------------------------------

    def _validate(self, commit: Commit) -> None:
        check_commit(commit)
        for table in commit.tables:
            if table.expected_version == NO_VERSION:
                check_state(table, TableState())
            else:
                self._check_state(table)

    def _check_state(self, table: TableCommit) -> None:
        """Check the commit against the cached state and, if that refuses it, against the database.

        The cached state may be out of date.
        """
        remembered = self._states.get(table.table_id)
        if remembered is not None:
            try:
                return check_state(table, remembered.state)
            except ValidationError:
                pass
        with self._database.read() as connection:
            self._states.load(connection, self._database.backend, [table.table_id])
        known = self._states.get(table.table_id)
        # Otherwise the table has no commit yet, or does not exist. Locking its row shows which.
        if known is not None and known is not UNCOMMITTED:
            check_state(table, known.state)

    # -- lock ----------------------------------------------------------------------------------------------------

    def _locks(self, written: Collection[UUID], read: Collection[UUID] = ()) -> Opening:
        """Return the statements that lock every table's row, sorted by table id to avoid deadlocks.

        Each row gets the strongest lock it needs at once: two transactions that upgrade a shared lock deadlock.
        """
        statements = []
        for is_read, run in groupby(sorted({*written, *read}), key=lambda table_id: table_id not in written):
            # Ids are sent as text; each database casts them to its own UUID type.
            values = {f"table_{i}": str(table_id) for i, table_id in enumerate(run)}
            statements.append((self._statements.lock(len(values), shared=is_read), values))
        return Opening(statements)

    # -- check ---------------------------------------------------------------------------------------------------

    def _check(self, connection: Connection, commit: Commit, locked: dict[UUID, LockedTable]) -> CommitOutcome | None:
        if commit.is_repeatable and (earlier := self._earlier(connection, commit)):
            return earlier
        if commit.drops:
            for drop in commit.drops:
                row = _not_dropped(locked, drop.table_id)
                if (replaced := find_replaced(connection, commit, row, drop.expected_version)) is not None:
                    return replaced
            if (newer := drops.find_newer(commit, locked)) is not None:
                return newer
            drops.free_names(connection, self._database.backend, commit)
        if commit.new_tables:
            owner = create(connection, commit.new_tables, self._database)
            if owner is not None:
                return VersionTaken(owner.table_id, owner.name, NO_VERSION, owner.current_version)
            opening = self._locks([table.table_id for table in commit.new_tables])
            self._database.backend.open(connection, opening)
            locked |= _locked_tables(opening)
        level = commit.isolation if commit.isolation == "strict" else level_of(commit.tables, commit.isolation)
        for table in commit.tables:
            row = _not_dropped(locked, table.table_id)
            if row.mirror_state == DIVERGED and not self._allow_diverged:
                refuse_diverged(row.name, row.table_id)
            expected = commit.checked_from(table)
            if (replaced := find_replaced(connection, commit, row, expected)) is not None:
                return replaced
            if row.current_version != expected:
                taken = self._find_conflict(
                    connection, row, expected, table, commit, "strict" if table.is_exact else level
                )
                if taken is not None:
                    return taken
            for version in table.restores:
                refuse_condemned(connection, row.table_id, version)
        if commit.announced:
            withdraw_for_commit(connection, commit.txn_id, commit.announced)
        for table_id, read in commit.checked_reads.items():
            row = _not_dropped(locked, table_id)
            if (replaced := find_replaced(connection, commit, row, read.version)) is not None:
                return replaced
            if row.current_version != read.version:
                taken = self._find_conflict(connection, row, read.version, None, commit, level)
                if taken is not None:
                    return taken
        return None

    def _find_conflict(
        self,
        connection: Connection,
        row: LockedTable,
        expected: int,
        mine: TableCommit | None,
        commit: Commit,
        level: Isolation,
    ) -> VersionTaken | None:
        """Return the conflict with commits made since the transaction read the table; None if there is none."""
        if level == "strict" or row.current_version < expected:
            return VersionTaken(row.table_id, row.name, expected, row.current_version)
        reads = commit.reads_of(row.table_id)
        matching = files_read(reads, expected, row, self._states.get(row.table_id), self._database.backend)
        since = list(self._winners.since(connection, row.table_id, expected, evidence(mine, reads, level), matching))
        verdict = find_conflicts(mine, reads, since, level)
        uncounted = without_counting(connection, row.table_id, expected, since, verdict.conflict)
        if uncounted is not None:
            verdict = find_conflicts(mine, reads, uncounted, level)
        if verdict.conflict is None or verdict.is_settleable:
            expired = find_expired(connection, row, expected)
            if expired is not None or verdict.conflict is None:
                return expired
        taken = VersionTaken(row.table_id, row.name, expected, row.current_version, verdict.conflict)
        if not verdict.is_settleable:
            return taken
        head = Base(row.current_version, row.last_commit_ts)
        return replace(taken, obstacles=verdict.obstacles, reads=verdict.reads, head=head)

    def _earlier(self, connection: Connection, commit: Commit) -> CommitOutcome | None:
        """Return the result of the same transaction if it was committed before.

        Return VersionTaken if it created a table of the same name under another id.
        """
        earlier = find_committed(connection, commit.txn_id)
        if earlier is None:
            aborted = select(dl_transactions.c.outcome).where(dl_transactions.c.txn_id == commit.txn_id)
            if connection.execute(aborted).scalar_one_or_none() is not None:
                raise ValidationError(
                    "this transaction id was settled as aborted", hint="Commit again with a new transaction id."
                )
            return None
        if earlier.versions.keys() != {table.table_id for table in commit.tables}:
            for new in commit.new_tables:
                owner = find_named(connection, new.name)
                if owner is not None and owner.table_id in earlier.versions:
                    conflict = Conflict(VersionConflict, earlier.versions[owner.table_id], _CREATED_BY_SAME_ID)
                    return VersionTaken(owner.table_id, owner.name, NO_VERSION, owner.current_version, conflict)
            raise ValidationError(
                "this transaction id was committed before, to other tables",
                hint="Use a new transaction id; catalog.transaction() shows what this one committed.",
            )
        return earlier

    # -- write ---------------------------------------------------------------------------------------------------

    def _plan(self, connection: Connection, commit: Commit, locked: dict[UUID, LockedTable]) -> Plan:
        states = {table.table_id: self._state(connection, table, locked[table.table_id]) for table in commit.tables}
        return Plan(
            commit,
            locked,
            states,
            backend=self._database.backend,
            bulk_threshold=self._copy_threshold,
            records_reads=self._records_reads,
        )

    def _metadata(self, connection: Connection, locked: dict[UUID, LockedTable], table_id: UUID) -> Metadata | None:
        """Return a locked table's metadata; None before its first commit."""
        row = locked[table_id]
        known = self._states.get(table_id)
        if known is None or not known.is_of(row.metadata_version, row.protocol_version, row.state_key):
            self._states.load(connection, self._database.backend, [table_id])
            known = self._states.get(table_id)
        return None if known is None else known.state.metadata

    def _state(self, connection: Connection, table: TableCommit, row: LockedTable) -> KnownState:
        """Return the state the commit was validated against. If a newer one exists, validate against it first."""
        known = self._states.get(table.table_id)
        now = (row.metadata_version, row.protocol_version)
        if now == (NO_VERSION, NO_VERSION):
            return UNCOMMITTED
        if known is None or not known.is_of(*now, row.state_key):
            self._states.load(connection, self._database.backend, [table.table_id])
            known = self._states.get(table.table_id)
            assert known is not None
            check_state(table, known.state)
        return known

    def _begin_writing(
        self,
        connection: Connection,
        commit: Commit,
        plan: Plan,
        locked: dict[UUID, LockedTable],
        watch: Stopwatch,
    ) -> _Written:
        loaded, removed = self._load(connection, plan)
        watch.enter("write")
        plan.note_stages(watch.stages)
        rest = {name: rows for name, rows in plan.rows.items() if name not in loaded}
        single = frozenset(name for name, rows in rest.items() if len(rows) == 1)
        values = self._statements.values(rest, single)
        values["floor"] = max(row.last_commit_ts for row in locked.values()) + 1
        kinds = frozenset(plan.rows.keys() - {TRANSACTION, VERSIONS})
        return _Written(commit, plan, locked, Shape(kinds, loaded, single), values, removed)

    def _load(self, connection: Connection, plan: Plan) -> tuple[frozenset[str], int]:
        """Load large row sets in batches before the rest.

        Return the database tables that are complete, and the number of live files that were ended.
        """
        backend = self._database.backend
        loaded = set()
        removed = 0
        if plan.bulk:
            # One load for all tables: each has a cost of its own.
            backend.load(connection, dl_add_files, chain.from_iterable(b.rows(place) for b, place in plan.bulk))
        for _, place in plan.bulk:
            if place.version > 0:
                files = {"table_id": str(place.table_id), "version": place.version}
                backend.run(connection, self._statements.supersede(), files)
        for name in (REMOVES, ROW_GROUPS):
            rows = plan.rows.get(name, ())
            if len(rows) < self._copy_threshold:
                continue
            loaded.add(name)
            for start in range(0, len(rows), BATCH_ROWS):
                document = {f"rows_{name}": _encode(rows[start : start + BATCH_ROWS]).decode()}
                backend.run(connection, self._statements.insert(name), document)
                if name == REMOVES:
                    removed += len(backend.run(connection, self._statements.mark_removed(), document))
        return frozenset(loaded), removed

    def _write(self, connection: Connection, written: _Written, *, and_commit: bool) -> None:
        """Write the remaining rows and the new versions, in one statement if the backend can chain writes."""
        backend = self._database.backend
        statements = self._statements.write(written.shape)
        if backend.chains_writes:
            run = backend.run_and_commit if and_commit else backend.run
            written.commit_ts, removed = run(connection, statements[0], written.values)[0]
            written.removed += removed
            return
        [(written.commit_ts,)] = backend.run(connection, self._statements.clock(), written.values)
        written.values["commit_ts"] = written.commit_ts
        results = [backend.run(connection, statement, written.values) for statement in statements]
        if REMOVES in written.shape.kinds - written.shape.loaded:
            written.removed += len(results[0])

    def _drop(self, connection: Connection, commit: Commit, written: _Written) -> None:
        backend = self._database.backend
        if not commit.tables:
            [(written.commit_ts,)] = backend.run(
                connection, self._statements.clock(), {"floor": written.values["floor"]}
            )
            drops.record(connection, commit, written.commit_ts)
        drops.stamp(connection, backend, commit, written.commit_ts)


def _place(commit: Commit, error: DeltarsError) -> dict[str, Any]:
    """Return the table and version of an error: the only table, or the one whose id the error message contains."""
    said = str(error)
    named = [table for table in commit.tables if len(commit.tables) == 1 or str(table.table_id) in said]
    if len(named) != 1:
        return {}
    return {"table_id": str(named[0].table_id), "version": named[0].expected_version + 1}


def _locked_tables(opening: Opening) -> dict[UUID, LockedTable]:
    return {row.table_id: row for row in map(locked_table, opening.rows)}


def _not_dropped(locked: Mapping[UUID, LockedTable], table_id: UUID) -> LockedTable:
    row = locked.get(table_id)
    if row is None or row.dropped_at is not None:
        raise TableNotFound("the table was dropped" if row else "no such table in this catalog", table_id=table_id)
    return row


def _roll_back(connection: Connection) -> None:
    transaction = connection.get_transaction()
    assert transaction is not None
    transaction.rollback()
