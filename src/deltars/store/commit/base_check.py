"""Check that the version a transaction began with was not replaced.

After a restore, or a failover to a standby that lacked the last commits, other commits may have taken the same version
numbers. The transaction then read data that is no longer in the table.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from deltars.errors import VersionConflict
from deltars.log.commit import Commit, Conflict, VersionTaken
from deltars.store.commit.plan import LockedTable
from deltars.store.schema import dl_table_versions


def find_replaced(connection: Connection, commit: Commit, row: LockedTable, version: int) -> VersionTaken | None:
    """Return the conflict with a replaced version; None if it was not replaced or the commit does not know its base."""
    base = commit.bases.get(row.table_id)
    if base is None or base.version != version or row.current_version < version:
        return None
    commit_ts: int | None = row.last_commit_ts
    if row.current_version != version:
        versions = dl_table_versions.c
        query = select(versions.commit_ts).where(versions.table_id == row.table_id, versions.version == version)
        commit_ts = connection.execute(query).scalar_one_or_none()
    if commit_ts == base.commit_ts:
        return None
    reason = (
        f"version {version} of the table was replaced since this transaction began:"
        " the database was restored or failed over; nothing was changed"
    )
    conflict = Conflict(VersionConflict, version, reason)
    return VersionTaken(row.table_id, row.name, version, row.current_version, conflict)
