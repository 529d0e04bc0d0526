"""What a commit is stamped with under the lock: its time, its in-commit timestamp, its row ids."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from sqlalchemy import update

from deltars.log.commit import Commit, TableCommit
from deltars.protocol import AddFile
from deltars.store.schema import dl_tables
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, creation, metadata, removed, stats

ROW_TRACKING = {"delta.enableRowTracking": "true"}
DAY_US = 86_400_000_000

SIZES = pytest.mark.parametrize("threshold", [1_000, 1], ids=["small", "bulk"])


def _stamps(log: Log) -> list[tuple[int, int]]:
    query = "SELECT commit_ts, in_commit_timestamp FROM dl_table_versions WHERE table_id = ? ORDER BY version"
    return [(commit_ts, in_commit) for commit_ts, in_commit in log.rows(query)]


def _set_clock_ahead(log: Log, by_us: int) -> int:
    """As if the last commit had been made by a clock that went ahead of today's."""
    ahead = time.time_ns() // 1_000 + by_us
    with log.catalog._session.database.write(10) as connection:
        connection.execute(update(dl_tables).values(last_commit_ts=ahead, last_ict=ahead // 1_000))
    return ahead


def test_time_of_a_commit_is_the_database_s(log: Log) -> None:
    before = time.time_ns() // 1_000
    result = log.append("a")
    # SQLite's clock ticks in milliseconds.
    assert before - 1_000 <= result.commit_ts <= time.time_ns() // 1_000
    assert _stamps(log)[-1] == (result.commit_ts, result.commit_ts // 1_000)


def test_times_of_commits_in_one_table_rise_however_fast_they_follow(log: Log) -> None:
    for _ in range(30):
        log.append()
    stamps = _stamps(log)
    assert all(earlier[0] < later[0] for earlier, later in pairwise(stamps))
    assert all(earlier[1] < later[1] for earlier, later in pairwise(stamps))
    assert all(in_commit >= commit_ts // 1_000 for commit_ts, in_commit in stamps)


def test_times_of_commits_rise_over_all_tables(open_log: OpenLog) -> None:
    first, second = open_log().create(), open_log(name="other").create()
    results = [log.append() for _ in range(10) for log in (first, second)]
    times = [result.commit_ts for result in results]
    assert times == sorted(set(times))


def test_times_rise_although_the_clock_was_set_back(log: Log) -> None:
    ahead = _set_clock_ahead(log, DAY_US)
    results = [log.append() for _ in range(3)]
    assert [result.commit_ts for result in results] == [ahead + 1, ahead + 2, ahead + 3]
    in_commit = [stamp for _, stamp in _stamps(log)[-3:]]
    assert in_commit == [ahead // 1_000 + 1, ahead // 1_000 + 2, ahead // 1_000 + 3]


def test_clock_that_one_table_saw_ahead_does_not_run_behind_in_another(open_log: OpenLog) -> None:
    first, second = open_log().create(), open_log(name="other").create()
    _set_clock_ahead(first, DAY_US)
    earlier = first.append().commit_ts
    assert second.append().commit_ts > earlier


def test_one_transaction_has_one_time_in_all_its_tables(open_log: OpenLog) -> None:
    first, second = open_log().create(), open_log(name="other").create()
    parts = [TableCommit(log.table_id, 0, [added("a")], "WRITE") for log in (first, second)]
    committed = first.catalog._session.commit(Commit(uuid4(), parts))
    assert _stamps(first)[-1][0] == _stamps(second)[-1][0] == committed.commit_ts


def _row_ids(log: Log) -> dict[str, tuple[int | None, int | None]]:
    query = "SELECT path, base_row_id, default_row_commit_version FROM dl_add_files WHERE table_id = ?"
    return {path: (first, version) for path, first, version in log.rows(query)}


def _high_water_mark(log: Log) -> int | None:
    """The latest there is; `dl_tables` must agree with it."""
    query = "SELECT configuration FROM dl_domain_metadata WHERE table_id = ? AND domain = 'delta.rowTracking'"
    marks = [json.loads(text)["rowIdHighWaterMark"] for (text,) in log.rows(f"{query} ORDER BY version")]
    assert log.one("SELECT next_row_id FROM dl_tables WHERE table_id = ?") == (marks[-1] + 1 if marks else 0)
    return marks[-1] if marks else None


@SIZES
def test_rows_of_added_files_get_ids_that_follow_each_other(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create(configuration=ROW_TRACKING)
    log.commit([added("a", stats=stats(3)), added("b", stats=stats(0)), added("c", stats=stats(4))])
    assert _row_ids(log) == {"a": (0, 1), "b": (3, 1), "c": (3, 1)}
    assert _high_water_mark(log) == 6
    log.commit([added("d", stats=stats(1)), removed("a")])
    assert _row_ids(log)["d"] == (7, 2)
    assert _high_water_mark(log) == 7
    log.commit([removed("b")])
    assert _high_water_mark(log) == 7


@SIZES
def test_file_that_brings_its_row_ids_keeps_them_and_nobody_else_gets_them(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create(configuration=ROW_TRACKING)
    moved = added("moved", stats=stats(10), base_row_id=100, default_row_commit_version=0)
    log.commit([added("new", stats=stats(5)), moved, added("newer", stats=stats(5))])
    ids = _row_ids(log)
    assert ids["moved"] == (100, 0)
    assert ids["new"] == (110, 1)
    assert ids["newer"] == (115, 1)
    assert _high_water_mark(log) == 119
    # What stays below the mark needs no new ids.
    log.commit([added("again", stats=stats(3), base_row_id=0, default_row_commit_version=1)])
    assert _high_water_mark(log) == 119


def test_row_ids_continue_over_the_batches_of_a_table_of_files(open_log: OpenLog) -> None:
    log = open_log().create(configuration=ROW_TRACKING)
    count = 25_000
    rows = [stats(i % 3) for i in range(count)]
    log.commit(_columns(count, stats=rows))
    ids = _row_ids(log)
    expected = 0
    for i in range(count):
        assert ids[f"{i}"] == (expected, 1)
        expected += i % 3
    assert _high_water_mark(log) == expected - 1


def _columns(count: int, **more: Any) -> pa.Table:
    return pa.table(
        {
            "path": [f"{i}" for i in range(count)],
            "partition_values": ["{}"] * count,
            "size": [1] * count,
            "modification_time": [1] * count,
            "data_change": [True] * count,
            **more,
        }
    )


def test_rows_are_not_tracked_unless_the_table_says_so(log: Log) -> None:
    log.commit([added("a", stats=stats(3))])
    assert _row_ids(log) == {"a": (None, None)}
    assert _high_water_mark(log) is None


def test_tracking_that_begins_later_begins_with_the_commit_that_says_so(log: Log) -> None:
    log.commit([added("before", stats=stats(3))])
    log.commit([metadata(configuration=ROW_TRACKING), added("after", stats=stats(3))])
    assert _row_ids(log) == {"before": (None, None), "after": (0, 2)}


def test_version_0_may_have_files_with_row_ids(open_log: OpenLog) -> None:
    log = open_log()
    files: list[AddFile] = [added("a", stats=stats(3)), added("b", stats=stats(3))]
    log.commit([*creation(configuration=ROW_TRACKING), *files], version=0)
    assert _row_ids(log) == {"a": (0, 0), "b": (3, 0)}
