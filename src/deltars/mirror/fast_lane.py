"""The fast lane: a committer publishes its own version at once, without the lease.

    commit N ──▶ its own statement says: N − 1 is published ──▶ see N − 1.json ──▶ put N.json ──▶ note N
                                                                    │                │            │
                     anything else ──▶ the publisher's way (`publisher`) ◀───────────┴────────────┘

It keeps the two rules that make a log correct: a version is written only where no file exists, and only after the
version before it. So it needs no lease, and a holder of the lease that publishes the same version meanwhile does no
harm: one of the two writes the file, and one of the two notes it. A process that dies between two steps leaves what a
publisher leaves that dies there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from deltars.errors import DeltarsError
from deltars.mirror.checksum_state import Checksums
from deltars.mirror.files.commit import put_commit, require_published, set_time
from deltars.observe import Source, VersionPublished, emit
from deltars.observe.channel import is_heard
from deltars.protocol.log_files import LOG, checksum_path
from deltars.storage import Storage
from deltars.store.commit.next_version import NextVersion
from deltars.store.mirror.status import MirrorStatusStore

_log = logging.getLogger(__name__)


class FastLane:
    def __init__(
        self,
        source: Source,
        status: MirrorStatusStore,
        checksums: Checksums,
        storage_at: Callable[[str], Storage],
    ) -> None:
        self._source = source
        self._status = status
        self._checksums = checksums
        self._storage_at = storage_at

    def publish(self, new: NextVersion) -> bool:
        """Publish a version. Return False if the publisher must do it, or find out why it cannot be done."""
        try:
            return self._publish(new)
        except DeltarsError as error:
            _log.debug("version %s of table %s is left to the publisher: %s", new.commit.version, new.table, error)
            return False

    def _publish(self, new: NextVersion) -> bool:
        commit, storage = new.commit, self._storage_at(new.location)
        began_ns, began = time.time_ns(), time.perf_counter()
        require_published(storage, commit.version - 1)
        is_put, digest = put_commit(storage, commit)
        if not is_put:
            return False
        set_time(storage, commit)
        # Before the catalog records it: a version recorded as published survives a power cut.
        storage.sync_names(LOG)
        took_s = time.perf_counter() - began
        checksum = self._checksums.after_next(storage, new)
        storage.put_if_absent(checksum_path(commit.version), checksum.to_json(), sync_name=False)
        now = self._status.note_next(commit.table_id, commit.version, digest)
        if now is None:
            return False
        if is_heard(VersionPublished):
            lag_s = max(0, now - commit.commit_ts) / 1_000_000
            emit(VersionPublished(self._source, commit.txn_id, new.table, commit.version, began_ns, took_s, lag_s))
        return True
