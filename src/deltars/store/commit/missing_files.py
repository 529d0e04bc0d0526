"""Removed files that were not live: a mistake of the caller, or the work of another commit.

The conflict rules find every file that another commit removed before this one is written. This is the second line: the
write itself shows how many of the removed files were live, and if some were not, each is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import Connection, select

from deltars.errors import ConcurrentDeleteDelete, ValidationError
from deltars.log.commit import Commit, Conflict, VersionTaken
from deltars.protocol import RemoveFile
from deltars.store.commit.plan import LockedTable, Plan
from deltars.store.schema import dl_add_files, dl_remove_files


def find_missing(
    connection: Connection, commit: Commit, locked: Mapping[UUID, LockedTable], plan: Plan
) -> VersionTaken | None:
    """Return the conflict if another commit removed one of the files since the transaction began.

    Raise ValidationError if a file was no live file of its table even then.
    """
    for table in commit.tables:
        if table.tolerate_missing:
            continue
        version, expected = plan.versions[table.table_id], commit.checked_from(table)
        for position, action in enumerate(table.actions):
            if not isinstance(action, RemoveFile) or _was_live(connection, action, table.table_id, version):
                continue
            removed_in = _removed_in(connection, action, table.table_id, expected, version)
            if removed_in is None:
                raise ValidationError(
                    f"action {position} (RemoveFile): {action.path} is not a live file of the table",
                    table_id=table.table_id,
                    action=position,
                    field="path",
                )
            reason = f"version {removed_in} removed {action.path}, which this transaction changes too"
            conflict = Conflict(ConcurrentDeleteDelete, removed_in, reason)
            return VersionTaken(table.table_id, locked[table.table_id].name, expected, version - 1, conflict)
    return None


def _was_live(connection: Connection, remove: RemoveFile, table_id: UUID, version: int) -> bool:
    files = dl_add_files.c
    query = select(files.ord).where(
        files.table_id == table_id,
        files.path == remove.path,
        files.dv_id == remove.dv_id,
        files.removed_version == version,
    )
    return connection.execute(query).first() is not None


def _removed_in(connection: Connection, remove: RemoveFile, table_id: UUID, after: int, before: int) -> int | None:
    """Return the last version between the two that removed the file, or None."""
    files = dl_remove_files.c
    query = select(files.version).where(
        files.table_id == table_id,
        files.path == remove.path,
        files.dv_id == remove.dv_id,
        files.version > after,
        files.version < before,
    )
    version: int | None = connection.execute(query.order_by(files.version.desc()).limit(1)).scalar_one_or_none()
    return version
