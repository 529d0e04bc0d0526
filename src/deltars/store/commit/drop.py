"""Drop tables in a commit, at the commit's own time stamp.

    check ── the names become free: the same commit may create tables with them ──▶ write ── stamped ──▶ COMMIT

A past cut shows a table until its `dropped_at`. It must be the commit's time stamp: a cut just before the commit has
the table and nothing else of the commit, a cut as of the commit has everything.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ColumnElement, Connection, insert, literal, update

from deltars.log.commit import Commit, VersionTaken
from deltars.store.backends import Backend
from deltars.store.commit.plan import LockedTable
from deltars.store.schema import dl_tables, dl_transactions


def find_newer(commit: Commit, locked: dict[UUID, LockedTable]) -> VersionTaken | None:
    """Return the conflict of a drop at `strict`: the table has another version than the transaction saw."""
    if commit.isolation != "strict":
        return None  # Other transactions came before the drop. What this one read of the table is checked by itself.
    for drop in commit.drops:
        row = locked[drop.table_id]
        if row.current_version != drop.expected_version:
            return VersionTaken(row.table_id, row.name, drop.expected_version, row.current_version)
    return None


def free_names(connection: Connection, backend: Backend, commit: Commit) -> None:
    """Mark the tables as dropped, so that the commit may create tables with their names. Take the registry lock."""
    backend.lock_registry(connection)
    _mark(connection, backend, commit, backend.clock_us())


def stamp(connection: Connection, backend: Backend, commit: Commit, commit_ts: int) -> None:
    """Mark the tables as dropped at the commit's time stamp."""
    _mark(connection, backend, commit, literal(commit_ts))


def record(connection: Connection, commit: Commit, commit_ts: int) -> None:
    """Record a transaction that only drops tables."""
    connection.execute(
        insert(dl_transactions).values(
            txn_id=commit.txn_id,
            outcome="committed",
            commit_ts=commit_ts,
            committer=commit.committer,
            user_metadata=commit.user_metadata,
            participants={},
        )
    )


def _mark(connection: Connection, backend: Backend, commit: Commit, moment: ColumnElement[int]) -> None:
    ids = [drop.table_id for drop in commit.drops]
    connection.execute(
        update(dl_tables).where(dl_tables.c.table_id.in_(ids)).values(dropped_at=backend.instant(moment))
    )
