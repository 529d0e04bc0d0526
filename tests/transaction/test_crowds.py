"""Many transactions at once: nobody is refused without a reason, waits for a stranger, or waits for ever."""

from __future__ import annotations

from collections import Counter

import pytest

import deltars
from deltars.log.commit import Isolation
from tests.support.log import added
from tests.support.racers import run_racers, unpublished
from tests.support.soak import record, scaled
from tests.support.together import Meanwhile
from tests.transaction.crews import append_blindly, live_files, write_in_any_order
from tests.transaction.holding import held_at

# Many processes on few cores: not beside other tests.
pytestmark = pytest.mark.xdist_group("races")


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("level", ["serializable"])
def test_blind_appends_of_many_processes_meet_no_conflict(
    catalog: deltars.Catalog, catalog_uri: str, backend: str, level: Isolation
) -> None:
    catalog.create_table("events", "id BIGINT")
    catalog.close()
    writers, commits = scaled(4, soak=16), scaled(24, soak=10_000)
    paths = run_racers(catalog_uri, writers, append_blindly, "events", commits // writers, level, around=unpublished)
    confirmed = sorted(path for of_one in paths for path in of_one)
    assert sorted(live_files(catalog, "events")) == confirmed
    assert catalog.table("events").version == len(confirmed) == commits
    record(f"blind appends to one table, {level}, {backend}", processes=writers, commits=commits, errors=0)


@pytest.mark.soak
@pytest.mark.requirement("M-07")
@pytest.mark.timeout(7_200)
def test_tables_named_in_opposite_orders_never_deadlock(
    catalog: deltars.Catalog, catalog_uri: str, backend: str
) -> None:
    """A deadlock is no `VersionConflict`, so it would end the test."""
    # DuckDB is for one process, whose threads take turns at one lock: fewer tries say as much there.
    writers, each, sets = scaled(4, soak=16), scaled(10, soak=125), scaled(1, soak=5 if backend == "duckdb" else 50)
    tables = [[f"table-{i}-{j}" for j in range(4)] for i in range(sets)]
    for name in [name for of_set in tables for name in of_set]:
        catalog.create_table(name, "id BIGINT")
    catalog.close()
    answers = run_racers(catalog_uri, writers, write_in_any_order, tables, each, around=unpublished)
    ends, tries = sum(answers, Counter[str]()), writers * each * sets
    assert ends.total() == tries
    assert ends["committed"] >= tries // 2
    record(f"tables in opposite orders, {backend}", processes=writers, tries=tries, deadlocks=0, **dict(ends))


@pytest.mark.requirement("M-19")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("deferred", [False, True], ids=["inside its lock", "inside its COMMIT"])
def test_disjoint_transactions_do_not_wait_for_one_that_is_held(
    catalog: deltars.Catalog, catalog_uri: str, deferred: bool
) -> None:
    held, read, *free = [catalog.create_table(name, "id BIGINT") for name in ("held", "read", "free-1", "free-2")]
    stuck = catalog.begin(isolation="serializable")
    stuck.files(read.name)
    stuck.stage(held.name, [added("a")])
    with held_at(catalog_uri, held, deferred=deferred) as hold:
        commit = Meanwhile(stuck.commit)
        hold.wait_until_reached()
        for i in range(5):
            with catalog.begin(isolation="strict", timeout=20) as tx:
                # What the held one has only read is free for reading.
                tx.files(read.name)
                for table in free:
                    tx.stage(table.name, [added(f"b{i}")])
        assert catalog.snapshot().versions == {"held": 0, "read": 0, "free-1": 5, "free-2": 5}
        assert commit.is_running
    assert commit.result().versions == {"held": 1}


@pytest.mark.requirement("M-18")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("deferred", [False, True], ids=["inside its lock", "inside its COMMIT"])
def test_overlapping_transaction_waits_for_one_that_is_held(
    catalog: deltars.Catalog, catalog_uri: str, deferred: bool
) -> None:
    held = catalog.create_table("held", "id BIGINT")
    catalog.create_table("other", "id BIGINT")
    stuck, waiting = catalog.begin(isolation="serializable"), catalog.begin(isolation="serializable")
    stuck.stage("held", [added("a")])
    for name in ("other", "held"):
        waiting.stage(name, [added("b")])
    with held_at(catalog_uri, held, deferred=deferred) as hold:
        first = Meanwhile(stuck.commit)
        hold.wait_until_reached()
        second = Meanwhile(waiting.commit)
        hold.wait_until_somebody_waits()
        assert second.is_running
    assert first.result().versions == {"held": 1}
    assert second.result().versions == {"held": 2, "other": 1}
