"""What each page shows, as plain values: the page is made from them, and its JSON is them.

Nothing here writes: neither the catalog's database nor a file.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any
from uuid import UUID

from deltars.catalog import Catalog
from deltars.catalog.activity import EVER_US, TransactionSummary, conflict_details, summaries
from deltars.catalog.charts import bars, line
from deltars.catalog.lanes import BUCKETS, MOST_MARKS, Drawing, draw, torn_us
from deltars.console.conflict_hours import HOURS, by_table_and_hour
from deltars.console.dry_runs import advised
from deltars.console.graph import of_run
from deltars.console.table_page import table_page
from deltars.errors import TransactionNotFound, ValidationError
from deltars.log.moments import from_microseconds, to_microseconds
from deltars.log.stages import before_publication
from deltars.log.transaction_id import as_txn_id
from deltars.store.mirror.status import MirrorStatus
from deltars.store.read.activity import (
    HOUR_US,
    Activity,
    MaintenanceRow,
    VersionTotals,
    Window,
)

LISTED = 50
"""Commits whose transactions are listed below the swimlanes."""
LANES = 40
"""Tables of one page of swimlanes."""
MOST_BARS = 100
COMPARED = 200
"""Tables of which the page of two cuts adds up what changed."""
BATCHES = 30
"""Batches of a stream that its pace is computed from."""
LATE, LATE_S = 5, 60
"""A stream is late if it waits longer than both: so many times its usual pause, and so many seconds."""
RUNS = 30
"""Runs of OPTIMIZE that are listed."""
OPTIMIZE = "OPTIMIZE"
CONFLICTS = 100
"""Lost races of one page."""
OUTCOMES = ("committed", "lost")
LEAST_US = 1_000
"""Shortest window of the swimlanes."""


@dataclass(frozen=True, slots=True)
class LaneFilter:
    """Which window of time the swimlanes show, and which commits of it."""

    from_us: int | None = None
    to_us: int | None = None
    table: str | None = None
    operation: str | None = None
    committer: str | None = None
    outcome: str | None = None
    """One of `OUTCOMES`; None for both."""
    page: int = 0


@dataclass(frozen=True, slots=True)
class Swimlanes:
    filter: LaneFilter
    from_us: int
    to_us: int
    num_commits: int
    num_lost: int
    """Lost races that are drawn."""
    num_tables: int
    is_live: bool
    """Whether the window reaches to now."""
    drawing: Drawing
    transactions: list[TransactionSummary]
    operations: list[str]

    @property
    def has_more_tables(self) -> bool:
        return self.num_tables > (self.filter.page + 1) * LANES

    def turned(self, pages: int) -> LaneFilter:
        """Return the same window of the tables before, or of those after."""
        return replace(self.filter, page=self.filter.page + pages)

    def moved(self, share: float) -> LaneFilter:
        """Return the window that is moved by a share of its length."""
        by = int((self.to_us - self.from_us) * share)
        return replace(self.filter, from_us=self.from_us + by, to_us=self.to_us + by)

    def zoomed(self, factor: float) -> LaneFilter:
        """Return the window with its length multiplied, around its middle."""
        middle, half = (self.from_us + self.to_us) // 2, int((self.to_us - self.from_us) * factor / 2)
        half = max(half, LEAST_US)
        return replace(self.filter, from_us=middle - half, to_us=middle + half)


class ConsoleModel:
    """Reader of one catalog for the pages."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._session = catalog._session
        self._activity = Activity(self._session.database)

    # -- the catalog -----------------------------------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        tables = self._catalog.statistics()
        advice = self._catalog.advise()
        by_table = Counter(one.table for one in advice)
        day_ago = time.time_ns() // 1000 - 24 * HOUR_US
        return {
            "catalog": self._catalog.uri,
            "warehouse": self._catalog.warehouse,
            "isolation": self._catalog.default_isolation,
            "num_records": sum(one.num_records - one.deleted_rows for one in tables),
            "num_files": sum(one.num_files for one in tables),
            "size_bytes": sum(one.size_bytes for one in tables),
            "num_behind": sum(one.mirror_state != "active" or one.lag_s > 0 for one in tables),
            "num_conflicts": sum(one.num_conflicts for one in self._activity.conflict_counts(day_ago)),
            "tables": [
                {
                    "name": one.table,
                    "version": one.current_version,
                    "num_files": one.num_files,
                    "size_bytes": one.size_bytes,
                    "num_records": one.num_records - one.deleted_rows,
                    "lag_s": one.lag_s,
                    "last_commit_age_s": one.last_commit_age_s,
                    "mirror_state": one.mirror_state,
                    "num_advice": by_table[one.table],
                }
                for one in tables
            ],
            "tags": [asdict(tag) for tag in self._catalog.tags()],
            "transactions": [asdict(one) for one in self._catalog.activity(limit=10)],
            "advice": [advised(one) for one in advice],
            "page": self.swimlanes(LaneFilter()),
        }

    def swimlanes(self, wanted: LaneFilter) -> Swimlanes:
        tables = {table.id: table.name for table in self._catalog.tables()}
        if wanted.table:
            tables = {key: name for key, name in tables.items() if wanted.table.lower() in name.lower()}
        shown = dict(list(tables.items())[wanted.page * LANES : (wanted.page + 1) * LANES])
        from_us, to_us, is_live = self._window(wanted)
        window = Window(from_us, to_us, tuple(shown), wanted.operation, wanted.committer)
        has_commits, has_lost = (shown and wanted.outcome in (None, outcome) for outcome in OUTCOMES)
        count = self._activity.count(window) if has_commits else 0
        lost = self._activity.lost(window, MOST_MARKS) if has_lost else []
        commits = self._activity.commits(window, MOST_MARKS) if 0 < count <= MOST_MARKS else []
        density = self._activity.density(window, BUCKETS) if count > MOST_MARKS else []
        return Swimlanes(
            wanted,
            from_us,
            to_us,
            count,
            len(lost),
            len(tables),
            is_live,
            draw(shown, from_us, to_us, commits, density, lost),
            summaries(self._session, self._activity.commits_of(dict.fromkeys(one.txn_id for one in commits[:LISTED]))),
            self._activity.operations(list(shown)) if shown else [],
        )

    def _window(self, wanted: LaneFilter) -> tuple[int, int, bool]:
        """Return the window: as asked for, or the last commits and a little more."""
        span = self._activity.span()
        now = time.time_ns() // 1000
        last = now if span is None else max(now, span[1] + 1)
        to_us = last if wanted.to_us is None else wanted.to_us
        if wanted.from_us is not None:
            from_us = wanted.from_us
        elif span is None:
            from_us = to_us - HOUR_US
        else:
            # All of a short history; of a long one the last day.
            from_us = max(span[0] - max((to_us - span[0]) // 50, 1_000_000), to_us - 24 * HOUR_US)
        if to_us - from_us < LEAST_US:
            raise ValidationError("the window ends before it begins", hint="Choose a longer window.")
        return from_us, to_us, wanted.to_us is None

    def cuts(self, before: str | None, after: str | None) -> dict[str, Any]:
        """Compare the versions of all tables at two moments, by default an hour ago and now."""
        now = time.time_ns() // 1000
        times = [
            now - HOUR_US if not before else self._moment_us(before),
            now if not after else self._moment_us(after),
        ]
        first, last = (self._activity.versions_at(moment) for moment in times)
        names = {table.id: table.name for table in self._catalog.tables()}
        tables: list[dict[str, Any]] = []
        for table_id, name in sorted(names.items(), key=lambda item: item[1]):
            old, new = first.get(table_id), last.get(table_id)
            change: dict[str, Any] = {"table": name, "before": old, "after": new}
            if new is not None and old != new and len(tables) < COMPARED:
                change |= self._difference(table_id, -1 if old is None else old, new)
            tables.append(change)
        lanes = LaneFilter(times[0] + 1, max(times[1] + 1, times[0] + 1 + LEAST_US))
        return {
            "before": from_microseconds(times[0]),
            "after": from_microseconds(times[1]),
            "tags": [tag.name for tag in self._catalog.tags()],
            "num_changed": sum(one["before"] != one["after"] for one in tables),
            "tables": tables,
            "page": self.swimlanes(lanes) if times[1] > times[0] else None,
        }

    def _difference(self, table_id: UUID, before: int, after: int) -> dict[str, int]:
        """Return what the versions between two cuts added and removed, together."""
        totals = self._activity.totals(table_id, min(before, after) + 1, max(before, after))
        return {
            name: sum(getattr(one, name) for one in totals)
            for name in ("files_added", "files_removed", "rows_added", "rows_removed", "bytes_added", "bytes_removed")
        }

    def _moment_us(self, text: str) -> int:
        for tag in self._catalog.tags():
            if tag.name.lower() == text.lower():
                return tag.commit_ts
        found = self._session.reader.transaction(text) if _is_id(text) else None
        return to_microseconds(text) if found is None else found.commit_ts

    def conflicts(self, page: int = 0) -> dict[str, Any]:
        found = self._activity.conflicts(limit=CONFLICTS + 1, offset=page * CONFLICTS)
        counts = self._activity.conflict_counts()
        names = self._session.registry.names({count.table_id for count in counts})
        by_table, by_rule, by_hour = Counter[str](), Counter[str](), Counter[str]()
        for count in counts:
            by_table[names.get(count.table_id, str(count.table_id))] += count.num_conflicts
            by_rule[count.rule] += count.num_conflicts
            by_hour[from_microseconds(count.hour * HOUR_US).strftime("%Y-%m-%d %H:00")] += count.num_conflicts
        return {
            "conflicts": [asdict(one) for one in conflict_details(self._session, found[:CONFLICTS])],
            "num_conflicts": by_rule.total(),
            "page": page,
            "has_more": len(found) > CONFLICTS,
            "by_table": bars(by_table.most_common(MOST_BARS)),
            "by_rule": bars(by_rule.most_common()),
            "by_hour": bars(sorted(by_hour.items())[-HOURS:]),
            "drawing": by_table_and_hour(counts, names),
        }

    def mirror(self) -> dict[str, Any]:
        return {"tables": [_mirror(status) for status in self._session.publisher.status.overview()]}

    def streams(self) -> dict[str, Any]:
        rows = self._activity.streams(BATCHES)
        names = self._session.registry.names({row.table_id for row in rows})
        now = time.time_ns() // 1000
        streams = []
        for (app_id, table_id), each in groupby(rows, key=lambda row: (row.app_id, row.table_id)):
            newest, *older = batches = list(each)
            lag_s = max(0, now - newest.commit_ts) / 1e6
            pauses = [(one.app_version, one.commit_ts - other.commit_ts) for one, other in pairwise(batches)]
            usual_s = statistics.median(pause for _, pause in pauses) / 1e6 if pauses else None
            streams.append(
                {
                    "app_id": app_id,
                    "table": names[table_id],
                    "batch": newest.app_version,
                    "version": newest.version,
                    "committed_at": from_microseconds(newest.commit_ts),
                    "lag_s": lag_s,
                    "usual_pause_s": usual_s,
                    "is_late": usual_s is not None and lag_s > max(LATE * usual_s, LATE_S),
                    "batches": len(older) + 1,
                    "pauses": line("pauses", pauses[::-1]),
                }
            )
        return {"streams": streams}

    def maintenance(self) -> dict[str, Any]:
        rows = {row.table_id: row for row in self._activity.maintenance()}
        records = {table.id: table.name for table in self._catalog.tables()}
        window = Window(0, EVER_US, tuple(records), operation=OPTIMIZE)
        runs = self._activity.commits_of(
            {one.txn_id for one in self._activity.commits(window, RUNS)} if records else ()
        )
        tables = []
        for table in self._catalog.tables():
            row = rows.get(table.id, MaintenanceRow(table.id, 0, None, None, None))
            optimized = [one.commit_ts for one in runs if one.table_id == table.id]
            tables.append(
                {
                    "table": table.name,
                    "optimized_at": _time(max([row.optimized_at or 0, *optimized]) or None),
                    "vacuumed_at": _time(row.vacuumed_at),
                    "expired_at": _time(row.expired_at),
                    "first_version": row.first_version,
                }
            )
        return {
            "tables": tables,
            "advice": [advised(one) for one in self._catalog.advise()],
            "runs": [
                {
                    "table": records[one.table_id],
                    "version": one.version,
                    "operation": one.operation,
                    "committed_at": from_microseconds(one.commit_ts),
                    "committer": one.committer,
                    "txn_id": one.txn_id,
                    "duration_s": before_publication(one.stages),
                    "metrics": dict(one.metrics or {}),
                }
                for one in sorted(runs, key=lambda one: one.commit_ts, reverse=True)
                if one.table_id in records
            ],
        }

    # -- one thing -------------------------------------------------------------------------------------------------

    def table(self, name: str) -> dict[str, Any]:
        return table_page(self._catalog, self._activity, name)

    def transaction(self, text: str) -> dict[str, Any]:
        txn_id = as_txn_id(text)
        commits = self._activity.commits_of([txn_id])
        if not commits:
            raise TransactionNotFound(txn_id=txn_id, hint="The swimlanes show the transactions that the catalog has.")
        [summary] = summaries(self._session, commits)
        names = self._session.registry.names({commit.table_id for commit in commits})
        tables = []
        for commit in commits:
            totals = self._activity.totals(commit.table_id, commit.version, commit.version)
            tables.append(
                {
                    "table": names[commit.table_id],
                    "version": commit.version,
                    "operation": commit.operation,
                    "operation_params": dict(commit.operation_params or {}),
                    "metrics": dict(commit.metrics or {}),
                    "published_at": _time(commit.published_at),
                    "publication_s": None
                    if commit.published_at is None
                    else max(0, commit.published_at - commit.commit_ts) / 1e6,
                    **_totals(totals[0] if totals else None),
                }
            )
        lost = conflict_details(self._session, self._activity.conflicts(txn_id=txn_id, limit=CONFLICTS))
        torn = torn_us(commits)
        return {
            **asdict(summary),
            "user_metadata": commits[0].user_metadata,
            "torn_s": None if torn is None or len(commits) == 1 else torn / 1e6,
            "graph": of_run(summary),
            "tables": sorted(tables, key=lambda one: one["table"]),
            "conflicts": [asdict(one) for one in lost],
        }


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _time(us: int | None) -> datetime | None:
    return None if us is None else from_microseconds(us)


def _totals(totals: VersionTotals | None) -> dict[str, int]:
    if totals is None:
        totals = VersionTotals(UUID(int=0), 0)
    return {key: value for key, value in asdict(totals).items() if key not in ("table_id", "version")}


def _mirror(status: MirrorStatus) -> dict[str, Any]:
    since = status.pending_since if status.is_pending else None
    return {
        "table": status.name,
        "state": status.state.value,
        "mode": None if status.mode is None else status.mode.value,
        "current_version": status.current_version,
        "published_version": status.published_version,
        "num_pending": max(0, status.current_version - status.published_version),
        "lag_s": 0.0 if since is None else max(0, status.now - since) / 1e6,
        "attempts": status.attempts,
        "last_error": status.last_error,
        "next_attempt_at": _time(status.next_attempt_at),
    }
