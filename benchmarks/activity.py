"""What it costs a transaction to record what it read, how long it took, and that it lost a race.

One process commits to one table, with the setting `record_activity` and without it, in turns: each round gives both the
same number of transactions. What is compared is processor time, of this process and of the server: waiting for the
disk, or for a busy machine, would hide what a few more values of a statement cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import deltars
from benchmarks.figures import OURS, Figure, Side
from benchmarks.lane import Lane
from benchmarks.rig import SCHEMA, Rig, ServerClock, add_file, new_catalog

OFF = f"{OURS}, record_activity off"


@dataclass(frozen=True)
class Sizes:
    rounds: int = 9
    commits: int = 200


def recorded(rig: Rig, sizes: Sizes) -> list[Figure]:
    uri, clock = new_catalog(rig.server), ServerClock(rig.server)
    with ExitStack() as resources:
        catalogs = {
            name: resources.enter_context(deltars.connect(uri, mirror="off", record_activity=name == OURS))
            for name in (OURS, OFF)
        }
        return [
            _in_turns("begin, stage, commit", clock, sizes, {name: _blind(one) for name, one in catalogs.items()}),
            _in_turns(
                "begin, files by where, stage, commit",
                clock,
                sizes,
                {name: _reading(one) for name, one in catalogs.items()},
            ),
            _in_turns("a lost race", clock, sizes, {name: _losing(one) for name, one in catalogs.items()}),
        ]


def _in_turns(what: str, clock: ServerClock, sizes: Sizes, ways: dict[str, Callable[[], None]]) -> Figure:
    """Processor time of this process, milliseconds a transaction, by round."""
    for work in ways.values():
        for _ in range(max(1, sizes.commits // 4)):
            work()
    client_ms: dict[str, list[float]] = {name: [] for name in ways}
    server_s = dict.fromkeys(ways, 0.0)
    for number in range(sizes.rounds):
        turns = list(ways.items())
        for name, work in turns if number % 2 else reversed(turns):
            server, client = clock.seconds(), time.process_time()
            for _ in range(sizes.commits):
                work()
            client_ms[name].append((time.process_time() - client) / sizes.commits * 1000)
            after = clock.seconds()
            if server is not None and after is not None:
                server_s[name] += after - server
    total = sizes.rounds * sizes.commits
    return Figure(
        f"{what}: CPU",
        "ms",
        {
            name: Side(rounds, client_cpu_ms=sum(rounds) / len(rounds), server_cpu_ms=server_s[name] * 1000 / total)
            for name, rounds in client_ms.items()
        },
    )


def _table(catalog: deltars.Catalog, what: str) -> str:
    return catalog.create_table(f"{what}_{catalog._session.settings.record_activity}".lower(), SCHEMA).name


def _blind(catalog: deltars.Catalog) -> Callable[[], None]:
    name = _table(catalog, "blind")

    def commit() -> None:
        with catalog.begin(isolation="serializable") as tx:
            tx.stage(name, [add_file(1)])

    return commit


def _reading(catalog: deltars.Catalog) -> Callable[[], None]:
    name = _table(catalog, "read")

    def commit() -> None:
        with catalog.begin(isolation="serializable") as tx:
            tx.files(name, where="id = -1")
            tx.stage(name, [add_file(1)])

    return commit


def _losing(catalog: deltars.Catalog) -> Callable[[], None]:
    name = _table(catalog, "lost")

    def lose() -> None:
        loser = catalog.begin(isolation="strict")
        loser.stage(name, [add_file(1)])
        with catalog.begin() as tx:
            tx.stage(name, [add_file(2)])
        with suppress(deltars.VersionConflict):
            loser.commit()

    return lose


LANES = [
    Lane(
        "activity",
        "What recording activity costs",
        "A transaction on PostgreSQL with the setting `record_activity`, which records what it read, its stages and its"
        " lost races, and without it, in turns. The median is the client's processor time. A lost race has its winner"
        " in it.",
        recorded,
        {"tiny": Sizes(1, 4), "quick": Sizes(4, 80), "full": Sizes()},
    ),
]
