"""What many transactions at once do: the jobs of `tests.support.racers.run_racers`, one a client."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
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


def write_in_any_order(catalog: deltars.Catalog, number: int, tables: Sequence[str], count: int) -> Counter[str]:
    """Tables drawn by lot, named in an order drawn by lot; some are only read. How the tries ended."""
    lot, ends = random.Random(number), Counter[str]()
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


@dataclass(slots=True)
class Cuts:
    """The cuts that one client asked for."""

    transactions: dict[UUID, dict[str, int]] = field(default_factory=dict)
    """As of each of its own transactions."""
    looks: int = 0
    broken: list[str] = field(default_factory=list)


def keep_the_invariant(catalog: deltars.Catalog, number: int, tables: Sequence[str], duration_s: float) -> Cuts:
    """Even numbers write every table in every transaction, the same files; odd ones look whether it is so."""
    cuts, lot = Cuts(), random.Random(number)
    end, round_ = time.monotonic() + duration_s, 0
    while time.monotonic() < end or not cuts.looks:
        if number % 2 == 0:
            _write_everywhere(catalog, f"{number}-{round_}", tables, cuts, lot)
        _look(catalog, tables, cuts, lot)
        round_ += 1
    return cuts


def _write_everywhere(
    catalog: deltars.Catalog, name: str, tables: Sequence[str], cuts: Cuts, lot: random.Random
) -> None:
    """A new file in each table; sometimes an old one goes from each."""
    order = lot.sample(tables, len(tables))
    try:
        with catalog.begin(isolation="serializable") as tx:
            gone = lot.choice([*tx.files(order[0])["path"].to_pylist(), None]) if lot.random() < 0.3 else None
            for table in order:
                tx.stage(table, [added(name), *([removed(gone)] if gone else [])])
    except deltars.VersionConflict:
        return
    cuts.transactions[tx.id] = dict(catalog.snapshot(as_of=tx.id).versions)


def _look(catalog: deltars.Catalog, tables: Sequence[str], cuts: Cuts, lot: random.Random) -> None:
    """All tables of a cut are at one version and have the same files, now, and then again later."""
    cuts.looks += 1
    check_cut(catalog, catalog.snapshot().versions, tables, cuts.broken)
    if cuts.transactions:
        txn_id, versions = lot.choice(list(cuts.transactions.items()))
        again = dict(catalog.snapshot(as_of=txn_id).versions)
        if again != versions:
            cuts.broken.append(f"the cut of {txn_id} was {versions} and became {again}")
        check_cut(catalog, again, tables, cuts.broken)


def check_cut(catalog: deltars.Catalog, versions: object, tables: Sequence[str], broken: list[str]) -> None:
    assert hasattr(versions, "__getitem__")
    if len({versions[table] for table in tables}) != 1:
        broken.append(f"the tables are at different versions: {versions}")
    files = {tuple(sorted(live_files(catalog, table, versions[table]))) for table in tables}
    if len(files) != 1:
        broken.append(f"the tables have different files at {versions}")


def live_files(catalog: deltars.Catalog, table: str, version: int | None = None) -> list[str]:
    paths: list[str] = catalog.table(table).snapshot(version).files["path"].to_pylist()
    return paths
