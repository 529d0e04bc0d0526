"""Expiry of old history: rows of the catalog, files of the log and version maps, in step.

    plan ──▶ checkpoint ──▶ mark ──▶ rows of the catalog ──▶ files of the log before the checkpoint ──▶ version maps
                │                                                                          and transactions
                └ of the first version that stays, or the first one that a tag needs: readers of `_delta_log` begin with
                  it. So at every moment they find a checkpoint with all commits after it.

`repair` writes published commits again that are missing. It goes by the rows of `dl_mirror_log`, which are gone before
the files. If a run is interrupted, run it again: every step starts with what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from deltars.errors import LogDiverged, StorageError
from deltars.mirror.divergence import Divergence
from deltars.mirror.files.checkpoint import is_ours
from deltars.mirror.files.last_checkpoint import parse_last_checkpoint
from deltars.mirror.outcome import SEE_WHAT_DIFFERS
from deltars.mirror.publisher import Publisher
from deltars.mirror.warehouse import version_map_path
from deltars.protocol.log_files import LAST_CHECKPOINT, LOG, version_of
from deltars.protocol.properties import log_retention_ms
from deltars.storage import Storage
from deltars.store.chain.check import check_chain
from deltars.store.database import Database
from deltars.store.history.deletion import ExpiredTransaction, HistoryDeletion
from deltars.store.history.plan import ExpiryPlan, Retention, read_plan
from deltars.store.mirror.checkpoint_state import CheckpointRows
from deltars.store.mirror.status import MirrorState, MirrorStatus

CLEAN_UP = "delta.enableExpiredLogCleanup"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExpiredTable:
    """What an expiry did to a table, or with `dry_run` would do."""

    table: str
    table_id: UUID
    first_version: int
    """First version of the history that is kept."""
    since: datetime | None
    """Time of that version; None if nothing was committed yet."""
    num_expired_versions: int
    kept_versions: tuple[int, ...]
    """Versions before the first one that stay readable, because tags need them."""
    num_log_files: int
    """Deleted files of `_delta_log`; 0 in a dry run."""
    held_by: str | None
    """What keeps versions that are older than the retention, if anything does."""


class Expiry:
    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._database = database
        self._publisher = publisher
        self._rows = CheckpointRows(database)
        self._deletion = HistoryDeletion(database)

    def retention_ms(self, status: MirrorStatus) -> int:
        """Return the table's `delta.logRetentionDuration`, by default 30 days."""
        return log_retention_ms({} if status.current_version < 0 else self._properties(status))

    def plan(self, status: MirrorStatus, retention: Retention) -> ExpiryPlan:
        return read_plan(self._database, status, retention)

    def expire(self, status: MirrorStatus, plan: ExpiryPlan) -> ExpiredTable:
        """Expire what was planned, and what an interrupted run left."""
        # Where tags need every older version, nothing is deleted, but the history begins later all the same.
        if not plan.num_versions and not plan.kept_versions and not self._deletion.is_marked(plan.table_id):
            return as_result(plan, plan.num_versions, 0)
        storage = self._publisher.storage_at(status.location)
        self._refuse_diverged(storage, status)
        base = min((*plan.kept_versions, plan.first_version))
        is_cleaning = status.is_published_to and self._properties(status).get(CLEAN_UP, "true").lower() != "false"
        if is_cleaning:
            self._ensure_checkpoint(storage, status, base)
        has_chain = self._open_chain(status)
        kept = self._deletion.mark(plan.table_id, plan.first_version)
        versions = self._deletion.delete(plan.table_id, kept)
        if has_chain:
            self._publisher.seals.close_base(plan.table_id)
        files = self._clean_up(storage, status, kept[0]) if is_cleaning else 0
        if versions:
            _log.info("table %s: expired %s versions; version %s is the first", status.name, versions, kept[-1])
        return as_result(plan, versions, files)

    def _open_chain(self, status: MirrorStatus) -> bool:
        """Check a table's hash chain before rows that it covers go. Return whether the table has one."""
        seals = self._publisher.seals
        if not seals.has_chain(status.table_id):
            return False
        seals.seal(status.table_id)
        checked = check_chain(self._database, status.table_id)
        broken = [] if checked is None else [one for one in checked.problems if not one.is_unfinished_expiry]
        if broken:
            raise LogDiverged(
                f"the table's hash chain is broken, so nothing is expired: {broken[0].place}: {broken[0].detail}",
                table=status.name,
                hint=f"See all that differs: deltars verify --chain {status.name}",
            )
        self._deletion.check_right()
        seals.open_base(status.table_id)
        return True

    def forget_activity(self, table_id: UUID, before_us: int) -> None:
        """Delete what was recorded of a table before a time, for people: its reads, and the races for it."""
        self._deletion.delete_activity(table_id, before_us)

    def expire_transactions(self, before_us: int) -> int:
        """Delete transactions before a time none of whose versions is left, with their version maps."""
        count = 0
        for expired in self._deletion.expired_transactions(before_us):
            if expired:
                # The maps first: their names are in the rows.
                self._delete_maps(expired)
                self._deletion.delete_transactions(expired)
                count += len(expired)
        return count

    def _refuse_diverged(self, storage: Storage, status: MirrorStatus) -> None:
        """Raise `LogDiverged` if the log contradicts the catalog: a restored database does not know the newest tags."""
        checked = Divergence(self._publisher).check(storage, status, [info.path for info in storage.list(LOG)])
        if checked.state is MirrorState.DIVERGED:
            raise LogDiverged(
                f"the table's log contradicts the catalog, so nothing is expired: {checked.last_error}",
                hint=SEE_WHAT_DIFFERS.format(status.name),
            )

    def _ensure_checkpoint(self, storage: Storage, status: MirrorStatus, version: int) -> None:
        """Write the checkpoint that readers will begin with, unless nothing before it is to be deleted."""
        if not _older(storage, version):
            return
        hint = parse_last_checkpoint(storage.get_or_none(LAST_CHECKPOINT))
        if is_ours(storage, version) and hint is not None and hint.is_ours and hint.version >= version:
            return
        self._publisher.checkpointer.write(storage, status.table_id, version, owner=f"expire:{uuid4()}")

    def _clean_up(self, storage: Storage, status: MirrorStatus, base: int) -> int:
        """Delete the files of the log before a checkpoint. Return how many were deleted."""
        old = _older(storage, base)
        # A table that was dropped meanwhile gets no checkpoint, and keeps its log.
        if not old or self._publisher.status.read(status.table_id).is_dropped:
            return 0
        # A tag that was removed since the plan was made may have moved the first version to keep.
        self._ensure_checkpoint(storage, status, base)
        if not is_ours(storage, base):
            raise StorageError(
                f"{storage.url_of(LOG)} has no checkpoint of version {base}: no file of the log was deleted",
                hint="Run it again.",
            )
        storage.delete(old)
        return len(old)

    def _delete_maps(self, expired: Sequence[ExpiredTransaction]) -> None:
        maps = [version_map_path(one.txn_id) for one in expired if one.is_over_several]
        _, warehouse = self._publisher.records.catalog()
        if maps and warehouse is not None:
            self._publisher.storage_at(warehouse).delete(maps)

    def _properties(self, status: MirrorStatus) -> dict[str, str]:
        return dict(self._rows.at(status.table_id, status.current_version).metadata.configuration)


def as_result(plan: ExpiryPlan, num_versions: int, num_log_files: int) -> ExpiredTable:
    return ExpiredTable(
        table=plan.table,
        table_id=plan.table_id,
        first_version=plan.first_version,
        since=plan.since,
        num_expired_versions=num_versions,
        kept_versions=plan.kept_versions,
        num_log_files=num_log_files,
        held_by=plan.held_by,
    )


def _older(storage: Storage, version: int) -> list[str]:
    """Return the files of the log that belong to versions before this one, oldest first."""
    paths = (info.path for info in storage.list(LOG))
    return sorted(path for path in paths if (of := version_of(path)) is not None and of < version)
