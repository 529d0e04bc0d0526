"""Reading the log beside delta-rs (deltalake), which opens the same table from its checkpoint.

The files of the table are the same in the catalog and in the peer's `_delta_log`. Each measurement is a process of its
own, so that its memory is its own; rounds alternate between us and the peer, and ratios are taken round by round.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
from deltalake import DeltaTable

import deltars
from benchmarks.figures import OURS, Figure, Side, Target, percentiles_ms, timed
from benchmarks.lane import Lane
from benchmarks.rig import Rig, in_own_process, new_catalog
from deltars.protocol import AddFile, Metadata, Protocol, encode_action, schema_from_ddl
from tests.support.memory import peak_mib

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
PEER = "delta-rs"
LARGE = 1_000_000
"""The size that the absolute targets are for."""


@dataclass(frozen=True)
class Sizes:
    files: int = LARGE
    rounds: int = 5
    repeats: int = 200


SIZES = {"tiny": Sizes(500, 1, 5), "quick": Sizes(50_000, 2, 50), "full": Sizes()}


@dataclass(frozen=True)
class Took:
    """One measurement in its own process."""

    seconds: float
    memory_mib: float
    rows: int


def filled(rig: Rig, files: int) -> tuple[str, UUID]:
    """The table of so many files on PostgreSQL."""

    def make() -> tuple[str, UUID]:
        uri = new_catalog(rig.server)
        return uri, in_own_process(fill, uri, files)

    return rig.once(f"table of {files} files", make)


def bounded(sizes: Sizes, kind: str, bound: float) -> list[Target]:
    """A target in seconds, which holds for the full size alone."""
    return [Target(kind, bound)] if sizes.files >= LARGE else []  # type: ignore[arg-type]


# -- the whole list ----------------------------------------------------------------------------------------------------


def snapshots(rig: Rig, sizes: Sizes) -> list[Figure]:
    uri, table_id = filled(rig, sizes.files)
    peer = str(rig.new_directory("delta-rs") / "peer")
    in_own_process(write_peer, peer, sizes.files)
    asked = {"with statistics": PEER_COLUMNS, "every column": None, "path, size, partition values": LIST_COLUMNS}
    targets = {
        "with statistics": [Target("faster", 4, PEER), Target("memory", 0.5, PEER)],
        "path, size, partition values": bounded(sizes, "at_most", 0.8),
    }
    figures = []
    for what, columns in asked.items():
        ways: dict[str, Callable[[], Took]] = {
            OURS: partial(in_own_process, read_all, uri, table_id, ADBC, columns),
            f"{OURS}, {PSYCOPG}": partial(in_own_process, read_all, uri, table_id, PSYCOPG, columns),
            PEER: partial(in_own_process, read_peer, peer),
        }
        seen: dict[str, list[Took]] = {name: [] for name in ways}
        for number in range(sizes.rounds):
            turns = list(ways.items())
            for name, measure in turns if number % 2 else reversed(turns):
                took = measure()
                assert took.rows == sizes.files, f"{name}: {took.rows} files"
                seen[name].append(took)
        sides = {
            name: Side(
                [took.seconds for took in all_of],
                memory_mib=statistics.median(took.memory_mib for took in all_of),
            )
            for name, all_of in seen.items()
        }
        figures.append(Figure(what, "s", sides, targets=targets.get(what, [])))
    return figures


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


def searches(files: int) -> dict[str, tuple[str, float]]:
    """What is asked, as `where`, and the milliseconds it may take on PostgreSQL."""
    few = max(1, files // 1_000)
    return {
        "a point on the range-indexed column": (f"id = {files // 2 * 1_000}", 2),
        "a partition: 0.1 % of the files": ("part = 7", 100),
        "a column with statistics: 0.1 % of the files": (f"value BETWEEN 0 AND {few - 1}", 100),
    }


def where(rig: Rig, sizes: Sizes) -> list[Figure]:
    uri, table_id = filled(rig, sizes.files)
    figures = []
    for what, (condition, bound_ms) in searches(sizes.files).items():
        seen = in_own_process(search, uri, table_id, condition, sizes.rounds * 4)
        figures.append(timed(what, seen, *bounded(sizes, "at_most", bound_ms)))
    return figures


def search(uri: str, table_id: UUID, condition: str, times: int) -> list[float]:
    with deltars.connect(uri) as catalog:
        snapshot = deltars.SqlTxnLogReader(catalog).snapshot(table_id)
        return list(repeated(lambda: snapshot.select_files(where=condition).num_rows, times, warm_up=1))


# -- opening -----------------------------------------------------------------------------------------------------------


def opening(rig: Rig, sizes: Sizes) -> list[Figure]:
    uri, full = filled(rig, sizes.files)
    peer = str(rig.new_directory("delta-rs") / "peer")
    write_peer(peer, 1)
    seen = in_own_process(open_often, uri, full, sizes.repeats)
    theirs = in_own_process(open_peer_often, peer, sizes.repeats)
    sides = {
        OURS: Side([statistics.median(seen) * 1000], *percentiles_ms(seen)),
        f"{PEER}, 1 file": Side([statistics.median(theirs) * 1000], *percentiles_ms(theirs)),
    }
    return [Figure(f"{sizes.files:,} files", "ms", sides, targets=bounded(sizes, "at_most", 2))]


def open_often(uri: str, table_id: UUID, times: int) -> list[float]:
    with deltars.connect(uri) as catalog:
        reader = deltars.SqlTxnLogReader(catalog)

        def look() -> None:
            snapshot = reader.snapshot(table_id)
            assert snapshot.version >= 0
            assert len(snapshot.schema.names) == 4
            assert snapshot.protocol.min_reader_version == 1

        return list(repeated(look, times))


def open_peer_often(location: str, times: int) -> list[float]:
    return list(repeated(lambda: DeltaTable(location).schema(), times))


def repeated(work: Callable[[], object], times: int, warm_up: int = 10) -> Iterator[float]:
    for _ in range(warm_up):
        work()
    for _ in range(times):
        begun = time.perf_counter()
        work()
        yield time.perf_counter() - begun


# -- SQLite and DuckDB -------------------------------------------------------------------------------------------------


def embedded(rig: Rig, sizes: Sizes) -> list[Figure]:
    figures = []
    bounds = {"sqlite": (20, 200, 200)}
    for backend in ("sqlite", "duckdb"):
        uri = rig.new_embedded_catalog(backend)
        table_id = in_own_process(fill, uri, sizes.files)
        for what, columns in (("every column", None), ("path, size, partition values", LIST_COLUMNS)):
            took = in_own_process(read_all, uri, table_id, "", columns)
            side = Side([took.seconds], memory_mib=took.memory_mib)
            figures.append(Figure(f"{backend}: {what}", "s", {OURS: side}))
        for at, (what, (condition, _)) in enumerate(searches(sizes.files).items()):
            seen = in_own_process(search, uri, table_id, condition, 5)
            targets = bounded(sizes, "at_most", bounds[backend][at]) if backend in bounds else []
            figures.append(timed(f"{backend}: {what}", seen, *targets))
        figures.append(timed(f"{backend}: opening", in_own_process(open_often, uri, table_id, sizes.repeats)))
    return figures


# -- the table ---------------------------------------------------------------------------------------------------------


def fill(uri: str, files: int) -> UUID:
    with deltars.connect(uri, timeout=3600) as catalog:
        made = catalog.create_table("full", SCHEMA, partition_by=["part"])
        deltars.SqlTxnLogWriter(catalog).commit(made.id, 1, add_table(files), operation="WRITE")
        return made.id


def add_table(files: int, start: int = 0) -> pa.Table:
    numbers = range(start, start + files)
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


_TABLE = "A table of {sizes.files:,} live files on PostgreSQL"

LANES = [
    Lane(
        "snapshots",
        "Snapshots into Arrow",
        f"{_TABLE}, opened and listed into Arrow: with the columns that delta-rs lists (path, size, modification time, "
        "partition values, statistics), with all thirteen, or with three. delta-rs reads its checkpoint, and always "
        "lists the same. Memory is what the process grew by, its result included.",
        snapshots,
        SIZES,
    ),
    Lane("where", "Files by where", f"{_TABLE}: those that may hold a matching row, with all columns.", where, SIZES),
    Lane("opening", "Opening a table", f"{_TABLE}: version, schema and protocol, by an open catalog.", opening, SIZES),
    Lane(
        "embedded_reading",
        "Reading from SQLite and DuckDB",
        "The same table of {sizes.files:,} live files, and the same questions.",
        embedded,
        SIZES,
    ),
]
