"""The mirror: how far readers lag behind commits, how fast a backlog is published, how long a large checkpoint takes.

The catalog is on PostgreSQL with default durability; tables are on local disk, and every file is synced. The peer for
checkpoints is delta-rs, which writes one of the very same table in the same run.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from deltalake import DeltaTable

import deltars
from benchmarks.figures import OURS, RATE, Figure, Side, Target
from benchmarks.lane import Lane
from benchmarks.rig import SCHEMA, Rig, add_file, add_table, in_own_process
from deltars.mirror import Publisher
from deltars.mirror.files.checkpoint import write_checkpoint
from deltars.protocol.log_files import checkpoint_path
from deltars.storage import open_storage
from deltars.store.mirror.checkpoint_state import CheckpointRows
from tests.support.memory import peak_mib
from tests.support.postgres import PostgresServer

TABLES = 10
PEER = "delta-rs"
P99_MS = {50: 50, 500: 150}


@dataclass(frozen=True)
class Sizes:
    seconds: float = 60.0
    rates: tuple[int, ...] = (50, 500)
    backlog_versions: int = 500
    files: int = 1_000_000
    rounds: int = 3


SIZES = {
    "tiny": Sizes(1.0, (50,), 5, 500, 1),
    "quick": Sizes(8.0, (50, 500), 100, 100_000, 1),
    "full": Sizes(),
}


# -- lag ---------------------------------------------------------------------------------------------------------------


def lag(rig: Rig, sizes: Sizes) -> list[Figure]:
    """Committers at a steady rate; a commit's lag ends when its file is there."""
    return [_lag(rig, sizes, mode, rate) for rate in sizes.rates for mode in ("inline", "async")]


def _lag(rig: Rig, sizes: Sizes, mode: str, a_second: int) -> Figure:
    with _new_catalog(rig.server, mirror=mode) as catalog, ExitStack() as running:
        if mode == "async":
            running.enter_context(reconciler(_uris[catalog.uri]))
        tables = [catalog.create_table(f"t{number}", SCHEMA) for number in range(TABLES)]
        _until_published(catalog)
        begun = time.perf_counter()
        commits = _commit_steadily(catalog, [table.id for table in tables], sizes, a_second)
        rate = len(commits) / (time.perf_counter() - begun)
        _until_published(catalog)
        lags = sorted(_lags_ms(catalog, tables, commits))
    p50, p99 = statistics.median(lags), lags[min(len(lags) - 1, int(len(lags) * 0.99))]
    due = round(a_second * sizes.seconds)
    # Commits that were due and could not be made in time count as failed.
    late = due - round(rate * sizes.seconds) if rate < a_second * 0.95 else 0
    what = f"{mode}, {a_second} commits a second"
    return Figure(what, "ms", {OURS: Side([p50], p50, p99, failed=late)}, targets=[Target("p99_ms", P99_MS[a_second])])


@contextmanager
def reconciler(uri: str) -> Iterator[None]:
    """`deltars mirror run`, as users run it."""
    environment = os.environ | {"DELTARS_CATALOG": uri}
    process = subprocess.Popen([sys.executable, "-m", "deltars.cli", "mirror", "run"], env=environment)
    try:
        yield
    finally:
        process.terminate()
        if process.wait() != 0:
            raise RuntimeError(f"the reconciler ended with {process.returncode}")


def _commit_steadily(
    catalog: deltars.Catalog, tables: list[UUID], sizes: Sizes, a_second: int
) -> dict[tuple[UUID, int], int]:
    """The time of every commit, in µs, by table and version."""
    writer = deltars.SqlTxnLogWriter(catalog)
    commits: dict[tuple[UUID, int], int] = {}
    pause_s = TABLES / a_second
    begin = time.monotonic()

    def commit(table_id: UUID, offset: float) -> None:
        version, next_at = 0, begin + offset
        while next_at < begin + sizes.seconds:
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


# -- a backlog ---------------------------------------------------------------------------------------------------------


def backlog(rig: Rig, sizes: Sizes) -> list[Figure]:
    rates = []
    for _ in range(sizes.rounds):
        with _new_catalog(rig.server, mirror="off") as catalog:
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
            rates.append(TABLES * sizes.backlog_versions / took)
    what = f"versions of {TABLES} tables, {sizes.backlog_versions} each"
    return [Figure(what, RATE, {OURS: Side(rates)}, targets=[Target("at_least", 4_000)])]


# -- a large checkpoint ------------------------------------------------------------------------------------------------


def checkpoint(rig: Rig, sizes: Sizes) -> list[Figure]:
    with _new_catalog(rig.server, mirror="off", timeout=3600) as catalog:
        uri, table_id = catalog.uri, catalog.create_table("big", SCHEMA).id
        deltars.SqlTxnLogWriter(catalog).commit(table_id, 1, add_table(sizes.files), operation="WRITE")
        location = Path(catalog.table("big").location)
    catalog_uri = _uris[uri]
    in_own_process(_publish, catalog_uri, table_id)
    ours, theirs = [], []
    for _ in range(sizes.rounds):
        ours.append(in_own_process(_our_checkpoint, catalog_uri, table_id))
        theirs.append(in_own_process(_their_checkpoint, str(location)))
    sides = {
        name: Side([seconds for seconds, _ in seen], memory_mib=max(mib for _, mib in seen))
        for name, seen in ((OURS, ours), (PEER, theirs))
    }
    what = f"checkpoint of {sizes.files:,} files"
    return [Figure(what, "s", sides, targets=[Target("faster", 1.2, PEER)])]


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


LANES = [
    Lane(
        "mirror_lag",
        "Lag of the mirror",
        "{sizes.seconds:.0f} seconds of commits at a steady rate over 10 tables, one file each, by 10 threads of one "
        "process; from the commit (`commit_ts`) until its file is in `_delta_log`. A checkpoint every 10 versions is "
        "included. `inline`: that process publishes too. `async`: a `deltars mirror run` does. Failed are commits that "
        "were due and could not be made in time.",
        lag,
        SIZES,
        missed=(
            "each version's file is synced to the disk, and its directory too, before it counts as published. At 500 "
            "commits a second, committers and publishers of one machine with two cores share their processor time."
        ),
    ),
    Lane("mirror_backlog", "Publishing a backlog", "The reconciler's own way, 5 tables at a time.", backlog, SIZES),
    Lane(
        "mirror_checkpoint",
        "A large checkpoint",
        "From the catalog, or from the published log, to the finished checkpoint: opening the table included for both. "
        "Memory is the most that the process had.",
        checkpoint,
        SIZES,
    ),
]
