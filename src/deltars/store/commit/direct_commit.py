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

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from deltars.errors import DeltarsError
from deltars.log.commit import Base, Commit, CommitOutcome, Committed, TableCommit, VersionTaken
from deltars.log.new_table import NO_VERSION
from deltars.observe import Stopwatch
from deltars.protocol import AddFile, CdcFile, Txn
from deltars.store.backends import AnyConnection, Opening
from deltars.store.commit.next_version import NextVersion, is_next, made
from deltars.store.commit.plan import ROW_GROUPS, LockedTable, read_rows, stages_row, transaction_row, version_row
from deltars.store.commit.state_cache import UNCOMMITTED, KnownState, StateCache
from deltars.store.commit.statements import ADDS, CONDITIONS, READS, TRANSACTION, VERSIONS, CommitStatements, Shape
from deltars.store.database import Database
from deltars.store.mirror.statements import DIVERGED
from deltars.store.rows import TABLE_OF, Row, row_group_to_row, to_row

MOST_BYTES = 60_000
"""How much is sent at once. A client that is frozen in the middle of more would hold the lock, with the rest unsent."""

_SIMPLE = (AddFile, CdcFile, Txn)
"""Actions that depend on nothing that other versions may have changed."""


class DirectCommits:
    """Writer of commits that take the direct way."""

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

    def ready(self, commit: Commit, watch: Stopwatch) -> ReadyCommit | None:
        """Return the commit with its rows, or None if it must take the usual way."""
        table = _simple_table(commit, self._most_actions)
        if table is None:
            return None
        known, committer = self._states.get(table.table_id), commit.committer or self.user
        if known is None or known is UNCOMMITTED or known.key is None or committer is None:
            return None
        # The next row id, which files and a domain's action get, is only known under the lock.
        if known.state.tracks_rows:
            return None
        rows = self._rows(commit, table, known, committer)
        return ReadyCommit(commit, table, known, committer, rows, watch, _is_blind(commit, table))

    def commit(self, ready: ReadyCommit, timeout_s: float) -> CommitOutcome | None:
        """Commit, or return the conflicting version. Return None if the commit must take the usual way."""
        take = self._in_one_trip if self._backend.chains_writes else self._step_by_step
        done = take(ready, timeout_s)
        return done.committed(ready) if isinstance(done, Done) else done

    # -- one round trip ------------------------------------------------------------------------------------------

    def _in_one_trip(self, ready: ReadyCommit, timeout_s: float) -> Done | VersionTaken | None:
        commit, table, known, watch, rows = ready.commit, ready.table, ready.known, ready.watch, ready.rows
        table_id, expected, base = str(table.table_id), table.expected_version, ready.base
        rows[CONDITIONS] = [
            {
                "table_0": table_id,
                "is_blind": ready.is_blind,
                "expected": expected,
                "base_ts": None if base is None else base.commit_ts,
                "expected_metadata": known.metadata_version,
                "expected_protocol": known.protocol_version,
                "expected_key": known.key,
                "allow_diverged": self._allow_diverged,
            }
        ]
        self.note_stages(ready)
        write, values = self._statements.at_once(rows)
        if text_length(values) > MOST_BYTES:
            return None
        opening = Opening([(self._statements.lock(1), {"table_0": table_id}), (write, values)])
        try:
            # Once it is sent, the transaction may have committed, whatever is lost.
            locked, written = self._database.run_at_once(timeout_s, opening, lambda: watch.enter("commit"))
        except DeltarsError as error:
            if not self._backend.is_outcome_unknown(driver_error(error)):
                watch.enter("lock")
            raise
        if not written:
            watch.enter("check")
            return self._taken(commit, table, LockedTable(table.table_id, *locked[0][1:])) if locked else None
        # Still in the stage "commit": an interrupt must not say that the transaction did not commit. The stages cannot
        # be watched from here. The time stamp was taken when the lock was there.
        watch.enter("commit")
        [(version, commit_ts, began_us, ended)] = written
        row = LockedTable(table.table_id, *locked[0][1:])
        row.current_version = version - 1
        watch.move("commit", "lock", max(0, commit_ts - began_us) / 1_000_000)
        return Done(row, commit_ts, ended)

    # -- step by step --------------------------------------------------------------------------------------------

    def _step_by_step(self, ready: ReadyCommit, timeout_s: float) -> Done | VersionTaken | None:
        commit, table, known, watch = ready.commit, ready.table, ready.known, ready.watch
        opening = Opening([(self._statements.lock_and_stamp(), {"table_0": str(table.table_id)})])
        with self._database.brief_write(timeout_s, opening) as connection:
            watch.enter("check")
            if not opening.rows:
                return None
            [(_, *locked, commit_ts)] = opening.rows
            row = LockedTable(table.table_id, *locked)
            if not self._is_expected(commit, table, known, row):
                return self._taken(commit, table, row)
            watch.enter("write")
            ended = self.write(connection, ready, row, commit_ts)
            watch.enter("commit")
        return Done(row, commit_ts, ended)

    def write(self, connection: AnyConnection, ready: ReadyCommit, row: LockedTable, commit_ts: int) -> int:
        """Write a commit after this locked row, statement by statement. Return the number of live files it ended."""
        rows = ready.rows
        _complete(rows, row)
        self.note_stages(ready)
        single = frozenset([name for name, documents in rows.items() if len(documents) == 1])
        values = self._statements.values(rows, single)
        values["commit_ts"] = commit_ts
        shape = Shape(frozenset(rows.keys() - {TRANSACTION, VERSIONS}), single=single)
        results = [self._backend.run(connection, one, values) for one in self._statements.write(shape)]
        return len(results[0]) if ADDS in rows else 0

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

    def _rows(self, commit: Commit, table: TableCommit, known: KnownState, committer: str) -> dict[str, list[Row]]:
        """Return the rows to write, without what depends on the locked row."""
        table_id = str(table.table_id)
        version = version_row(commit, table, committer)
        version["table_id"] = table_id
        rows = {TRANSACTION: [transaction_row(commit, committer)], VERSIONS: [version]}
        ords: dict[str, int] = {}
        for ord_, action in enumerate(table.actions):
            row = to_row(action, known.bounds)
            row["table_id"], row["ord"] = table_id, ord_
            rows.setdefault(TABLE_OF[type(action)], []).append(row)
            if table.row_groups and isinstance(action, AddFile):
                ords[action.path] = ord_
        for group in table.row_groups:
            row = {"table_id": table_id, "ord": ords[group.path], **row_group_to_row(group)}
            rows.setdefault(ROW_GROUPS, []).append(row)
        if commit.read and self._records_reads and (read := list(read_rows(commit))):
            rows[READS] = read
        return rows

    def note_stages(self, ready: ReadyCommit) -> None:
        """Add to the rows how long each stage of the commit took so far."""
        if self._records_reads:
            ready.rows[TRANSACTION][0]["stages"] = stages_row(ready.commit, ready.watch.stages)


class ReadyCommit(NamedTuple):
    """Commit that can take the direct way."""

    commit: Commit
    table: TableCommit
    known: KnownState
    """State that the actions were validated against."""
    committer: str
    rows: dict[str, list[Row]]
    """Rows to write, without what depends on the locked row."""
    watch: Stopwatch
    is_blind: bool
    """Whether nothing but new metadata or a new protocol can conflict with the commit."""

    @property
    def base(self) -> Base | None:
        """Return the expected version as the transaction saw it, if that is known."""
        base = self.commit.bases.get(self.table.table_id)
        return base if base is not None and base.version == self.table.expected_version else None


class Done(NamedTuple):
    """Commit that took the direct way."""

    row: LockedTable
    """The table's row under the lock, before the commit."""
    commit_ts: int
    ended: int
    """Number of live files that were added again."""

    def committed(self, ready: ReadyCommit) -> Committed:
        version = self.row.current_version + 1
        following = _following(ready, self) if is_next(self.row) else None
        return Committed(ready.commit.txn_id, self.commit_ts, {ready.table.table_id: version}, following)


def _complete(rows: dict[str, list[Row]], locked: LockedTable) -> None:
    """Add what depends on the locked row."""
    version = locked.current_version + 1
    for name, documents in rows.items():
        for row in documents if name not in (TRANSACTION, READS) else ():
            row["version"] = version
    for row in rows.get(ADDS, ()):
        row["slot"] = locked.slot
    rows[VERSIONS][0] |= {"last_ict": locked.last_ict, "next_row_id": locked.next_row_id}
    rows[TRANSACTION][0]["participants"] = {str(locked.table_id): version}


def _following(ready: ReadyCommit, done: Done) -> Callable[[], NextVersion]:
    # Not `ready` itself: the function can be kept for long, and would keep all rows.
    commit, actions, known, committer = ready.commit, ready.table.actions, ready.known, ready.committer
    row, commit_ts, ended = done
    only_adds = ended == 0
    return lambda: made(replace(commit, committer=committer), actions, known, row, commit_ts, only_adds=only_adds)


def locked_table(row: Any) -> LockedTable:
    """Return the row of the lock statement."""
    table_id, *rest = row
    return LockedTable(UUID(str(table_id)), *rest)


def text_length(values: Iterable[Any]) -> int:
    """Return about how many bytes the values of a statement are: all that is long is text."""
    return sum([len(value) for value in values if type(value) is str])


def driver_error(error: DeltarsError) -> BaseException:
    """Return the driver's error that caused this one."""
    cause = error.__cause__
    return getattr(cause, "orig", None) or cause or error


def _simple_table(commit: Commit, most_actions: int) -> TableCommit | None:
    """Return the only table of a commit that depends on nothing but this table's row."""
    if len(commit.tables) != 1 or commit.new_tables or commit.drops or commit.announced or commit.is_repeatable:
        return None
    [table] = commit.tables
    for action in table.actions:
        if type(action) not in _SIMPLE:
            return None
    is_simple = (
        table.expected_version != NO_VERSION
        and table.adds is None
        and not table.restores
        and len(table.actions) + len(table.row_groups) < most_actions
        and (not commit.read or (not commit.checked_reads and commit.checked_from(table) == table.expected_version))
    )
    return table if is_simple else None


def _is_blind(commit: Commit, table: TableCommit) -> bool:
    """Return whether nothing but new metadata or a new protocol can conflict with a commit."""
    if commit.isolation == "strict" or table.is_exact or commit.read:
        return False
    return all(isinstance(action, AddFile) and action.data_change for action in table.actions)
