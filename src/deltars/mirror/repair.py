"""Mending what somebody did to a published log: the catalog knows what belongs there.

| found                                                          | done                                        |
|----------------------------------------------------------------|---------------------------------------------|
| a published commit's file is gone                              | written again from the catalog              |
| `_last_checkpoint` is another program's, or points to nothing  | a checkpoint of ours, and a hint of ours    |
| a commit that the catalog does not have, or another one         | DIVERGED (`divergence`)                     |
| no checkpoint where one is due                                 | the same                                    |
| a table's entry in the warehouse, or a version map, is missing | written again                               |

Nothing that is a commit is ever overwritten: a file that differs from the catalog is for a person to judge
(`deltars verify`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import UUID, uuid4

from deltars.errors import LogDiverged, StorageError
from deltars.mirror.divergence import Divergence, is_looked_at
from deltars.mirror.files.commit import MOVED
from deltars.mirror.files.last_checkpoint import parse_last_checkpoint
from deltars.mirror.outcome import SEE_WHAT_DIFFERS
from deltars.mirror.publisher import Publisher
from deltars.protocol.log_files import LAST_CHECKPOINT, LOG, checkpoint_path, commit_path
from deltars.storage import Storage
from deltars.store.database import Database
from deltars.store.mirror.checkpoint_state import CheckpointRows
from deltars.store.mirror.status import MirrorMode, MirrorState, MirrorStatus

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Repair:
    """Something that was mended: what was wrong, and the file that is right now."""

    what: str
    file: str
    table: str | None = None


class Repairs:
    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._rows = CheckpointRows(database)
        self._publisher = publisher
        self._divergence = Divergence(publisher)
        self._maps_checked_to = 0

    def mend_table(self, status: MirrorStatus) -> list[Repair]:
        """See that everything published is there, that nothing else is, and that the hint is ours."""
        if not is_looked_at(status):
            return []
        storage = self._publisher.storage_at(status.location)
        names = {info.path for info in storage.list(LOG)}
        # Asked after the listing: what is missing may be what a drop has just deleted.
        if self._publisher.status.read(status.table_id).is_dropped:
            return []
        status = self._divergence.judge(storage, status, names)
        if status.state is MirrorState.DIVERGED:
            raise LogDiverged(
                f"the log has diverged: {status.last_error}",
                table=status.name,
                table_id=status.table_id,
                hint=SEE_WHAT_DIFFERS.format(status.name),
            )
        if status.mode is MirrorMode.OFF or status.published_version < 0:
            return []
        if not names:
            # A log of which nothing is left was hardly deleted by mistake: what is written there now would be in the
            # way, or hidden, when the table comes back.
            raise StorageError(f"nothing is left of the log at {storage.url_of(LOG)}", hint=MOVED)
        repairs = [*self._mend_commits(storage, status, names), *self._mend_checkpoint(storage, status, names)]
        for repair in repairs:
            _log.warning("table %s: %s, written from the catalog: %s", status.name, repair.what, repair.file)
        return repairs

    def mend_warehouse(self) -> list[Repair]:
        """See that every table's entry and every version map is there."""
        entries = self._publisher.warehouse.mend_registrations()
        maps, self._maps_checked_to = self._publisher.warehouse.mend_version_maps(self._maps_checked_to)
        repairs = [Repair("a table's entry was missing or out of date", file) for file in entries]
        repairs += [Repair("a transaction's version map was missing", file) for file in maps]
        for repair in repairs:
            _log.warning("%s, written from the catalog: %s", repair.what, repair.file)
        return repairs

    def _mend_commits(self, storage: Storage, status: MirrorStatus, names: set[str]) -> list[Repair]:
        published = self._publisher.records.published(status.table_id)
        missing = [version for version in sorted(published) if commit_path(version) not in names]
        return [
            Repair("a published commit was missing", storage.url_of(commit_path(version)), status.name)
            for version in missing
            if self._publisher.republish(status.table_id, status.location, version)
        ]

    def _mend_checkpoint(self, storage: Storage, status: MirrorStatus, names: set[str]) -> list[Repair]:
        what = self._checkpoint_problem(storage, status, names)
        if what is None:
            return []
        version = status.published_version
        self._publisher.checkpointer.write(storage, status.table_id, version, owner=f"repair:{uuid4()}")
        return [Repair(what, storage.url_of(checkpoint_path(version)), status.name)]

    def _checkpoint_problem(self, storage: Storage, status: MirrorStatus, names: set[str]) -> str | None:
        is_there = LAST_CHECKPOINT in names
        hint = parse_last_checkpoint(storage.get_or_none(LAST_CHECKPOINT)) if is_there else None
        if is_there and (hint is None or not hint.is_ours):
            return "_last_checkpoint was another program's"
        if hint is not None and checkpoint_path(hint.version) not in names:
            return "the last checkpoint was missing"
        due = self._due(status.table_id, status.published_version)
        if due is not None and (hint is None or hint.version < due):
            return "a checkpoint was due"
        return None

    def _due(self, table_id: UUID, version: int) -> int | None:
        return self._publisher.checkpointer.last_due(self._rows.at(table_id, version).metadata, version)
