"""Detection of logs that contradict the catalog.

    a commit file above the catalog's version                ──▶ DIVERGED: an older backup of the database was restored,
    another commit where the next one is to be published         or another program wrote to the log
    neither any more, after a person resolved it             ──▶ ACTIVE again

A commit's file is written only after the commit. So if the catalog, read after the file was seen, does not have the
file's version, the file is not the catalog's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from deltars.errors import DeltarsError
from deltars.mirror.files.commit import is_same_commit, render_commit
from deltars.mirror.publisher import Publisher
from deltars.protocol.log_files import LogFileKind, commit_path, versions_of
from deltars.storage import Storage
from deltars.store.mirror.status import MirrorState, MirrorStatus

AT_ONCE = 8
"""How many tables are checked at the same time."""

_log = logging.getLogger(__name__)


class Divergence:
    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def look_at(self, tables: Sequence[MirrorStatus]) -> list[MirrorStatus]:
        """Check the next version in the log of each table, with two requests, and return the updated statuses."""
        if not tables:
            return []
        with ThreadPoolExecutor(min(AT_ONCE, len(tables)), thread_name_prefix="deltars-look") as pool:
            return list(pool.map(self._look, tables))

    def check(self, storage: Storage, status: MirrorStatus, names: Collection[str]) -> MirrorStatus:
        """Check a whole log. Return the updated status. `names` must have been listed after `status` was read."""
        if not is_log_ours(status):
            return status
        versions = versions_of(LogFileKind.COMMIT, names)
        reason = self._above(storage, status, [v for v in versions if v > status.current_version])
        waiting = range(status.published_version + 1, status.current_version + 1)
        for version in [] if reason else [v for v in versions if v in waiting]:
            reason = reason or self._other(storage, status, version)
        if reason is not None:
            return self._note(status, reason)
        if status.state is MirrorState.DIVERGED:
            return self._recover(status)
        return status

    def _look(self, status: MirrorStatus) -> MirrorStatus:
        if not is_log_ours(status) or status.state is MirrorState.DIVERGED:
            return status
        try:
            storage = self._publisher.storage_at(status.location)
            after = status.current_version + 1
            there = [after] if storage.exists(commit_path(after)) else []
            reason = self._above(storage, status, there)
            if reason is None and status.is_pending:
                reason = self._other(storage, status, status.published_version + 1)
        except DeltarsError as error:
            _log.warning("the log of table %s could not be checked: %s", status.name, error)
            return status
        return status if reason is None else self._note(status, reason)

    def _above(self, storage: Storage, status: MirrorStatus, versions: Sequence[int]) -> str | None:
        if not versions:
            return None
        now = self._publisher.status.read(status.table_id)
        above = [version for version in versions if version > now.current_version]
        if not above or not is_log_ours(now):
            return None
        return (
            f"{storage.url_of(commit_path(above[0]))} exists, and the catalog has no version after"
            f" {now.current_version}: was an older backup of the database restored?"
        )

    def _other(self, storage: Storage, status: MirrorStatus, version: int) -> str | None:
        there = storage.get_or_none(commit_path(version))
        commits = [] if there is None else self._publisher.status.pending(status.table_id, version - 1, 1)
        if there is None or not commits or is_same_commit(render_commit(commits[0]), there):
            return None
        return f"{storage.url_of(commit_path(version))} exists and is another commit"

    def _note(self, status: MirrorStatus, reason: str) -> MirrorStatus:
        """Record the divergence, so that further commits are refused. Without the right to do so, only return it."""
        try:
            self._publisher.status.note_divergence(status.table_id, reason)
        except DeltarsError as error:
            _log.warning("table %s has diverged, and this could not be recorded: %s", status.name, error)
        if status.state is not MirrorState.DIVERGED:
            _log.error("the log of table %s has diverged: %s", status.name, reason, extra={"table": status.name})
        return replace(status, state=MirrorState.DIVERGED, last_error=reason)

    def _recover(self, status: MirrorStatus) -> MirrorStatus:
        self._publisher.status.recover(status.table_id)
        _log.warning("the log of table %s no longer contradicts the catalog: publishing continues", status.name)
        return self._publisher.status.read(status.table_id)


def is_log_ours(status: MirrorStatus) -> bool:
    """Return whether only this catalog writes the table's log, and no import or release is in progress.

    During an import or a release the log may be ahead of the catalog for a moment.
    """
    return status.is_ours and not status.is_frozen
