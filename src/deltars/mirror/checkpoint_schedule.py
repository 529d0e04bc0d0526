"""Schedule of checkpoints, and of `_last_checkpoint`, which names the newest one.

    a multiple of the interval was published ──▶ write <v>.checkpoint.parquet, without the lease
                                             ──▶ claim the lease ──▶ `_last_checkpoint` ──▶ release

Writing a checkpoint may take long, and publishing continues meanwhile: a published version never changes. Writing
`_last_checkpoint` is short, and happens under the lease, so that an older checkpoint does not replace a newer one.
(A process that is suspended while it holds the lease, and resumes after another took it over, can still replace it:
readers then begin at an older checkpoint, and the reconciler writes `_last_checkpoint` again.)
"""

from __future__ import annotations

import logging
import time
from uuid import UUID

from deltars.errors import DeltarsError, TimeoutError
from deltars.mirror.files.checkpoint import (
    WrittenCheckpoint,
    interval_of,
    is_due,
    is_ours,
    write_checkpoint,
)
from deltars.mirror.files.last_checkpoint import parse_last_checkpoint, render_last_checkpoint
from deltars.protocol import Metadata
from deltars.protocol.log_files import LAST_CHECKPOINT, checkpoint_path
from deltars.storage import Storage
from deltars.store.database import Database
from deltars.store.mirror import lease
from deltars.store.mirror.checkpoint_state import CheckpointRows
from deltars.store.mirror.status import MirrorStatusStore

PATIENCE_S = 30.0
"""How long to wait for the lease before `_last_checkpoint` is written."""

_log = logging.getLogger(__name__)


class Checkpointer:
    def __init__(self, database: Database, status: MirrorStatusStore, *, interval: int) -> None:
        self._rows = CheckpointRows(database)
        self._status = status
        self._interval = interval

    def is_due(self, metadata: Metadata, before: int, after: int) -> bool:
        """Return whether version `after` needs a checkpoint, if the last published version was `before`."""
        return is_due(before, after, interval_of(metadata, self._interval))

    def last_due(self, metadata: Metadata, published_version: int) -> int | None:
        """Return the version that should have a checkpoint by now, unless a later one has. None if none is due."""
        interval = interval_of(metadata, self._interval)
        return published_version // interval * interval if published_version >= interval else None

    def write(self, storage: Storage, table_id: UUID, version: int, owner: str) -> bool:
        """Write the checkpoint of a published version and `_last_checkpoint`. Return whether a version is pending."""
        if self._status.read(table_id).is_dropped:
            return False
        state = self._rows.at(table_id, version)
        checkpoint = write_checkpoint(storage, state)
        if not checkpoint.created and not is_ours(storage, version):
            file = storage.url_of(checkpoint_path(version))
            _log.warning("%s: replacing another program's checkpoint with one from the catalog", file)
            checkpoint = write_checkpoint(storage, state, replace=True)
        return self._point_to(storage, table_id, checkpoint, owner)

    def try_write(self, storage: Storage, table_id: UUID, version: int, owner: str) -> bool:
        """Like `write`, but log an error and leave the checkpoint to the reconciler: readers can do without one."""
        try:
            return self.write(storage, table_id, version, owner)
        except DeltarsError as error:
            _log.warning("the checkpoint of version %s of table %s was not written: %s", version, table_id, error)
            return False

    def _point_to(self, storage: Storage, table_id: UUID, checkpoint: WrittenCheckpoint, owner: str) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        polls = lease.polls()
        while True:
            claimed, status = self._status.claim(table_id, owner, even_if_idle=True)
            if claimed:
                break
            if not status.is_published_to:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"another publisher held the table's lease for {PATIENCE_S:.0f} s",
                    table=status.name,
                    table_id=table_id,
                )
            polls.sleep()
        try:
            last = parse_last_checkpoint(storage.get_or_none(LAST_CHECKPOINT))
            if last is None or not last.is_ours or last.version <= checkpoint.version:
                storage.put(LAST_CHECKPOINT, render_last_checkpoint(checkpoint))
        finally:
            is_pending = self._status.release(table_id, owner)
        return is_pending
