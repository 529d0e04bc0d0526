"""Describe a lost race: which commit won, and whether `serializable` would have let both commit.

    VersionTaken ── the locks are released ──▶ lost_race ──▶ LostRace: the winning commit, and the answer

It runs after the refusal, in a transaction that only reads. So it delays no other writer. It is best effort: a
description that fails, or would cost too much, is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Table, func, select

from deltars.errors import DeltarsError
from deltars.log.commit import Commit, TableCommit, VersionTaken
from deltars.log.conflicts import evidence, find_conflict, level_of
from deltars.store.commit.concurrent_commits import Winners
from deltars.store.database import Database
from deltars.store.mirror.statements import DIVERGED
from deltars.store.schema import dl_add_files, dl_mirror_status, dl_remove_files, dl_table_versions, dl_tables

_log = logging.getLogger(__name__)

MOST_COMMITS = 100
"""Most commits to a table that are evaluated. A transaction that lost to more of them gets no answer."""

MOST_FILES = 10_000
"""Most files of those commits that are fetched."""

_versions = dl_table_versions.c


@dataclass(frozen=True, slots=True)
class WinningCommit:
    """The commit that another transaction made first."""

    version: int
    txn_id: UUID
    committer: str | None
    committed_at: datetime
    operation: str


@dataclass(frozen=True, slots=True)
class LostRace:
    winner: WinningCommit | None = None
    """None if it could not be found."""
    is_serializable: bool = False
    """Whether no rule of the level `serializable` would have refused the commit. False if that was not evaluated."""


def lost_race(database: Database, commit: Commit, taken: VersionTaken) -> LostRace:
    """Describe the race that a commit lost. Never raise an error of the database."""
    try:
        with database.read() as connection:
            version = taken.expected + 1 if taken.conflict is None else taken.conflict.version
            winner = _winning_commit(connection, taken.table_id, version)
            is_strict = commit.isolation == "strict" and taken.conflict is None and winner is not None
            return LostRace(winner, is_strict and _is_serializable(connection, database, commit, taken))
    except DeltarsError as error:
        _log.debug("the commit that won over transaction %s could not be read: %s", commit.txn_id, error)
        return LostRace()


def _winning_commit(connection: Connection, table_id: UUID, version: int) -> WinningCommit | None:
    columns = [_versions[name] for name in WinningCommit.__dataclass_fields__]
    if not -(2**63) <= version < 2**63:
        return None  # no database has such a version
    query = select(*columns).where(_versions.table_id == table_id, _versions.version == version)
    row = connection.execute(query).one_or_none()
    return None if row is None else WinningCommit(*row)


def _is_serializable(connection: Connection, database: Database, commit: Commit, taken: VersionTaken) -> bool:
    """Return whether the level `serializable` would have allowed the commit, at the state that is read now.

    The state may have more commits than the one that refused. Then the answer can only be more careful.
    """
    checked = list(_checked(commit))
    if commit.drops or taken.table_id not in {table_id for table_id, _, _ in checked}:
        return False  # It drops tables, or creates one whose name is taken: no level allows the second.
    level, winners = level_of(commit.tables, "serializable"), database.backend.shared(Winners)
    for table_id, mine, after in checked:
        if mine is not None and mine.is_exact:
            return False  # The caller allows no other version, at any level.
        current = _current_version(connection, commit, table_id, after)
        if current is None or not 0 <= current - after <= MOST_COMMITS:
            return False
        if current == after:
            continue
        reads = commit.reads_of(table_id)
        needed = evidence(mine, reads, level)
        if needed.adds and _has_many(connection, dl_add_files, table_id, after):
            return False
        if needed.removes and _has_many(connection, dl_remove_files, table_id, after):
            return False
        if find_conflict(mine, reads, winners.since(connection, table_id, after, needed), level) is not None:
            return False
    return True


def _checked(commit: Commit) -> Iterator[tuple[UUID, TableCommit | None, int]]:
    """Yield the tables that a commit is checked against, with the version after which it is checked."""
    new = {table.table_id for table in commit.new_tables}
    for table in commit.tables:
        if table.table_id not in new:
            yield table.table_id, table, commit.checked_from(table)
    for table_id, read in commit.checked_reads.items():
        yield table_id, None, read.version


def _current_version(connection: Connection, commit: Commit, table_id: UUID, after: int) -> int | None:
    """Return the table's version; None if no commit to it is allowed, or the version it was read at was replaced."""
    tables, status = dl_tables.c, dl_mirror_status.c
    query = (
        select(tables.current_version, status.state, _versions.commit_ts)
        .outerjoin(dl_mirror_status, status.table_id == tables.table_id)
        .outerjoin(dl_table_versions, (_versions.table_id == tables.table_id) & (_versions.version == after))
        .where(tables.table_id == table_id, tables.dropped_at.is_(None))
    )
    row = connection.execute(query).one_or_none()
    if row is None or row.state == DIVERGED:
        return None
    base = commit.bases.get(table_id)
    if base is not None and base.version == after and base.commit_ts != row.commit_ts:
        return None
    current: int = row.current_version
    return current


def _has_many(connection: Connection, files: Table, table_id: UUID, after: int) -> bool:
    some = select(files.c.path).where(files.c.table_id == table_id, files.c.version > after).limit(MOST_FILES + 1)
    count: int = connection.execute(select(func.count()).select_from(some.subquery())).scalar_one()
    return count > MOST_FILES
