"""What it costs a commit to be watched: by nobody, by metrics, by spans.

One process commits to one table, watched in turns: each round gives every way the same number of commits, one after
the other, so that what slows one slows all. What is compared is the processor's time of the committing process, and
beside it the exporters' own: waiting for the database, or for a busy machine, would hide what they cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

import deltars
from benchmarks.figures import OURS, Figure, Side, Target
from benchmarks.lane import Lane
from benchmarks.rig import SCHEMA, Rig, add_file, new_catalog
from deltars import observe
from deltars.log.commit import Commit, Committed, TableCommit
from deltars.observe.metrics import Metrics
from deltars.observe.spans import Spans
from deltars.store.commit.event import commit_ended

UNWATCHED, METRICS, SPANS = f"{OURS}, unwatched", OURS, f"{OURS}, spans"
SHARE_PERCENT = 3


@dataclass(frozen=True)
class Sizes:
    rounds: int = 5
    commits: int = 60


class Nowhere(SpanExporter):
    """Takes spans and drops them: sending them is another thread's work, and another program's speed."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class Timed:
    """An exporter, and how long it took for each commit."""

    def __init__(self, exporter: observe.Exporter) -> None:
        self._exporter = exporter
        self.seconds = 0.0
        self.seen: list[float] = []

    def __call__(self, event: observe.Event) -> None:
        began = time.thread_time()
        self._exporter(event)
        self.seconds += time.thread_time() - began

    def next_commit(self) -> None:
        self.seen.append(self.seconds)
        self.seconds = 0.0


def watched(rig: Rig, sizes: Sizes) -> list[Figure]:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    figures = []
    with deltars.connect(new_catalog(rig.server)) as catalog:
        for what, commit, commits in (
            ("`SqlTxnLogWriter.commit`, one file", _raw(catalog), sizes.commits),
            ("`begin`, `stage`, `commit` of two tables, published", _transaction(catalog), max(1, sizes.commits // 4)),
        ):
            ways: dict[str, Timed | None] = {
                METRICS: Timed(Metrics(CollectorRegistry())),
                UNWATCHED: None,
                SPANS: Timed(Spans(provider)),
            }
            figures += _ways(what, commit, ways, sizes.rounds, commits)
    return figures


def _ways(
    what: str, commit: Callable[[], None], ways: dict[str, Timed | None], rounds: int, commits: int
) -> list[Figure]:
    """The processor's time of a commit, and the share of its whole time that is for watching."""
    for _ in range(commits):
        commit()
    times: dict[str, list[float]] = {way: [] for way in ways}
    cpu_ms: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        seen: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(commits):
            for way, exporter in ways.items():
                with nullcontext() if exporter is None else _attached(exporter):
                    began, began_cpu = time.perf_counter(), time.process_time()
                    commit()
                    seen[way].append(time.process_time() - began_cpu)
                    times[way].append(time.perf_counter() - began)
        for way in ways:
            cpu_ms[way].append(statistics.median(seen[way]) * 1000)
    unwatched = _unwatched()
    share = {}
    for way, exporter in ways.items():
        spent = unwatched if exporter is None else unwatched + statistics.median(exporter.seen)
        share[way] = spent / statistics.median(times[way]) * 100
    return [
        Figure(f"{what}: CPU", "ms", {way: Side(values) for way, values in cpu_ms.items()}),
        Figure(
            f"{what}: share for watching",
            "%",
            {way: Side([value]) for way, value in share.items()},
            targets=[Target("at_most", SHARE_PERCENT)],
        ),
    ]


@contextmanager
def _attached(exporter: Timed) -> Iterator[None]:
    observe.attach(exporter)
    try:
        yield
    finally:
        observe.detach(exporter)
        exporter.next_commit()


def _unwatched(rounds: int = 100, times: int = 100) -> float:
    """What a commit does to be watchable, seconds: a stopwatch, an event, nobody to tell."""
    source = observe.Source("deltasql://postgres/lake/public", "postgresql", "lake|public")
    table_id, txn_id = uuid4(), uuid4()
    commit = Commit(txn_id, (TableCommit(table_id, 0, [add_file(0)], "WRITE"),))
    answer = Committed(txn_id, 0, {table_id: 1})
    seen = []
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(times):
            watch = observe.Stopwatch("validate")
            for stage in ("lock", "check", "write", "commit", "commit"):
                watch.enter(stage)
            observe.emit(commit_ended(source, commit, answer, watch))
        seen.append((time.thread_time() - began) / times)
    return statistics.median(seen)


def _raw(catalog: deltars.Catalog) -> Callable[[], None]:
    writer, table_id, version = deltars.SqlTxnLogWriter(catalog), catalog.create_table("raw", SCHEMA).id, 0

    def commit() -> None:
        nonlocal version
        version += 1
        writer.commit(table_id, version, [add_file(version)], operation="WRITE")

    return commit


def _transaction(catalog: deltars.Catalog) -> Callable[[], None]:
    tables, number = [catalog.create_table(name, SCHEMA).id for name in ("left", "right")], 0

    def commit() -> None:
        nonlocal number
        number += 1
        with catalog.begin() as tx:
            for table_id in tables:
                tx.stage(table_id, [add_file(number)])

    return commit


LANES = [
    Lane(
        "observe",
        "What being watched costs a commit",
        "deltars with metrics, beside the same without exporters and with spans. CPU is that of the client.",
        watched,
        {"tiny": Sizes(1, 4), "quick": Sizes(2, 40), "full": Sizes()},
    ),
]
