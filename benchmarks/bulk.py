"""Commits of many files, beside COPY of the same rows into a table without an index."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa

import deltars
from benchmarks.figures import OURS, Figure, Side, Target
from benchmarks.lane import Lane
from benchmarks.rig import SCHEMA, Rig, add_table, in_own_process, new_catalog
from tests.support.memory import peak_mib
from tests.support.postgres import PostgresServer

COPY = "COPY, no index"
MEMORY_MIB = 1_024


@dataclass(frozen=True)
class Sizes:
    files: tuple[int, ...] = (10_000, 1_000_000)
    rounds: int = 3


def bulk_commits(rig: Rig, sizes: Sizes) -> list[Figure]:
    figures = []
    for files in sizes.files:
        adds = add_table(files)
        raw, ours, memory = [], [], 0.0
        for _ in range(sizes.rounds if files < 1_000_000 else 1):
            raw.append(raw_copy(rig.server, adds))
            took, memory = in_own_process(bulk_commit, new_catalog(rig.server), files)
            ours.append(took)
        sides = {OURS: Side(ours, memory_mib=memory), COPY: Side(raw)}
        targets = [Target("cost", 10, COPY), Target("memory_mib", MEMORY_MIB)]
        figures.append(Figure(f"{files:,} files in one commit", "s", sides, targets=targets))
    return figures


def embedded(rig: Rig, sizes: Sizes) -> list[Figure]:
    files = sizes.files[0]
    figures = []
    for backend in ("sqlite", "duckdb"):
        uri = rig.new_embedded_catalog(backend)
        took, memory = in_own_process(bulk_commit, uri, files)
        figures.append(Figure(f"{backend}, {files:,} files", "s", {OURS: Side([took], memory_mib=memory)}))
    return figures


def bulk_commit(uri: str, files: int) -> tuple[float, float]:
    with deltars.connect(uri, timeout=3600) as catalog:
        table_id = catalog.create_table("big", SCHEMA).id
        adds = add_table(files)
        before = peak_mib()
        begun = time.perf_counter()
        deltars.SqlTxnLogWriter(catalog).commit(table_id, 1, adds, operation="WRITE")
        took = time.perf_counter() - begun
        return took, peak_mib() - before


def raw_copy(server: PostgresServer, adds: pa.Table) -> float:
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


SIZES = {"tiny": Sizes((500,), 1), "quick": Sizes((10_000, 100_000), 2), "full": Sizes()}

LANES = [
    Lane(
        "bulk",
        "Large commits",
        "On PostgreSQL, each commit in its own process, into an empty catalog. Memory is what the process grew by "
        "beyond its input.",
        bulk_commits,
        SIZES,
        missed=(
            "the indexes of the files' table (primary key, path, live files, ranges, statistics) and its foreign key, "
            "which the COPY beside it does not have."
        ),
    ),
    Lane("embedded_bulk", "Large commits on SQLite and DuckDB", "One commit into an empty catalog.", embedded, SIZES),
]
