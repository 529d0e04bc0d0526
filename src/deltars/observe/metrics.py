"""Events as Prometheus metrics. The only module that imports prometheus_client.

Labels have few values each: a catalog of this process, an outcome, the name of an error. Only one metric has a label
for tables, the lag of the mirror, and only for the `MAX_TABLES` tables that are furthest behind.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from deltars.observe.events import (
    BatchEnded,
    CommitEnded,
    Event,
    MaintenanceEnded,
    MaintenanceSeen,
    MirrorSeen,
    PublicationFailed,
    TransactionEnded,
    TransactionPublished,
    VersionPublished,
    WriteSkipped,
)
from deltars.observe.pools import PoolUse, pools

MAX_TABLES = 1_000
"""Most tables that the lag metric names; they are the ones furthest behind."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Upper bounds of the buckets. The alert rules use 5, 10, 30 and 60."""
FILES = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)

_LOCKED = ("check", "write", "commit")
"""The stages of a commit in which it holds its locks."""


def default_registry() -> CollectorRegistry:
    return REGISTRY


class Metrics:
    """The metrics of this process, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._seen: dict[str, tuple[float, MirrorSeen]] = {}
        self.port: int | None = None
        # Cached: there are few labels, and looking them up in prometheus_client takes longer than counting.
        self._of: Callable[..., Any] = cache(lambda metric, *labels: metric.labels(*labels))

        def seconds(name: str, what: str, *labels: str) -> Histogram:
            return Histogram(f"deltars_{name}_seconds", what, ("catalog", *labels), buckets=SECONDS, registry=registry)

        def total(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"deltars_{name}_total", what, ("catalog", *labels), registry=registry)

        self._transaction = seconds(
            "transaction", "Time from begin() to the end of the transaction.", "tables", "outcome"
        )
        self._locked = seconds(
            "transaction_locked", "Time that the database transaction of a commit held its locks.", "tables"
        )
        self._commit = seconds("commit", "Time of a commit: validation, locks, writing, COMMIT.", "tables", "outcome")
        self._commits = total("commits", "Attempted commits, by outcome.", "outcome")
        self._conflicts = total("conflicts", "Commits that conflicted with another one, by rule.", "conflict")
        self._failures = total("commit_failures", "Commits that failed, by error and stage.", "error", "stage")
        self._skipped = total(
            "skipped_writes",
            "Writes skipped by app_id and app_version: repeated, or late (after a later version).",
            "reason",
        )
        self._lock_wait = seconds("lock_wait", "Time from requesting a connection to holding all locks or giving up.")
        self._files = Histogram(
            "deltars_commit_files",
            "Files added and removed by a commit.",
            ("catalog", "action"),
            buckets=FILES,
            registry=registry,
        )
        self._publication = seconds("mirror_publication", "Time from the commit of a version to its publication.")
        self._skew = seconds("mirror_skew", "Time between publishing the first and the last table of a transaction.")
        self._mirror_failures = total("mirror_failures", "Versions that could not be published.", "state")
        self._maintenance = seconds("maintenance", "Time of one verb of maintenance of a table.", "verb", "outcome")
        self._maintained = total("maintenance_files", "Files that maintenance wrote again or deleted.", "verb")
        self._batch = seconds("stream_batch", "Time of a micro-batch, from its call to its commit.", "outcome")
        self._due = Gauge(
            "deltars_maintenance_due",
            "Tables that need a verb of maintenance, when the service last looked.",
            ("catalog", "verb"),
            registry=registry,
        )
        registry.register(self)

    def serve(self, port: int) -> None:
        """Serve the metrics at `/metrics`, from a thread that ends with the process."""
        server, _ = start_http_server(port, registry=self._registry)
        self.port = server.server_port

    def __call__(self, event: Event) -> None:
        of = self._of
        match event:
            case CommitEnded():
                self._commit_ended(event)
            case TransactionEnded():
                tables = "several" if len(event.versions) > 1 else "one"
                of(self._transaction, event.source.catalog, tables, event.outcome.value).observe(event.duration_s)
            case WriteSkipped():
                of(self._skipped, event.source.catalog, "late" if event.is_late else "repeated").inc()
            case VersionPublished():
                of(self._publication, event.source.catalog).observe(event.lag_s)
            case PublicationFailed():
                of(self._mirror_failures, event.source.catalog, event.state).inc()
            case TransactionPublished():
                of(self._skew, event.source.catalog).observe(event.skew_s)
            case MirrorSeen():
                self._seen[event.source.catalog] = (time.time(), event)
            case MaintenanceSeen():
                for verb, count in event.due.items():
                    of(self._due, event.source.catalog, verb).set(count)
            case BatchEnded():
                of(self._batch, event.source.catalog, event.outcome.value).observe(event.duration_s)
            case MaintenanceEnded():
                of(self._maintenance, event.source.catalog, event.verb, event.outcome).observe(event.duration_s)
                of(self._maintained, event.source.catalog, event.verb).inc(event.num_files)

    def _commit_ended(self, event: CommitEnded) -> None:
        of, catalog, stages = self._of, event.source.catalog, event.stages
        tables = "several" if len(event.tables) > 1 else "one"
        of(self._commits, catalog, event.outcome.value).inc()
        of(self._commit, catalog, tables, event.outcome.value).observe(event.duration_s)
        if "lock" in stages:
            of(self._lock_wait, catalog).observe(stages["lock"])
        # A stage after the lock shows that the lock was held.
        held_s = [stages[stage] for stage in _LOCKED if stage in stages]
        if held_s:
            of(self._locked, catalog, tables).observe(sum(held_s))
        if event.conflict is not None:
            of(self._conflicts, catalog, event.conflict).inc()
        elif event.error is not None:
            of(self._failures, catalog, type(event.error).__name__, event.stage).inc()
        elif event.outcome == "committed":
            of(self._files, catalog, "add").observe(event.added_files)
            if event.removed_files:
                of(self._files, catalog, "remove").observe(event.removed_files)

    # -- read when metrics are collected -------------------------------------------------------------------------------

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without samples, so that registering them needs no collection."""
        yield from (*_pool_families({}), *_mirror_families({}))

    def collect(self) -> Iterator[Metric]:
        uses: dict[str, list[PoolUse]] = {}
        for source, use in pools():
            uses.setdefault(source.catalog, []).append(use)
        yield from (*_pool_families(uses), *_mirror_families(dict(self._seen)))


def _pool_families(uses: dict[str, list[PoolUse]]) -> Iterator[Metric]:
    size = GaugeMetricFamily("deltars_pool_size", "Most connections that the pool may open.", labels=["catalog"])
    connections = GaugeMetricFamily(
        "deltars_pool_connections", "Open connections, in use or idle.", labels=["catalog", "state"]
    )
    waiting = GaugeMetricFamily(
        "deltars_pool_waiting", "Callers that are waiting for a connection.", labels=["catalog"]
    )
    asked = CounterMetricFamily("deltars_pool_requests", "Requests for a connection.", labels=["catalog"])
    waited = CounterMetricFamily(
        "deltars_pool_wait_seconds", "Total time that callers waited for connections.", labels=["catalog"]
    )
    for catalog, each in uses.items():
        size.add_metric([catalog], sum(use.size for use in each))
        connections.add_metric([catalog, "in_use"], sum(use.in_use for use in each))
        connections.add_metric([catalog, "idle"], sum(use.idle for use in each))
        waiting.add_metric([catalog], sum(use.waiting for use in each))
        asked.add_metric([catalog], sum(use.asked for use in each))
        waited.add_metric([catalog], sum(use.waited_s for use in each))
    return iter((size, connections, waiting, asked, waited))


def _mirror_families(seen: dict[str, tuple[float, MirrorSeen]]) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "deltars_mirror_lag_seconds",
        f"Age of a table's oldest unpublished version, for the {MAX_TABLES} tables furthest behind.",
        labels=["catalog", "table"],
    )
    states = GaugeMetricFamily(
        "deltars_mirror_tables", "Number of tables, by the state of their publication.", labels=["catalog", "state"]
    )
    looked = GaugeMetricFamily(
        "deltars_mirror_seen_timestamp_seconds",
        "Time when the reconciler last checked every table.",
        labels=["catalog"],
    )
    for catalog, (when, event) in seen.items():
        looked.add_metric([catalog], when)
        for table in sorted(event.tables, key=lambda table: (-table.lag_s, table.table))[:MAX_TABLES]:
            lag.add_metric([catalog, table.table], table.lag_s)
        tally = Tally(table.state for table in event.tables)
        # Zeros are exported too, because an alert rule over a missing series never fires.
        for state in sorted({"active", "failed", "diverged", *tally}):
            states.add_metric([catalog, state], tally[state])
    return iter((lag, states, looked))
