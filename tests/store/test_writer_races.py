"""Many writers at once: one winner a version, no gaps, nothing lost, nobody left behind."""

from __future__ import annotations

import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import UUID

import pytest

from tests.store.conftest import OpenLog
from tests.support.forkserver import forkserver
from tests.support.log import Log
from tests.support.racers import (
    Tally,
    append_for_a_while,
    append_with_retries,
    come_and_go,
    hold_the_lock,
    race_for_versions,
    run_racers,
)
from tests.support.soak import record, scaled

# Many processes on few cores: not beside other tests.
pytestmark = pytest.mark.xdist_group("races")


def _tables(open_log: OpenLog, count: int) -> list[Log]:
    first = open_log()
    return [first.create(), *(Log(first.catalog, first.uri, f"table-{i}").create() for i in range(1, count))]


def _check(log: Log, tallies: list[Tally]) -> None:
    """Versions 0 to n, each once, each with its file, and every file that was confirmed."""
    versions = [version for (version,) in log.rows("SELECT version FROM dl_table_versions WHERE table_id = ?")]
    assert sorted(versions) == list(range(log.version + 1))
    confirmed = [path for tally in tallies for path in tally.files.get(log.table_id, [])]
    assert sorted(confirmed) == log.live()
    assert log.version == len(confirmed)
    times = log.rows("SELECT commit_ts, in_commit_timestamp FROM dl_table_versions WHERE table_id = ? ORDER BY version")
    for column in zip(*times, strict=True):
        assert list(column) == sorted(set(column))


@pytest.mark.soak
@pytest.mark.requirement("W-04", "D-02", "W-21")
@pytest.mark.timeout(7_200)
@pytest.mark.promise("N4")
def test_race_for_every_version_has_exactly_one_winner(open_log: OpenLog, backend: str) -> None:
    [log] = _tables(open_log, 1)
    writers, rounds = scaled(6, soak=50), scaled(10, soak=1_000)
    tallies = run_racers(log.uri, writers, race_for_versions, log.table_id, rounds)
    winners = Counter(version for tally in tallies for version in tally.versions)
    assert winners == dict.fromkeys(range(1, rounds + 1), 1)
    assert sum(tally.commits + tally.conflicts for tally in tallies) == writers * rounds
    _check(log, tallies)
    record(f"race for a version, {backend}", writers=writers, rounds=rounds, winners=winners.total())


@pytest.mark.soak
@pytest.mark.requirement("D-02", "D-16")
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("tables", [1, 4])
def test_nothing_is_lost_under_many_writers(open_log: OpenLog, backend: str, tables: int) -> None:
    logs = _tables(open_log, tables)
    writers, count = scaled(6, soak=50), scaled(8, soak=400)
    tallies = run_racers(logs[0].uri, writers, append_with_retries, [log.table_id for log in logs], count)
    for log in logs:
        _check(log, tallies)
    assert [tally.commits for tally in tallies] == [count] * writers
    assert sum(log.version for log in logs) == writers * count
    record(
        f"many writers, {tables} {'table' if tables == 1 else 'tables'}, {backend}",
        writers=writers,
        commits=writers * count,
        conflicts=sum(tally.conflicts for tally in tallies),
        lost=0,
        slowest_attempt_s=round(max(tally.longest_s for tally in tallies), 2),
    )


@pytest.mark.soak
@pytest.mark.requirement("D-16")
@pytest.mark.timeout(7_200)
def test_no_writer_starves(open_log: OpenLog, backend: str) -> None:
    """Each writes to a table of its own: who waits, waits for the database and for nothing else."""
    writers, duration_s = 6, float(scaled(2, soak=60))
    logs = _tables(open_log, writers)
    tallies = run_racers(logs[0].uri, writers, append_for_a_while, [log.table_id for log in logs], duration_s)
    for log in logs:
        _check(log, tallies)
    commits = [tally.commits for tally in tallies]
    assert sum(tally.conflicts for tally in tallies) == 0
    assert min(commits) > 0, commits
    assert min(commits) >= max(commits) / 20, commits
    record(
        f"commits of each of {writers} writers in {duration_s:.0f} s, {backend}",
        **{f"writer_{number}": count for number, count in enumerate(commits)},
        longest_wait_s=round(max(tally.longest_s for tally in tallies), 2),
    )


@pytest.mark.soak
@pytest.mark.backends("sqlite")
@pytest.mark.timeout(7_200)
def test_programs_that_come_and_go_meet_no_locked_database(open_log: OpenLog) -> None:
    """The first to open a SQLite file and the last to close it take locks of their own: nobody may notice."""
    writers, duration_s = 6, float(scaled(2, soak=60))
    logs = _tables(open_log, writers)
    logs[0].catalog.close()
    tallies = run_racers(logs[0].uri, writers, come_and_go, [log.table_id for log in logs], duration_s)
    assert all(tally.commits > 0 for tally in tallies)
    for log in logs[1::2]:
        _check(log, tallies)


@pytest.mark.backends("postgres", "sqlite")
def test_killed_writer_frees_its_lock_and_leaves_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    [log] = _tables(open_log, 1)
    before = log.dump()
    log.catalog.close()
    ready = tmp_path / "ready"
    holder = _start_holder(log.uri, log.table_id, ready)
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert holder.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        holder.kill()
        holder.join(30)
    finally:
        holder.kill()
    assert log.dump() == before
    started = time.monotonic()
    assert log.append("a").version == 1
    assert time.monotonic() - started < 10


def _start_holder(uri: str, table_id: UUID, ready: Path) -> BaseProcess:
    holder = forkserver().Process(target=hold_the_lock, args=(uri, table_id, str(ready)), daemon=True)
    holder.start()
    return holder
