"""The mirror: how far readers lag behind commits, how fast a backlog is published, how long a large checkpoint takes.

    python -m benchmarks.mirror [--quick] [--only lag,backlog,checkpoint]

The catalog is on PostgreSQL with default durability; tables lie on local disk, and every file is synced. The peer for
checkpoints is delta-rs, which writes one of the very same table in the same run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from deltalake import DeltaTable

import deltars
from benchmarks.report import table, write_section
from benchmarks.rig import SCHEMA, add_file, add_table, durable_server, in_own_process
from deltars.mirror import Publisher
from deltars.mirror.files.checkpoint import write_checkpoint
from deltars.protocol.log_files import checkpoint_path
from deltars.storage import open_storage
from deltars.store.mirror.checkpoint_state import CheckpointRows
from tests.support.memory import peak_mib
from tests.support.postgres import PostgresServer
from tests.support.run_directory import RunDirectory

TABLES = 10


@dataclass
class Sizes:
    lag_seconds: float = 60.0
    commits_a_second: int = 50
    backlog_versions: int = 500
    files: int = 1_000_000
    rounds: int = 3


QUICK = Sizes(lag_seconds=8.0, backlog_versions=60, files=100_000, rounds=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written to the docs")
    parser.add_argument("--only", default=",".join(PARTS))
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    run = RunDirectory()
    try:
        server = durable_server()
        for name in arguments.only.split(","):
            title, body = PARTS[name](server, sizes)
            print(f"\n{title}\n\n{body}", flush=True)
            if not arguments.quick:
                write_section(title, "make bench-mirror", body)
    finally:
        run.close()


# -- lag -------------------------------------------------------------------------------------------------------


def lag(server: PostgresServer, sizes: Sizes) -> tuple[str, str]:
    """Committers at a steady rate; a commit's lag ends when its file is there."""
    rows: list[list[object]] = []
    for mode in ("inline", "async"):
        with _new_catalog(server, mirror=mode) as catalog, ExitStack() as running:
            if mode == "async":
                running.enter_context(_reconciler(_uris[catalog.uri]))
            tables = [catalog.create_table(f"t{number}", SCHEMA) for number in range(TABLES)]
            _until_published(catalog)
            begun = time.perf_counter()
            commits = _commit_steadily(catalog, [table.id for table in tables], sizes)
            rate = len(commits) / (time.perf_counter() - begun)
            _until_published(catalog)
            lags = sorted(_lags_ms(catalog, tables, commits))
        p50, p95, p99 = (statistics.quantiles(lags, n=100)[p - 1] for p in (50, 95, 99))
        figures = [f"{value:.0f}" for value in (p50, p95, p99, lags[-1])]
        rows.append([mode, f"{len(lags):,}", f"{rate:.0f}", *figures, "p95 below 250 ms"])
    note = (
        f"{sizes.commits_a_second} commits a second over {TABLES} tables, one file each, by {TABLES} threads of one "
        "process; from the commit (`commit_ts`) until its file stands in `_delta_log`. A checkpoint every 10 versions "
        "included. `inline`: that process publishes too. `async`: a `deltars mirror run` does, as users run it."
    )
    header = ["mirror", "commits", "a second", "p50 ms", "p95", "p99", "most", "target"]
    return "Lag of the mirror", f"{note}\n\n{table(header, rows)}"


@contextmanager
def _reconciler(uri: str) -> Iterator[None]:
    environment = os.environ | {"DELTARS_CATALOG": uri}
    process = subprocess.Popen([sys.executable, "-m", "deltars.cli", "mirror", "run"], env=environment)
    try:
        yield
    finally:
        process.terminate()
        if process.wait() != 0:
            raise RuntimeError(f"the reconciler ended with {process.returncode}")


def _commit_steadily(catalog: deltars.Catalog, tables: list[UUID], sizes: Sizes) -> dict[tuple[UUID, int], int]:
    """The time of every commit, in µs, by table and version."""
    writer = deltars.SqlTxnLogWriter(catalog)
    commits: dict[tuple[UUID, int], int] = {}
    pause_s = TABLES / sizes.commits_a_second
    begin = time.monotonic()

    def commit(table_id: UUID, offset: float) -> None:
        version, next_at = 0, begin + offset
        while next_at < begin + sizes.lag_seconds:
            time.sleep(max(0.0, next_at - time.monotonic()))
            next_at += pause_s
            version += 1
            result = writer.commit(table_id, version, [add_file(version)], operation="WRITE")
            commits[table_id, version] = result.commit_ts
            catalog._session.publish({table_id: version})

    with ThreadPoolExecutor(len(tables)) as pool:
        jobs = [pool.submit(commit, table_id, number * pause_s / TABLES) for number, table_id in enumerate(tables)]
    for job in jobs:
        job.result()
    return commits


def _lags_ms(
    catalog: deltars.Catalog, tables: list[deltars.Table], commits: dict[tuple[UUID, int], int]
) -> list[float]:
    """By the change time of each file: the modification time is set to the commit's."""
    places = {table.id: Path(table.location) for table in tables}
    return [
        max(0.0, (places[key] / "_delta_log" / f"{version:020}.json").stat().st_ctime * 1000 - commit_ts / 1000)
        for (key, version), commit_ts in commits.items()
    ]


# -- a backlog -------------------------------------------------------------------------------------------------


def backlog(server: PostgresServer, sizes: Sizes) -> tuple[str, str]:
    rates = []
    for _ in range(sizes.rounds):
        with _new_catalog(server, mirror="off") as catalog:
            writer = deltars.SqlTxnLogWriter(catalog)
            for number in range(TABLES):
                table_id = catalog.create_table(f"t{number}", SCHEMA).id
                for version in range(1, sizes.backlog_versions):
                    writer.commit(table_id, version, [add_file(version)], operation="WRITE")
            begun = time.perf_counter()
            with ThreadPoolExecutor(5) as pool:
                list(pool.map(catalog._session.publisher.publish_pending, catalog._session.publisher.status.due()))
            took = time.perf_counter() - begun
            assert all(not status.is_pending for status in catalog.mirror_status())
            [checkpoints] = {
                len(list(Path(table.location, "_delta_log").glob("*.checkpoint.parquet"))) for table in catalog.tables()
            }
            rates.append(TABLES * sizes.backlog_versions / took)
    what = f"{TABLES} tables, {sizes.backlog_versions} versions each"
    spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
    rows = [[what, f"{statistics.median(rates):,.0f}", spread, checkpoints, "500"]]
    header = ["backlog", "versions a second", "spread", "checkpoints a table", "target"]
    return "Publishing a backlog", f"The reconciler's own way, 5 tables at a time.\n\n{table(header, rows)}"


# -- a large checkpoint ----------------------------------------------------------------------------------------


def checkpoint(server: PostgresServer, sizes: Sizes) -> tuple[str, str]:
    with _new_catalog(server, mirror="off", timeout=3600) as catalog:
        uri, table_id = catalog.uri, catalog.create_table("big", SCHEMA).id
        deltars.SqlTxnLogWriter(catalog).commit(table_id, 1, add_table(sizes.files), operation="WRITE")
        location = Path(catalog.table("big").location)
    catalog_uri = _uris[uri]
    in_own_process(_publish, catalog_uri, table_id)
    ours, theirs, memory, peer_memory = [], [], 0.0, 0.0
    for _ in range(sizes.rounds):
        took, memory = in_own_process(_our_checkpoint, catalog_uri, table_id)
        ours.append(took)
        took, peer_memory = in_own_process(_their_checkpoint, str(location))
        theirs.append(took)
    ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
    size = (location / checkpoint_path(1)).stat().st_size / 2**20
    rows = [
        [
            f"{sizes.files:,}",
            f"{statistics.median(ours):.1f}",
            f"{statistics.median(theirs):.1f}",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            "1.2",
            f"{memory:,.0f}",
            f"{peer_memory:,.0f}",
            f"{size:,.0f}",
        ]
    ]
    header = [
        "files",
        "deltars, s",
        "delta-rs, s",
        "times as fast",
        "target",
        "memory, MiB",
        "delta-rs' memory",
        "file, MiB",
    ]
    note = (
        "From the catalog, or from the published log, to the finished checkpoint: opening the table included for both. "
        "Memory is the most that the process had."
    )
    return "A large checkpoint", f"{note}\n\n{table(header, rows)}"


def _publish(uri: str, table_id: UUID) -> None:
    with deltars.connect(uri) as catalog:
        Publisher(catalog._session.database, checkpoint_interval=1_000).publish_pending(table_id)


def _our_checkpoint(uri: str, table_id: UUID) -> tuple[float, float]:
    with deltars.connect(uri) as catalog:
        storage = open_storage(catalog.table(table_id).location)
        storage.delete([checkpoint_path(1), "_delta_log/_last_checkpoint"])
        begun = time.perf_counter()
        written = write_checkpoint(storage, CheckpointRows(catalog._session.database).at(table_id, 1))
        took = time.perf_counter() - begun
        assert written.created
        with storage.open_reader(checkpoint_path(1)) as file:
            assert pq.read_metadata(file).num_rows == written.num_actions
        return took, peak_mib()


def _their_checkpoint(location: str) -> tuple[float, float]:
    copy = Path(tempfile.mkdtemp())
    (copy / "_delta_log").mkdir()
    for file in Path(location, "_delta_log").glob("*.json"):
        shutil.copy(file, copy / "_delta_log")
    begun = time.perf_counter()
    DeltaTable(copy).create_checkpoint()
    took = time.perf_counter() - begun
    shutil.rmtree(copy)
    return took, peak_mib()


# -- what the parts share --------------------------------------------------------------------------------------


_uris: dict[str, str] = {}


def _new_catalog(server: PostgresServer, **options: Any) -> deltars.Catalog:
    uri = server.create_catalog_uri(server.create_database("bench"))
    catalog = deltars.connect(uri, warehouse=tempfile.mkdtemp(), migrate=True, pool_size=20, **options)
    _uris[catalog.uri] = uri
    return catalog


def _until_published(catalog: deltars.Catalog) -> None:
    deadline = time.monotonic() + 300
    while any(status.is_pending for status in catalog.mirror_status()):
        if time.monotonic() > deadline:
            raise RuntimeError("nobody publishes")
        time.sleep(0.05)


PARTS: dict[str, Callable[[PostgresServer, Sizes], tuple[str, str]]] = {
    "lag": lag,
    "backlog": backlog,
    "checkpoint": checkpoint,
}

if __name__ == "__main__":
    main()
