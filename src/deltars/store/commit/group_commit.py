"""Group commit: threads of one process that append to the same table share database transactions.

    thread 1 ──▶ leads: commits alone ───────────▶ done, hands the lead on
    thread 2 ──▶ waits ─▶ leads: commits 2, 3, 4 ─────────────────────────▶ done, hands the lead on
    thread 3 ──▶ waits ─────── taken ─────────────────────────────────────▶ done
    thread 4 ──▶ waits ─────── taken ─────────────────────────────────────▶ done
    thread 5 ──▶ waits ──────────────────────────────── leads: …

Without groups the threads would wait for the table's lock one after the other, and each for its own flush to the disk.

A leader takes all commits that wait. First it waits up to `GATHERING_S` for as many as its predecessor took: callers
that were served together come back at about the same time. A lone thread waits for nothing.

Every caller gets its own outcome:

    the batch was committed           its own version and time stamp
    the batch was refused             it commits alone, in its own thread: the reason may be another commit
    the reply was lost                it settles its own transaction id
    the leader was interrupted        it settles its id if the batch was sent, and commits alone otherwise
"""

from __future__ import annotations

import copy
import os
import threading
import time
from enum import Enum, auto
from uuid import UUID
from weakref import WeakSet

from deltars.errors import DatabaseError, DeltarsError, TimeoutError
from deltars.log.commit import CommitOutcome, Committed
from deltars.store.commit.batch_commit import Batch, BatchCommits
from deltars.store.commit.direct_commit import MOST_BYTES, DirectCommits, ReadyCommit, driver_error
from deltars.store.database import Database

GATHERING_S = 0.001
"""How long a leader waits for other callers."""


class ReplyLost(Exception):
    """The batch was sent, and it is not known whether it was committed. The caller must settle its own transaction.

    `error` is the reason.
    """

    def __init__(self, error: DeltarsError) -> None:
        super().__init__(error)
        self.error = error


class _State(Enum):
    WAITS = auto()
    LEADS = auto()
    TAKEN = auto()
    """In a leader's batch."""
    SENT = auto()
    """In a leader's batch that was sent: it may have committed."""
    REFUSED = auto()
    """In a batch of which nothing was written: the caller commits alone."""
    DONE = auto()


_NO_SIGNAL = threading.Lock()
"""Signal of a caller that does not wait. Most callers are alone, and need no lock."""


class _Entry:
    """Commit of one caller."""

    __slots__ = ("answer", "batch", "deadline", "has_left", "ready", "signal", "state", "waited_s")

    def __init__(self, ready: ReadyCommit, deadline: float) -> None:
        self.ready = ready
        self.deadline = deadline
        self.state = _State.WAITS
        self.batch: list[_Entry] = []
        """Commits that this caller leads; its own is the first."""
        self.answer: Committed | ReplyLost | None = None
        self.waited_s = 0.0
        self.has_left = False
        """Whether `_leave` is done with it."""
        self.signal = _NO_SIGNAL
        """Held while there is nothing new for the caller."""

    @property
    def is_answered(self) -> bool:
        return self.state is _State.DONE or self.state is _State.REFUSED

    def prepare_to_wait(self) -> None:
        if self.signal is _NO_SIGNAL:
            self.signal = threading.Lock()
        self.signal.acquire(blocking=False)

    def wake(self) -> None:
        if self.signal.locked():
            self.signal.release()


class _Queue:
    """Callers that append to one table."""

    __slots__ = ("awaited", "last_size", "leader", "waiting")

    def __init__(self) -> None:
        self.leader: _Entry | None = None
        self.waiting: list[_Entry] = []
        self.last_size = 1
        """Number of commits of the last batch."""
        self.awaited = 0
        """Number of callers that the leader waits for; 0 if it does not wait."""


class GroupCommits:
    """Queues of the callers that append to a table, one queue for each table."""

    def __init__(self, database: Database, direct: DirectCommits, batches: BatchCommits) -> None:
        self._backend = database.backend
        self._direct = direct
        self._batches = batches
        self._start()
        _groups.add(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[UUID, _Queue] = {}

    def commit(self, ready: ReadyCommit, timeout_s: float) -> CommitOutcome | None:
        """Commit a blind append, together with those of other threads if there are any. See `DirectCommits.commit`."""
        entry = _Entry(ready, time.monotonic() + timeout_s)
        table_id = ready.table.table_id
        try:
            try:
                return self._commit(entry, table_id)
            finally:
                self._leave(entry, table_id)
        finally:
            # Ctrl-C may have come in the middle of leaving. No caller may wait for a leader that is gone.
            if not entry.has_left:
                self._leave(entry, table_id)

    def _commit(self, entry: _Entry, table_id: UUID) -> CommitOutcome | None:
        if not self._join(entry, table_id):
            self._wait(entry, table_id)
        if entry.state is _State.LEADS and self._gather(entry, table_id):
            self._commit_batch(entry)
        watch, answer = entry.ready.watch, entry.answer
        if isinstance(answer, ReplyLost):
            raise answer
        if answer is not None:
            watch.enter("commit")
            watch.move("commit", "lock", entry.waited_s)
            return answer
        if entry.state is _State.REFUSED:
            watch.enter("lock")
        return self._direct.commit(entry.ready, max(0.001, entry.deadline - time.monotonic()))

    # -- waiting -------------------------------------------------------------------------------------------------

    def _join(self, entry: _Entry, table_id: UUID) -> bool:
        """Return whether this caller leads at once."""
        with self._lock:
            queue = self._queues.get(table_id)
            if queue is None:
                queue = self._queues[table_id] = _Queue()
            if queue.leader is None:
                queue.leader, entry.state = entry, _State.LEADS
                return True
            entry.prepare_to_wait()
            queue.waiting.append(entry)
            if queue.awaited and len(queue.waiting) >= queue.awaited:
                queue.leader.wake()
            return False

    def _wait(self, entry: _Entry, table_id: UUID) -> None:
        """Wait until this caller leads, or has its answer. The time limit holds until a leader takes its commit."""
        is_taken = False
        while True:
            entry.signal.acquire(timeout=-1 if is_taken else max(0.0, entry.deadline - time.monotonic()))
            if entry.is_answered:
                return
            with self._lock:
                if entry.state not in (_State.WAITS, _State.TAKEN, _State.SENT):
                    return
                is_taken = entry.state is not _State.WAITS
                if not is_taken and time.monotonic() >= entry.deadline:
                    # Out of the queue before anyone else has the lock: a leader must not take what is given up.
                    self._queues[table_id].waiting.remove(entry)
                    raise TimeoutError(
                        "other commits of this process to the table took longer than the timeout allows",
                        hint="Retry, or raise the timeout.",
                    )

    # -- leading -------------------------------------------------------------------------------------------------

    def _gather(self, leader: _Entry, table_id: UUID) -> bool:
        """Take the commits that wait, after a moment for as many as the last time. Return whether there are any."""
        queue = self._queues[table_id]
        if queue.last_size == 1 and not queue.waiting:
            return False
        with self._lock:
            is_early = len(queue.waiting) < queue.last_size - 1
            if is_early:
                leader.prepare_to_wait()
                queue.awaited = queue.last_size - 1
        if is_early:
            leader.signal.acquire(timeout=GATHERING_S)
        with self._lock:
            queue.awaited = 0
            batch, leader.batch, left = Batch(leader.ready), [leader], []
            for entry in queue.waiting:
                if batch.about_bytes < MOST_BYTES // 2 and batch.add(entry.ready):
                    leader.batch.append(entry)
                    entry.state = _State.TAKEN
                else:
                    left.append(entry)
            queue.waiting, queue.last_size = left, len(leader.batch)
            return queue.last_size > 1

    def _commit_batch(self, leader: _Entry) -> None:
        batch = leader.batch

        def sending() -> None:
            for entry in batch:
                entry.state = _State.SENT
                entry.ready.watch.enter("commit")

        timeout_s = max(0.001, max(entry.deadline for entry in batch) - time.monotonic())
        try:
            done = self._batches.commit([entry.ready for entry in batch], timeout_s, sending)
        except DeltarsError as error:
            if leader.state is _State.SENT and self._backend.is_outcome_unknown(driver_error(error)):
                _lose(batch, error)
            else:
                _refuse(batch)
            return
        if done is None:
            _refuse(batch)
            return
        for entry, committed in zip(batch, done.committed, strict=True):
            entry.answer, entry.waited_s = committed, done.waited_s
            entry.state = _State.DONE
        for entry in batch[1:]:
            entry.wake()

    def _leave(self, entry: _Entry, table_id: UUID) -> None:
        """Leave nothing behind: no place in the queue, no caller without an answer, no queue without a leader."""
        if entry.is_answered and not entry.batch:
            # It only followed. All followers return at the same time, and need not wait for the lock.
            entry.has_left = True
            return
        with self._lock:
            queue = self._queues.get(table_id)
            if queue is not None and queue.leader is entry and not queue.waiting and len(entry.batch) <= 1:
                # Alone, as most callers are.
                queue.leader, queue.awaited = None, 0
                if queue.last_size == 1:
                    del self._queues[table_id]
            elif queue is not None:
                self._leave_others(entry, table_id, queue)
        entry.has_left = True

    def _leave_others(self, entry: _Entry, table_id: UUID, queue: _Queue) -> None:
        """Answer the callers that this one led, and let the next one lead."""
        if queue.leader is entry:
            _abandon(entry.batch[1:])
        elif entry.state in (_State.TAKEN, _State.SENT):
            # Interrupted: the leader commits it all the same.
            entry.ready.watch.enter("commit")
        # An interrupted leader may have left commits in the queue that it had taken.
        queue.waiting = [other for other in queue.waiting if other.state is _State.WAITS and other is not entry]
        if queue.leader is entry:
            queue.awaited = 0
            queue.leader = queue.waiting[0] if queue.waiting else None
        following = queue.leader
        if following is not None and following.state is _State.WAITS:
            following.wake()
            queue.waiting = [other for other in queue.waiting if other is not following]
            following.state = _State.LEADS
        elif following is None and queue.last_size == 1:
            del self._queues[table_id]


def _refuse(batch: list[_Entry]) -> None:
    """Let each caller commit alone."""
    for entry in batch:
        entry.state = _State.REFUSED
        entry.wake()


def _lose(batch: list[_Entry], error: DeltarsError) -> None:
    """Let each caller settle its own transaction, with its own copy of the error, which gets the transaction's id."""
    for entry in batch:
        own = copy.copy(error)
        own.__cause__ = error.__cause__
        entry.answer, entry.state = ReplyLost(own), _State.DONE
        entry.wake()


def _abandon(batch: list[_Entry]) -> None:
    """Answer the callers of an interrupted leader. A batch that was not sent was not committed."""
    _refuse([entry for entry in batch if entry.state is _State.TAKEN])
    interrupted = DatabaseError("the thread that committed this together with others was interrupted", retryable=True)
    _lose([entry for entry in batch if entry.state is _State.SENT and entry.answer is None], interrupted)
    for entry in batch:
        if entry.answer is not None:
            entry.state = _State.DONE
        entry.wake()


_groups: WeakSet[GroupCommits] = WeakSet()


def _after_fork() -> None:
    # The threads of the parent process do not exist here, so no lock would be released and no queue would move on.
    for group in list(_groups):
        group._start()


os.register_at_fork(after_in_child=_after_fork)
