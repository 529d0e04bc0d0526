"""Phases of a transaction, shared by all threads that use it.

    open ──commit──▶ committing ──┬──▶ committed
      │                           ├──▶ rolled back            nothing was changed, for certain
      └──rollback──▶ rolled back  └──▶ outcome unknown        catalog.resolve(id) finds out

A transaction is changed only inside `open()`: by one thread at a time, and never after the end has begun. Rows are
written outside `open()`.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from uuid import UUID

from deltars.errors import CommitUnknown, DeltarsError, TransactionClosed
from deltars.log.stages import DATA, OPEN, PROGRAM, READ
from deltars.observe import Stopwatch

_log = logging.getLogger(__name__)


class Phase(StrEnum):
    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "outcome unknown"


class Lifetime:
    def __init__(self, txn_id: UUID) -> None:
        self.txn_id = txn_id
        self.phase = Phase.OPEN
        self.lock = threading.RLock()
        self._watch = Stopwatch(PROGRAM)
        # Time in which threads are in several stages at once counts for the first of these.
        self._busy = {DATA: 0, READ: 0, OPEN: 0}
        self._staged: list[str] = []
        self._forgotten: weakref.finalize[[UUID, list[str], int], object] | None = None

    @property
    def is_unfinished(self) -> bool:
        """Return whether a commit is still possible."""
        return self.phase in (Phase.OPEN, Phase.COMMITTING)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Exclude other threads and the end of the transaction. Raise `TransactionClosed` if it has ended."""
        with self.lock:
            self.refuse_closed()
            yield

    @contextmanager
    def writing(self, table: str | None = None) -> Iterator[None]:
        """Count a write in progress. An error of another library, such as Spark, gets a note of where it happened."""
        with self.open():
            self._count(DATA, 1)
        try:
            yield
        except DeltarsError:
            raise
        except BaseException as error:
            error.add_note(f"deltars: {'' if table is None else f'table {table}, '}transaction {self.txn_id}")
            raise
        finally:
            self._count(DATA, -1)

    @contextmanager
    def spending(self, stage: str) -> Iterator[None]:
        """Count the time of a call for a stage."""
        self._count(stage, 1)
        try:
            yield
        finally:
            self._count(stage, -1)

    def _count(self, stage: str, change: int) -> None:
        with self.lock:
            self._busy[stage] += change
            for name, count in self._busy.items():
                if count:
                    return self._watch.enter(name)
            self._watch.enter(PROGRAM)

    def spent(self) -> dict[str, float]:
        """Return the seconds of each stage so far. Together they are the time since the beginning."""
        with self.lock:
            self._watch.stop()
            return dict(self._watch.stages)

    def end(self, phase: Phase) -> None:
        """Leave the open phase. Later calls raise `TransactionClosed`."""
        with self.open():
            self._leave(phase)

    def try_end(self, phase: Phase) -> bool:
        """Leave the open phase, and return True; return False if the transaction has ended already."""
        with self.lock:
            if self.phase is not Phase.OPEN:
                return False
            self._leave(phase)
            return True

    def _leave(self, phase: Phase) -> None:
        self.phase = phase
        if self._forgotten is not None:
            self._forgotten.detach()
        if writing := self._busy[DATA]:
            many = f"{writing} write{' was' if writing == 1 else 's were'}"
            _log.warning("transaction %s ended while %s still running; their rows are not committed", self.txn_id, many)

    def refuse_closed(self) -> None:
        """Raise `TransactionClosed` unless the transaction is open."""
        match self.phase:
            case Phase.OPEN:
                return
            case Phase.COMMITTING:
                raise TransactionClosed(
                    "this transaction is being committed by another thread: begin a new one", txn_id=self.txn_id
                )
            case Phase.UNKNOWN:
                hint = f"Its outcome is not known: catalog.resolve({str(self.txn_id)!r}) finds out."
                raise TransactionClosed(txn_id=self.txn_id, hint=hint)
            case _:
                raise TransactionClosed(txn_id=self.txn_id)

    def why_no_result(self) -> DeltarsError:
        """Return the error for a transaction that has no result."""
        match self.phase:
            case Phase.UNKNOWN:
                return CommitUnknown(
                    "it is not known whether this transaction committed",
                    txn_id=self.txn_id,
                    hint=f"Call catalog.resolve({str(self.txn_id)!r}) before you write again.",
                )
            case Phase.OPEN | Phase.COMMITTING:
                return TransactionClosed(
                    f"this transaction has no result yet: it is {self.phase}",
                    txn_id=self.txn_id,
                    hint="It has a result after commit(), or after its with block.",
                )
            case _:
                return TransactionClosed("this transaction has no result: it did not commit", txn_id=self.txn_id)

    def has_staged(self, owner: object, table: str) -> None:
        """Remember a staged table, to warn if `owner`, the transaction, is lost without a commit or rollback."""
        if self._forgotten is None:
            self._forgotten = weakref.finalize(owner, _warn, self.txn_id, self._staged, os.getpid())
        if table not in self._staged:
            self._staged.append(table)


def _warn(txn_id: UUID, tables: list[str], pid: int) -> None:
    """Warn of a transaction that was lost. Runs when it is garbage-collected, or when the program ends."""
    if pid != os.getpid():  # A forked child has a copy, and the parent may still commit.
        return
    message = (
        f"transaction {txn_id} was neither committed nor rolled back: what it staged for {', '.join(tables)} is lost."
        " Use it as a context manager (with catalog.begin() as tx), or call commit()"
    )
    # Most programs hide a ResourceWarning, but all show a log line of this level.
    _log.warning("%s", message)
    warnings.warn(message, ResourceWarning, stacklevel=2)


__all__ = ["Lifetime", "Phase"]
