"""What it costs a commit to be watched: by nobody, by metrics, by spans.

    python -m benchmarks.observe [--quick]

One process commits to one table, watched in turns: each round gives every way the same number of commits, one after
the other, so that what slows one slows all. What is compared is the processor's time of the committing process, and
beside it the exporters' own: waiting for the database, or for a busy machine, would hide what they cost.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from uuid import uuid4

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

import deltars
from benchmarks.report import table, write_section
from benchmarks.rig import SCHEMA, add_file, durable_server, new_catalog
from deltars import observe
from deltars.log.commit import Commit, Committed, TableCommit
from deltars.observe.metrics import Metrics
from deltars.observe.spans import Spans
from deltars.store.commit.event import commit_ended
from tests.support.run_directory import RunDirectory

TITLE = "What being watched costs a commit"
TARGET = 0.03


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, nothing is written to the docs")
    arguments = parser.parse_args()
    run = RunDirectory()
    try:
        body = measure(new_catalog(durable_server()), rounds=2 if arguments.quick else 5)
        print(f"\n{TITLE}\n\n{body}", flush=True)
        if not arguments.quick:
            write_section(TITLE, "make bench-observe", body)
    finally:
        run.close()


def measure(uri: str, rounds: int, commits: int = 60) -> str:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    rows: list[list[object]] = []
    with deltars.connect(uri) as catalog:
        for what, commit, each in (
            ("`SqlTxnLogWriter.commit`, one file", _raw(catalog), commits),
            ("`begin`, `stage`, `commit` of two tables, published", _transaction(catalog), commits // 4),
        ):
            ways: dict[str, Timed | None] = {
                "nobody": None,
                "metrics": Timed(Metrics(CollectorRegistry())),
                "spans": Timed(Spans(provider)),
            }
            rows += _ways(what, commit, ways, rounds, each)
    header = ["what", "watched by", "p50 ms", "CPU of the client, ms", "ratio of that: median (spread)"]
    header += ["of it for watching, µs", "share of the CPU", "share of the commit", "target"]
    note = f"The load of the machine was {os.getloadavg()[1]:.0f}."
    return f"{note}\n\n{table(header, rows)}"


def _ways(
    what: str, commit: Callable[[], None], ways: dict[str, Timed | None], rounds: int, commits: int
) -> list[list[object]]:
    for _ in range(commits):
        commit()
    times: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    medians: dict[str, list[float]] = {way: [] for way in ways}
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
            cpu[way] += seen[way]
            medians[way].append(statistics.median(seen[way]))
    rows: list[list[object]] = []
    unwatched = _unwatched()
    for way, exporter in ways.items():
        median, whole = statistics.median(cpu[way]), statistics.median(times[way])
        ratios = [mine / off for mine, off in zip(medians[way], medians["nobody"], strict=True)]
        spent = unwatched if exporter is None else unwatched + statistics.median(exporter.seen)
        ratio = f"{statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append(
            [
                what,
                way,
                f"{whole * 1000:.2f}",
                f"{median * 1000:.2f}",
                "" if exporter is None else ratio,
                f"{spent * 1e6:.1f}",
                f"{spent / median:.2%}",
                f"{spent / whole:.2%}",
                f"{TARGET:.0%}" if way == "metrics" else "",
            ]
        )
    return rows


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


if __name__ == "__main__":
    main()
