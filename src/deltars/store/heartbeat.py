"""Heartbeat of a process's open transactions: announces those that write for long, from one thread.

    begin(transaction, table) ──▶ still writing after EVERY_S? ──▶ announce ──▶ beat every EVERY_S
    pause(transaction) ──▶ the tables that were announced, for the commit to withdraw ──▶ end(transaction)

The thread is a daemon, ends when no transaction writes, and starts again with the next. After an error of the database,
the next beat tries again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from deltars.errors import DeltarsError
from deltars.store.writers import Writers, lost_touch

EVERY_S = 30.0
"""Time between heartbeats, and how long a transaction writes before it is announced."""
UNHEARD_S = 12 * 3600.0
"""How long a transaction may write without an announcement: half the age at which a vacuum deletes its files."""

_log = logging.getLogger(__name__)


class Transaction(Protocol):
    @property
    def txn_id(self) -> UUID: ...

    @property
    def is_unfinished(self) -> bool: ...


@dataclass(slots=True)
class _Writer:
    transaction: weakref.ref[Transaction]
    tables: dict[UUID, float] = field(default_factory=dict)
    """Seconds (by `_now`) when the first write to each table began."""
    announced: set[UUID] = field(default_factory=set)
    is_paused: bool = False
    """Whether the transaction is being committed: its commit needs the announcements as they are."""
    is_lost: bool = False
    """Whether an announcement vanished: a vacuum took the transaction for dead."""

    @property
    def is_alive(self) -> bool:
        found = self.transaction()
        return found is not None and found.is_unfinished


class Heartbeat:
    """Heartbeat of the transactions of one open catalog."""

    def __init__(self, writers: Writers, *, every_s: float = EVERY_S) -> None:
        self.writers = writers
        self.every_s = every_s
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._open: dict[UUID, _Writer] = {}
        self._thread: threading.Thread | None = None
        self._process_id = os.getpid()

    def _lock(self) -> threading.Condition:
        if self._process_id != os.getpid():
            # A forked child: the parent's thread, which may have held the lock, does not exist here.
            self._reset()
        return self._changed

    def begin(self, transaction: Transaction, table_id: UUID) -> None:
        """Note that a transaction writes files of a table from now on."""
        with self._lock():
            writer = self._open.setdefault(transaction.txn_id, _Writer(weakref.ref(transaction)))
            writer.tables.setdefault(table_id, _now())
            if self._thread is None or not self._thread.is_alive():
                self._start()

    def pause(self, txn_id: UUID) -> frozenset[UUID]:
        """Stop the heartbeat of a transaction that is about to commit. Return the tables it is announced for.

        Raise `FilesMissing` if a vacuum may have deleted its files.
        """
        with self._lock():
            writer = self._open.get(txn_id)
            if writer is None:
                return frozenset()
            writer.is_paused = True
            unheard = writer.tables.keys() - writer.announced
        if writer.is_lost:
            raise lost_touch("a vacuum took this transaction for dead")
        unheard_s = max((_now() - writer.tables[table_id] for table_id in unheard), default=0.0)
        if unheard_s > UNHEARD_S:
            raise lost_touch(f"this transaction could not announce itself for {unheard_s / 3600:.0f} hours")
        return frozenset(writer.announced)

    def end(self, txn_id: UUID, *, withdraw: bool) -> None:
        """Forget a transaction that has ended; `withdraw` what it announced, unless its commit did."""
        with self._lock():
            writer = self._open.pop(txn_id, None)
        if withdraw and writer is not None and writer.announced:
            self._withdraw(txn_id)

    def close(self) -> None:
        """End the thread now if no transaction writes, and not at its next beat."""
        if self._process_id == os.getpid():
            with self._changed:
                self._changed.notify_all()

    def _withdraw(self, txn_id: UUID) -> None:
        try:
            self.writers.withdraw(txn_id)
        except DeltarsError as error:
            _log.debug("the announcement of transaction %s stays until a vacuum removes it: %s", txn_id, error)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="deltars-heartbeat", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # At the end of the process, or without more threads. A commit within half a day needs no announcement.
            _log.debug("no thread for heartbeats: %s", error)
            return
        self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(self.every_s)
                self._open = {txn_id: writer for txn_id, writer in self._open.items() if writer.is_alive}
                if not self._open:
                    self._thread = None
                    return
            try:
                self._beat()
            except Exception as error:
                # The database may be back at the next beat.
                _log.warning("long writes could not be announced, which is tried again: %s", error)

    def _beat(self) -> None:
        with self._changed:
            beating = {txn_id: writer for txn_id, writer in self._open.items() if not writer.is_paused}
            now, announced = _now(), [txn_id for txn_id, writer in beating.items() if writer.announced]
            new = {
                txn_id: {
                    table: int((now - began) * 1e6)
                    for table, began in writer.tables.items()
                    if table not in writer.announced and now - began >= self.every_s
                }
                for txn_id, writer in beating.items()
            }
        if announced:
            there = self.writers.beat(announced)
            with self._changed:
                for txn_id in announced:
                    writer = self._open.get(txn_id)
                    # A commit that began meanwhile withdraws its announcements itself.
                    if writer is not None and not writer.is_paused and not writer.announced <= there[txn_id]:
                        writer.is_lost = True
        for txn_id, ages_us in new.items():
            if not ages_us:
                continue
            self.writers.announce(txn_id, ages_us)
            with self._changed:
                writer = self._open.get(txn_id)
                is_known = writer is not None and not writer.is_paused
                if writer is not None and is_known:
                    writer.announced |= ages_us.keys()
            if not is_known:
                # It ended meanwhile, without knowing of the announcement.
                self._withdraw(txn_id)


def _now() -> float:
    # Unlike the monotonic clock, this one also counts the time that the machine was suspended.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()
