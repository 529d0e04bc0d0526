"""Committers: each waits until its own version is published.

    one table on a local disk     ──▶ published in the committer's thread; what remains ──▶ another thread
    several, or an object store   ──▶ one thread per table, a few at a time; the committer waits until its deadline
    no thread can be started      ──▶ published in the committer's thread, one table after the other

Nothing here raises an Exception: the transaction is committed already.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from deltars.errors import MirrorFailure
from deltars.mirror.background import Background
from deltars.mirror.outcome import MirrorOutcome, Publication, outcome_of
from deltars.observe import error_fields
from deltars.store.mirror import lease
from deltars.store.mirror.status import MirrorStatus, MirrorStatusStore
from deltars.store.read.committed_versions import CommittedVersion

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DueCheckpoint:
    """Published version that needs a checkpoint."""

    table_id: UUID
    table: str
    location: str
    version: int
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class PublishRun:
    """One run of a publisher over one table: its lease, its goal and its progress."""

    status: MirrorStatus
    """Status at the claim of the lease."""
    owner: str
    """Name under which the run holds the lease."""
    until: int | None
    """Version that a committer waits for; None if no committer waits."""
    published: int
    """Last version that is published."""
    stop: threading.Event
    leave_at: float | None
    """Time at which the committer leaves the rest to a background thread; None in such a thread."""
    checkpoint: int | None = None
    """Version that needs a checkpoint."""
    putting: CommittedVersion | None = None
    """Commit that was written last, or was being written when the run failed."""
    is_left: bool = False
    """Whether versions were left to a background thread."""

    @property
    def table_id(self) -> UUID:
        return self.status.table_id

    @property
    def due_checkpoint(self) -> DueCheckpoint | None:
        if self.checkpoint is None:
            return None
        return DueCheckpoint(self.table_id, self.status.name, self.status.location, self.checkpoint, self.stop)

    @property
    def is_served(self) -> bool:
        """Whether the awaited version is published."""
        return self.until is not None and self.published >= self.until


@dataclass(frozen=True, slots=True)
class AwaitedVersion:
    """Version that a committer waits for."""

    table_id: UUID
    version: int
    deadline: float
    answer: Future[MirrorOutcome]

    def note(self, published: int) -> None:
        """Settle the version if it is published."""
        if published >= self.version:
            self.settle(MirrorOutcome(self.table_id, Publication.PUBLISHED, published))

    def settle(self, outcome: MirrorOutcome) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)


class PublishUntil(Protocol):
    def __call__(
        self, table_id: UUID, awaited: AwaitedVersion, *, leave_at: float | None = None
    ) -> tuple[MirrorOutcome, PublishRun | None]: ...


class Committers:
    """Publication on behalf of committers, each of which waits for its own version."""

    def __init__(
        self,
        status: MirrorStatusStore,
        background: Background,
        publish_until: PublishUntil,
        checkpoint_in_background: Callable[[DueCheckpoint], None],
    ) -> None:
        self._status = status
        self._background = background
        self._publish_until = publish_until
        self._checkpoint_in_background = checkpoint_in_background

    def serve(
        self, versions: Mapping[UUID, int], *, concurrency: int, wait_s: float, is_quick: bool
    ) -> dict[UUID, MirrorOutcome]:
        """Publish each table up to its version. Return the outcomes that are known after `wait_s`.

        `is_quick` says that no call to the storage is expected to hang, so the caller's thread may publish.
        """
        deadline = time.monotonic() + wait_s
        awaited_versions = [
            AwaitedVersion(table_id, version, deadline, Future()) for table_id, version in versions.items()
        ]
        if is_quick or not self._serve_in_threads(awaited_versions, concurrency):
            for awaited in awaited_versions:
                self._serve_here(awaited)
        return {awaited.table_id: awaited.answer.result() for awaited in awaited_versions if awaited.answer.done()}

    def _serve_in_threads(self, awaited_versions: Sequence[AwaitedVersion], concurrency: int) -> bool:
        """Publish in threads, and wait. Return False if no thread can be started."""
        waiting = deque(awaited_versions)

        def work() -> None:
            while True:
                try:
                    awaited = waiting.popleft()
                except IndexError:
                    return
                self._serve(awaited)

        workers = range(min(concurrency, len(awaited_versions)))
        started = [self._background.spawn(work, f"deltars-mirror-{number}") for number in workers]
        if awaited_versions and not any(started):
            return False
        wait(
            [awaited.answer for awaited in awaited_versions],
            timeout=max(0.0, awaited_versions[0].deadline - time.monotonic()) if awaited_versions else 0,
        )
        return True

    def _serve_here(self, awaited: AwaitedVersion) -> None:
        """Publish in the caller's thread until the deadline. Then continue in a background thread, if one starts."""
        if not self._serve(awaited, leave_at=awaited.deadline):
            return
        if self._background.spawn(lambda: self._serve(awaited), "deltars-mirror"):
            wait([awaited.answer], timeout=max(0.0, awaited.deadline - time.monotonic()))
        elif not awaited.answer.done() and time.monotonic() < awaited.deadline:
            self._serve(awaited)

    def _serve(self, awaited: AwaitedVersion, leave_at: float | None = None) -> bool:
        """Settle the awaited version when any publisher has published it, when that failed, or at the deadline.

        Return whether versions were left to a background thread.
        """
        table_id, version = awaited.table_id, awaited.version
        run: PublishRun | None = None
        polls = lease.polls()
        try:
            outcome, run = self._publish_until(table_id, awaited, leave_at=leave_at)
            while outcome.publication is Publication.PENDING and time.monotonic() < awaited.deadline:
                if run is not None and run.is_left:
                    break
                polls.sleep()
                # Read without a lock, so as not to slow down the publisher that holds the lease.
                status = self._status.read(table_id)
                if status.is_leased:
                    outcome = outcome_of(status, version)
                else:
                    outcome, run = self._publish_until(table_id, awaited, leave_at=leave_at)
            if run is None and outcome.failure is not None:
                # A run logs its own failures.
                _log.warning("%s", outcome.failure, extra=error_fields(outcome.failure))
            if run is not None and (due := run.due_checkpoint) is not None:
                self._checkpoint_in_background(due)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # BaseException, because a panic in a native library is no Exception.
            failure = MirrorFailure(error=str(error) or repr(error), table_id=table_id, version=version)
            with suppress(Exception):
                _log.warning("table %s was not published: %r", table_id, error)
            outcome = MirrorOutcome(table_id, Publication.FAILED, failure=failure)
            run = None
        if run is not None and run.is_left:
            awaited.note(run.published)
            return True
        awaited.settle(outcome)
        return False
