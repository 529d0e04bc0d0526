"""The direct way of a commit: files are added to one table, and the table is as the commit expects it.

    PostgreSQL   BEGIN, lock, write if the locked row is as expected, COMMIT: sent together, in one round trip
    others       BEGIN, lock, compare the row here, write, COMMIT: on the driver's own connection
                     │
                     └ not as expected: nothing is written, and the writer's usual way finds out why

In one round trip, the lock stays a separate statement, because a statement sees the data as of its start. The write
takes what depends on the locked row, such as the version, from the row itself.

A table is as expected if its metadata and protocol are those that the actions were validated against, and either

    no version was committed since the one that the actions were made for, or
    (in one round trip) the commit is a blind append, and the versions since changed neither metadata nor protocol.

Then no rule of `log.conflicts` can find a conflict. Every other commit takes the usual way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from deltars.errors import DeltarsError
from deltars.log.commit import Commit, TableCommit, VersionTaken
from deltars.log.new_table import NO_VERSION
from deltars.log.table_rules import tracks_rows
from deltars.observe import Stopwatch
from deltars.protocol import AddFile, CdcFile, Txn
from deltars.store.backends import Opening
from deltars.store.commit.plan import LockedTable, Plan
from deltars.store.commit.state_cache import UNCOMMITTED, KnownState, StateCache
from deltars.store.commit.statements import TRANSACTION, VERSIONS, CommitStatements, Shape
from deltars.store.database import Database
from deltars.store.mirror.statements import DIVERGED

MOST_BYTES = 60_000
"""How much is sent at once. A client that is frozen in the middle of more would hold the lock, with the rest unsent."""

_SIMPLE = (AddFile, CdcFile, Txn)
"""Actions that depend on nothing that other versions may have changed."""


class Direct(NamedTuple):
    """Commit that took the direct way."""

    commit: Commit
    plan: Plan
    row: LockedTable
    """The table's row under the lock, before the commit."""
    commit_ts: int


class DirectCommits:
    def __init__(
        self,
        database: Database,
        statements: CommitStatements,
        states: StateCache,
        *,
        most_actions: int,
        records_reads: bool,
        allow_diverged: bool,
    ) -> None:
        self._database = database
        self._backend = database.backend
        self._statements = statements
        self._states = states
        self._most_actions = most_actions
        self._records_reads = records_reads
        self._allow_diverged = allow_diverged
        self.user: str | None = None
        """Committer of transactions that name none. A connection tells it, when the first one takes the usual way."""

    def commit(self, commit: Commit, timeout_s: float, watch: Stopwatch) -> Direct | VersionTaken | None:
        """Commit, or return the conflicting version. Return None if the commit must take the usual way."""
        table = _simple_table(commit, self._most_actions)
        if table is None:
            return None
        known, committer = self._states.get(table.table_id), commit.committer or self.user
        if known is None or known is UNCOMMITTED or known.key is None or committer is None:
            return None
        assert known.state.metadata is not None
        # The next row id, which files and a domain's action get, is only known under the lock.
        if tracks_rows(known.state.metadata):
            return None
        named = commit if commit.committer == committer else replace(commit, committer=committer)
        if self._backend.chains_writes:
            return self._in_one_trip(named, table, known, timeout_s, watch)
        return self._step_by_step(named, table, known, timeout_s, watch)

    # -- one round trip ------------------------------------------------------------------------------------------

    def _in_one_trip(
        self, commit: Commit, table: TableCommit, known: KnownState, timeout_s: float, watch: Stopwatch
    ) -> Direct | VersionTaken | None:
        table_id, expected = table.table_id, table.expected_version
        plan = self._plan(commit, _expected_row(table, known), known)
        single, values = self._values(plan, watch)
        base = commit.bases.get(table_id)
        values |= {
            "table_0": str(table_id),
            "is_blind": _is_blind(commit, table),
            "expected": expected,
            "base_ts": base.commit_ts if base is not None and base.version == expected else None,
            "expected_metadata": known.metadata_version,
            "expected_protocol": known.protocol_version,
            "expected_key": known.key,
            "allow_diverged": self._allow_diverged,
        }
        if sum([len(value) for value in values.values() if type(value) is str]) > MOST_BYTES:
            return None
        [write] = self._statements.write(_shape(plan, single, at_once=True))
        opening = Opening([(self._statements.lock(1), values), (write, values)])
        try:
            # From the sending on, whatever is lost, the transaction may have committed.
            locked, written = self._database.run_at_once(timeout_s, opening, lambda: watch.enter("commit"))
        except DeltarsError as error:
            if not self._backend.is_outcome_unknown(driver_error(error)):
                watch.enter("lock")
            raise
        watch.enter("check")
        if not written:
            return self._taken(commit, table, locked_table(locked[0])) if locked else None
        [(version, commit_ts, began_us)] = written
        row = locked_table(locked[0])
        row.current_version = version - 1
        plan.move_to(table_id, version)
        # The stages cannot be watched from here. The time stamp was taken when the lock was there.
        watch.enter("commit")
        watch.move("commit", "lock", max(0, commit_ts - began_us) / 1_000_000)
        return Direct(commit, plan, row, commit_ts)

    # -- step by step --------------------------------------------------------------------------------------------

    def _step_by_step(
        self, commit: Commit, table: TableCommit, known: KnownState, timeout_s: float, watch: Stopwatch
    ) -> Direct | VersionTaken | None:
        opening = Opening([(self._statements.lock_and_stamp(), {"table_0": str(table.table_id)})])
        with self._database.brief_write(timeout_s, opening) as connection:
            watch.enter("check")
            if not opening.rows:
                return None
            [(*locked, commit_ts)] = opening.rows
            row = locked_table(locked)
            if not self._is_expected(commit, table, known, row):
                return self._taken(commit, table, row)
            watch.enter("write")
            plan = self._plan(commit, row, known)
            single, values = self._values(plan, watch)
            values["commit_ts"] = commit_ts
            for statement in self._statements.write(_shape(plan, single)):
                self._backend.run(connection, statement, values)
            watch.enter("commit")
        return Direct(commit, plan, row, commit_ts)

    def _is_expected(self, commit: Commit, table: TableCommit, known: KnownState, row: LockedTable) -> bool:
        base = commit.bases.get(table.table_id)
        is_base = base is None or base.version != row.current_version or base.commit_ts == row.last_commit_ts
        return (
            row.dropped_at is None
            and row.current_version == table.expected_version
            and is_base
            and known.is_of(row.metadata_version, row.protocol_version, row.state_key)
            and (self._allow_diverged or row.mirror_state != DIVERGED)
        )

    def _taken(self, commit: Commit, table: TableCommit, row: LockedTable) -> VersionTaken | None:
        """Return the conflict, if it is certain from the locked row alone."""
        expected, current = table.expected_version, row.current_version
        is_certain = commit.isolation == "strict" or table.is_exact or current < expected
        is_refused = row.dropped_at is not None or (row.mirror_state == DIVERGED and not self._allow_diverged)
        if current == expected or not is_certain or is_refused or table.table_id in commit.bases:
            return None
        return VersionTaken(table.table_id, row.name, expected, current)

    # -- both ----------------------------------------------------------------------------------------------------

    def _plan(self, commit: Commit, row: LockedTable, known: KnownState) -> Plan:
        return Plan(
            commit,
            {row.table_id: row},
            {row.table_id: known},
            backend=self._backend,
            bulk_threshold=self._most_actions,
            records_reads=self._records_reads,
        )

    def _values(self, plan: Plan, watch: Stopwatch) -> tuple[frozenset[str], dict[str, Any]]:
        plan.note_stages(watch.stages)
        single = frozenset([name for name, rows in plan.rows.items() if len(rows) == 1])
        return single, self._statements.values(plan.rows, single)


def locked_table(row: Any) -> LockedTable:
    """Return the row of the lock statement."""
    table_id, *rest = row
    return LockedTable(UUID(str(table_id)), *rest)


def driver_error(error: DeltarsError) -> BaseException:
    """Return the driver's error that caused this one."""
    cause = error.__cause__
    return getattr(cause, "orig", None) or cause or error


def _simple_table(commit: Commit, most_actions: int) -> TableCommit | None:
    """Return the only table of a commit that depends on nothing but this table's row."""
    if len(commit.tables) != 1 or commit.new_tables or commit.drops or commit.announced or commit.is_repeatable:
        return None
    [table] = commit.tables
    is_simple = (
        table.expected_version != NO_VERSION
        and table.adds is None
        and not table.restores
        and len(table.actions) + len(table.row_groups) < most_actions
        and all(isinstance(action, _SIMPLE) for action in table.actions)
        and (not commit.read or (not commit.checked_reads and commit.checked_from(table) == table.expected_version))
    )
    return table if is_simple else None


def _is_blind(commit: Commit, table: TableCommit) -> bool:
    """Return whether nothing but new metadata or a new protocol can conflict with a commit."""
    is_blind = commit.isolation != "strict" and not table.is_exact and not commit.read
    return is_blind and all(isinstance(action, AddFile) and action.data_change for action in table.actions)


def _shape(plan: Plan, single: frozenset[str], *, at_once: bool = False) -> Shape:
    return Shape(frozenset(plan.rows.keys() - {TRANSACTION, VERSIONS}), single=single, at_once=at_once)


def _expected_row(table: TableCommit, known: KnownState) -> LockedTable:
    """Return the row to plan for. What only the locked row has is written from there."""
    return LockedTable(
        table.table_id,
        name="",
        current_version=table.expected_version,
        metadata_version=known.metadata_version,
        protocol_version=known.protocol_version,
        last_commit_ts=0,
        last_ict=0,
        next_row_id=0,
        slot=0,
        dropped_at=None,
        location="",
        state_key=known.key,
        mirror_state=None,
        published_version=None,
    )
