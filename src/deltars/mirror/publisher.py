"""The publisher: writes the committed versions of a table, in order, to its `_delta_log`.

    publish_all ──▶ each table ──▶ pending versions: put-if-absent, one by one ──▶ advance ──▶ checkpoint
                                           │
              the file exists already: the same commit ──▶ continue
                                       another commit  ──▶ DIVERGED, nothing is changed

    one table on a local disk     published in the caller's thread
    several, or an object store   published in threads, and the caller waits up to `wait_s`; in the caller's thread
                                  if no thread can be started

The lease only saves work: it keeps two publishers from writing the same versions. The log stays correct because a
version is written only where no file exists, and only after the version before it. So an expired lease, or a process
that dies between any two steps, does no harm: the next publisher finds the files, recognises its own commits, and
continues.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import UUID

from deltars.errors import DatabaseError, DeltarsError, MirrorFailure
from deltars.mirror.background import Background
from deltars.mirror.checkpoint_schedule import Checkpointer
from deltars.mirror.checksum_state import Checksums
from deltars.mirror.committers import AwaitedVersion, Committers, DueCheckpoint, PublishRun
from deltars.mirror.fast_lane import FastLane
from deltars.mirror.files.commit import (
    Diverged,
    commit_path,
    put_commit,
    put_or_compare,
    rendered,
    require_published,
    set_time,
)
from deltars.mirror.outcome import SEE_WHAT_DIFFERS, MirrorOutcome, Publication, outcome_of
from deltars.mirror.settings_file import SettingsFile
from deltars.mirror.tag_files import TagFiles
from deltars.mirror.warehouse import Warehouse
from deltars.observe import PublicationFailed, VersionPublished, emit
from deltars.protocol.log_files import LOG, checksum_path
from deltars.storage import Storage, open_storage, parse_location
from deltars.store.chain.property import is_chained
from deltars.store.chain.seal import Seals
from deltars.store.commit.next_version import NextVersion
from deltars.store.database import Database
from deltars.store.mirror.lease import new_owner
from deltars.store.mirror.records import MirrorRecords
from deltars.store.mirror.status import Advance, MirrorMode, MirrorState, MirrorStatusStore, Target, mode_of
from deltars.store.read.committed_versions import CommittedVersion, ManyActions

VERSIONS_AT_ONCE = 100
"""How many versions are written before the catalog records them as published."""

STAGED_AT_ONCE = 20
"""How many versions are written and synced together before the first of them gets its name."""

PUTTING_S = 0.1
"""How long versions are written before the catalog records them. Then committers are notified and the lease renewed."""

HAND_OVER_S = 30.0
"""How long a publisher continues with versions of other committers."""

_log = logging.getLogger(__name__)


class _Put(NamedTuple):
    """Commit whose file is in the log now."""

    commit: CommittedVersion
    digest: str
    began_ns: int
    took_s: float


class Publisher:
    """Publisher of the tables of one catalog. Committers and the reconciler share it."""

    def __init__(
        self,
        database: Database,
        storage_options: Mapping[str, str] | None = None,
        *,
        mode: MirrorMode = MirrorMode.INLINE,
        checkpoint_interval: int = 10,
    ) -> None:
        """`mode` and `checkpoint_interval` are defaults for tables that set no property."""
        self.status = MirrorStatusStore(database)
        self._source = database.source
        self._options = storage_options
        self._mode = mode
        self.records = MirrorRecords(database)
        self.warehouse = Warehouse(self.status, self.records, self.storage_at)
        self.tag_files = TagFiles(database, self.records, self.warehouse, self.storage_at)
        self.settings_file = SettingsFile(self.records, self.warehouse, self.storage_at)
        self.checkpointer = Checkpointer(database, self.status, interval=checkpoint_interval)
        self.seals = Seals(database)
        self._checksums = Checksums(database)
        self._fast_lane = FastLane(database.source, self.status, self._checksums, self.storage_at)
        self._background = Background()
        self._committers = Committers(
            self.status, self._background, self._publish_until, self._checkpoint_in_background
        )

    def storage_at(self, location: str) -> Storage:
        return open_storage(location, self._options)

    def publish_all(
        self,
        versions: Mapping[UUID, int],
        *,
        mode: MirrorMode | None = None,
        concurrency: int = 5,
        wait_s: float = 5.0,
        next_version: Callable[[], NextVersion] | None = None,
    ) -> dict[UUID, MirrorOutcome]:
        """Publish each table up to its given version, and return the outcome of each after at most `wait_s`.

        `mode` overrides the mode of the tables and of the catalog. `next_version` makes the only version, if it can
        take the fast lane. What takes longer than `wait_s` continues in the background. Never raises an Exception: the
        transaction is committed already.
        """
        outcomes = {table_id: MirrorOutcome(table_id, Publication.PENDING) for table_id in versions}
        try:
            if mode is MirrorMode.OFF:
                return outcomes
            if next_version is not None:
                new = next_version()
                if (published := self._publish_next(new, mode)) is not None:
                    if is_chained(new.metadata.configuration):
                        self.seal(new.table, published.table_id)
                    return {published.table_id: published}
            targets = self._targets(versions)
            modes = {key: mode or (targets[key].mode if key in targets else None) or self._mode for key in versions}
            if MirrorMode.ASYNC in modes.values():
                self.status.announce()
            inline = {key: version for key, version in versions.items() if modes[key] is MirrorMode.INLINE}
            is_quick = len(inline) == 1 and all(_is_local(targets.get(key)) for key in inline)
            outcomes |= self._committers.serve(inline, concurrency=concurrency, wait_s=wait_s, is_quick=is_quick)
            for key in inline:
                if key in targets and targets[key].is_chained:
                    self.seal(str(key), key)
        except Exception:
            with suppress(Exception):
                _log.exception(
                    "publication failed because of a bug in deltars; the transaction is committed: %s", dict(versions)
                )
        return outcomes

    def _publish_next(self, new: NextVersion, mode: MirrorMode | None) -> MirrorOutcome | None:
        """Publish a version by the fast lane. Return None if that is not its way, or did not succeed."""
        chosen = mode or mode_of(new.metadata.configuration) or self._mode
        # A call to an object store may hang, and the caller waits for `wait_s` at most.
        if chosen is not MirrorMode.INLINE or not parse_location(new.location).is_local:
            return None
        if not self._fast_lane.publish(new):
            return None
        table_id, version = new.commit.table_id, new.commit.version
        if self.checkpointer.is_due(new.metadata, version - 1, version):
            self._checkpoint_in_background(DueCheckpoint(table_id, new.table, new.location, version))
        return MirrorOutcome(table_id, Publication.PUBLISHED, version)

    def publish_pending(
        self, table_id: UUID, *, stop: threading.Event | None = None, checkpoint_in_background: bool = False
    ) -> MirrorOutcome:
        """Publish all pending versions in order, unless another publisher holds the lease; then write a due checkpoint.

        `stop` ends the run early, between two versions, and leaves the rest to the next publisher. With
        `checkpoint_in_background`, return without waiting for the checkpoint, so that versions committed meanwhile can
        be published.
        """
        outcome, run = self._publish_until(table_id, stop=stop)
        if run is not None and (due := run.due_checkpoint) is not None:
            (self._checkpoint_in_background if checkpoint_in_background else self._checkpoint)(due)
        if run is not None and run.status.is_chained:
            self.seal(run.status.name, table_id)
        return outcome

    def seal(self, table: str, table_id: UUID) -> None:
        """Seal the committed versions of a table with a hash chain. What fails is sealed by the next publisher."""
        with _optional("the seal of the newest versions of table %s", table):
            self.seals.seal(table_id)

    def republish(self, table_id: UUID, location: str, version: int) -> bool:
        """Write the missing file of a published commit again. Return False if it exists, or the version is expired."""
        commits = self.status.pending(table_id, version - 1, 1)
        if not commits:
            return False
        [commit] = commits
        storage = self.storage_at(location)
        is_put, _ = put_commit(storage, commit)
        storage.sync_names(LOG)
        set_time(storage, commit)
        return is_put

    def publish_registration(self, table_id: UUID) -> None:
        """Publish a table's current name and location, after the table was created, renamed or dropped.

        Never raises an Exception: the database has both, and the reconciler writes them to a warehouse that was
        unreachable.
        """
        try:
            self.warehouse.publish_registration(table_id)
        except DeltarsError as error:
            _log.warning("the registry entry of table %s was not published: %s", table_id, error)
        except Exception:
            _log.exception("the registry entry of table %s was not published because of a bug in deltars", table_id)

    def publish_tag(self, name: str) -> None:
        """Publish a tag, or delete its file after it was deleted. Never raises an Exception; the reconciler repairs."""
        try:
            self.tag_files.publish(name)
        except DeltarsError as error:
            _log.warning("the tag %s was not published: %s", name, error)
        except Exception:
            _log.exception("the tag %s was not published because of a bug in deltars", name)

    def publish_settings(self) -> None:
        """Publish the settings that the catalog stores. Never raises an Exception; the reconciler repairs."""
        try:
            self.settings_file.publish()
        except DeltarsError as error:
            _log.warning("the settings of the catalog were not published: %s", error)
        except Exception:
            _log.exception("the settings of the catalog were not published because of a bug in deltars")

    def close(self) -> None:
        """Wait until background publications and checkpoints have ended."""
        self._background.wait()

    def _publish_until(
        self,
        table_id: UUID,
        awaited: AwaitedVersion | None = None,
        stop: threading.Event | None = None,
        leave_at: float | None = None,
    ) -> tuple[MirrorOutcome, PublishRun | None]:
        """Publish pending versions under the lease. Return the outcome and the run.

        The run is None if nothing was pending or another publisher holds the lease. With `awaited`, the outcome is that
        of the awaited version; later versions are published too, for at most `HAND_OVER_S`, and then left to the next
        committer. With `leave_at`, stop as soon as the awaited version is published, at that time at the latest, and
        before a commit that takes long to write.
        """
        until = None if awaited is None else awaited.version
        owner = new_owner()
        claimed, status = self.status.claim(table_id, owner)
        if not claimed:
            return outcome_of(status, until), None
        run = PublishRun(status, owner, until, status.published_version, stop or threading.Event(), leave_at)
        try:
            outcome = self._publish(run, self.storage_at(status.location), awaited)
        except Diverged as diverged:
            outcome = self._fail(run, MirrorState.DIVERGED, str(diverged))
        except Exception as error:
            # The transaction is committed whatever happens here, and the failure must be recorded.
            if not isinstance(error, DeltarsError):
                _log.exception("the mirror of table %s stopped because of a bug in deltars", status.name)
            outcome = self._fail(run, MirrorState.FAILED, str(error) or repr(error))
        except BaseException:
            # Ctrl-C in the caller's thread: release, so that other publishers need not wait for the lease to expire.
            with suppress(Exception):
                self.status.release(table_id, owner)
            raise
        return outcome, run

    def _publish(self, run: PublishRun, storage: Storage, awaited: AwaitedVersion | None) -> MirrorOutcome:
        hand_over_at = time.monotonic() + HAND_OVER_S
        require_published(storage, run.published)
        while True:
            commits = self._next(run)
            if run.leave_at is not None and isinstance(commits[0].actions, ManyActions):
                return self._leave(run)
            there, problem = self._put_some(storage, commits, run)
            if there:
                # One sync for all of them, before the catalog records them: a version recorded as published survives a
                # power cut.
                storage.sync_names(LOG)
                commits = [put.commit for put in there]
                checksum = self._checksums.after(storage, commits)
                with _optional("the checksum of version %s of table %s", checksum.version, run.status.name):
                    storage.put_if_absent(checksum_path(checksum.version), checksum.to_json(), sync_name=False)
                noted = self.status.advance(
                    run.table_id, run.owner, [(put.commit.version, put.digest) for put in there]
                )
                for put in there:
                    # A publisher that took the lease over has reported the versions that it recorded.
                    if noted.before < put.commit.version <= noted.published:
                        self._report(run, put, noted.now)
                if self.checkpointer.is_due(checksum.metadata, run.published, checksum.version):
                    run.checkpoint = checksum.version
                run.published = noted.published
                self.warehouse.publish_version_maps(commits)
                if awaited is not None:
                    awaited.note(run.published)
                if noted.step is Advance.LOST:
                    return outcome_of(self.status.read(run.table_id), run.until)
                if noted.step is Advance.DONE:
                    break
            if problem is not None:
                raise problem
            is_over = time.monotonic() > hand_over_at
            # A busy table never runs out of versions: let another publisher continue, and write the due checkpoint.
            if run.stop.is_set() or (is_over and (run.is_served or run.checkpoint is not None)):
                self.status.release(run.table_id, run.owner)
                return outcome_of(self.status.read(run.table_id), run.until)
            if run.leave_at is not None and (run.is_served or time.monotonic() > run.leave_at):
                return self._leave(run)
        return MirrorOutcome(run.table_id, Publication.PUBLISHED, run.published)

    def _leave(self, run: PublishRun) -> MirrorOutcome:
        self.status.release(run.table_id, run.owner)
        run.is_left = True
        publication = Publication.PUBLISHED if run.is_served else Publication.PENDING
        return MirrorOutcome(run.table_id, publication, run.published)

    def _put_some(
        self, storage: Storage, commits: Sequence[CommittedVersion], run: PublishRun
    ) -> tuple[list[_Put], Exception | None]:
        """Write commits until one fails or the time is up. Return those that are in the log, and the error, if any."""
        there: list[_Put] = []
        stop_at = time.monotonic() + PUTTING_S
        for first in range(0, len(commits), STAGED_AT_ONCE):
            some = commits[first : first + STAGED_AT_ONCE]
            contents = rendered(some) if len(some) > 1 else {}
            try:
                with storage.staged(contents):
                    for commit in some:
                        run.putting = commit
                        began_ns, began = time.time_ns(), time.perf_counter()
                        digest = self._put(storage, commit, contents.get(commit_path(commit.version)))
                        there.append(_Put(commit, digest, began_ns, time.perf_counter() - began))
                        if run.stop.is_set() or time.monotonic() > stop_at:
                            return there, None
            except (DeltarsError, Diverged) as problem:
                return there, problem
        return there, None

    def _report(self, run: PublishRun, put: _Put, now: int) -> None:
        commit = put.commit
        lag_s = max(0, now - commit.commit_ts) / 1_000_000
        name = run.status.name
        emit(VersionPublished(self._source, commit.txn_id, name, commit.version, put.began_ns, put.took_s, lag_s))

    def _put(self, storage: Storage, commit: CommittedVersion, data: bytes | None) -> str:
        digest = put_or_compare(storage, commit, data)
        if commit.version == 0:
            self.publish_registration(commit.table_id)
        return digest

    def _checkpoint_in_background(self, due: DueCheckpoint) -> None:
        """Write the checkpoint in another thread: neither the committer nor the next table should wait for a large one.

        A table that commits faster than its checkpoints are written gets only the last due one.
        """
        if not self._background.start(due.table_id, self._checkpoint, due):
            _log.warning(
                "the checkpoint of version %s of table %s is left to the reconciler: no thread could be started for it",
                due.version,
                due.table,
            )

    def _checkpoint(self, first: DueCheckpoint) -> None:
        """Write the due checkpoint, then publish what was committed while it held the lease."""
        due: DueCheckpoint | None = first
        while due is not None and not due.stop.is_set():
            try:
                storage = self.storage_at(due.location)
                is_pending = self.checkpointer.try_write(storage, due.table_id, due.version, new_owner())
                after = self._publish_until(due.table_id, stop=due.stop)[1] if is_pending else None
                due = None if after is None else after.due_checkpoint
            except DeltarsError as error:
                _log.warning("table %s was not published after its checkpoint: %s", first.table, error)
                return
            except Exception:
                _log.exception("the checkpoint of table %s failed because of a bug in deltars", first.table)
                return

    def _targets(self, table_ids: Mapping[UUID, int]) -> Mapping[UUID, Target]:
        try:
            return self.status.targets(table_ids)
        except Exception as error:
            _log.warning("the mirror modes of the tables could not be read: %s", error)
            return {}

    def _next(self, run: PublishRun) -> list[CommittedVersion]:
        # Fetch what was pending at the claim, most often one version. What was committed since is not counted.
        known = run.status.current_version - run.published
        limit = min(known, VERSIONS_AT_ONCE) if known > 0 else VERSIONS_AT_ONCE
        commits = self.status.pending(run.table_id, run.published, limit)
        if not commits or commits[-1].version != run.published + len(commits):
            raise DatabaseError(
                "the catalog lacks versions that should be published", table_id=run.table_id, version=run.published + 1
            )
        return commits

    def _fail(self, run: PublishRun, state: MirrorState, error: str) -> MirrorOutcome:
        table_id, name = run.status.table_id, run.status.name
        version, at = run.published + 1, run.putting
        txn_id = at.txn_id if at is not None and at.version == version else None
        hint = SEE_WHAT_DIFFERS.format(name) if state is MirrorState.DIVERGED else None
        failure = MirrorFailure(error=error, table=name, table_id=table_id, version=version, txn_id=txn_id, hint=hint)
        emit(PublicationFailed(self._source, txn_id, name, version, state.value, failure))
        try:
            self.status.fail(table_id, run.owner, state, error)
        except Exception as unreachable:
            _log.warning("the failed publication could not be recorded in the catalog: %s", unreachable)
        if run.is_served:
            return MirrorOutcome(table_id, Publication.PUBLISHED, run.published)
        return MirrorOutcome(table_id, Publication.FAILED, run.published, failure)


@contextmanager
def _optional(what: str, *which: object) -> Iterator[None]:
    """Write a file that readers do not need: log a failure and continue publishing."""
    try:
        yield
    except DeltarsError as error:
        _log.warning(f"{what} was not written: %s", *which, error)


def _is_local(target: Target | None) -> bool:
    return target is not None and parse_location(target.location).is_local
