"""The reconciler: a process that publishes what committers left, and mends what others broke.

    announcement (LISTEN) ─┐
    every `poll_s` ────────┴▶ tables that are due ──▶ drain, a few at a time
    every `inspect_s` ──────▶ every table, the warehouse ──▶ repairs
    meanwhile ──────────────▶ a table behind for longer than `lag_alert_s` ──▶ alert

Any number of them may run, beside any number of committers: the lease of a table decides who publishes it. A table
that fails is tried again after 1, 2, 4 … 300 seconds; one that diverged is left alone, and the others go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from deltars.errors import DeltarsError, LogDiverged
from deltars.mirror.outcome import MirrorOutcome
from deltars.mirror.publisher import Publisher
from deltars.mirror.repair import Repair, Repairs
from deltars.observe import MirrorSeen, TableLag, emit
from deltars.store.database import Database
from deltars.store.mirror.status import MirrorMode, MirrorStatus

OVERVIEW_S = 5.0
"""How often the lag of all tables is looked at."""

HEARKEN_S = 0.5
"""How long to listen before looking whether to stop."""

Done = TypeVar("Done")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What one pass over the catalog did."""

    outcomes: list[MirrorOutcome] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Reconciler:
    def __init__(
        self,
        database: Database,
        publisher: Publisher,
        *,
        concurrency: int = 5,
        poll_s: float = 1.0,
        inspect_s: float = 300.0,
        lag_alert_s: float = 60.0,
        on_lag: Callable[[MirrorStatus, float], None] | None = None,
    ) -> None:
        """`on_lag` is called with a table's status and its lag in seconds, once each time the table falls behind."""
        self._publisher = publisher
        self._source = database.source
        self._repairs = Repairs(database, publisher)
        self._concurrency = concurrency
        self._poll_s = poll_s
        self._inspect_s = inspect_s
        self._lag_alert_s = lag_alert_s
        self._on_lag = on_lag
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._lagging: set[UUID] = set()

    def stop(self) -> None:
        """End `run` soon: what is being put is finished, what is not begun is left. Safe in a signal handler."""
        self._stop.set()
        self._wake.set()

    def once(self) -> Reconciliation:
        """Publish everything that is due, mend everything there is to mend."""
        result = Reconciliation()
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="deltars-mirror") as pool:
            for outcomes, error in pool.map(self._drain, self._publisher.status.due()):
                result.outcomes.extend(outcomes)
                result.errors.extend(error)
            for repairs, error in pool.map(self._mend, self._publisher.status.overview()):
                result.repairs.extend(repairs)
                result.errors.extend(error)
        repairs, error = self._mend_warehouse()
        result.repairs.extend(repairs)
        result.errors.extend(error)
        self._watch_lag()
        return result

    def run(self) -> None:
        """Go on until `stop()`."""
        listener = threading.Thread(target=self._listen, name="deltars-listen", daemon=True)
        listener.start()
        running: dict[UUID, Future[object]] = {}
        inspected_at = looked_at = float("-inf")
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="deltars-mirror") as pool:
            while not self._stop.is_set():
                self._wake.clear()
                try:
                    running = {key: future for key, future in running.items() if not future.done()}
                    for table_id in self._publisher.status.due():
                        if table_id not in running:
                            running[table_id] = pool.submit(self._drain_and_wake, table_id)
                    if time.monotonic() - looked_at >= min(OVERVIEW_S, self._lag_alert_s):
                        looked_at = time.monotonic()
                        self._watch_lag()
                    if time.monotonic() - inspected_at >= self._inspect_s:
                        inspected_at = time.monotonic()
                        self._inspect(pool, running)
                except DeltarsError as error:
                    _log.warning("the catalog could not be asked: %s", error)
                self._wake.wait(self._poll_s)
        listener.join()
        self._publisher.close()

    def _drain(self, table_id: UUID, *, checkpoint_behind: bool = False) -> tuple[list[MirrorOutcome], list[str]]:
        def drain() -> list[MirrorOutcome]:
            return [self._publisher.drain(table_id, stop=self._stop, checkpoint_behind=checkpoint_behind)]

        return self._attempt(f"table {table_id} could not be published", drain)

    def _drain_and_wake(self, table_id: UUID) -> None:
        self._drain(table_id, checkpoint_behind=True)
        # What was committed to it since may be due already.
        self._wake.set()

    def _inspect(self, pool: ThreadPoolExecutor, running: dict[UUID, Future[object]]) -> None:
        for status in self._publisher.status.overview():
            if status.table_id not in running:
                running[status.table_id] = pool.submit(self._mend, status)
        pool.submit(self._mend_warehouse)

    def _mend(self, status: MirrorStatus) -> tuple[list[Repair], list[str]]:
        try:
            return self._attempt(
                f"table {status.name} could not be inspected", lambda: self._repairs.mend_table(status)
            )
        except LogDiverged as diverged:
            return [], [str(diverged)]

    def _mend_warehouse(self) -> tuple[list[Repair], list[str]]:
        return self._attempt("the warehouse could not be inspected", self._repairs.mend_warehouse)

    def _attempt(self, failure: str, act: Callable[[], list[Done]]) -> tuple[list[Done], list[str]]:
        """What was done, or what went wrong: whatever that is, it is said, and the other tables go on."""
        if self._stop.is_set():
            return [], []
        try:
            return act(), []
        except LogDiverged:
            raise
        except DeltarsError as error:
            _log.warning("%s: %s", failure, error)
            return [], [f"{failure}: {error}"]
        except Exception as error:
            # Nobody asks the futures of `run`: what is not said here is never said.
            _log.exception("%s, because of a defect", failure)
            return [], [f"{failure}: {error!r}"]

    def _watch_lag(self) -> None:
        tables = self._publisher.status.overview()
        emit(MirrorSeen(self._source, [TableLag(table.name, table.state.value, lag_s(table)) for table in tables]))
        behind = dict(lagging(tables, self._lag_alert_s))
        for status, age_s in behind.items():
            if status.table_id not in self._lagging:
                _log.error(
                    "the mirror of table %s is %.0f s behind: version %s is published, %s is committed%s",
                    status.name,
                    age_s,
                    status.published_version,
                    status.current_version,
                    f" ({status.last_error})" if status.last_error else "",
                    extra={"catalog": self._source.catalog, "table": status.name, "lag_s": age_s},
                )
                if self._on_lag is not None:
                    self._on_lag(status, age_s)
        self._lagging = {status.table_id for status in behind}

    def _listen(self) -> None:
        """Wake at every announcement; where there are none, or the connection is lost, there is the poll."""
        while not self._stop.is_set():
            try:
                with self._publisher.status.listening() as wait:
                    if wait is None:
                        return
                    while not self._stop.is_set():
                        if wait(HEARKEN_S):
                            self._wake.set()
            except DeltarsError as error:
                _log.debug("announcements cannot be heard: %s", error)
                self._stop.wait(self._poll_s)


def lagging(tables: Iterable[MirrorStatus], longer_than_s: float) -> list[tuple[MirrorStatus, float]]:
    """The tables whose oldest unpublished version is older than this, with its age."""
    return [(status, age_s) for status in tables if (age_s := lag_s(status)) > longer_than_s]


def lag_s(status: MirrorStatus) -> float:
    """The age of the oldest version that is not published; 0 where all are, or nobody is to publish them."""
    if status.pending_since is None or status.mode is MirrorMode.OFF:
        return 0.0
    # The clock may have gone back since.
    return max(0, status.now - status.pending_since) / 1_000_000
