"""Several commits to one table as one database transaction. Each becomes a version, with its own id and time stamp.

    PostgreSQL   BEGIN, lock, one write for all of them, COMMIT: sent together, in one round trip
    others       BEGIN, lock, check, each write in turn, COMMIT: one wait for the disk
                     │
                     └ the table is not as all of them expect it: nothing is written, and each commits alone

Only blind appends of different files, to a table in one state, are written together (`Batch.add`). No rule of
`log.conflicts` can find a conflict between them, so their order does not matter.

Version, time stamp and in-commit timestamp count up from those of the first commit. Either all of the commits are
written, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from deltars.log.commit import Committed
from deltars.store.backends import Opening, Prepared, Rows
from deltars.store.commit.direct_commit import MOST_BYTES, DirectCommits, Done, ReadyCommit, text_length
from deltars.store.commit.next_version import in_commit_timestamp
from deltars.store.commit.plan import ROW_GROUPS, LockedTable
from deltars.store.commit.statements import ADDS, PLACE, TRANSACTION, VERSIONS, CommitStatements
from deltars.store.database import Database
from deltars.store.rows import Row

MOST_AT_ONCE = 500
"""Most commits that one statement writes. A longer batch takes several statements of one transaction."""

_ROW_BYTES = 500
"""About the size of a row as JSON, without its path and its statistics."""

_encode = msgspec.json.Encoder().encode


class Batch:
    """Commits that can be written together."""

    def __init__(self, first: ReadyCommit) -> None:
        self.commits = [first]
        self.about_bytes = _about_bytes(first)
        self._paths = set(_paths(first))

    def add(self, ready: ReadyCommit) -> bool:
        """Add a commit, if it can be written together with the others."""
        first, known, paths = self.commits[0], ready.known, _paths(ready)
        same = first.known.is_of(known.metadata_version, known.protocol_version, known.key)
        if not (same and ready.is_blind and first.is_blind and self._paths.isdisjoint(paths)):
            return False
        self.commits.append(ready)
        self.about_bytes += _about_bytes(ready)
        self._paths.update(paths)
        return True


class BatchDone(NamedTuple):
    """Batch that was committed."""

    committed: list[Committed]
    waited_s: float
    """How long the transaction waited for the lock, as the server saw it; 0.0 if the client measured it."""


class _Refused(Exception):
    """The table is no longer as all of a batch expect it."""


class BatchCommits:
    """Writer of batches."""

    def __init__(
        self, database: Database, statements: CommitStatements, direct: DirectCommits, *, allow_diverged: bool
    ) -> None:
        self._database = database
        self._backend = database.backend
        self._statements = statements
        self._direct = direct
        self._allow_diverged = allow_diverged

    def commit(self, batch: Sequence[ReadyCommit], timeout_s: float, sending: Callable[[], None]) -> BatchDone | None:
        """Commit all, in this order. Return None if nothing was written, because the table is not as all expect it.

        `sending` is called before the COMMIT is sent. From then on the transaction may have committed.
        """
        take = self._in_one_statement if self._backend.chains_writes else self._step_by_step
        return take(batch, timeout_s, sending)

    # -- one statement for all -----------------------------------------------------------------------------------

    def _in_one_statement(
        self, batch: Sequence[ReadyCommit], timeout_s: float, sending: Callable[[], None]
    ) -> BatchDone | None:
        parts = [batch[at : at + MOST_AT_ONCE] for at in range(0, len(batch), MOST_AT_ONCE)]
        writes = [self._write(part) for part in parts]
        lock = self._statements.lock(1), {"table_0": str(batch[0].table.table_id)}
        is_at_once = len(writes) == 1 and text_length(writes[0][1].values()) <= MOST_BYTES
        if is_at_once:
            locked, *written = self._database.run_at_once(timeout_s, Opening([lock, *writes]), sending)
        else:
            locked, written = self._in_several_trips(lock, writes, timeout_s, sending)
        if not locked or not all(written):
            return None
        row = LockedTable(batch[0].table.table_id, *locked[0][1:])
        committed = []
        for part, [(last_version, last_ts, _, ended)] in zip(parts, written, strict=True):
            before = replace(row, current_version=last_version - len(part))
            committed += _counted_up(part, Done(before, last_ts - (len(part) - 1), ended))
        [(_, _, began_us, _)] = written[0]
        waited_us = max(0, committed[0].commit_ts - began_us) if is_at_once else 0
        return BatchDone(committed, waited_us / 1_000_000)

    def _in_several_trips(
        self,
        lock: tuple[Prepared, dict[str, Any]],
        writes: Sequence[tuple[Prepared, dict[str, Any]]],
        timeout_s: float,
        sending: Callable[[], None],
    ) -> tuple[Rows, list[Rows]]:
        """Write what is too long to be sent at once. The lock is taken before the rows are sent."""
        opening, written = Opening([lock]), []
        try:
            with self._database.brief_write(timeout_s, opening) as connection:
                for write in writes:
                    written.append(self._backend.run(connection, *write))
                    if not written[-1]:
                        # Each statement sees the table's state anew, and not all of it is locked: what earlier
                        # statements wrote must go too.
                        raise _Refused
                sending()
        except _Refused:
            pass
        return opening.rows, written

    def _write(self, part: Sequence[ReadyCommit]) -> tuple[Prepared, dict[str, Any]]:
        rows: dict[str, list[Row]] = {}
        for place, ready in enumerate(part):
            self._direct.note_stages(ready)
            for name, documents in ready.rows.items():
                placed = rows.setdefault(name, [])
                for row in documents:
                    # An absent value is NULL. It need not be sent and parsed.
                    given = {column: value for column, value in row.items() if value is not None}
                    given[PLACE.name] = place
                    placed.append(given)
        statement = self._statements.together(frozenset(rows.keys() - {TRANSACTION, VERSIONS}))
        values = {f"rows_{name}": _encode(documents).decode() for name, documents in rows.items()}
        return statement, {**values, **self._conditions(part), "last_place": len(part) - 1}

    def _conditions(self, batch: Sequence[ReadyCommit]) -> dict[str, Any]:
        table_id, known = batch[0].table.table_id, batch[0].known
        expected = [ready.table.expected_version for ready in batch]
        bases = {(base.version, base.commit_ts) for ready in batch if (base := ready.base) is not None}
        return {
            "table_0": str(table_id),
            "lowest": min(expected),
            "highest": max(expected),
            "bases": _encode([{"version": version, "commit_ts": ts} for version, ts in bases]).decode(),
            "expected_metadata": known.metadata_version,
            "expected_protocol": known.protocol_version,
            "expected_key": known.key,
            "allow_diverged": self._allow_diverged,
        }

    # -- one after the other -------------------------------------------------------------------------------------

    def _step_by_step(
        self, batch: Sequence[ReadyCommit], timeout_s: float, sending: Callable[[], None]
    ) -> BatchDone | None:
        table_id = batch[0].table.table_id
        opening = Opening([(self._statements.lock_and_stamp(), {"table_0": str(table_id)})])
        with self._database.brief_write(timeout_s, opening) as connection:
            conditions = self._conditions(batch)
            if not opening.rows or not self._backend.run(connection, self._statements.expected_by_all(), conditions):
                return None
            [(_, *locked, first_ts)] = opening.rows
            row = first = LockedTable(table_id, *locked)
            ended = []
            for place, ready in enumerate(batch):
                ended.append(self._direct.write(connection, ready, row, first_ts + place))
                row = _after(row, first_ts + place)
            sending()
        return BatchDone(_counted_up(batch, Done(first, first_ts, ended[0])), 0.0)


def _counted_up(batch: Sequence[ReadyCommit], first: Done) -> list[Committed]:
    """Return the results of a batch, given that of its first commit. Only the first can be the next one to publish."""
    table_id, version, commit_ts = batch[0].table.table_id, first.row.current_version + 1, first.commit_ts
    later = [
        Committed(ready.commit.txn_id, commit_ts + place, {table_id: version + place})
        for place, ready in enumerate(batch[1:], 1)
    ]
    return [first.committed(batch[0]), *later]


def _after(row: LockedTable, commit_ts: int) -> LockedTable:
    """Return the row of a table after a commit to it."""
    last_ict = in_commit_timestamp(row, commit_ts)
    return replace(row, current_version=row.current_version + 1, last_commit_ts=commit_ts, last_ict=last_ict)


def _paths(ready: ReadyCommit) -> list[str]:
    return [row["path"] for row in ready.rows.get(ADDS, ())]


def _about_bytes(ready: ReadyCommit) -> int:
    rows = [*ready.rows.get(ADDS, ()), *ready.rows.get(ROW_GROUPS, ())]
    texts = sum([len(row.get("path") or "") + len(row["stats"] or "") for row in rows])
    return (2 + len(rows)) * _ROW_BYTES + texts
