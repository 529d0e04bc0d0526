"""Publishing: the committed versions of a table, in order, to its `_delta_log`.

    publish_all ──▶ drain, a thread a table ──▶ for each pending version: put-if-absent ──▶ advance
                                                  │
                     there is a file already: the same commit ──▶ advance
                                              another ──▶ DIVERGED, nothing is touched

The lease keeps publishers out of each other's way. What keeps the log right is that a version is put only
where there is none, and only after the one before it. So a lease that expires, or a process that dies between
any two steps, does no harm: the next drain finds the file, sees that it is the same commit, and goes on.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from uuid import UUID, uuid4

from deltars.errors import DatabaseError, DeltarsError, MirrorFailure, StorageError
from deltars.mirror.commit_json import commit_path, is_same_commit, render_commit
from deltars.mirror.warehouse import (
    registration_path,
    render_registration,
    render_version_map,
    version_map_path,
)
from deltars.storage import Storage, open_storage
from deltars.store.database import Database
from deltars.store.mirror_status import (
    LEASE_S,
    Advance,
    CommittedVersion,
    MirrorState,
    MirrorStatus,
    MirrorStatusStore,
)

VERSIONS_AT_ONCE = 20

_log = logging.getLogger(__name__)


class Publication(StrEnum):
    """What became of a version that should be published."""

    PUBLISHED = "published"
    PENDING = "pending"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MirrorOutcome:
    table_id: UUID
    publication: Publication
    published_version: int | None = None
    """The last version known to be published; None where that was not learnt in time."""
    failure: MirrorFailure | None = None


@dataclass(slots=True)
class _Drain:
    """One run of `drain`: whose lease, what for, how far."""

    status: MirrorStatus
    owner: str
    until: int | None
    published: int


class Publisher:
    def __init__(self, database: Database, storage_options: Mapping[str, str] | None = None) -> None:
        self.status = MirrorStatusStore(database)
        self._options = storage_options

    def publish_all(
        self, versions: Mapping[UUID, int], *, concurrency: int = 5, wait_s: float = 5.0
    ) -> dict[UUID, MirrorOutcome]:
        """Publish each table up to the version given, and say how far that got within `wait_s`.

        What takes longer goes on behind the caller's back. Nothing is raised: the commits stand.
        """
        if not versions:
            return {}
        deadline = time.monotonic() + wait_s
        answers: dict[UUID, Future[MirrorOutcome]] = {table_id: Future() for table_id in versions}
        pool = ThreadPoolExecutor(min(concurrency, len(versions)), thread_name_prefix="deltars-mirror")
        for table_id, version in versions.items():
            pool.submit(self._follow, table_id, version, deadline, answers[table_id])
        pool.shutdown(wait=False)
        wait(answers.values(), timeout=wait_s)
        return {
            table_id: answer.result() if answer.done() else MirrorOutcome(table_id, Publication.PENDING)
            for table_id, answer in answers.items()
        }

    def drain(
        self, table_id: UUID, *, until: int | None = None, on_published: Callable[[int], None] | None = None
    ) -> MirrorOutcome:
        """Publish everything that is pending, in order, unless somebody else is at it.

        With `until`, a caller's own version, the outcome is about that one; versions of others that keep
        coming are published with it for a while, and then left to whoever commits next.
        """
        owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4()}"
        claimed, status = self.status.claim(table_id, owner)
        if not claimed:
            return _outcome(status, until)
        run = _Drain(status, owner, until, status.published_version)
        hand_over_at = time.monotonic() + LEASE_S
        try:
            storage = open_storage(status.location, self._options)
            for commit in self._versions(table_id, after=run.published):
                digest = self._put(storage, commit)
                if digest is None:
                    file = storage.url_of(commit_path(commit.version))
                    return self._fail(run, MirrorState.DIVERGED, f"{file} is there and is another commit")
                step = self.status.advance(table_id, owner, commit.version, digest)
                if step is Advance.LOST:
                    return _outcome(self.status.read(table_id), until)
                run.published = commit.version
                self._put_version_map(commit)
                if on_published is not None:
                    on_published(commit.version)
                if step is Advance.DONE:
                    break
                if until is not None and run.published >= until and time.monotonic() > hand_over_at:
                    self.status.release(table_id, owner)
                    break
            return MirrorOutcome(table_id, Publication.PUBLISHED, run.published)
        except Exception as error:
            # Whatever it is, the commit stands, and the failure must be noted.
            if not isinstance(error, DeltarsError):
                _log.exception("a defect stopped the mirror of table %s", status.name)
            return self._fail(run, MirrorState.FAILED, str(error))

    def publish_registration(self, table_id: UUID) -> None:
        """Publish a table's name and location as they are now: after it was created, renamed or dropped."""
        entry = self.status.registration(table_id)
        if entry.warehouse is not None:
            warehouse = open_storage(entry.warehouse, self._options)
            warehouse.put(registration_path(table_id), render_registration(entry))

    def _follow(self, table_id: UUID, version: int, deadline: float, answer: Future[MirrorOutcome]) -> None:
        """Answer when `version` is published, by us or by others, or failed, or the deadline is over."""

        def note(published: int) -> None:
            if published >= version and not answer.done():
                answer.set_result(MirrorOutcome(table_id, Publication.PUBLISHED, published))

        try:
            outcome = self.drain(table_id, until=version, on_published=note)
            while outcome.publication is Publication.PENDING and time.monotonic() < deadline:
                time.sleep(random.uniform(0.005, 0.03))
                # Looked at without a lock, so as not to be in the way of whoever is at it.
                status = self.status.read(table_id)
                if status.is_leased:
                    outcome = _outcome(status, version)
                else:
                    outcome = self.drain(table_id, until=version, on_published=note)
        except Exception as error:
            _log.warning("the mirror could not look after table %s: %s", table_id, error)
            failure = MirrorFailure(error=str(error), table_id=table_id, version=version)
            outcome = MirrorOutcome(table_id, Publication.FAILED, failure=failure)
        if not answer.done():
            answer.set_result(outcome)

    def _versions(self, table_id: UUID, after: int) -> Iterator[CommittedVersion]:
        """Version after version, without end: the caller knows when the last one was published."""
        while True:
            commits = self.status.pending(table_id, after, VERSIONS_AT_ONCE)
            if not commits or commits[-1].version != after + len(commits):
                raise DatabaseError("versions are missing from the catalog", table_id=table_id, version=after + 1)
            yield from commits
            after = commits[-1].version

    def _put(self, storage: Storage, commit: CommittedVersion) -> str | None:
        """The digest of the published file; None if another file has its name."""
        path, data = commit_path(commit.version), render_commit(commit)
        if not storage.put_if_absent(path, data):
            there = storage.get(path)
            if not is_same_commit(data, there):
                return None
            data = there
        # deltalake takes the file's time for the commit's. Only the file's owner may set it.
        with suppress(StorageError):
            storage.set_modified_ms(path, commit.in_commit_timestamp)
        if commit.version == 0:
            self.publish_registration(commit.table_id)
        return sha256(data).hexdigest()

    def _put_version_map(self, commit: CommittedVersion) -> None:
        """After the last table of a transaction over several."""
        if len(commit.participants) < 2:
            return
        try:
            tables = self.status.read_all(map(UUID, sorted(commit.participants)))
            published = all(t.published_version >= commit.participants[str(t.table_id)] for t in tables)
            warehouse = self.status.registration(commit.table_id).warehouse
            if published and warehouse is not None:
                storage = open_storage(warehouse, self._options)
                storage.put_if_absent(version_map_path(commit.txn_id), render_version_map(commit, tables))
        except DeltarsError as error:
            _log.warning("the version map of transaction %s was not published: %s", commit.txn_id, error)

    def _fail(self, run: _Drain, state: MirrorState, error: str) -> MirrorOutcome:
        table_id, name = run.status.table_id, run.status.name
        failure = MirrorFailure(error=error, table=name, table_id=table_id, version=run.published + 1)
        _log.error("%s", failure)
        try:
            self.status.fail(table_id, run.owner, state, error)
        except DeltarsError as unreachable:
            _log.warning("the failure could not be noted in the catalog: %s", unreachable)
        if run.until is not None and run.published >= run.until:
            return MirrorOutcome(table_id, Publication.PUBLISHED, run.published)
        return MirrorOutcome(table_id, Publication.FAILED, run.published, failure)


def _outcome(status: MirrorStatus, until: int | None) -> MirrorOutcome:
    if status.published_version >= (status.current_version if until is None else until):
        return MirrorOutcome(status.table_id, Publication.PUBLISHED, status.published_version)
    if status.state is not MirrorState.DIVERGED:
        return MirrorOutcome(status.table_id, Publication.PENDING, status.published_version)
    failure = MirrorFailure(
        error=status.last_error or "the log diverged",
        table=status.name,
        table_id=status.table_id,
        version=status.published_version + 1,
    )
    return MirrorOutcome(status.table_id, Publication.FAILED, status.published_version, failure)
