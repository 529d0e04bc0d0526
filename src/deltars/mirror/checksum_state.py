"""The checksum of each table's last published version, remembered from one publication to the next.

A checksum that this process does not remember is read from the published `.crc`, if that belongs to the right commit,
and otherwise counted in the catalog. A remembered checksum is used only while the catalog has the same commit at that
version: after a restore, or after `accept-log`, a version number may mean another commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from deltars.errors import StorageError
from deltars.mirror.files.checksum import Checksum, sums_in
from deltars.protocol.log_files import checksum_path
from deltars.remembered import Remembered
from deltars.storage import Storage
from deltars.store.commit.next_version import NextVersion
from deltars.store.database import Database
from deltars.store.mirror.checkpoint_state import CheckpointRows, FileSums
from deltars.store.read.committed_versions import CommittedVersion

MAX_REMEMBERED = 10_000


class Checksums:
    def __init__(self, database: Database) -> None:
        self._rows = CheckpointRows(database)
        self._known = Remembered[UUID, tuple[Checksum, int]](MAX_REMEMBERED)
        """Checksum of a table's last version, and the time stamp of its commit."""

    def after(self, storage: Storage, commits: Sequence[CommittedVersion]) -> Checksum:
        """Return the checksum of the last of these commits, which must be consecutive."""
        first, last = commits[0], commits[-1]
        gone, before = self._rows.gone(first.table_id, first.version, last.version)
        now, rest = (
            (Checksum.first(first), commits[1:])
            if first.version == 0
            else (self._at(storage, first.table_id, first.version - 1, before), commits)
        )
        for commit in rest:
            now = now.after(commit, gone.get(commit.version, FileSums(0, 0)))
        self._remember(last, now)
        return now

    def after_next(self, storage: Storage, new: NextVersion) -> Checksum:
        """Return the checksum of the version that was just committed. The catalog is queried only if need be."""
        commit = new.commit
        known, known_ts = self._known.get(commit.table_id, (None, None))
        is_before = known is not None and known.version == commit.version - 1 and known_ts == new.before_ts
        if known is None or not is_before or not new.only_adds:
            return self.after(storage, [commit])
        now = known.after(commit, FileSums(0, 0))
        self._remember(commit, now)
        return now

    def _at(self, storage: Storage, table_id: UUID, version: int, commit: tuple[str, int] | None) -> Checksum:
        known, _ = self._known.get(table_id, (None, None))
        # Compare the commit too: a restored database may have another commit at the same version.
        if known is not None and known.version == version and (known.txn_id, known.in_commit_timestamp) == commit:
            return known
        state = self._rows.at(table_id, version)
        published = None
        with suppress(StorageError):
            published = sums_in(storage.get_or_none(checksum_path(version)), str(state.txn_id))
        return Checksum.of(state, published or state.sums())

    def _remember(self, commit: CommittedVersion, checksum: Checksum) -> None:
        self._known[commit.table_id] = checksum, commit.commit_ts
