"""The reconciler: a process that publishes what committers left, and repairs published logs.

    announcement (LISTEN) ─┐
    every `poll_s` ────────┴▶ tables that are due ──▶ publish their pending versions, a few tables at a time
    every `inspect_s` ──────▶ every table, the warehouse ──▶ repairs
    meanwhile ──────────────▶ a table behind for longer than `lag_alert_s` ──▶ alert

Any number of reconcilers and committers may run at once: the lease of a table decides which of them publishes it. A
table that fails is retried after 1, 2, 4 … 300 seconds. A diverged table is skipped. Neither delays the other tables.
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
"""How often the lag of all tables is measured."""

LISTEN_S = 0.5
"""How long to listen before checking whether to stop."""

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
        """End `run` soon: finish the commit that is being written, and start no other. Safe in a signal handler."""
        self._stop.set()
        self._wake.set()

    def once(self) -> Reconciliation:
        """Publish every table that is due, and repair every published log and the warehouse."""
        result = Reconciliation()
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="deltars-mirror") as pool:
            for outcomes, error in pool.map(self._publish_pending, self._publisher.status.due()):
                result.outcomes.extend(outcomes)
                result.errors.extend(error)
            for repairs, error in pool.map(self._repair, self._publisher.status.overview()):
                result.repairs.extend(repairs)
                result.errors.extend(error)
        repairs, error = self._repair_warehouse()
        result.repairs.extend(repairs)
        result.errors.extend(error)
        self._watch_lag()
        return result

    def run(self) -> None:
        """Publish and repair until `stop()` is called."""
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
                            running[table_id] = pool.submit(self._publish_and_wake, table_id)
                    if time.monotonic() - looked_at >= min(OVERVIEW_S, self._lag_alert_s):
                        looked_at = time.monotonic()
                        self._watch_lag()
                    if time.monotonic() - inspected_at >= self._inspect_s:
                        inspected_at = time.monotonic()
                        self._inspect(pool, running)
                except DeltarsError as error:
                    _log.warning("the catalog could not be read: %s", error)
                self._wake.wait(self._poll_s)
        listener.join()
        self._publisher.close()

    def _publish_pending(
        self, table_id: UUID, *, checkpoint_in_background: bool = False
    ) -> tuple[list[MirrorOutcome], list[str]]:
        def publish() -> list[MirrorOutcome]:
            return [
                self._publisher.publish_pending(
                    table_id, stop=self._stop, checkpoint_in_background=checkpoint_in_background
                )
            ]

        return self._attempt(f"table {table_id} could not be published", publish)

    def _publish_and_wake(self, table_id: UUID) -> None:
        self._publish_pending(table_id, checkpoint_in_background=True)
        # Versions committed to the table since may be due already.
        self._wake.set()

    def _inspect(self, pool: ThreadPoolExecutor, running: dict[UUID, Future[object]]) -> None:
        for status in self._publisher.status.overview():
            if status.table_id not in running:
                running[status.table_id] = pool.submit(self._repair, status)
        pool.submit(self._repair_warehouse)

    def _repair(self, status: MirrorStatus) -> tuple[list[Repair], list[str]]:
        if status.is_chained:
            # Its committer was killed, or does not publish.
            self._publisher.seal(status.name, status.table_id)
        try:
            return self._attempt(
                f"table {status.name} could not be inspected", lambda: self._repairs.repair_table(status)
            )
        except LogDiverged as diverged:
            return [], [str(diverged)]

    def _repair_warehouse(self) -> tuple[list[Repair], list[str]]:
        return self._attempt("the warehouse could not be inspected", self._repairs.repair_warehouse)

    def _attempt(self, failure: str, act: Callable[[], list[Done]]) -> tuple[list[Done], list[str]]:
        """Return what `act` did, or its error. Log the error, so that the other tables can continue."""
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
            # `run` does not read the results of its futures: an error that is not logged here is lost.
            _log.exception("%s because of a bug in deltars", failure)
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
        """Wake `run` at every announcement. Without announcements, or a connection, `run` polls every `poll_s`."""
        while not self._stop.is_set():
            try:
                with self._publisher.status.listening() as wait:
                    if wait is None:
                        return
                    while not self._stop.is_set():
                        if wait(LISTEN_S):
                            self._wake.set()
            except DeltarsError as error:
                _log.debug("announcements cannot be received: %s", error)
                self._stop.wait(self._poll_s)


def lagging(tables: Iterable[MirrorStatus], longer_than_s: float) -> list[tuple[MirrorStatus, float]]:
    """Return the tables whose oldest unpublished version is older than `longer_than_s`, with its age."""
    return [(status, age_s) for status in tables if (age_s := lag_s(status)) > longer_than_s]


def lag_s(status: MirrorStatus) -> float:
    """Return the age of the oldest unpublished version. Return 0 if all are published or the mirror is off."""
    if status.pending_since is None or status.mode is MirrorMode.OFF:
        return 0.0
    # The database's clock may have been set back since the commit.
    return max(0, status.now - status.pending_since) / 1_000_000
