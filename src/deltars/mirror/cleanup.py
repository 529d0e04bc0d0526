"""Clean-up of old log files. The catalog keeps its whole history.

    cut-off: the last version older than the retention      everything before a checkpoint at or below it is deleted
    ──┬──────────────┬───────────────┬───────▶ versions
    deleted      checkpoint       cut-off

Readers can still read every version from that checkpoint on. The catalog records the clean-up first, so that the
reconciler does not write the deleted files again.
"""

from __future__ import annotations

import logging
from uuid import UUID

from deltars.errors import LogDiverged
from deltars.mirror.files.checkpoint import is_ours
from deltars.mirror.outcome import SEE_WHAT_DIFFERS
from deltars.mirror.publisher import Publisher
from deltars.protocol.log_files import LOG, LogFileKind, version_of, versions_of
from deltars.protocol.properties import log_retention_ms
from deltars.store.database import Database
from deltars.store.mirror.checkpoint_state import CheckpointRows
from deltars.store.mirror.status import MirrorState

_log = logging.getLogger(__name__)


def clean_up_log(database: Database, publisher: Publisher, table_id: UUID) -> list[str]:
    """Delete log files older than the table's `delta.logRetentionDuration` (default 30 days). Return their URLs."""
    status = publisher.status.read(table_id)
    if status.published_version < 0 or not status.is_ours:
        return []
    if status.state is MirrorState.DIVERGED:
        raise LogDiverged(
            "the table's log contradicts the catalog: no log file was deleted",
            table=status.name,
            table_id=table_id,
            hint=SEE_WHAT_DIFFERS.format(status.name),
        )
    properties = CheckpointRows(database).at(table_id, status.published_version).metadata.configuration
    kept_from_ms = status.now // 1000 - log_retention_ms(properties)
    cut_off = publisher.records.last_version_before(table_id, kept_from_ms)
    if cut_off is None:
        return []
    storage = publisher.storage_at(status.location)
    paths = [info.path for info in storage.list(LOG)]
    checkpoints = reversed(versions_of(LogFileKind.CLASSIC_CHECKPOINT, paths))
    first_kept = next((version for version in checkpoints if version <= cut_off and is_ours(storage, version)), None)
    if first_kept is None:
        return []
    publisher.records.note_cleaned_up(table_id, before=first_kept)
    old = [path for path in paths if (version := version_of(path)) is not None and version < first_kept]
    storage.delete(old)
    _log.info("table %s: deleted %s old log files", status.name, len(old))
    return [storage.url_of(path) for path in sorted(old)]
