"""What many transactions at once do: the jobs of `tests.support.racers.run_racers`, one a client."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import deltars
from deltars.log.commit import Isolation
from tests.support.log import added, removed


def append_blindly(catalog: deltars.Catalog, number: int, table: str, count: int, level: Isolation) -> list[str]:
    """One file a transaction, without a look at the table and without a second try."""
    paths = [f"{number}-{i}" for i in range(count)]
    for path in paths:
        with catalog.begin(isolation=level) as tx:
            tx.stage(table, [added(path)])
    return paths


def write_in_any_order(
    catalog: deltars.Catalog, number: int, sets: Sequence[Sequence[str]], count: int
) -> Counter[str]:
    """Tables drawn by lot, named in an order drawn by lot; some are only read. How the tries ended.

    One set of tables after the other, so that none grows long to read.
    """
    lot, ends = random.Random(number), Counter[str]()
    for tables in sets:
        for i in range(count):
            chosen = lot.sample(tables, 3)
            only_read = lot.choice([None, None, chosen[0]])
            try:
                with catalog.begin(isolation="serializable") as tx:
                    for table in chosen:
                        if table == only_read:
                            tx.files(table)
                        else:
                            tx.stage(table, [added(f"{number}-{i}")])
            except deltars.VersionConflict:
                ends["conflict"] += 1
            else:
                ends["committed"] += 1
    return ends


NORTH, SOUTH = ("north-east", "north-west"), ("south-east", "south-west")
"""Two pairs of tables. A transaction writes one pair, or both; the tables of a pair are always equal, and what was
written to both pairs is in both."""


@dataclass(slots=True)
class Cuts:
    """The cuts that one client asked for."""

    transactions: dict[UUID, dict[str, int]] = field(default_factory=dict)
    """As of each of its own transactions."""
    looks: int = 0
    broken: list[str] = field(default_factory=list)


def keep_the_invariant(catalog: deltars.Catalog, number: int, duration_s: float) -> Cuts:
    """Even numbers write and look; odd ones only look, at cuts of now and of any moment before."""
    cuts, lot = Cuts(), random.Random(number)
    end = time.monotonic() + duration_s
    while time.monotonic() < end or not cuts.looks:
        if number % 2 == 0:
            _write(catalog, cuts, lot)
        _look(catalog, cuts, lot)
    return cuts


def _write(catalog: deltars.Catalog, cuts: Cuts, lot: random.Random) -> None:
    """A new file in each table of the pair, or of both; sometimes one that is in the pair alone goes."""
    pairs = lot.choice([[NORTH], [SOUTH], [NORTH, SOUTH]])
    tables = lot.sample([table for pair in pairs for table in pair], 2 * len(pairs))
    try:
        with catalog.begin(isolation="serializable") as tx:
            path = str(tx.id) if len(pairs) == 1 else f"both-{tx.id}"
            gone = None
            if len(pairs) == 1 and lot.random() < 0.3:
                own = [file for file in tx.files(tables[0])["path"].to_pylist() if not file.startswith("both-")]
                gone = lot.choice(own) if own else None
            for table in tables:
                tx.stage(table, [added(path), *([removed(gone)] if gone else [])])
    except deltars.VersionConflict:
        return
    cuts.transactions[tx.id] = dict(catalog.snapshot(as_of=tx.id).versions)


def _look(catalog: deltars.Catalog, cuts: Cuts, lot: random.Random) -> None:
    """The cut of now is right, and a past one is still right, and still the same."""
    cuts.looks += 1
    cuts.broken += broken_in(catalog, catalog.snapshot().versions)
    moment = datetime.now(UTC) - timedelta(milliseconds=lot.uniform(0, 50))
    of_moment = catalog.snapshot(as_of=moment).versions
    cuts.broken += broken_in(catalog, of_moment)
    if cuts.transactions:
        txn_id, versions = lot.choice(list(cuts.transactions.items()))
        again = dict(catalog.snapshot(as_of=txn_id).versions)
        if again != versions:
            cuts.broken.append(f"the cut of {txn_id} was {versions} and became {again}")
        cuts.broken += broken_in(catalog, again)
    if catalog.snapshot(as_of=moment).versions != of_moment:
        cuts.broken.append(f"the cut of {moment} was {of_moment} and changed")


def broken_in(catalog: deltars.Catalog, versions: Mapping[str, int]) -> list[str]:
    """What is not as it should be in a cut."""
    files = {name: set(live_files(catalog, name, versions[name])) for name in NORTH + SOUTH}
    broken = [
        f"{' and '.join(pair)} differ at {versions}"
        for pair in (NORTH, SOUTH)
        if versions[pair[0]] != versions[pair[1]] or files[pair[0]] != files[pair[1]]
    ]
    common = [{path for path in files[pair[0]] if path.startswith("both-")} for pair in (NORTH, SOUTH)]
    return broken if common[0] == common[1] else [*broken, f"north and south differ at {versions}"]


def live_files(catalog: deltars.Catalog, table: str, version: int | None = None) -> list[str]:
    paths: list[str] = catalog.table(table).snapshot(version).files["path"].to_pylist()
    return paths
