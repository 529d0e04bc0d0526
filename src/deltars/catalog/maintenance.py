"""Maintenance of a catalog: find what each table needs, and do it, once or again and again.

    statistics ──▶ advice ──▶ table by table: claim its lease ──▶ look again ──▶ publish, optimize, vacuum, expire
                                                   │                              a failure is reported, and the next
                                                   └ another service has it: next table           verb or table follows

Everything here can be killed and run again: each verb continues with what is left, and the lease ends by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any
from uuid import UUID

from deltars.arguments import check_flags, check_reports
from deltars.catalog.table import Table
from deltars.errors import DeltarsError, TableNotFound, ValidationError, brief
from deltars.log.maintenance import Advice, MaintenanceRules, MaintenanceVerb, TableStatistics, advise, advise_all
from deltars.mirror.outcome import Publication
from deltars.observe import MaintenanceEnded, MaintenanceSeen, emit
from deltars.protocol.properties import deleted_file_retention_ms, log_retention_ms, parse_size_bytes
from deltars.session import CatalogSession, TableLike
from deltars.store.maintenance.lease import RENEWED_EVERY_S, MaintenanceLeases
from deltars.store.maintenance.statistics import StatisticsReader
from deltars.transaction.auto_compaction import AUTO_COMPACT
from deltars.transaction.optimize_plan import TARGET_SIZE

COMMITTER = "deltars maintain"
"""Who commits, in the history of a table, what the service does. A single run commits as its user."""
LONGEST_PAUSE_S = 24 * 3600.0
"""Longest time that a service leaves a table alone whose maintenance fails again and again."""

_log = logging.getLogger(__name__)


class MaintenanceOutcome(StrEnum):
    """What became of one piece of advice."""

    DONE = "done"
    PLANNED = "planned"
    """A dry run."""
    SKIPPED = "skipped"
    """Another service works on the table, or a person must decide."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What `maintain` did about one piece of advice."""

    advice: Advice
    outcome: MaintenanceOutcome
    detail: str | None = None
    """What was done, or why it was not."""
    num_files: int = 0
    """Files that were written again, deleted or published; versions that expired."""
    size_bytes: int = 0
    duration_s: float = 0.0
    error: DeltarsError | None = None


MaintenanceReport = Callable[[Advice, MaintenanceResult | None], None]
"""Called before each piece of advice is carried out, with None, and after it, with the result."""


class Maintainer:
    """Maintains the tables of a catalog. Any number of them may run at once: the lease of a table decides."""

    def __init__(
        self,
        session: CatalogSession,
        *,
        tables: Sequence[TableLike] | None = None,
        interval_s: float = 600.0,
        report: MaintenanceReport | None = None,
    ) -> None:
        self._session = session
        self._tables = tables
        check_reports(report=report)
        given: Any = interval_s
        if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < float("inf"):
            raise ValidationError(f"interval_s must be a positive number, got {brief(interval_s)}", field="interval_s")
        self._interval_s = interval_s
        self._committer: str | None = None
        self._report = report or (lambda advice, result: None)
        self._leases = MaintenanceLeases(session.database)
        self._stop = threading.Event()
        self._pauses: dict[UUID, tuple[int, float]] = {}

    def stop(self) -> None:
        """Finish the verb that is running, and start no other. Safe in a signal handler."""
        self._stop.set()

    def once(self, *, dry_run: bool = False) -> list[MaintenanceResult]:
        """Do what every table needs, and return what became of it."""
        check_flags(dry_run=dry_run)
        advice = self._look()
        if dry_run:
            return [MaintenanceResult(one, _skipped_or(MaintenanceOutcome.PLANNED, one), None) for one in advice]
        results: list[MaintenanceResult] = []
        for table_id, of_table in groupby(advice, key=lambda one: one.table_id):
            if self._stop.is_set():
                break
            results += self._maintain(table_id, list(of_table))
        return results

    def run(self) -> None:
        """Maintain the tables every `interval_s` seconds until `stop()` is called."""
        self._committer = COMMITTER
        while not self._stop.is_set():
            try:
                for table_id, of_table in groupby(self._look(), key=lambda one: one.table_id):
                    if self._stop.is_set():
                        break
                    if not self._is_pausing(table_id):
                        self._pause(table_id, self._maintain(table_id, list(of_table)))
            except DeltarsError as error:
                _log.warning("the catalog could not be read: %s", error)
            self._stop.wait(self._interval_s)

    # -- one table ---------------------------------------------------------------------------------------------------

    def _look(self) -> list[Advice]:
        """Return the advice for all tables, and count it."""
        advice = advise_all(_reader(self._session).read(self._session.find_ids(self._tables)))
        due = {verb.value: sum(one.verb is verb for one in advice) for verb in MaintenanceVerb}
        emit(MaintenanceSeen(self._session.database.source, due))
        return advice

    def _maintain(self, table_id: UUID, planned: Sequence[Advice]) -> list[MaintenanceResult]:
        """Do what a table needs by now. Report an error of the lease like one of the work."""
        try:
            with self._leased(table_id) as lost:
                if lost is None:
                    return [self._skip(one, "another service maintains the table") for one in planned]
                # Another service may have done it meanwhile.
                current = [one for row in _reader(self._session).read([table_id]) for one in advise(row)]
                done = []
                for one in current:
                    if lost.is_set() or self._stop.is_set():
                        break
                    done.append(self._carry_out(one))
                return done
        except DeltarsError as error:
            return [self._ended(one, time.monotonic(), error=error) for one in planned]

    @contextmanager
    def _leased(self, table_id: UUID) -> Iterator[threading.Event | None]:
        """Hold the lease of a table. Yield None if another service has it, else an event that it was lost."""
        if not self._leases.claim(table_id):
            yield None
            return
        lost, done = threading.Event(), threading.Event()

        def renew() -> None:
            while not done.wait(RENEWED_EVERY_S):
                try:
                    if not self._leases.renew(table_id):
                        lost.set()
                        return
                except DeltarsError as error:
                    # The database may be back before the lease ends.
                    _log.warning("the lease of table %s could not be renewed: %s", table_id, error)

        thread = threading.Thread(target=renew, name="deltars-lease", daemon=True)
        thread.start()
        try:
            yield lost
        finally:
            done.set()
            thread.join()
            try:
                self._leases.release(table_id)
            except DeltarsError as error:
                _log.warning("the lease of table %s stays until it ends: %s", table_id, error)

    def _carry_out(self, advice: Advice) -> MaintenanceResult:
        if advice.is_manual:
            return self._skip(advice, "a person must decide: deltars verify, then deltars mirror accept-log")
        self._report(advice, None)
        began = time.monotonic()
        try:
            detail, files, size = _VERBS[advice.verb](self._session, advice, self._committer)
            return self._ended(advice, began, detail, files, size)
        except DeltarsError as error:
            return self._ended(advice, began, error=error)
        except Exception as error:
            # One table's bug must not end the service.
            _log.exception("%s of table %s failed because of a bug in deltars", advice.verb, advice.table)
            return self._ended(advice, began, error=DeltarsError(f"{type(error).__name__}: {error}"))

    def _skip(self, advice: Advice, why: str) -> MaintenanceResult:
        result = MaintenanceResult(advice, MaintenanceOutcome.SKIPPED, why)
        self._report(advice, result)
        return result

    def _ended(
        self,
        advice: Advice,
        began: float,
        detail: str | None = None,
        num_files: int = 0,
        size_bytes: int = 0,
        *,
        error: DeltarsError | None = None,
    ) -> MaintenanceResult:
        outcome = MaintenanceOutcome.DONE if error is None else MaintenanceOutcome.FAILED
        took = time.monotonic() - began
        detail = str(error) if error is not None else detail
        result = MaintenanceResult(advice, outcome, detail, num_files, size_bytes, took, error)
        source = self._session.database.source
        emit(MaintenanceEnded(source, advice.table, advice.verb, outcome, took, num_files, size_bytes, detail, error))
        self._report(advice, result)
        return result

    # -- tables that fail --------------------------------------------------------------------------------------------

    def _is_pausing(self, table_id: UUID) -> bool:
        return table_id in self._pauses and time.monotonic() < self._pauses[table_id][1]

    def _pause(self, table_id: UUID, results: Collection[MaintenanceResult]) -> None:
        """Leave a table that failed alone for one interval, two, four … up to a day."""
        if not any(result.outcome is MaintenanceOutcome.FAILED for result in results):
            self._pauses.pop(table_id, None)
            return
        attempts = self._pauses.get(table_id, (0, 0.0))[0]
        pause_s = min(self._interval_s * 2 ** min(attempts, 30), max(self._interval_s, LONGEST_PAUSE_S))
        self._pauses[table_id] = attempts + 1, time.monotonic() + pause_s - self._interval_s / 2


def rules_of(properties: Mapping[str, str]) -> MaintenanceRules:
    """Return what a table's properties say about its maintenance. Ignore values that mean nothing."""
    auto_compact = properties.get(AUTO_COMPACT, "").strip().lower()
    return MaintenanceRules(
        target_bytes=parse_size_bytes(properties.get(TARGET_SIZE, "")) or None,
        deleted_retention_us=deleted_file_retention_ms(properties) * 1000,
        log_retention_us=log_retention_ms(properties) * 1000,
        is_compacted=auto_compact != "false",
    )


def read_statistics(session: CatalogSession, tables: Sequence[TableLike] | None) -> list[TableStatistics]:
    return _reader(session).read(session.find_ids(tables))


def advise_tables(session: CatalogSession, tables: Sequence[TableLike] | None) -> list[Advice]:
    return advise_all(read_statistics(session, tables))


def _reader(session: CatalogSession) -> StatisticsReader:
    return StatisticsReader(session.database, rules_of)


def _skipped_or(outcome: MaintenanceOutcome, advice: Advice) -> MaintenanceOutcome:
    return MaintenanceOutcome.SKIPPED if advice.is_manual else outcome


# -- the verbs -------------------------------------------------------------------------------------------------------


def _publish(session: CatalogSession, advice: Advice, _committer: str | None) -> tuple[str, int, int]:
    done = session.publisher.publish_pending(advice.table_id)
    if done.failure is not None:
        raise done.failure
    if done.publication is Publication.FAILED:
        raise DeltarsError("the table could not be published", table=advice.table, table_id=advice.table_id)
    return f"published up to version {done.published_version}", advice.num_files, 0


def _optimize(session: CatalogSession, advice: Advice, committer: str | None) -> tuple[str, int, int]:
    done = _table(session, advice).optimize(committer=committer)
    skipped = sum(one.num_files for one in done.skipped)
    if skipped and not done.is_changed:
        raise DeltarsError(
            f"{skipped} files were skipped, because others changed them: {done.skipped[0].reason}",
            table=advice.table,
            table_id=advice.table_id,
        )
    left = f"; {skipped} files were skipped, because others changed them" if skipped else ""
    detail = f"{done.num_files_removed} files became {done.num_files_added}{left}"
    return detail, done.num_files_removed, done.files_removed.total_size


def _vacuum(session: CatalogSession, advice: Advice, _committer: str | None) -> tuple[str, int, int]:
    done = _table(session, advice).vacuum(full=advice.is_full)
    return f"{done.num_files} files deleted", done.num_files, done.size_bytes


def _expire(session: CatalogSession, advice: Advice, _committer: str | None) -> tuple[str, int, int]:
    [done] = _table(session, advice).expire().tables
    held = f"; the rest stays: {done.held_by}" if done.held_by else ""
    return f"{done.num_expired_versions} versions expired{held}", done.num_expired_versions, 0


def _table(session: CatalogSession, advice: Advice) -> Table:
    record = session.registry.find(advice.table_id)
    if record is None:
        raise TableNotFound("the table was dropped", table=advice.table, table_id=advice.table_id)
    return Table(session, record)


_VERBS: Mapping[MaintenanceVerb, Callable[[CatalogSession, Advice, str | None], tuple[str, int, int]]] = {
    MaintenanceVerb.PUBLISH: _publish,
    MaintenanceVerb.OPTIMIZE: _optimize,
    MaintenanceVerb.VACUUM: _vacuum,
    MaintenanceVerb.EXPIRE: _expire,
}
