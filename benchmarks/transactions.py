"""Transactions over several tables: what a second table costs, a rebase, and beginning among many tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import insert

import deltars
from benchmarks.figures import OURS, Figure, Side, Target, percentiles_ms, timed
from benchmarks.lane import Lane
from benchmarks.rig import SCHEMA, Rig, add_file, add_table, new_catalog
from deltars.log.new_table import NewTable
from deltars.store.schema import dl_tables

ONE = "a commit to one table"


@dataclass(frozen=True)
class Sizes:
    rounds: int = 300
    others: int = 1_000
    """Commits of others that a rebase finds."""
    tables: int = 10_000
    wide_files: int = 1_000
    """Files of each of ten tables in one commit."""


def several_tables(rig: Rig, sizes: Sizes) -> list[Figure]:
    with deltars.connect(new_catalog(rig.server), mirror="off") as catalog:
        figures = [*_widths(catalog, sizes.rounds), _wide_and_many(catalog, sizes.wide_files), _rebase(catalog, sizes)]
    with deltars.connect(new_catalog(rig.server)) as catalog:
        return [*figures, _begin_among_many(catalog, sizes.tables, max(5, sizes.rounds // 10))]


def _widths(catalog: deltars.Catalog, rounds: int) -> list[Figure]:
    """One file a table; the widths take turns, so that noise hits them alike."""
    tables = [catalog.create_table(f"w{i}", SCHEMA).id for i in range(10)]
    seen: dict[int, list[float]] = {1: [], 2: [], 10: []}
    for number in range(rounds):
        for width, times in seen.items():
            tx = catalog.begin()
            for table_id in tables[:width]:
                tx.stage(table_id, [add_file(number)])
            times.append(_commit_s(catalog, tx))
    sides = {width: Side([statistics.median(times) * 1000], *percentiles_ms(times)) for width, times in seen.items()}
    return [
        Figure(
            f"commit to {width} tables", "ms", {OURS: sides[width], ONE: sides[1]}, targets=[Target("cost", 1.5, ONE)]
        )
        for width in (2, 10)
    ]


def _wide_and_many(catalog: deltars.Catalog, files: int) -> Figure:
    tables = [catalog.create_table(f"m{i}", SCHEMA).id for i in range(10)]
    times = []
    for _ in range(5):
        tx = catalog.begin()
        for table_id in tables:
            tx.stage(table_id, add_table(files))
        times.append(_commit_s(catalog, tx))
    return timed(f"commit to 10 tables, {files:,} files each", times, Target("at_most", 150))


def _rebase(catalog: deltars.Catalog, sizes: Sizes) -> Figure:
    """An append under `serializable` that finds commits of others before it."""
    table_id = catalog.create_table("rebased", SCHEMA).id
    writer = deltars.SqlTxnLogWriter(catalog)
    times, version = [], 0
    for _ in range(max(3, sizes.rounds // 30)):
        reading = catalog.begin(isolation="serializable")
        reading.files(table_id, where="id = -1")
        reading.stage(table_id, [add_file(version)])
        for _ in range(sizes.others):
            version += 1
            writer.commit(table_id, version, [add_file(version)], operation="WRITE")
        times.append(_commit_s(catalog, reading))
        version += 1
    return timed(f"read, {sizes.others:,} commits of others, append: check and commit", times, Target("at_most", 20))


def _begin_among_many(catalog: deltars.Catalog, tables: int, rounds: int) -> Figure:
    names = [NewTable(uuid4(), f"t{number}", f"/nowhere/{number}") for number in range(tables)]
    with catalog._session.database.write(60) as connection:
        connection.execute(
            insert(dl_tables),
            [
                {
                    "table_id": new.table_id,
                    "name": new.name,
                    "location": new.location,
                    "min_reader_version": 1,
                    "min_writer_version": 7,
                    "properties": {},
                    "slot": number,
                    "created_at": datetime.now(UTC),
                }
                for number, new in enumerate(names)
            ],
        )
    times = [_timed(catalog.begin) for _ in range(rounds)]
    return timed(f"begin() among {tables:,} tables", times, Target("at_most", 15))


def _commit_s(catalog: deltars.Catalog, tx: deltars.Transaction) -> float:
    return _timed(lambda: catalog._session.commit(tx._as_commit()))


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


LANES = [
    Lane(
        "transactions",
        "Transactions over several tables",
        "On PostgreSQL, one file a table unless the line says otherwise; the commit alone, nothing is published.",
        several_tables,
        {"tiny": Sizes(4, 5, 50, 10), "quick": Sizes(50, 200, 2_000), "full": Sizes()},
    ),
]
