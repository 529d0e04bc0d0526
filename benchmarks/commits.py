"""Small commits beside the systems that people would pick instead, and beside PostgreSQL's own limit.

Same server, default durability. Every client is a process. deltars syncs each file that it writes to the disk before
the commit; DuckLake, delta-rs and PyIceberg do not sync theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from benchmarks.figures import OURS, Figure, Target
from benchmarks.lane import Lane
from benchmarks.mirror import reconciler
from benchmarks.race import PEERS, Crowd, Entrant, Missing, Pgbench, entered, race
from benchmarks.rig import STATS, Rig, new_catalog

PGBENCH, DUCKLAKE, DELTA_RS, ICEBERG = "pgbench", "DuckLake", "delta-rs", "PyIceberg"


@dataclass(frozen=True)
class Sizes:
    rounds: int = 5
    seconds: float = 4.0
    crowd: int = 8
    alone: bool = True
    """Whether one client is measured too."""
    list_length: int = 100


SIZES = {"tiny": Sizes(1, 0.1, 1, alone=False), "quick": Sizes(3, 1.5), "full": Sizes()}


def one_file(rig: Rig, sizes: Sizes) -> list[Figure]:
    crowd = sizes.crowd
    hot = [
        Target("faster", 0.3, PGBENCH),
        Target("faster", 20, DUCKLAKE),
        Target("p99", 1 / 50, DUCKLAKE),
    ]
    figures = [_one_file(rig, sizes, f"{crowd} clients on one hot table", crowd, "stage", hot, is_hot=True)]
    if sizes.alone:
        alone = [Target("client_cpu_ms", 0.3), Target("faster", 1.0, PGBENCH), Target("faster", 10, DUCKLAKE)]
        own = [Target("faster", 0.8, PGBENCH), Target("faster", 25, DUCKLAKE)]
        figures = [
            _one_file(rig, sizes, "1 client, the log writer", 1, "log", alone),
            _ours_alone(rig, sizes),
            _one_file(rig, sizes, f"{crowd} clients on their own tables, the log writer", crowd, "log", own),
            *figures,
        ]
    return figures


def _one_file(
    rig: Rig, sizes: Sizes, what: str, clients: int, way: str, targets: list[Target], *, is_hot: bool = False
) -> Figure:
    peers = {DUCKLAKE: "register", DELTA_RS: "register", ICEBERG: "register"}
    with ExitStack() as resources:
        entrants: dict[str, Entrant | Missing] = {
            OURS: _ours(rig, resources, way, clients, is_hot=is_hot),
            PGBENCH: _pgbench(rig, sizes, clients),
        }
        entrants |= _peers(rig, resources, peers, clients, is_hot=is_hot)
        return race(what, rig.server, entrants, rounds=sizes.rounds, seconds=sizes.seconds, targets=targets)


def _ours_alone(rig: Rig, sizes: Sizes) -> Figure:
    with ExitStack() as resources:
        entrants = {OURS: _ours(rig, resources, "stage", 1, is_hot=False)}
        target = Target("client_cpu_ms", 1.0)
        return race(
            "1 client: begin, stage, commit",
            rig.server,
            entrants,
            rounds=sizes.rounds,
            seconds=sizes.seconds,
            targets=[target],
        )


def ten_rows(rig: Rig, sizes: Sizes) -> list[Figure]:
    alone = [Target("client_cpu_ms", 4.0), Target("faster", 4, DELTA_RS), Target("faster", 1.5, DUCKLAKE)]
    crowd = [Target("faster", 10, DELTA_RS), Target("faster", 3, DUCKLAKE)]
    ways = {DUCKLAKE: "rows", f"{DUCKLAKE}, inlined": "inlined", DELTA_RS: "rows", ICEBERG: "rows"}
    figures = []
    runs = [(f"{sizes.crowd} clients on one table", sizes.crowd, crowd)]
    for what, clients, targets in [("1 client", 1, alone), *runs] if sizes.alone else runs:
        with ExitStack() as resources:
            entrants: dict[str, Entrant | Missing] = {OURS: _ours(rig, resources, "rows", clients, is_hot=True)}
            if sizes.alone:
                uri = new_catalog(rig.server)
                specs = _specs(uri, "behind", clients, is_hot=True)
                resources.enter_context(reconciler(uri))
                entrants[f"{OURS}, published by a service"] = resources.enter_context(Crowd("deltars_client", specs))
            entrants |= _peers(rig, resources, ways, clients, is_hot=True)
            done = race(what, rig.server, entrants, rounds=sizes.rounds, seconds=sizes.seconds, targets=targets)
            figures.append(done)
    return figures


def together(rig: Rig, sizes: Sizes) -> list[Figure]:
    """Commits that become one transaction: of threads of a process, and of lists."""
    crowd, listed = sizes.crowd, sizes.list_length
    shared = {"settings": {"pool_size": crowd + 2}, "threads": crowd}
    lists = {"commits": listed}
    runs: list[tuple[str, int, str, dict[str, Any], float | None]] = [
        (f"{crowd} threads of one process on one table, `append`", 1, "append", shared, 1.2),
        (f"{crowd} threads of one process on one table: begin, stage, commit", 1, "stage", shared, None),
        (f"1 client, lists of {listed}, `append_all`", 1, "lists", lists, 4.0),
        (f"{crowd} clients on one table, lists of {listed}, `append_all`", crowd, "lists", lists, None),
    ]
    figures = []
    for what, clients, way, more, bound in runs:
        with ExitStack() as resources:
            specs = _specs(new_catalog(rig.server), way, clients, is_hot=True, **more)
            entrants: dict[str, Entrant | Missing] = {
                OURS: resources.enter_context(Crowd("deltars_client", specs)),
                PGBENCH: _pgbench(rig, sizes, crowd),
            }
            targets = [] if bound is None else [Target("faster", bound, PGBENCH)]
            done = race(what, rig.server, entrants, rounds=sizes.rounds, seconds=sizes.seconds, targets=targets)
            figures.append(done)
    return figures


def embedded(rig: Rig, sizes: Sizes) -> list[Figure]:
    """The catalogs that need no server. DuckDB serves one process."""
    figures = []
    for backend, clients, bound in (("sqlite", 1, 2_500), ("sqlite", sizes.crowd, 1_500), ("duckdb", 1, 200)):
        if clients == 1 and backend == "sqlite" and not sizes.alone:
            continue
        uri = rig.new_embedded_catalog(backend)
        specs = [_spec(uri, f"t{number}", "log", True) for number in range(clients)]
        with Crowd("deltars_client", specs) as crowd:
            what = f"{backend}, {clients} {'process' if clients == 1 else 'processes'}"
            targets = [Target("at_least", bound)]
            entrants = {OURS: crowd}
            figures.append(race(what, None, entrants, rounds=sizes.rounds, seconds=sizes.seconds, targets=targets))
    if sizes.alone:
        shared = {"settings": {"pool_size": sizes.crowd + 2}, "threads": sizes.crowd}
        spec = _spec(rig.new_embedded_catalog("sqlite"), "t", "append", True, **shared)
        with Crowd("deltars_client", [spec]) as crowd:
            what = f"sqlite, {sizes.crowd} threads of one process on one table, `append`"
            figures.append(race(what, None, {OURS: crowd}, rounds=sizes.rounds, seconds=sizes.seconds))
    return figures


# -- who takes part ----------------------------------------------------------------------------------------------------


def _ours(rig: Rig, resources: ExitStack, way: str, clients: int, *, is_hot: bool) -> Crowd:
    uri = new_catalog(rig.server)
    return resources.enter_context(Crowd("deltars_client", _specs(uri, way, clients, is_hot=is_hot)))


def _pgbench(rig: Rig, sizes: Sizes, clients: int) -> Pgbench:
    database = rig.once("pgbench", lambda: Pgbench.fill(rig.server, scale=10 if sizes.alone else 1))
    return Pgbench(rig.server, database, clients)


def _peers(
    rig: Rig, resources: ExitStack, ways: Mapping[str, str], clients: int, *, is_hot: bool
) -> dict[str, Crowd | Missing]:
    found: dict[str, Crowd | Missing] = {}
    for name, way in ways.items():
        place = rig.new_directory("peer")
        module, uri, python = _address(rig, name, place)
        specs = _specs(uri, way, clients, is_hot=is_hot, place=str(place), stats=STATS % (0, 999))
        found[name] = entered(resources, module, specs, python=python)
    return found


def _address(rig: Rig, name: str, place: Path) -> tuple[str, str, Path | None]:
    """The client's module, the address of the catalog, and the Python that runs it."""
    if name == DELTA_RS:
        return "delta_rs_client", str(place), None
    database = rig.server.create_database("peer")
    if name == ICEBERG:
        at = conninfo_to_dict(rig.server.conninfo)
        secret = f":{at['password']}" if "password" in at else ""
        address = f"{at['user']}{secret}@/{database}?host={at['host']}&port={at['port']}"
        return "iceberg_client", f"postgresql+psycopg://{address}", PEERS
    return "ducklake_client", rig.server.conninfo_of(database), PEERS


def _specs(uri: str, way: str, clients: int, *, is_hot: bool, **more: Any) -> list[dict[str, Any]]:
    names = ["t" if is_hot else f"t{number}" for number in range(clients)]
    return [_spec(uri, name, way, not is_hot or number == 0, **more) for number, name in enumerate(names)]


def _spec(uri: str, table: str, way: str, create: bool, **more: Any) -> dict[str, Any]:
    return {"uri": uri, "table": table, "way": way, "create": create, **more}


_WHERE = "Each client is a process, all on one PostgreSQL with default durability, {sizes.rounds} rounds in turns."

LANES = [
    Lane(
        "commits",
        "One-file commits",
        f"{_WHERE} The peers register a file that exists; delta-rs keeps its log on the local disk, unsynced. "
        "The log writer is `SqlTxnLogWriter`; on the hot table it is `begin`, `stage`, commit. Nothing is published. "
        "pgbench is TPC-B, prepared.",
        one_file,
        SIZES | {"tiny": Sizes(2, 0.1, 2, alone=False)},
        missed=(
            "a version of a table follows the one before it, so clients of a hot table wait for each other's flush to "
            "the disk. pgbench waits for one flush too, but its rows are updated by clients at the same time."
        ),
    ),
    Lane(
        "ten_rows",
        "Ten rows, end to end, without Spark",
        f"{_WHERE} Ten Arrow rows are written to a Parquet file, committed and, by deltars, published to `_delta_log`. "
        "deltars syncs every file to the disk; the peers do not. DuckLake's inlining is off, because it writes no "
        "file; with it the line says so. A service is `deltars mirror run`, whose processor time is not the client's.",
        ten_rows,
        SIZES,
        missed=(
            "five waits for the disk in a row: the data file, its directory, the database's log, the version's file "
            "and its directory. The peers wait for the database alone, or for nothing."
        ),
    ),
    Lane(
        "threads",
        "Commits of threads and lists",
        "Commits that share a database transaction, on one PostgreSQL with default durability, {sizes.rounds} rounds "
        "in turns. Each adds one file, as a version of one table. pgbench has {sizes.crowd} clients. The latency of a "
        "list is that of the whole list.",
        together,
        SIZES,
        missed=(
            "threads share one interpreter, and while they prepare their commits the server has nothing to do; a list "
            "is prepared and written in turns too. pgbench keeps both cores busy."
        ),
    ),
    Lane(
        "embedded_commits",
        "One-file commits on SQLite and DuckDB",
        "Through `SqlTxnLogWriter`, each process with its own table.",
        embedded,
        SIZES,
    ),
]
