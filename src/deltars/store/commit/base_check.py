"""Whether the version that a transaction began with is still the one of that number.

After a restore, or a fail-over to a standby that lacked the last commits, others may have committed again up to the
same number. The transaction read, and was made for, another table.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from deltars.errors import VersionConflict
from deltars.log.commit import Commit, Conflict, VersionTaken
from deltars.store.commit.plan import LockedTable
from deltars.store.schema import dl_table_versions


def find_replaced(connection: Connection, commit: Commit, row: LockedTable, version: int) -> VersionTaken | None:
    """The conflict with a version that was replaced; None where it was not, or nothing is known of it."""
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
        f"the table has another version {version} than the one that this transaction began with:"
        " the database was restored, or failed over, since; nothing was changed"
    )
    conflict = Conflict(VersionConflict, version, reason)
    return VersionTaken(row.table_id, row.name, version, row.current_version, conflict)
