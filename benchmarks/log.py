"""The log writer against PostgreSQL's own pgbench and COPY, on one server with default durability.

    python -m benchmarks.log [--quick] [--only commits,bulk,flat,embedded]

Rounds alternate between us and the peer, and the ratio is taken round by round: what a noisy neighbour slows, it
slows for both.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa

import deltars
from benchmarks.report import table, write_section
from benchmarks.rig import SCHEMA, add_file, add_table, durable_server, in_own_process, new_catalog
from tests.support.memory import peak_mib
from tests.support.postgres import PostgresServer
from tests.support.run_directory import RunDirectory


@dataclass
class Sizes:
    rounds: int = 5
    seconds: float = 4.0
    bulk_files: tuple[int, ...] = (10_000, 1_000_000)
    flat_versions: int = 100_000
    flat_files: int = 1_000_000


QUICK = Sizes(rounds=3, seconds=2.0, bulk_files=(10_000, 100_000), flat_versions=2_000, flat_files=100_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written to the docs")
    parser.add_argument("--only", default="commits,bulk,flat,embedded")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    chosen = arguments.only.split(",")
    run = RunDirectory()
    try:
        server = durable_server()
        for name, measure in PARTS.items():
            if name in chosen:
                title, body = measure(server, sizes)
                print(f"\n{title}\n\n{body}", flush=True)
                if not arguments.quick:
                    write_section(title, "make bench-log", body)
    finally:
        run.close()


# -- single commits --------------------------------------------------------------------------------------------


def single_commits(server: PostgresServer, sizes: Sizes) -> tuple[str, str]:
    _pgbench(server, "-i", "-q", "-s", "10")
    rows: list[list[object]] = []
    for clients, target in ((1, 0.9), (8, 0.8)):
        rates, peers, latencies = [], [], []
        for _ in range(sizes.rounds):
            peers.append(_pgbench_tps(server, clients, sizes.seconds))
            rate, seen = _commit_rate(new_catalog(server), clients, sizes.seconds)
            rates.append(rate)
            latencies += seen
        ratios = [ours / theirs for ours, theirs in zip(rates, peers, strict=True)]
        p50, p95, p99 = (statistics.quantiles(latencies, n=100)[p - 1] * 1000 for p in (50, 95, 99))
        rows.append(
            [
                clients,
                f"{statistics.median(rates):,.0f}",
                f"{statistics.median(peers):,.0f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                f"{target}",
                f"{p50:.2f} / {p95:.2f} / {p99:.2f}",
            ]
        )
    ours, theirs = ("commits a second", "p50 / p95 / p99 ms"), ("pgbench TPC-B, prepared", "ratio: median (spread)")
    header = ["clients", ours[0], *theirs, "target", ours[1]]
    note = "One file a commit, through `SqlTxnLogWriter`, each client a process with a table of its own."
    return "Single-file commits on PostgreSQL", f"{note}\n\n{table(header, rows)}"


def _commit_rate(uri: str, clients: int, seconds: float) -> tuple[float, list[float]]:
    with deltars.connect(uri) as catalog:
        tables = [catalog.create_table(f"t{i}", SCHEMA).id for i in range(clients)]
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(clients), context.Queue()
    workers = [context.Process(target=_commit_loop, args=(uri, key, seconds, barrier, answers)) for key in tables]
    for worker in workers:
        worker.start()
    results = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    return sum(len(seen) / took for took, seen in results), [latency for _, seen in results for latency in seen]


def _commit_loop(uri: str, table_id: UUID, seconds: float, barrier: object, answers: object) -> None:
    with deltars.connect(uri) as catalog:
        writer = deltars.SqlTxnLogWriter(catalog)
        version = 0

        def commit() -> None:
            nonlocal version
            version += 1
            writer.commit(
                table_id, version, [add_file(version)], operation="WRITE", operation_params={"mode": "Append"}
            )

        for _ in range(20):
            commit()
        barrier.wait()  # type: ignore[attr-defined]
        seen = []
        begun = now = time.perf_counter()
        while now - begun < seconds:
            commit()
            after = time.perf_counter()
            seen.append(after - now)
            now = after
        answers.put((now - begun, seen))  # type: ignore[attr-defined]


# -- many files ------------------------------------------------------------------------------------------------


def bulk_commits(server: PostgresServer, sizes: Sizes) -> tuple[str, str]:
    rows: list[list[object]] = []
    targets = {10_000: "0.5 s", 1_000_000: "40 s, 1 GiB"}
    for files in sizes.bulk_files:
        adds = add_table(files)
        raw = _raw_copy(server, adds)
        took, memory = in_own_process(_bulk_commit, new_catalog(server), files)
        rows.append(
            [f"{files:,}", f"{took:.2f}", f"{raw:.2f}", f"{took / raw:.1f}", f"{memory:,.0f}", targets.get(files, "")]
        )
    peer = ("COPY of the same rows, no index, s", "times COPY")
    header = ["files", "commit, s", *peer, "memory beyond input, MiB", "target"]
    return "Large commits on PostgreSQL", table(header, rows)


def _bulk_commit(uri: str, files: int) -> tuple[float, float]:
    with deltars.connect(uri, timeout=3600) as catalog:
        table_id = catalog.create_table("big", SCHEMA).id
        adds = add_table(files)
        before = peak_mib()
        begun = time.perf_counter()
        deltars.SqlTxnLogWriter(catalog).commit(table_id, 1, adds, operation="WRITE")
        took = time.perf_counter() - begun
        return took, peak_mib() - before


def _raw_copy(server: PostgresServer, adds: pa.Table) -> float:
    with server.connect() as connection:
        connection.execute(
            "CREATE TEMP TABLE raw (path text, partition_values jsonb, size bigint, modification_time bigint,"
            " data_change boolean, stats text)"
        )
        begun = time.perf_counter()
        with connection.cursor().copy("COPY raw FROM STDIN") as copy:
            for batch in adds.to_batches(max_chunksize=10_000):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)
        return time.perf_counter() - begun


# -- flat in the size of the table -----------------------------------------------------------------------------


def flat_commits(server: PostgresServer, sizes: Sizes) -> tuple[str, str]:
    uri = new_catalog(server)
    with deltars.connect(uri, timeout=3600) as catalog:
        writer = deltars.SqlTxnLogWriter(catalog)
        empty, full = catalog.create_table("empty", SCHEMA).id, catalog.create_table("full", SCHEMA).id
        writer.commit(full, 1, add_table(sizes.flat_files), operation="WRITE")
        for version in range(2, sizes.flat_versions + 1):
            writer.commit(full, version, [add_file(version)], operation="WRITE")
        times: dict[UUID, list[float]] = {empty: [], full: []}
        at = {empty: 0, full: sizes.flat_versions}
        for _ in range(1_000):
            for table_id, seen in times.items():
                at[table_id] += 1
                begun = time.perf_counter()
                writer.commit(table_id, at[table_id], [add_file(at[table_id])], operation="WRITE")
                seen.append(time.perf_counter() - begun)
    small, large = (statistics.median(times[table_id]) * 1000 for table_id in (empty, full))
    what = f"{sizes.flat_versions:,} versions, {sizes.flat_files:,} live files"
    rows = [["empty table", f"{small:.2f}", "1.00", ""], [what, f"{large:.2f}", f"{large / small:.2f}", "1.3"]]
    return "Commit time and the size of the table", table(["table", "p50 ms", "ratio", "target"], rows)


# -- SQLite and DuckDB -----------------------------------------------------------------------------------------


def embedded_commits(_: PostgresServer, sizes: Sizes) -> tuple[str, str]:
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as directory:
        for backend in ("sqlite", "duckdb"):
            uri = f"deltasql://{backend}/{directory}/{backend}.db"
            deltars.connect(uri).close()
            rate, seen = in_own_process(_embedded, uri, sizes.seconds)
            eight = "one process only"
            if backend == "sqlite":
                eight = f"{_commit_rate(f'deltasql://sqlite/{directory}/eight.db', 8, sizes.seconds)[0]:,.0f}"
            took, _memory = in_own_process(_bulk_commit, f"deltasql://{backend}/{directory}/{backend}-bulk.db", 10_000)
            p50, p99 = (statistics.quantiles(seen, n=100)[p - 1] * 1000 for p in (50, 99))
            rows.append([backend, f"{rate:,.0f}", f"{p50:.2f} / {p99:.2f}", eight, f"{took:.2f}"])
    header = ["backend", "commits a second, one client", "p50 / p99 ms", "8 processes", "10,000 files in one commit, s"]
    return "Commits on SQLite and DuckDB", table(header, rows)


def _embedded(uri: str, seconds: float) -> tuple[float, list[float]]:
    with deltars.connect(uri) as catalog:
        table_id = catalog.create_table("t", SCHEMA).id
        writer = deltars.SqlTxnLogWriter(catalog)
        seen: list[float] = []
        begun = now = time.perf_counter()
        while now - begun < seconds:
            writer.commit(table_id, len(seen) + 1, [add_file(len(seen))], operation="WRITE")
            seen.append(time.perf_counter() - now)
            now = time.perf_counter()
        return len(seen) / (now - begun), seen


# -- what the parts share --------------------------------------------------------------------------------------


def _pgbench(server: PostgresServer, *arguments: str) -> str:
    done = subprocess.run(
        [server.bin / "pgbench", *arguments, server.conninfo], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"pgbench failed: {done.stderr}")
    return done.stdout


def _pgbench_tps(server: PostgresServer, clients: int, seconds: float) -> float:
    output = _pgbench(
        server, "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2)), "-T", str(round(seconds))
    )
    return next(float(line.split()[2]) for line in output.splitlines() if line.startswith("tps"))


PARTS: dict[str, Callable[[PostgresServer, Sizes], tuple[str, str]]] = {
    "commits": single_commits,
    "bulk": bulk_commits,
    "flat": flat_commits,
    "embedded": embedded_commits,
}

if __name__ == "__main__":
    main()
