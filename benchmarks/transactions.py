"""Transactions over several tables: what a second table costs, a rebase, and beginning among many tables.

python -m benchmarks.transactions [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import insert

import deltars
from benchmarks.report import table, write_section
from benchmarks.rig import SCHEMA, add_file, add_table, durable_server, new_catalog
from deltars.log.new_table import NewTable
from deltars.store.schema import dl_tables
from tests.support.postgres import PostgresServer
from tests.support.run_directory import RunDirectory

TITLE = "Transactions over several tables on PostgreSQL"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, nothing is written to the docs")
    arguments = parser.parse_args()
    run = RunDirectory()
    try:
        body = measure(durable_server(), rounds=30 if arguments.quick else 300)
        print(f"\n{TITLE}\n\n{body}", flush=True)
        if not arguments.quick:
            write_section(TITLE, "make bench-log", body)
    finally:
        run.close()


def measure(server: PostgresServer, rounds: int) -> str:
    with deltars.connect(new_catalog(server), mirror_wait=0.01) as catalog:
        rows = [*_widths(catalog, rounds), _wide_and_many(catalog), _rebase(catalog, max(5, rounds // 30))]
    with deltars.connect(new_catalog(server)) as catalog:
        rows.append(_begin_among_many(catalog, tables=10_000, rounds=max(5, rounds // 10)))
    return table(["what", "p50 ms", "p99 ms", "ratio to one table", "target"], rows)


def _widths(catalog: deltars.Catalog, rounds: int) -> list[list[object]]:
    """One file a table; the widths take turns, so that noise hits them alike."""
    tables = [catalog.create_table(f"w{i}", SCHEMA).id for i in range(10)]
    seen: dict[int, list[float]] = {1: [], 2: [], 10: []}
    for number in range(rounds):
        for width, times in seen.items():
            tx = catalog.begin()
            for table_id in tables[:width]:
                tx.stage(table_id, [add_file(number)])
            times.append(_timed(lambda tx=tx: catalog._session.commit(tx._as_commit())))  # type: ignore[misc]
    one = statistics.median(seen[1])
    targets = {1: "", 2: "1.5 ×", 10: "3 ×"}
    return [
        [f"commit to {width} table{'s' * (width > 1)}", *_times(times), _ratio(times, one), targets[width]]
        for width, times in seen.items()
    ]


def _wide_and_many(catalog: deltars.Catalog) -> list[object]:
    tables = [catalog.create_table(f"m{i}", SCHEMA).id for i in range(10)]
    times = []
    for _ in range(5):
        tx = catalog.begin()
        for table_id in tables:
            tx.stage(table_id, add_table(1_000))
        times.append(_timed(lambda tx=tx: catalog._session.commit(tx._as_commit())))  # type: ignore[misc]
    return ["commit to 10 tables, 1,000 files each", *_times(times), "", "1,000 ms"]


def _rebase(catalog: deltars.Catalog, rounds: int) -> list[object]:
    """An append under `serializable` that finds 1,000 commits of others before it."""
    table_id = catalog.create_table("rebased", SCHEMA).id
    writer = deltars.SqlTxnLogWriter(catalog)
    times, version = [], 0
    for _ in range(rounds):
        reading = catalog.begin(isolation="serializable")
        reading.files(table_id, where="id = -1")
        reading.stage(table_id, [add_file(version)])
        for _ in range(1_000):
            version += 1
            writer.commit(table_id, version, [add_file(version)], operation="WRITE")
        times.append(_timed(lambda tx=reading: catalog._session.commit(tx._as_commit())))  # type: ignore[misc]
        version += 1
    return ["read, 1,000 commits of others, append: conflict check and commit", *_times(times), "", "20 ms"]


def _begin_among_many(catalog: deltars.Catalog, tables: int, rounds: int) -> list[object]:
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
    return [f"begin() among {tables:,} tables", *_times(times), "", "15 ms"]


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def _times(times: list[float]) -> tuple[str, str]:
    return f"{statistics.median(times):.2f}", f"{sorted(times)[int(len(times) * 0.99)]:.2f}"


def _ratio(times: list[float], one: float) -> str:
    return f"{statistics.median(times) / one:.2f}"


if __name__ == "__main__":
    main()
