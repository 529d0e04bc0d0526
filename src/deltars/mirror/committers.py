"""Committers, each of which waits for its own version to be published.

    one table on a local disk     ──▶ the committer's own thread; what is left then ──▶ a thread
    several, or an object store   ──▶ a thread a table, a few at a time; the committer waits until its deadline
    no thread can be had          ──▶ the committer's own thread, one table after the other

Nothing here raises an Exception: the commits stand.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from deltars.errors import MirrorFailure
from deltars.mirror.background import Behind
from deltars.mirror.outcome import MirrorOutcome, Publication, outcome_of
from deltars.store.mirror.status import MirrorStatus, MirrorStatusStore
from deltars.store.read.committed_versions import CommittedVersion

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Drain:
    """One run of `drain`: whose lease, what for, how far."""

    status: MirrorStatus
    owner: str
    until: int | None
    published: int
    stop: threading.Event
    leave_at: float | None
    """When to leave the rest to a thread; None for a thread, which goes on."""
    checkpoint: int | None = None
    """The published version that a checkpoint is due of."""
    putting: CommittedVersion | None = None
    """The version that was being put last."""
    is_left: bool = False
    """Whether versions were left for a thread to publish."""

    @property
    def table_id(self) -> UUID:
        return self.status.table_id

    @property
    def is_served(self) -> bool:
        return self.until is not None and self.published >= self.until


@dataclass(frozen=True, slots=True)
class Wish:
    """A committer's own version, which it waits for."""

    table_id: UUID
    version: int
    deadline: float
    answer: Future[MirrorOutcome]

    def note(self, published: int) -> None:
        if published >= self.version:
            self.settle(MirrorOutcome(self.table_id, Publication.PUBLISHED, published))

    def settle(self, outcome: MirrorOutcome) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)


class Draining(Protocol):
    def __call__(
        self, table_id: UUID, wish: Wish, *, leave_at: float | None = None
    ) -> tuple[MirrorOutcome, Drain | None]: ...


class Committers:
    def __init__(
        self, status: MirrorStatusStore, behind: Behind, drain: Draining, checkpoint_behind: Callable[[Drain], None]
    ) -> None:
        self._status = status
        self._behind = behind
        self._drain = drain
        self._checkpoint_behind = checkpoint_behind

    def serve(
        self, versions: Mapping[UUID, int], *, concurrency: int, wait_s: float, is_quick: bool
    ) -> dict[UUID, MirrorOutcome]:
        """Publish each table up to its version, and return those outcomes that are known after `wait_s`.

        `is_quick`: no call to the storage is expected to hang, so the caller's own thread may do it.
        """
        deadline = time.monotonic() + wait_s
        wishes = [Wish(table_id, version, deadline, Future()) for table_id, version in versions.items()]
        if is_quick or not self._follow_in_threads(wishes, concurrency):
            for wish in wishes:
                self._follow_here(wish)
        return {wish.table_id: wish.answer.result() for wish in wishes if wish.answer.done()}

    def _follow_in_threads(self, wishes: Sequence[Wish], concurrency: int) -> bool:
        """Return False where no thread can be had."""
        waiting = deque(wishes)

        def work() -> None:
            while True:
                try:
                    wish = waiting.popleft()
                except IndexError:
                    return
                self._follow(wish)

        workers = range(min(concurrency, len(wishes)))
        started = [self._behind.spawn(work, f"deltars-mirror-{number}") for number in workers]
        if wishes and not any(started):
            return False
        wait([wish.answer for wish in wishes], timeout=max(0.0, wishes[0].deadline - time.monotonic()) if wishes else 0)
        return True

    def _follow_here(self, wish: Wish) -> None:
        """Follow a wish in the caller's thread; what is left then is for a thread, if there is one to be had."""
        if not self._follow(wish, leave_at=wish.deadline):
            return
        if self._behind.spawn(lambda: self._follow(wish), "deltars-mirror"):
            wait([wish.answer], timeout=max(0.0, wish.deadline - time.monotonic()))
        elif not wish.answer.done() and time.monotonic() < wish.deadline:
            self._follow(wish)

    def _follow(self, wish: Wish, leave_at: float | None = None) -> bool:
        """Answer when a version is published, by us or by others, or failed, or the deadline is over.

        Return whether versions were left for a thread.
        """
        table_id, version = wish.table_id, wish.version
        run: Drain | None = None
        try:
            outcome, run = self._drain(table_id, wish, leave_at=leave_at)
            while outcome.publication is Publication.PENDING and time.monotonic() < wish.deadline:
                if run is not None and run.is_left:
                    break
                time.sleep(random.uniform(0.005, 0.03))
                # Looked at without a lock, so as not to be in the way of whoever is at it.
                status = self._status.read(table_id)
                if status.is_leased:
                    outcome = outcome_of(status, version)
                else:
                    outcome, run = self._drain(table_id, wish, leave_at=leave_at)
            if run is not None and run.checkpoint is not None:
                self._checkpoint_behind(run)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # Not Exception: a panic of a library in another language is none.
            failure = MirrorFailure(error=str(error) or repr(error), table_id=table_id, version=version)
            with suppress(Exception):
                _log.warning("the mirror could not look after table %s: %r", table_id, error)
            outcome = MirrorOutcome(table_id, Publication.FAILED, failure=failure)
            run = None
        if run is not None and run.is_left:
            wish.note(run.published)
            return True
        wish.settle(outcome)
        return False
