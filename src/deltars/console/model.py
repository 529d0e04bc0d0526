"""What each page shows, as plain values: the page is made from them, and its JSON is them.

Nothing here writes: neither the catalog's database nor a file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pyarrow.compute as pc

from deltars.catalog import Catalog, Table
from deltars.catalog.activity import TransactionSummary, conflict_details, summaries
from deltars.catalog.charts import Bar, bars, size_text
from deltars.catalog.growth import table_growth
from deltars.console.lanes import BUCKETS, MOST_MARKS, Drawing, draw
from deltars.errors import TableNotFound, TransactionNotFound, ValidationError
from deltars.log.moments import from_microseconds, to_microseconds
from deltars.log.transaction_id import as_txn_id
from deltars.store.mirror.status import MirrorStatus
from deltars.store.read.activity import HOUR_US, Activity, MaintenanceRow, VersionTotals, Window

LANES = 40
"""Tables of one page of swimlanes."""
HISTORY = 100
"""Commits of a table that its page lists."""
GROWTH = 300
"""Versions of a table that its charts show."""
PARTITIONS = 100
HOURS = 48
"""Hours with conflicts that the chart shows."""
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
        statistics = self._catalog.statistics()
        advice = self._catalog.advise()
        by_table = Counter(one.table for one in advice)
        return {
            "catalog": self._catalog.uri,
            "warehouse": self._catalog.warehouse,
            "isolation": self._catalog.default_isolation,
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
                for one in statistics
            ],
            "tags": [asdict(tag) for tag in self._catalog.tags()],
            "transactions": [asdict(one) for one in self._catalog.activity(limit=10)],
            "advice": [asdict(one) for one in advice],
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
            summaries(self._session, commits[:50]),
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
        versions = [self._activity.versions_at(moment) for moment in times]
        names = {table.id: table.name for table in self._catalog.tables()}
        return {
            "before": from_microseconds(times[0]),
            "after": from_microseconds(times[1]),
            "tags": [tag.name for tag in self._catalog.tags()],
            "tables": [
                {"table": name, "before": versions[0].get(table_id), "after": versions[1].get(table_id)}
                for table_id, name in sorted(names.items(), key=lambda item: item[1])
            ],
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
            "by_table": bars(by_table.most_common(HISTORY)),
            "by_rule": bars(by_rule.most_common()),
            "by_hour": bars(sorted(by_hour.items())[-HOURS:]),
        }

    def mirror(self) -> dict[str, Any]:
        return {"tables": [_mirror(status) for status in self._session.publisher.status.overview()]}

    def streams(self) -> dict[str, Any]:
        rows = self._activity.streams()
        names = self._session.registry.names({row.table_id for row in rows})
        now = time.time_ns() // 1000
        return {
            "streams": [
                {
                    "app_id": row.app_id,
                    "table": names[row.table_id],
                    "batch": row.app_version,
                    "version": row.version,
                    "committed_at": from_microseconds(row.commit_ts),
                    "age_s": max(0, now - row.commit_ts) / 1e6,
                }
                for row in rows
            ]
        }

    def maintenance(self) -> dict[str, Any]:
        rows = {row.table_id: row for row in self._activity.maintenance()}
        tables = []
        for table in self._catalog.tables():
            row = rows.get(table.id, MaintenanceRow(table.id, 0, None, None, None))
            tables.append(
                {
                    "table": table.name,
                    "optimized_at": _time(row.optimized_at),
                    "vacuumed_at": _time(row.vacuumed_at),
                    "expired_at": _time(row.expired_at),
                    "first_version": row.first_version,
                }
            )
        return {"tables": tables, "advice": [asdict(one) for one in self._catalog.advise()]}

    # -- one thing -------------------------------------------------------------------------------------------------

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
        return {
            **asdict(summary),
            "user_metadata": commits[0].user_metadata,
            "tables": sorted(tables, key=lambda one: one["table"]),
            "conflicts": [asdict(one) for one in lost],
        }

    def table(self, name: str) -> dict[str, Any]:
        table = self._catalog.table(name)
        if table.version < 0:
            raise TableNotFound("the table has no version yet", table=table.name, hint="Write to it first.")
        detail = table.detail(partitions=True)
        history = table.history(HISTORY)
        advice = self._catalog.advise([table.id])
        return {
            **asdict(replace(detail, partitions=(detail.partitions or ())[:PARTITIONS])),
            "num_partitions": len(detail.partitions or ()),
            "history": [
                {
                    "version": entry.version,
                    "committed_at": entry.committed_at,
                    "operation": entry.operation,
                    "committer": entry.committer,
                    "user_metadata": entry.user_metadata,
                    "txn_id": entry.txn_id,
                }
                for entry in history
            ],
            "charts": table_growth(self._session, table.id, max(0, table.version - GROWTH), table.version),
            "file_sizes": _file_sizes(table),
            "schema_changes": _schema_changes(self._activity.schemas(table.id, HISTORY)),
            "advice": [asdict(one) for one in advice],
            "sources": [asdict(edge) for edge in self._catalog.lineage(table.id, depth=1)],
            "dependents": [asdict(edge) for edge in self._catalog.lineage(table.id, downstream=True, depth=1)],
            "conflicts": [asdict(one) for one in self._catalog.conflicts(tables=[table.id], limit=20)],
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


def _file_sizes(table: Table) -> list[Bar]:
    """Return how many files there are of each size, by powers of two."""
    files = table.snapshot().select_files(columns=("size",))
    if not files.num_rows:
        return []
    powers = pc.floor(pc.log2(pc.max_element_wise(pc.cast(files["size"], "double"), 1.0)))
    counts = sorted((int(row["values"].as_py()), row["counts"].as_py()) for row in pc.value_counts(powers))
    return bars([(f"{size_text(2**power)} – {size_text(2 ** (power + 1))}", count) for power, count in counts])


def _schema_changes(schemas: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Return which columns each change of the metadata added, removed and changed, newest first."""
    changes = []
    before: Mapping[str, Any] | None = None
    for version, text in schemas:
        fields = {field["name"]: field for field in msgspec.json.decode(text)["fields"]}
        if before is not None:
            kept = before.keys() & fields.keys()
            change = {
                "version": version,
                "added": [name for name in fields if name not in before],
                "removed": [name for name in before if name not in fields],
                "changed": [name for name in fields if name in kept and fields[name] != before[name]],
            }
            if change["added"] or change["removed"] or change["changed"]:
                changes.append(change)
        before = fields
    return changes[::-1]
