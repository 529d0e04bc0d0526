"""Repair of published logs, from what the catalog knows.

| found                                                            | done                                      |
|------------------------------------------------------------------|-------------------------------------------|
| the file of a published commit is missing                        | written again from the catalog            |
| `_last_checkpoint` is another program's, or names a missing file | checkpoint and `_last_checkpoint` written |
| no checkpoint where one is due                                   | checkpoint and `_last_checkpoint` written |
| a commit that the catalog does not have, or that differs         | DIVERGED (`divergence`)                   |
| a registry entry or a version map is missing from the warehouse  | written again                             |
| the file of a tag is missing, out of date, or of a deleted tag   | written again, or deleted                 |
| the file of the catalog's settings is missing or out of date     | written again                             |

Commit files are never overwritten: a person decides about a file that differs from the catalog (`deltars verify`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import UUID, uuid4

from deltars.errors import LogDiverged, StorageError
from deltars.mirror.divergence import Divergence, is_log_ours
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
    """One repair: what was wrong, and the file that was written."""

    what: str
    file: str
    table: str | None = None


class Repairs:
    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._rows = CheckpointRows(database)
        self._publisher = publisher
        self._divergence = Divergence(publisher)
        self._maps_checked_to = 0

    def repair_table(self, status: MirrorStatus) -> list[Repair]:
        """Write missing commits and checkpoints of a table. Raise LogDiverged if its log contradicts the catalog."""
        if not is_log_ours(status):
            return []
        storage = self._publisher.storage_at(status.location)
        names = {info.path for info in storage.list(LOG)}
        # Read after the listing: a drop may just have deleted what is missing.
        if self._publisher.status.read(status.table_id).is_dropped:
            return []
        status = self._divergence.check(storage, status, names)
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
            # An empty log more likely means that the directory was moved or unmounted. Files written now would be in
            # the way, or hidden, when it comes back.
            raise StorageError(f"the log at {storage.url_of(LOG)} is empty or missing", hint=MOVED)
        repairs = [*self._repair_commits(storage, status, names), *self._repair_checkpoint(storage, status, names)]
        for repair in repairs:
            _log.warning("table %s: %s; written from the catalog: %s", status.name, repair.what, repair.file)
        return repairs

    def repair_warehouse(self) -> list[Repair]:
        """Write missing registry entries, version maps, tags and settings."""
        entries = self._publisher.warehouse.repair_registrations()
        maps, self._maps_checked_to = self._publisher.warehouse.repair_version_maps(self._maps_checked_to)
        repairs = [Repair("a registry entry was missing or out of date", file) for file in entries]
        repairs += [Repair("a transaction's version map was missing", file) for file in maps]
        tags = self._publisher.tag_files.repair()
        repairs += [Repair("the file of a tag was missing or out of date", file) for file in tags]
        settings = self._publisher.settings_file.publish()
        if settings is not None:
            repairs.append(Repair("the file of the catalog's settings was missing or out of date", settings))
        for repair in repairs:
            _log.warning("%s; written from the catalog: %s", repair.what, repair.file)
        return repairs

    def _repair_commits(self, storage: Storage, status: MirrorStatus, names: set[str]) -> list[Repair]:
        published = self._publisher.records.published(status.table_id)
        missing = [version for version in sorted(published) if commit_path(version) not in names]
        return [
            Repair("a published commit was missing", storage.url_of(commit_path(version)), status.name)
            for version in missing
            if self._publisher.republish(status.table_id, status.location, version)
        ]

    def _repair_checkpoint(self, storage: Storage, status: MirrorStatus, names: set[str]) -> list[Repair]:
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
