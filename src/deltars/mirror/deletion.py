"""Deletion of a dropped table's files, and of nothing else.

    check: the log is this catalog's, no other table has the directory     before the table is dropped, and after
    list ──▶ leave out tables below, and files that their logs name ──▶ data files ──▶ `_delta_log` last
      ▲                                                                                     │
      └──────── again, for what was being published or written meanwhile ◀──────────────────┘

If it is interrupted, run it again: the catalog still knows the directory of the dropped table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from hashlib import sha256
from uuid import UUID

from deltars.errors import LogDiverged, TableExists, TableHeld
from deltars.mirror.files.commit import is_same_commit, render_commit
from deltars.mirror.other_tables import OthersFiles, others_files
from deltars.mirror.publisher import Publisher
from deltars.protocol.log_files import LOG, LogFileKind, commit_path, is_log_path, versions_of
from deltars.storage import Relation, Storage
from deltars.store.database import Database
from deltars.store.imports.table_hold import why_held
from deltars.store.mirror import lease
from deltars.store.mirror.audit import AuditRows
from deltars.store.mirror.status import MirrorState, MirrorStatus
from deltars.store.registry import Registry
from deltars.store.tags import pinned_versions
from deltars.store.vacuum_marks import EVERY_VERSION, condemn_dropped, read_marks

TIMEOUT_S = 30.0
WAIT_S = 1.5
"""Longer than a publisher writes commits before it reads the table's status again."""

PASSES = 3
"""How often the directory is listed: a running publisher or writer may add a file after the first time."""

_LEAVE_IT = "drop_table() without delete_data removes the table from the catalog and keeps its files."

_log = logging.getLogger(__name__)


class Deletion:
    def __init__(self, database: Database, publisher: Publisher, registry: Registry) -> None:
        self._database = database
        self._publisher = publisher
        self._registry = registry
        self._audit = AuditRows(database)

    def check(self, table_id: UUID) -> None:
        """Raise if the directory holds files that are not this table's. Change nothing."""
        status = self._publisher.status.read(table_id)
        self._refuse_held(status)
        self._refuse_successor(status)
        storage = self._publisher.storage_at(status.location)
        self._refuse_foreign_log(status, storage, [info.path for info in storage.list(LOG)])

    def is_claimed(self, table_id: UUID) -> bool:
        """Return whether the deletion of a table's files began before."""
        with self._database.read() as connection:
            return read_marks(connection, table_id).condemned_version == EVERY_VERSION

    def delete(self, table_id: UUID) -> int:
        """Delete the files of a dropped table. Return how many were deleted."""
        # Wait for background publications and checkpoints of this process.
        self._publisher.close()
        status = self._wait_for_publication(table_id)
        self.check(table_id)
        if not self.is_claimed(table_id):
            with self._database.write(TIMEOUT_S) as connection:
                self._database.backend.lock_registry(connection)
                condemn_dropped(connection, table_id)
        storage = self._publisher.storage_at(status.location)
        others = self._others(status, storage)
        deleted = 0
        for _ in range(PASSES):
            paths = [path for path in _every(storage) if not others.has(path)]
            if not paths:
                break
            storage.delete(path for path in paths if not is_log_path(path))
            storage.delete(path for path in paths if is_log_path(path))
            deleted += len(paths)
        storage.remove_empty_directories()
        _log.info("table %s: deleted %s files from %s", status.name, deleted, status.location)
        return deleted

    def _wait_for_publication(self, table_id: UUID) -> MirrorStatus:
        """Wait at most `WAIT_S` for a publication that began before the drop. Later ones see the drop."""
        deadline = time.monotonic() + WAIT_S
        polls = lease.polls()
        while (status := self._publisher.status.read(table_id)).is_leased and time.monotonic() < deadline:
            polls.sleep()
        return status

    def _refuse_held(self, status: MirrorStatus) -> None:
        held = why_held(self._database, status.table_id)
        if held is not None:
            raise TableHeld(
                f"the table {held}: this catalog does not own its files and cannot delete them",
                table=status.name,
                table_id=status.table_id,
                hint=f"{_LEAVE_IT} To delete them, adopt the table with catalog.adopt() first.",
            )

    def _refuse_successor(self, status: MirrorStatus) -> None:
        neighbours = self._registry.neighbours(status.location)
        [created_at] = [found.created_at for found in neighbours if found.table_id == status.table_id]
        for other in neighbours:
            if other.table_id == status.table_id:
                continue
            is_later = not other.is_dropped or other.created_at > created_at
            if other.relation is Relation.SAME and is_later:
                raise TableExists(
                    f"the directory {status.location} now belongs to the table {other.name!r} ({other.table_id})",
                    table=status.name,
                    table_id=status.table_id,
                    hint=f"Drop that table with delete_data. {_LEAVE_IT}",
                )

    def _refuse_foreign_log(self, status: MirrorStatus, storage: Storage, names: Iterable[str]) -> None:
        """Raise LogDiverged unless the newest commit in the log is one of this table's."""
        newest = max(versions_of(LogFileKind.COMMIT, names), default=None)
        is_foreign = newest is not None and not self._is_of_table(status, storage, newest)
        if is_foreign or status.state is MirrorState.DIVERGED:
            raise LogDiverged(
                f"the log at {status.location} has commits that are not this catalog's: another program writes to it",
                table=status.name,
                table_id=status.table_id,
                version=newest,
                hint=f"See what differs with `deltars verify`. {_LEAVE_IT}",
            )

    def _is_of_table(self, status: MirrorStatus, storage: Storage, version: int) -> bool:
        content = storage.get_or_none(commit_path(version))
        if content is None or sha256(content).hexdigest() == self._publisher.records.digest(status.table_id, version):
            return True
        # A commit that was written, but could not be recorded as published.
        commits = self._publisher.status.pending(status.table_id, version - 1, 1)
        return bool(commits) and is_same_commit(render_commit(commits[0]), content)

    def _others(self, status: MirrorStatus, storage: Storage) -> OthersFiles:
        found = others_files(status, storage, _every(storage), registry=self._registry, audit=self._audit)
        for root in found.roots:
            _log.warning("table %s: kept %s, which holds another table", status.name, storage.url_of(root))
        if found.files:
            _log.warning("table %s: kept %s files that other tables use", status.name, len(found.files))
        return found


def tags_of_directory(database: Database, registry: Registry, table_id: UUID) -> list[str]:
    """Return the tags that need files of a table, or of a dropped one that had its directory before."""
    neighbours = registry.neighbours(registry.location(table_id))
    [created_at] = [found.created_at for found in neighbours if found.table_id == table_id]
    earlier = [
        found.table_id for found in neighbours if found.relation is Relation.SAME and found.created_at <= created_at
    ]
    with database.read() as connection:
        pinned = [pinned_versions(connection, one) for one in {table_id, *earlier}]
    return sorted({name for versions in pinned for names in versions.values() for name in names})


def _every(storage: Storage) -> list[str]:
    return [info.path for listed in (storage.list(), storage.list_unfinished()) for info in listed]
