"""Publishing: the committed versions of a table, in order, to its `_delta_log`.

    publish_all ──▶ drain, a thread a table ──▶ pending versions: put-if-absent, one by one ──▶ advance ──▶ checkpoint
                                                  │
                     there is a file already: the same commit ──▶ go on
                                              another ──▶ DIVERGED, nothing is touched

The lease keeps publishers out of each other's way. What keeps the log right is that a version is put only
where there is none, and only after the one before it. So a lease that expires, or a process that dies between
any two steps, does no harm: the next drain finds the files, sees that they are the same commits, and goes on.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID, uuid4

from deltars.errors import DatabaseError, DeltarsError, MirrorFailure, StorageError
from deltars.mirror.behind import Behind
from deltars.mirror.checkpointer import Checkpointer
from deltars.mirror.checksum import checksum_path
from deltars.mirror.checksums import Checksums
from deltars.mirror.commit_file import put_commit
from deltars.mirror.commit_json import LOG, commit_path, is_same_commit, render_commit
from deltars.mirror.outcome import SEE_WHAT_DIFFERS, MirrorOutcome, Publication, outcome_of
from deltars.mirror.warehouse import Warehouse
from deltars.observe import PublicationFailed, VersionPublished, emit
from deltars.storage import Storage, open_storage
from deltars.store.changes import CommittedVersion
from deltars.store.database import Database
from deltars.store.mirror_records import MirrorRecords
from deltars.store.mirror_status import (
    LEASE_S,
    Advance,
    MirrorMode,
    MirrorState,
    MirrorStatus,
    MirrorStatusStore,
)

VERSIONS_AT_ONCE = 100
"""How many are put before the catalog is told."""

PUTTING_S = 1.0
"""And for how long: whoever waits for one of them hears of it then, and the lease is renewed."""

MOVED = "Was the table's directory moved, deleted or not mounted? Nothing is written there until it is back."

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Drain:
    """One run of `drain`: whose lease, what for, how far."""

    status: MirrorStatus
    owner: str
    until: int | None
    published: int
    stop: threading.Event
    checkpoint: int | None = None
    """The published version that a checkpoint is due of."""
    putting: CommittedVersion | None = None
    """The version that was being put last."""

    @property
    def table_id(self) -> UUID:
        return self.status.table_id


class _Put(NamedTuple):
    """A commit that is there now."""

    commit: CommittedVersion
    digest: str
    began_ns: int
    took_s: float


class _Diverged(Exception):
    """There is another commit where ours should be."""


class Publisher:
    def __init__(
        self,
        database: Database,
        storage_options: Mapping[str, str] | None = None,
        *,
        mode: MirrorMode = MirrorMode.INLINE,
        checkpoint_interval: int = 10,
    ) -> None:
        """`mode` and `checkpoint_interval` are for tables that say nothing of their own."""
        self.status = MirrorStatusStore(database)
        self._source = database.source
        self._options = storage_options
        self._mode = mode
        self.records = MirrorRecords(database)
        self.warehouse = Warehouse(self.status, self.records, self.storage_at)
        self.checkpointer = Checkpointer(database, self.status, interval=checkpoint_interval)
        self._checksums = Checksums(database)
        self._behind = Behind()

    def storage_at(self, location: str) -> Storage:
        return open_storage(location, self._options)

    def publish_all(
        self,
        versions: Mapping[UUID, int],
        *,
        mode: MirrorMode | None = None,
        concurrency: int = 5,
        wait_s: float = 5.0,
    ) -> dict[UUID, MirrorOutcome]:
        """Publish each table up to the version given, and say how far that got within `wait_s`.

        `mode` is the caller's wish, before the tables' own and the catalog's. What takes longer goes on behind the
        caller's back. Nothing is raised: the commits stand.
        """
        outcomes = {table_id: MirrorOutcome(table_id, Publication.PENDING) for table_id in versions}
        if not versions:
            return outcomes
        try:
            modes = dict.fromkeys(versions, mode) if mode else self.status.modes(versions)
        except DeltarsError as error:
            _log.warning("the mirror could not ask who publishes: %s", error)
            modes = {}
        chosen = {table_id: modes.get(table_id) or self._mode for table_id in versions}
        inline = [table_id for table_id in versions if chosen[table_id] is MirrorMode.INLINE]
        if MirrorMode.ASYNC in chosen.values():
            self.status.announce()
        if not inline:
            return outcomes
        deadline = time.monotonic() + wait_s
        answers: dict[UUID, Future[MirrorOutcome]] = {table_id: Future() for table_id in inline}
        pool = ThreadPoolExecutor(min(concurrency, len(inline)), thread_name_prefix="deltars-mirror")
        for table_id in inline:
            job = pool.submit(self._follow, table_id, versions[table_id], deadline, answers[table_id])
            self._behind.add(job)
        pool.shutdown(wait=False)
        wait(answers.values(), timeout=wait_s)
        return outcomes | {table_id: answer.result() for table_id, answer in answers.items() if answer.done()}

    def drain(
        self, table_id: UUID, *, stop: threading.Event | None = None, checkpoint_behind: bool = False
    ) -> MirrorOutcome:
        """Publish everything that is pending, in order, unless somebody else is at it; then the checkpoint, if due.

        `stop` ends it early, between two versions; the rest is left to whoever comes next. With `checkpoint_behind` a
        checkpoint is not waited for: what is committed meanwhile can be published.
        """
        outcome, checkpoint = self._drain(table_id, stop=stop)
        if checkpoint is not None:
            (self._checkpoint_behind if checkpoint_behind else self._checkpoint)(checkpoint)
        return outcome

    def republish(self, table_id: UUID, location: str, version: int) -> bool:
        """Put a published commit back where its file is missing; False if there is one after all."""
        [commit] = self.status.pending(table_id, version - 1, 1)
        storage = self.storage_at(location)
        is_put, _ = put_commit(storage, commit)
        storage.sync_names(LOG)
        _set_time(storage, commit)
        return is_put

    def publish_registration(self, table_id: UUID) -> None:
        """Publish a table's name and location as they are now: after it was created, renamed or dropped."""
        self.warehouse.publish_registration(table_id)

    def close(self) -> None:
        """Wait for what is being published or written behind the callers' backs."""
        self._behind.wait()

    def _drain(
        self,
        table_id: UUID,
        until: int | None = None,
        on_published: Callable[[int], None] | None = None,
        stop: threading.Event | None = None,
    ) -> tuple[MirrorOutcome, _Drain | None]:
        """What became of it, and the run if it calls for a checkpoint.

        With `until`, a caller's own version, the outcome is about that one; versions of others that keep
        coming are published with it for a while, and then left to whoever commits next.
        """
        owner = _new_owner()
        claimed, status = self.status.claim(table_id, owner)
        if not claimed:
            return outcome_of(status, until), None
        run = _Drain(status, owner, until, status.published_version, stop or threading.Event())
        try:
            outcome = self._publish(run, self.storage_at(status.location), on_published)
        except _Diverged as diverged:
            outcome = self._fail(run, MirrorState.DIVERGED, str(diverged))
        except Exception as error:
            # Whatever it is, the commit stands, and the failure must be noted.
            if not isinstance(error, DeltarsError):
                _log.exception("a defect stopped the mirror of table %s", status.name)
            outcome = self._fail(run, MirrorState.FAILED, str(error))
        return outcome, run if run.checkpoint is not None else None

    def _publish(self, run: _Drain, storage: Storage, on_published: Callable[[int], None] | None) -> MirrorOutcome:
        hand_over_at = time.monotonic() + LEASE_S
        _see_published(storage, run.published)
        while True:
            there, problem = self._put_some(storage, self._next(run), run)
            if there:
                # Once for all of them, and before the catalog is told: what it has as published outlasts a power cut.
                storage.sync_names(LOG)
                commits = [put.commit for put in there]
                checksum = self._checksums.after(storage, commits)
                with _told("the checksum of version %s of table %s", checksum.version, run.status.name):
                    storage.put_if_absent(checksum_path(checksum.version), checksum.to_json(), sync_name=False)
                step, now = self.status.advance(
                    run.table_id, run.owner, [(put.commit.version, put.digest) for put in there]
                )
                if step is Advance.LOST:
                    return outcome_of(self.status.read(run.table_id), run.until)
                for put in there:
                    self._tell(run, put, now)
                if self.checkpointer.is_due(checksum.metadata, run.published, checksum.version):
                    run.checkpoint = checksum.version
                run.published = checksum.version
                self.warehouse.publish_version_maps(commits)
                if on_published is not None:
                    on_published(run.published)
                if step is Advance.DONE:
                    break
            if problem is not None:
                raise problem
            # A hot table never runs out of versions: let somebody else go on, and see to what is due.
            is_served = run.until is not None and run.published >= run.until
            if run.stop.is_set() or ((is_served or run.checkpoint is not None) and time.monotonic() > hand_over_at):
                self.status.release(run.table_id, run.owner)
                return outcome_of(self.status.read(run.table_id), run.until)
        return MirrorOutcome(run.table_id, Publication.PUBLISHED, run.published)

    def _put_some(
        self, storage: Storage, commits: Sequence[CommittedVersion], run: _Drain
    ) -> tuple[list[_Put], Exception | None]:
        """The first of these commits, which are there now; and what kept out the next one."""
        there: list[_Put] = []
        stop_at = time.monotonic() + PUTTING_S
        for commit in commits:
            run.putting = commit
            began_ns, began = time.time_ns(), time.perf_counter()
            try:
                digest = self._put(storage, commit)
            except (DeltarsError, _Diverged) as problem:
                return there, problem
            there.append(_Put(commit, digest, began_ns, time.perf_counter() - began))
            if run.stop.is_set() or time.monotonic() > stop_at:
                break
        return there, None

    def _tell(self, run: _Drain, put: _Put, now: int) -> None:
        commit = put.commit
        lag_s = max(0, now - commit.commit_ts) / 1_000_000
        name = run.status.name
        emit(VersionPublished(self._source, commit.txn_id, name, commit.version, put.began_ns, put.took_s, lag_s))

    def _put(self, storage: Storage, commit: CommittedVersion) -> str:
        """Put a commit where there is none, and answer the digest of what is there."""
        is_put, digest = put_commit(storage, commit)
        if not is_put:
            path = commit_path(commit.version)
            there = storage.get(path)
            ours, digest = digest, sha256(there).hexdigest()
            if digest != ours and not is_same_commit(render_commit(commit), there):
                raise _Diverged(f"{storage.url_of(path)} is there and is another commit")
        _set_time(storage, commit)
        if commit.version == 0:
            with _told("the entry of table %s", commit.table_id):
                self.publish_registration(commit.table_id)
        return digest

    def _checkpoint_behind(self, run: _Drain) -> None:
        """In a thread of its own: a large one must keep neither the committer nor the next table waiting.

        A table that is faster than its checkpoints gets the last that was due, and none of those between.
        """
        self._behind.start(run.table_id, self._checkpoint, run)

    def _checkpoint(self, run: _Drain) -> None:
        """Write the checkpoint that is due; and what was committed while the lease was held for it."""
        due: _Drain | None = run
        while due is not None and not due.stop.is_set():
            assert due.checkpoint is not None
            try:
                storage = self.storage_at(due.status.location)
                waits = self.checkpointer.try_write(storage, due.table_id, due.checkpoint, due.owner)
                due = self._drain(due.table_id, stop=due.stop)[1] if waits else None
            except DeltarsError as error:
                _log.warning("table %s was not looked after, after its checkpoint: %s", run.status.name, error)
                return
            except Exception:
                _log.exception("a defect stopped the checkpoint of table %s", run.status.name)
                return

    def _follow(self, table_id: UUID, version: int, deadline: float, answer: Future[MirrorOutcome]) -> None:
        """Answer when `version` is published, by us or by others, or failed, or the deadline is over."""

        def note(published: int) -> None:
            if published >= version and not answer.done():
                answer.set_result(MirrorOutcome(table_id, Publication.PUBLISHED, published))

        due = None
        try:
            outcome, due = self._drain(table_id, version, note)
            while outcome.publication is Publication.PENDING and time.monotonic() < deadline:
                time.sleep(random.uniform(0.005, 0.03))
                # Looked at without a lock, so as not to be in the way of whoever is at it.
                status = self.status.read(table_id)
                if status.is_leased:
                    outcome = outcome_of(status, version)
                else:
                    outcome, due = self._drain(table_id, version, note)
        except Exception as error:
            _log.warning("the mirror could not look after table %s: %s", table_id, error)
            failure = MirrorFailure(error=str(error), table_id=table_id, version=version)
            outcome = MirrorOutcome(table_id, Publication.FAILED, failure=failure)
        if due is not None:
            self._checkpoint_behind(due)
        if not answer.done():
            answer.set_result(outcome)

    def _next(self, run: _Drain) -> list[CommittedVersion]:
        # What was pending at the claim is most often one version; what came since is not known.
        known = run.status.current_version - run.published
        limit = min(known, VERSIONS_AT_ONCE) if known > 0 else VERSIONS_AT_ONCE
        commits = self.status.pending(run.table_id, run.published, limit)
        if not commits or commits[-1].version != run.published + len(commits):
            raise DatabaseError(
                "versions are missing from the catalog", table_id=run.table_id, version=run.published + 1
            )
        return commits

    def _fail(self, run: _Drain, state: MirrorState, error: str) -> MirrorOutcome:
        table_id, name = run.status.table_id, run.status.name
        version, at = run.published + 1, run.putting
        txn_id = at.txn_id if at is not None and at.version == version else None
        hint = SEE_WHAT_DIFFERS.format(name) if state is MirrorState.DIVERGED else None
        failure = MirrorFailure(error=error, table=name, table_id=table_id, version=version, txn_id=txn_id, hint=hint)
        emit(PublicationFailed(self._source, txn_id, name, version, state.value, failure))
        try:
            self.status.fail(table_id, run.owner, state, error)
        except DeltarsError as unreachable:
            _log.warning("the failure could not be noted in the catalog: %s", unreachable)
        if run.until is not None and run.published >= run.until:
            return MirrorOutcome(table_id, Publication.PUBLISHED, run.published)
        return MirrorOutcome(table_id, Publication.FAILED, run.published, failure)


@contextmanager
def _told(what: str, *which: object) -> Iterator[None]:
    """What readers can do without: if it fails, that is said, and publishing goes on."""
    try:
        yield
    except DeltarsError as error:
        _log.warning(f"{what} was not written: %s", *which, error)


def _see_published(storage: Storage, version: int) -> None:
    """A version is put only after the one before it was seen: a log that begins in the middle is nobody's table."""
    if version >= 0 and not storage.exists(commit_path(version)):
        raise StorageError(
            f"the published version {version} is not there: {storage.url_of(commit_path(version))}",
            path=commit_path(version),
            retryable=True,
            hint=MOVED,
        )


def _set_time(storage: Storage, commit: CommittedVersion) -> None:
    # deltalake takes the file's time for the commit's. Only the file's owner may set it.
    with suppress(StorageError):
        storage.set_modified_ms(commit_path(commit.version), commit.in_commit_timestamp)


def _new_owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4()}"
