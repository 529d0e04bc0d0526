"""The log reader against delta-rs (deltalake) that opens the same table from its checkpoint.

    python -m benchmarks.reading [--quick] [--only snapshots,where,opening,embedded]

The files of the table are the same in the catalog and in the peer's `_delta_log`. Each measurement is a process of its
own, so that its memory is its own; rounds alternate between us and the peer, and ratios are taken round by round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
from deltalake import DeltaTable

import deltars
from benchmarks.report import table, write_section
from benchmarks.rig import durable_server, in_own_process, new_catalog
from deltars.protocol import AddFile, Metadata, Protocol, encode_action, schema_from_ddl
from deltars.uri import parse_catalog_uri
from tests.support.memory import peak_mib
from tests.support.postgres import PostgresServer
from tests.support.run_directory import RunDirectory
from tests.support.witness import postgres_connection

SCHEMA = "id BIGINT, name STRING, value BIGINT, part INT"
PARTITIONS = 1_000
STATS = (
    '{"numRecords":1000,"minValues":{"id":%d,"name":"ada","value":%d},'
    '"maxValues":{"id":%d,"name":"zoe","value":%d},"nullCount":{"id":0,"name":3,"value":0}}'
)
LIST_COLUMNS = ("path", "size", "partition_values")
PEER_COLUMNS = (*LIST_COLUMNS, "modification_time", "stats")
"""What delta-rs lists of a file."""

ADBC, PSYCOPG = "ADBC", "psycopg"


@dataclass(frozen=True)
class Sizes:
    rounds: int = 5
    files: int = 1_000_000
    versions: int = 100_000
    tables: int = 10_000
    repeats: int = 200


QUICK = Sizes(rounds=2, files=50_000, versions=2_000, tables=200, repeats=50)


@dataclass(frozen=True)
class Took:
    """One measurement in a process of its own."""

    seconds: float
    memory_mib: float
    rows: int


@dataclass
class Bench:
    """The table of so many files, made when it is first needed."""

    server: PostgresServer
    sizes: Sizes
    directory: Path
    _filled: tuple[str, UUID] | None = None
    _peer: str | None = None

    def filled(self) -> tuple[str, UUID]:
        if self._filled is None:
            uri = new_catalog(self.server)
            self._filled = uri, in_own_process(fill, uri, self.sizes.files)
        return self._filled

    def peer(self) -> str:
        if self._peer is None:
            self._peer = str(self.directory / "peer")
            in_own_process(write_peer, self._peer, self.sizes.files)
        return self._peer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written to the docs")
    parser.add_argument("--only", default=",".join(PARTS))
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    run = RunDirectory()
    try:
        with tempfile.TemporaryDirectory() as directory:
            bench = Bench(durable_server(), QUICK if arguments.quick else Sizes(), Path(directory))
            for name, measure in PARTS.items():
                if name in chosen:
                    title, body = measure(bench)
                    print(f"\n{title}\n\n{body}", flush=True)
                    if not arguments.quick:
                        write_section(title, "make bench-log", body)
    finally:
        run.close()


# -- the whole list ----------------------------------------------------------------------------------------------------


def snapshots(bench: Bench) -> tuple[str, str]:
    uri, table_id = bench.filled()
    peer = bench.peer()
    ways: dict[str, Callable[[], Took]] = {"delta-rs, from its checkpoint": lambda: in_own_process(read_peer, peer)}
    asked = {"with statistics": PEER_COLUMNS, "every column": None, "path, size, partition values": LIST_COLUMNS}
    for what, columns in asked.items():
        for driver in (ADBC, PSYCOPG):
            ways[f"{driver}: {what}"] = partial(in_own_process, read_all, uri, table_id, driver, columns)
    targets = {
        f"{ADBC}: with statistics": "3 × as fast, half the memory",
        f"{ADBC}: path, size, partition values": "1 s",
    }
    seen: dict[str, list[Took]] = {name: [] for name in ways}
    for _ in range(bench.sizes.rounds):
        for name, measure in ways.items():
            took = measure()
            assert took.rows == bench.sizes.files, f"{name}: {took.rows} files"
            seen[name].append(took)
    theirs = next(iter(seen.values()))
    rows: list[list[object]] = []
    for name, ours in seen.items():
        times = [peer.seconds / mine.seconds for peer, mine in zip(theirs, ours, strict=True)]
        rows.append(
            [
                name,
                f"{statistics.median(took.seconds for took in ours):.2f}",
                f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})",
                f"{statistics.median(took.memory_mib for took in ours):,.0f}",
                targets.get(name, ""),
            ]
        )
    header = ["way", "s", "times as fast as delta-rs: median (spread)", "memory, MiB", "target"]
    note = (
        f"A table of {bench.sizes.files:,} live files on PostgreSQL, opened and listed into Arrow: with the columns "
        "that delta-rs lists (path, size, modification time, partition values, statistics), with all thirteen, or "
        "with three. "
        "Memory is what the process grew by, its result included."
    )
    return "Snapshots into Arrow", f"{note}\n\n{table(header, rows)}"


def read_all(uri: str, table_id: UUID, driver: str, columns: tuple[str, ...] | None) -> Took:
    with deltars.connect(uri) as catalog:
        _choose(catalog, driver)
        catalog.warehouse  # noqa: B018  (the first connection is not what is measured)
        return _measured(
            lambda: deltars.SqlTxnLogReader(catalog).snapshot(table_id).select_files(columns=columns).num_rows
        )


def read_peer(location: str) -> Took:
    return _measured(lambda: pa.table(DeltaTable(location).get_add_actions(flatten=True)).num_rows)


def _measured(work: Callable[[], int]) -> Took:
    before = peak_mib()
    begun = time.perf_counter()
    rows = work()
    took = time.perf_counter() - begun
    return Took(took, peak_mib() - before, rows)


def _choose(catalog: deltars.Catalog, driver: str) -> None:
    if driver == PSYCOPG:
        vars(catalog._session.database.backend)["_adbc"] = None


# -- a part of it ------------------------------------------------------------------------------------------------------


def searches(files: int) -> dict[str, tuple[str, str]]:
    """What is asked, as `where`, and the time it may take."""
    few = max(1, files // 1_000)
    return {
        "a partition: 0.1 % of the files": ("part = 7", "0.5 s"),
        "a column with statistics: 0.1 % of the files": (f"value BETWEEN 0 AND {few - 1}", "0.5 s"),
        "a point on the range-indexed column": (f"id = {files // 2 * 1_000}", "10 ms"),
        "a column with statistics: every file": ("value >= 0", ""),
    }


def where(bench: Bench) -> tuple[str, str]:
    uri, table_id = bench.filled()
    rows: list[list[object]] = []
    for name, (condition, target) in searches(bench.sizes.files).items():
        seen, kept = in_own_process(search, uri, table_id, condition, bench.sizes.rounds * 4)
        rows.append([name, f"{kept:,}", f"{statistics.median(seen) * 1000:.1f}", f"{max(seen) * 1000:.1f}", target])
    header = ["where", "files kept", "p50 ms", "slowest ms", "target"]
    note = f"Of {bench.sizes.files:,} live files on PostgreSQL, those that may hold a matching row, with all columns."
    return "Files by where", f"{note}\n\n{table(header, rows)}"


def search(uri: str, table_id: UUID, condition: str, times: int) -> tuple[list[float], int]:
    with deltars.connect(uri) as catalog:
        snapshot = deltars.SqlTxnLogReader(catalog).snapshot(table_id)
        seen, kept = [], 0
        for _ in range(times):
            begun = time.perf_counter()
            kept = snapshot.select_files(where=condition).num_rows
            seen.append(time.perf_counter() - begun)
        return seen, kept


# -- opening -----------------------------------------------------------------------------------------------------------


def opening(bench: Bench) -> tuple[str, str]:
    sizes = bench.sizes
    uri, full = bench.filled()
    with deltars.connect(uri) as catalog:
        known = {entry.name: entry.id for entry in catalog.tables()}
        empty = known.get("empty") or catalog.create_table("empty", SCHEMA).id
        long = known.get("long") or catalog.create_table("long", SCHEMA).id
    alone = in_own_process(open_often, uri, empty, sizes.repeats)
    _give_history(uri, long, sizes.versions)
    rows: list[list[object]] = [_opened("1 version, no file", alone, alone)]
    rows.append(_opened(f"{sizes.files:,} live files", in_own_process(open_often, uri, full, sizes.repeats), alone))
    rows.append(_opened(f"{sizes.versions:,} versions", in_own_process(open_often, uri, long, sizes.repeats), alone))
    _give_company(uri, empty, sizes.tables)
    among = in_own_process(open_often, uri, empty, sizes.repeats)
    rows.append(_opened(f"1 version, no file, among {sizes.tables:,} tables", among, alone))
    with tempfile.TemporaryDirectory() as directory:
        peer = str(Path(directory) / "peer")
        write_peer(peer, 1)
        rows.append(_opened("delta-rs: 1 file", in_own_process(open_peer_often, peer, sizes.repeats), alone))
    header = ["table", "p50 ms", "p99 ms", "times the small table", "target"]
    note = "Version, schema and protocol of a table on PostgreSQL, over a connection of the pool."
    return "Opening a table", f"{note}\n\n{table(header, rows)}"


def _opened(name: str, seen: list[float], alone: list[float]) -> list[object]:
    p50, p99 = (statistics.quantiles(seen, n=100)[p - 1] * 1000 for p in (50, 99))
    target = "" if name.startswith("delta-rs") else "2 ms"
    return [name, f"{p50:.2f}", f"{p99:.2f}", f"{statistics.median(seen) / statistics.median(alone):.2f}", target]


def open_often(uri: str, table_id: UUID, times: int) -> list[float]:
    with deltars.connect(uri) as catalog:
        reader = deltars.SqlTxnLogReader(catalog)

        def look() -> None:
            snapshot = reader.snapshot(table_id)
            assert snapshot.version >= 0
            assert len(snapshot.schema.names) == 4
            assert snapshot.protocol.min_reader_version == 1

        return list(_timed(look, times))


def open_peer_often(location: str, times: int) -> list[float]:
    return list(_timed(lambda: DeltaTable(location).schema(), times))


def _timed(work: Callable[[], object], times: int) -> Iterator[float]:
    for _ in range(10):
        work()
    for _ in range(times):
        begun = time.perf_counter()
        work()
        yield time.perf_counter() - begun


def _give_history(uri: str, table_id: UUID, versions: int) -> None:
    """Versions that changed nothing; not one by one, for it is opening that is measured."""
    with postgres_connection(parse_catalog_uri(uri)) as connection:
        connection.execute(
            "INSERT INTO dl_table_versions"
            " (table_id, version, committed_at, commit_ts, in_commit_timestamp, txn_id, operation)"
            " SELECT %s, version, now(), version, version, gen_random_uuid(), 'WRITE'"
            " FROM generate_series(1, %s::bigint) AS version",
            [table_id, versions],
        )
        connection.execute("UPDATE dl_tables SET current_version = %s WHERE table_id = %s", [versions, table_id])


def _give_company(uri: str, table_id: UUID, tables: int) -> None:
    """Tables like this one."""
    with postgres_connection(parse_catalog_uri(uri)) as connection:
        connection.execute("CREATE TEMP TABLE others (id uuid, n int)")
        connection.execute("INSERT INTO others SELECT gen_random_uuid(), n FROM generate_series(1, %s) n", [tables])
        for clone in _CLONES:
            connection.execute(clone, [table_id])


# -- SQLite and DuckDB -------------------------------------------------------------------------------------------------


def embedded(bench: Bench) -> tuple[str, str]:
    rows: list[list[object]] = []
    for backend in ("sqlite", "duckdb"):
        uri = f"deltasql://{backend}/{bench.directory}/{backend}.db"
        table_id = in_own_process(fill, uri, bench.sizes.files)
        whole = in_own_process(read_all, uri, table_id, "", None)
        listed = in_own_process(read_all, uri, table_id, "", LIST_COLUMNS)
        found = [
            statistics.median(in_own_process(search, uri, table_id, condition, 3)[0]) * 1000
            for condition, _ in searches(bench.sizes.files).values()
        ]
        opened = statistics.median(in_own_process(open_often, uri, table_id, bench.sizes.repeats)) * 1000
        rows.append(
            [
                backend,
                f"{whole.seconds:.2f}",
                f"{whole.memory_mib:,.0f}",
                f"{listed.seconds:.2f}",
                *(f"{milliseconds:,.0f}" for milliseconds in found),
                f"{opened:.2f}",
            ]
        )
    header = ["backend", "all columns, s", "memory, MiB", "three columns, s"]
    header += ["partition, ms", "statistics, ms", "point, ms", "opening, ms"]
    note = f"The same table of {bench.sizes.files:,} live files, and the same questions."
    return "Reading from SQLite and DuckDB", f"{note}\n\n{table(header, rows)}"


# -- the table ---------------------------------------------------------------------------------------------------------


def fill(uri: str, files: int) -> UUID:
    with deltars.connect(uri, timeout=3600) as catalog:
        made = catalog.create_table("full", SCHEMA, partition_by=["part"])
        deltars.SqlTxnLogWriter(catalog).commit(made.id, 1, add_table(files), operation="WRITE")
        return made.id


def add_table(files: int) -> pa.Table:
    numbers = range(files)
    # A step that shares no factor with the count: every value once, and neighbours far apart.
    values = [number * 7_919 % files for number in numbers]
    return pa.table(
        {
            "path": [_path(number) for number in numbers],
            "partition_values": [f'{{"part":"{number % PARTITIONS}"}}' for number in numbers],
            "size": pa.array([1_000_000] * files, pa.int64()),
            "modification_time": pa.array([1_767_225_600_000] * files, pa.int64()),
            "data_change": [True] * files,
            "stats": [
                STATS % (number * 1_000, value, number * 1_000 + 999, value)
                for number, value in zip(numbers, values, strict=True)
            ],
        }
    )


def _path(number: int) -> str:
    return f"part={number % PARTITIONS}/part-{number:08d}-{uuid4()}.c000.zstd.parquet"


def write_peer(location: str, files: int) -> None:
    """The same files as a plain Delta table of one commit, with a checkpoint made by delta-rs itself."""
    log = Path(location) / "_delta_log"
    log.mkdir(parents=True)
    created = Metadata(
        id=str(uuid4()), schema_string=schema_from_ddl(SCHEMA).to_json(), partition_columns=["part"], created_time=0
    )
    with (log / f"{0:020}.json").open("wb") as commit:
        commit.write(encode_action(Protocol(min_reader_version=1, min_writer_version=2)) + b"\n")
        commit.write(encode_action(created) + b"\n")
        for row in add_table(files).to_pylist():
            row["partition_values"] = json.loads(row["partition_values"])
            commit.write(encode_action(AddFile(**row)) + b"\n")
    DeltaTable(location).create_checkpoint()


_CLONES = (
    (
        "INSERT INTO dl_tables (table_id, name, location, min_reader_version, min_writer_version, properties,"
        " current_version, metadata_version, protocol_version, slot, created_at)"
        " SELECT others.id, 'other' || n, '/other/' || n, min_reader_version, min_writer_version, properties,"
        " current_version, metadata_version, protocol_version, slot, created_at"
        " FROM dl_tables, others WHERE table_id = %s"
    ),
    (
        "INSERT INTO dl_table_versions (table_id, version, committed_at, commit_ts, in_commit_timestamp, txn_id,"
        " operation) SELECT others.id, version, committed_at, commit_ts, in_commit_timestamp, gen_random_uuid(),"
        " operation FROM dl_table_versions, others WHERE table_id = %s"
    ),
    (
        "INSERT INTO dl_metadata_updates (table_id, version, ord, metadata_id, format, schema_json, partition_columns,"
        " properties) SELECT others.id, version, ord, metadata_id, format, schema_json, partition_columns, properties"
        " FROM dl_metadata_updates, others WHERE table_id = %s"
    ),
    (
        "INSERT INTO dl_protocol_updates (table_id, version, ord, min_reader_version, min_writer_version,"
        " reader_features, writer_features) SELECT others.id, version, ord, min_reader_version, min_writer_version,"
        " reader_features, writer_features FROM dl_protocol_updates, others WHERE table_id = %s"
    ),
)

PARTS: dict[str, Callable[[Bench], tuple[str, str]]] = {
    "snapshots": snapshots,
    "where": where,
    "opening": opening,
    "embedded": embedded,
}

if __name__ == "__main__":
    main()
