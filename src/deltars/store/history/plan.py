"""Which versions of a table can be expired.

    0 ─────────────────────── first_version ───────────── current
      expired, except what        └ the last version that is older than the retention, and not newer than
      tags need                     - the last `keep_versions` versions allow
                                    - what is published
                                    - what is vacuumed: files are found by the rows that name them

The snapshot at `first_version` stays whole, and so does each version that a tag needs. Nothing is locked to find out:
versions only grow older, and a tag that is made meanwhile is found by `Deletion.mark`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, func, select

from deltars.log.commit import NO_VERSION
from deltars.log.moments import from_milliseconds
from deltars.store.database import Database
from deltars.store.mirror.status import MirrorMode, MirrorState, MirrorStatus
from deltars.store.read.version_header import earliest_version, first_version
from deltars.store.schema import dl_cdc_files, dl_maintenance, dl_remove_files, dl_table_versions
from deltars.store.tags import pinned_versions

_versions, _maintenance = dl_table_versions.c, dl_maintenance.c


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept: versions that were current at `since_us` or later, and the last `keep_versions`."""

    since_us: int
    keep_versions: int | None = None


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    table_id: UUID
    table: str
    first_version: int
    """First version that stays, besides those that tags need."""
    since: datetime | None
    """Time of that version; None if the table has no version."""
    num_versions: int
    """Versions that go."""
    kept_versions: tuple[int, ...]
    """Versions before the first one that stay because of tags."""
    held_by: str | None
    """What keeps versions that are older than the retention, if anything does."""


def plan_expiry(connection: Connection, status: MirrorStatus, retention: Retention) -> ExpiryPlan:
    """Return what can be expired of a table."""
    table_id = status.table_id
    earliest = earliest_version(connection, table_id)
    if earliest is None or status.current_version == NO_VERSION:
        return ExpiryPlan(table_id, status.name, 0, None, 0, (), None)
    done = first_version(connection, table_id)
    wanted = _wanted(connection, status, retention)
    first, held_by = max(earliest, wanted), None
    if wanted > earliest:
        for limit, reason in _limits(connection, status, wanted):
            if limit < first:
                first, held_by = max(earliest, limit), reason
    kept = kept_versions(connection, table_id, below=first)
    # An interrupted run may have left versions below the first one.
    is_going = (_versions.table_id == table_id, _versions.version < first, _versions.version.not_in(kept))
    going = connection.scalar(select(func.count()).where(*is_going)) if first > earliest or done else 0
    query = select(_versions.in_commit_timestamp).where(_versions.table_id == table_id, _versions.version == first)
    since = connection.scalar(query)
    return ExpiryPlan(
        table_id,
        status.name,
        first,
        None if since is None else from_milliseconds(since),
        going or 0,
        kept,
        held_by,
    )


def kept_versions(connection: Connection, table_id: UUID, *, below: int) -> tuple[int, ...]:
    """Return the versions before the kept history that must stay: tags need them, or vacuum kept their files."""
    query = select(_maintenance.kept_versions).where(_maintenance.table_id == table_id)
    by_vacuum: list[int] = connection.scalar(query) or []
    there = select(_versions.version).where(_versions.table_id == table_id, _versions.version.in_(by_vacuum))
    kept = {*pinned_versions(connection, table_id), *connection.scalars(there)}
    return tuple(sorted(version for version in kept if version < below))


def _wanted(connection: Connection, status: MirrorStatus, retention: Retention) -> int:
    """Return the last version that was current when the retention began, and is not too new for `keep_versions`."""
    # Cuts go by commit_ts, time travel of one table by in-commit timestamps. A version is old by both.
    query = select(func.max(_versions.version)).where(
        _versions.table_id == status.table_id,
        _versions.version <= status.current_version,
        _versions.commit_ts <= retention.since_us,
        _versions.in_commit_timestamp <= retention.since_us // 1000,
    )
    by_time: int | None = connection.scalar(query)
    if by_time is None:
        return NO_VERSION
    newest = status.current_version
    return min(by_time, newest if retention.keep_versions is None else newest - retention.keep_versions + 1)


def _limits(connection: Connection, status: MirrorStatus, wanted: int) -> list[tuple[int, str]]:
    """Return the versions that may be the first one at most, each with the reason."""
    if not status.is_ours:
        return [(NO_VERSION, "other writers own its log")]
    if status.state is MirrorState.DIVERGED:
        return [(NO_VERSION, "its log contradicts the catalog")]
    limits = []
    if status.published_version < wanted:
        reason = "its mirror is off" if status.mode is MirrorMode.OFF else "later versions are not published yet"
        limits.append((status.published_version, reason))
    vacuumed = connection.scalar(select(_maintenance.vacuumed_version).where(_maintenance.table_id == status.table_id))
    files = [
        connection.scalar(
            select(func.min(table.c.version)).where(
                table.c.table_id == status.table_id,
                table.c.version > (NO_VERSION if vacuumed is None else vacuumed),
                table.c.version <= wanted,
            )
        )
        for table in (dl_remove_files, dl_cdc_files)
    ]
    removed = [version for version in files if version is not None]
    if removed:
        limits.append((min(removed) - 1, "vacuum has not deleted its removed files yet"))
    return limits


def read_plan(database: Database, status: MirrorStatus, retention: Retention) -> ExpiryPlan:
    with database.read() as connection:
        return plan_expiry(connection, status, retention)
