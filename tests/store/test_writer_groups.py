"""Group commit: threads that append to one table share transactions, and each gets its own outcome."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import update

import deltars
from deltars.errors import CommitUnknown, DatabaseError, MetadataChanged, TimeoutError, VersionConflict
from deltars.log.commit import Base, Commit, Committed, TableCommit
from deltars.observe import CommitEnded
from deltars.observe.channel import attach, detach
from deltars.protocol import Action
from deltars.store.commit.batch_commit import BatchCommits
from deltars.store.commit.direct_commit import DirectCommits
from deltars.store.commit.group_commit import GroupCommits
from deltars.store.commit.writer import LogWriter
from deltars.store.schema import dl_tables
from deltars.uri import parse_catalog_uri
from tests.store.conftest import OpenLog
from tests.support.children import in_child
from tests.support.groups import commit_together, gathering, is_led, queued, until
from tests.support.interrupts import Clock as Interrupt
from tests.support.log import Log, added, metadata, removed, row_groups, stats
from tests.support.racers import append_by_threads, run_racers
from tests.support.soak import scaled, seed
from tests.support.tap import Tap
from tests.support.together import Meanwhile
from tests.support.wire import Verdict
from tests.support.witness import postgres_connection

PATHS = ["a", "b", "c", "d"]


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    """A table whose state, and whose committer, the writer remembers."""
    return ready(open_log())


def ready(log: Log) -> Log:
    log.create()
    log.append("first")
    return log


def blind(log: Log, *paths: str, expected: int = 1, **fields: Any) -> Commit:
    table = TableCommit(log.table_id, expected, [added(path) for path in paths], "WRITE")
    return Commit(uuid4(), [table], isolation="serializable", **fields)


def all_blind(log: Log) -> list[Commit]:
    return [blind(log, path) for path in PATHS]


def check_history(log: Log) -> None:
    """Versions have no gap, and their times rise."""
    query = "SELECT version, commit_ts, in_commit_timestamp FROM dl_table_versions WHERE table_id = ? ORDER BY version"
    found = log.rows(query)
    assert [version for version, *_ in found] == list(range(log.version + 1))
    for column in (1, 2):
        assert all(one[column] < other[column] for one, other in pairwise(found))
    assert all(in_commit >= commit_ts // 1000 for _, commit_ts, in_commit in found)
    [[last_ts, last_ict]] = log.rows("SELECT last_commit_ts, last_ict FROM dl_tables WHERE table_id = ?")
    assert (last_ts, last_ict) == found[-1][1:]


def stored(log: Log) -> dict[str, tuple[str, int, int]]:
    """The transaction, version and time stamp that added each file."""
    query = (
        "SELECT f.path, v.txn_id, v.version, t.commit_ts FROM dl_add_files f"
        " JOIN dl_table_versions v ON v.table_id = f.table_id AND v.version = f.version"
        " JOIN dl_transactions t ON t.txn_id = v.txn_id AND t.commit_ts = v.commit_ts WHERE f.table_id = ?"
    )
    found = log.rows(query)
    assert len({path for path, *_ in found}) == len(found), "a file was added twice"
    return {path: (str(txn_id), version, commit_ts) for path, txn_id, version, commit_ts in found}


def check_outcomes(log: Log, commits: list[Commit], outcomes: list[Committed | BaseException]) -> None:
    """What each caller was told is what is stored, whether it committed or not."""
    there = stored(log)
    for commit, outcome in zip(commits, outcomes, strict=True):
        for action in commit.tables[0].actions:
            if isinstance(outcome, Committed):
                told = (str(outcome.txn_id), outcome.versions[log.table_id], outcome.commit_ts)
                assert outcome.txn_id == commit.txn_id
                assert there[action.path] == told  # type: ignore[union-attr]
            else:
                assert action.path not in there  # type: ignore[union-attr]
    check_history(log)


@contextmanager
def events() -> Iterator[list[CommitEnded]]:
    heard: list[CommitEnded] = []

    def hear(event: Any) -> None:
        if isinstance(event, CommitEnded):
            heard.append(event)

    attach(hear)
    try:
        yield heard
    finally:
        detach(hear)


@contextmanager
def held(log: Log) -> Iterator[Callable[[], None]]:
    """A leader that commits alone, and has to wait until it is released; those who come meanwhile wait for it."""
    release, reached = threading.Event(), threading.Event()
    commit: Callable[..., Any] = DirectCommits.commit

    def waiting(self: DirectCommits, *arguments: Any) -> Any:
        if not reached.is_set():
            reached.set()
            assert release.wait(60)
        return commit(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectCommits, "commit", waiting)
        leader = Meanwhile(log.catalog._session.commit, blind(log, "leader"))
        assert reached.wait(60)
        try:
            yield release.set
        finally:
            release.set()
            assert isinstance(leader.outcome(), Committed)


# -- what is written ---------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.promise("N1", "N2", "N4", "N7")
def test_every_commit_of_many_threads_is_one_version_in_order(open_log: OpenLog) -> None:
    log = ready(open_log(pool_size=10))
    threads, count = 6, scaled(12, soak=500)
    results: dict[str, deltars.CommitResult] = {}

    def append(number: int) -> None:
        for file in range(count):
            path = f"{number}-{file}"
            results[path] = log.writer.append(log.table_id, [added(path)])

    with events() as heard, gathering(threads) as sizes:
        for one in [Meanwhile(append, number) for number in range(threads)]:
            one.result()
    assert max(sizes) == threads
    assert sum(sizes) == threads * count
    check_history(log)
    there = stored(log)
    del there["first"]
    assert {path: (str(one.txn_id), one.version, one.commit_ts) for path, one in results.items()} == there
    assert sorted(event.txn_id for event in heard) == sorted(one.txn_id for one in results.values())
    assert {str(event.outcome) for event in heard} == {"committed"}
    # The stages of each are those of its own transaction.
    assert all(event.stages.keys() >= {"validate", "lock", "commit"} for event in heard)


def test_rows_are_those_of_commits_one_by_one(open_log: OpenLog) -> None:
    logs = {name: ready(open_log(name=name)) for name in ("together", "alone")}
    for name, log in logs.items():
        base = Base(1, log.one("SELECT last_commit_ts FROM dl_tables WHERE table_id = ?"))
        commits = []
        for number, path in enumerate(PATHS):
            actions: list[Action] = [added(path, tags={"b": "1", "a": "2"}), added(f"{path}2", stats=stats(3))]
            table = TableCommit(log.table_id, 1, actions, "WRITE", {"n": number}, row_groups=row_groups(path))
            fields: dict[str, Any] = {"committer": "etl", "user_metadata": "x", "isolation": "serializable"}
            commits.append(Commit(uuid4(), [table], bases={log.table_id: base}, **fields))
        if name == "together":
            together = commits, commit_together(log, commits)
            check_outcomes(log, *together)
        else:
            for commit in commits:
                log.catalog._session.commit(commit)
    for table_name, columns in {
        "dl_add_files": "path, ord, dv_id, partition_values, size, stats, tags, num_records, mins, maxs",
        "dl_row_groups": "ord, row_group, num_rows, total_bytes",
        "dl_table_versions": "operation, operation_params, read_version, isolation, is_blind_append, metrics,"
        " committer, user_metadata",
        "dl_tables": "current_version, metadata_version, protocol_version, next_row_id, properties",
    }.items():
        query = f"SELECT {columns} FROM {table_name} WHERE table_id = ?"
        found = {name: sorted(map(repr, log.rows(query))) for name, log in logs.items()}
        assert found["together"] == found["alone"], table_name
    log = logs["together"]
    slots = "SELECT count(*) FROM dl_add_files f JOIN dl_tables t ON t.table_id = f.table_id AND t.slot = f.slot"
    assert log.one(f"{slots} WHERE f.table_id = ?") == 9
    for commit, outcome in zip(*together, strict=True):
        assert log.catalog._session.writer.find_committed(commit.txn_id) == outcome


def test_file_that_is_live_already_is_ended_by_the_one_that_adds_it_again(log: Log) -> None:
    commits = [blind(log, "first"), *all_blind(log)]
    outcomes = commit_together(log, commits)
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert log.live() == sorted([*PATHS, "first"])
    [again] = [outcome.versions[log.table_id] for outcome in outcomes[:1] if isinstance(outcome, Committed)]
    query = "SELECT version, removed_version FROM dl_add_files WHERE table_id = ? AND path = 'first' ORDER BY version"
    assert log.rows(query) == [(1, again), (again, None)]


def test_same_file_is_never_added_twice_by_one_batch(log: Log) -> None:
    """One statement sees the table as it was before: both rows would be live."""
    with gathering(3) as sizes:
        running = [Meanwhile(log.writer.append, log.table_id, [added("same")]) for _ in range(3)]
        versions = sorted(one.result().version for one in running)
    assert (sizes, versions) == ([1, 1, 1], [2, 3, 4])
    assert log.live() == ["first", "same"]
    check_history(log)


@pytest.mark.backends("postgres")
@pytest.mark.control("N2")
def test_batch_that_would_take_the_same_file_twice_is_found_out(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltars.store.commit.batch_commit._paths", lambda _: [])
    with gathering(3) as sizes:
        for one in [Meanwhile(log.writer.append, log.table_id, [added("same")]) for _ in range(3)]:
            one.result()
    assert sizes == [3]
    assert log.live() == ["first", "same", "same", "same"]


def test_one_thread_does_not_wait(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltars.store.commit.group_commit.GATHERING_S", 60.0)
    for path in PATHS:
        log.writer.append(log.table_id, [added(path)])
    assert log.catalog._session.writer._groups._queues == {}
    check_history(log)


def test_leader_waits_for_as_many_as_came_the_last_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(isinstance(outcome, Committed) for outcome in commit_together(log, all_blind(log)))
    monkeypatch.setattr("deltars.store.commit.group_commit.GATHERING_S", 0.2)
    began = time.monotonic()
    log.writer.append(log.table_id, [added("late")])
    assert time.monotonic() - began > 0.2
    monkeypatch.setattr("deltars.store.commit.group_commit.GATHERING_S", 60.0)
    log.writer.append(log.table_id, [added("later")])


def test_time_stamps_of_a_batch_count_up_though_the_clock_went_back(log: Log) -> None:
    ahead = time.time_ns() // 1000 + 86_400_000_000
    with log.catalog._session.database.write(10) as connection:
        connection.execute(update(dl_tables).values(last_commit_ts=ahead, last_ict=ahead // 1000))
    commit_together(log, all_blind(log))
    query = "SELECT commit_ts, in_commit_timestamp FROM dl_table_versions WHERE table_id = ? AND version > 1 ORDER BY 1"
    assert log.rows(query) == [(ahead + 1 + n, ahead // 1000 + 1 + n) for n in range(4)]


# -- refused -----------------------------------------------------------------------------------------------------------


def test_commit_that_was_settled_as_aborted_fails_alone(log: Log) -> None:
    commits = all_blind(log)
    assert log.catalog._session.writer.resolve(commits[2].txn_id, timeout_s=30) is None
    outcomes = commit_together(log, commits)
    assert isinstance(outcomes[2], DatabaseError)
    assert outcomes[2].txn_id == commits[2].txn_id
    assert [isinstance(outcome, Committed) for outcome in outcomes] == [True, True, False, True]
    check_outcomes(log, commits, outcomes)


def test_batch_that_the_database_refuses_is_committed_one_by_one(open_log: OpenLog, tap: Tap) -> None:
    log = ready(open_log(tap=tap))
    commits, waiting = all_blind(log), iter([Verdict.FAIL])

    def judge(statement: str) -> Verdict:
        return next(waiting, Verdict.PASS) if "dl_table_versions (" in statement else Verdict.PASS

    with tap.judging(judge):
        outcomes = commit_together(log, commits)
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    check_outcomes(log, commits, outcomes)


def test_metadata_that_another_writer_changes_meanwhile_refuses_those_that_began_before(
    log: Log, open_log: OpenLog
) -> None:
    other = LogWriter(open_log(name="other").catalog._session.database)

    def change() -> None:
        table = TableCommit(log.table_id, 1, [metadata("id BIGINT, more STRING")], "SET")
        assert isinstance(other.commit(Commit(uuid4(), [table]), timeout_s=30), Committed)

    commits = all_blind(log)
    outcomes = commit_together(log, commits, then=change)
    assert [type(outcome) for outcome in outcomes] == [MetadataChanged] * 4
    check_outcomes(log, commits, outcomes)
    # An append began with no version at all.
    assert log.writer.append(log.table_id, [added("next")]).version == 3


def test_only_the_commit_of_a_replaced_version_is_refused(log: Log) -> None:
    stamp = log.one("SELECT last_commit_ts FROM dl_tables WHERE table_id = ?")
    bases = [Base(1, stamp), Base(1, stamp - 1), Base(1, stamp)]
    commits = [blind(log, path, bases={log.table_id: base}) for path, base in zip(PATHS, bases, strict=False)]
    outcomes = commit_together(log, commits)
    assert isinstance(outcomes[1], VersionConflict)
    assert "was replaced" in str(outcomes[1])
    assert isinstance(outcomes[0], Committed)
    assert isinstance(outcomes[2], Committed)
    check_outcomes(log, commits, outcomes)


def test_only_the_commit_after_an_unknown_version_is_refused(log: Log) -> None:
    commits = [blind(log, "a"), blind(log, "b", expected=7), blind(log, "c")]
    outcomes = commit_together(log, commits)
    assert isinstance(outcomes[1], VersionConflict)
    check_outcomes(log, commits, outcomes)


def test_commits_of_other_kinds_go_their_own_way_among_groups(open_log: OpenLog) -> None:
    log = ready(open_log(pool_size=10))
    gone: list[int] = []

    def rewrite() -> None:
        for number in range(5):
            old = "first" if number == 0 else f"rewritten {number - 1}"
            while len(gone) == number:
                try:
                    gone.append(log.commit([removed(old), added(f"rewritten {number}")]).version)
                except VersionConflict:
                    continue

    def append(name: str) -> None:
        for number in range(8):
            log.writer.append(log.table_id, [added(f"{name} {number}")])

    for one in [Meanwhile(rewrite), *(Meanwhile(append, path) for path in PATHS)]:
        one.result()
    check_history(log)
    assert log.version == 1 + 5 + 8 * 4
    assert log.live() == sorted(["rewritten 4", *(f"{path} {number}" for path in PATHS for number in range(8))])


# -- lost, interrupted, too late ---------------------------------------------------------------------------------------


@pytest.mark.backends("postgres")
@pytest.mark.promise("N1", "N3", "N7")
@pytest.mark.parametrize("verdict", [Verdict.CUT_BEFORE, Verdict.CUT_DURING, Verdict.CUT_AFTER])
def test_connection_cut_around_commit_says_to_each_what_happened(open_log: OpenLog, tap: Tap, verdict: Verdict) -> None:
    log = ready(open_log(tap=tap))
    commits, waiting = all_blind(log), iter([verdict])
    with tap.judging(lambda text: next(waiting, Verdict.PASS) if text == "COMMIT" else Verdict.PASS):
        outcomes = commit_together(log, commits)
    assert len({type(outcome) for outcome in outcomes}) == 1, "the batch is all or nothing"
    assert isinstance(outcomes[0], DatabaseError if verdict is Verdict.CUT_BEFORE else Committed)
    for commit, outcome in zip(commits, outcomes, strict=True):
        if isinstance(outcome, DatabaseError):
            assert (outcome.txn_id, outcome.stage, outcome.retryable) == (commit.txn_id, "commit", True)
            assert "did not commit, and never will" in str(outcome)
    check_outcomes(log, commits, outcomes)
    assert log.append("next").version == log.version


@pytest.mark.backends("postgres")
@pytest.mark.promise("N7")
def test_outcome_that_cannot_be_known_is_unknown_to_each(open_log: OpenLog, tap: Tap) -> None:
    log = ready(open_log(tap=tap, timeout=1.0))
    commits, is_down = all_blind(log), threading.Event()

    def judge(statement: str) -> Verdict:
        if is_down.is_set():
            return Verdict.CUT_BEFORE
        if statement != "COMMIT":
            return Verdict.PASS
        is_down.set()
        return Verdict.CUT_AFTER

    with tap.judging(judge):
        outcomes = commit_together(log, commits)
    assert [type(outcome) for outcome in outcomes] == [CommitUnknown] * 4
    for commit, outcome in zip(commits, outcomes, strict=True):
        assert isinstance(outcome, CommitUnknown)
        assert outcome.txn_id == commit.txn_id
        resolved = log.catalog.resolve(commit.txn_id)
        assert resolved is not None
        assert resolved.versions_by_id == {log.table_id: stored(log)[commit.tables[0].actions[0].path][1]}  # type: ignore[union-attr]


@pytest.mark.backends("postgres", "sqlite")
def test_time_runs_out_only_while_waiting_for_a_leader(log: Log) -> None:
    writer = log.catalog._session.writer
    late = blind(log, "late")
    with held(log) as release:
        waiting = Meanwhile(writer.commit, late, timeout_s=0.2)
        patient = Meanwhile(writer.commit, blind(log, "patient"), timeout_s=60)
        error = waiting.error()
        assert isinstance(error, TimeoutError)
        assert (error.stage, error.txn_id, error.table_id) == ("lock", late.txn_id, str(log.table_id))
        patient.stays_for(0.05)
        release()
        assert isinstance(patient.outcome(), Committed)
    assert log.live() == ["first", "leader", "patient"]
    check_history(log)


@pytest.mark.backends("sqlite")
@pytest.mark.promise("N7")
def test_commit_whose_time_has_run_out_is_taken_by_no_leader(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is slow to leave. Meanwhile the leader hands on, and the next one takes what waits."""
    writer, leave, has_left = log.catalog._session.writer, GroupCommits._leave, threading.Event()
    is_late = threading.local()

    def slow(self: GroupCommits, entry: Any, table_id: Any) -> None:
        if getattr(is_late, "here", False):
            assert has_left.wait(60)
        leave(self, entry, table_id)

    def late() -> Any:
        is_late.here = True
        return writer.commit(blind(log, "late"), timeout_s=0.2)

    monkeypatch.setattr(GroupCommits, "_leave", slow)
    with held(log) as release:
        given_up = Meanwhile(late)
        others = [Meanwhile(writer.commit, blind(log, path), timeout_s=60) for path in ("b", "c")]
        given_up.stays_for(0.5)
        release()
        assert all(isinstance(other.outcome(), Committed) for other in others)
        has_left.set()
        assert isinstance(given_up.error(), TimeoutError)
    assert log.live() == ["b", "c", "first", "leader"]
    check_history(log)


@pytest.mark.backends("postgres", "sqlite")
def test_taken_commit_waits_for_its_leader_past_its_own_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, commit = log.catalog._session.writer, BatchCommits.commit

    def slow(self: BatchCommits, *arguments: Any) -> Any:
        time.sleep(0.4)
        return commit(self, *arguments)

    monkeypatch.setattr(BatchCommits, "commit", slow)
    with gathering(2) as sizes:
        leader = Meanwhile(writer.commit, blind(log, "a"), timeout_s=60)
        until(lambda: is_led(log))
        follower = Meanwhile(writer.commit, blind(log, "b"), timeout_s=0.3)
        assert isinstance(leader.outcome(), Committed)
        assert isinstance(follower.outcome(), Committed)
    assert sizes == [2]
    check_history(log)


def _ctrl_c_when(is_so: Callable[[], bool]) -> Meanwhile[None]:
    def press() -> None:
        until(is_so)
        os.kill(os.getpid(), signal.SIGINT)

    return Meanwhile(press)


@pytest.mark.backends("postgres", "sqlite")
@pytest.mark.promise("N7")
def test_ctrl_c_while_waiting_takes_the_commit_out_of_the_queue(log: Log) -> None:
    commit = blind(log, "mine")
    with held(log) as release:
        pressing = _ctrl_c_when(lambda: queued(log) == 1)
        with pytest.raises(KeyboardInterrupt) as caught:
            log.catalog._session.commit(commit)
        assert pressing.outcome() is None
        assert caught.value.__notes__ == [f"deltars: transaction {commit.txn_id} did not commit"]
        assert queued(log) == 0
        release()
    assert log.live() == ["first", "leader"]
    assert log.append("next").version == 3


@pytest.mark.backends("postgres")
@pytest.mark.promise("N7")
@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
def test_ctrl_c_in_a_batch_that_was_sent_says_that_the_outcome_is_unknown(
    open_log: OpenLog, migrated_uri: str, is_leader: bool
) -> None:
    log = ready(open_log())
    session, mine, others = log.catalog._session, blind(log, "mine"), [blind(log, path) for path in PATHS]
    is_blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    def is_sent() -> bool:
        with postgres_connection(parse_catalog_uri(migrated_uri)) as witness:
            return witness.execute(is_blocked).fetchall() != [(0,)]

    running: list[Meanwhile[Committed]] = []

    def follow() -> None:
        until(lambda: is_led(log))
        running.extend(Meanwhile(session.commit, commit) for commit in others)

    with gathering(5) as sizes:
        with postgres_connection(parse_catalog_uri(migrated_uri)) as connection, connection.transaction():
            connection.execute("SELECT 1 FROM dl_tables FOR UPDATE")
            if not is_leader:
                running.append(Meanwhile(session.commit, others.pop()))
                until(lambda: is_led(log))
            following = Meanwhile(follow)
            pressing = _ctrl_c_when(is_sent)
            with pytest.raises(KeyboardInterrupt) as caught:
                session.commit(mine)
            assert (pressing.outcome(), following.outcome()) == (None, None)
        outcomes = [one.outcome() for one in running]
    assert sizes[0] == 5
    assert caught.value.__notes__ == [
        f"deltars: it is not known whether transaction {mine.txn_id} committed; to find out:"
        f" catalog.resolve('{mine.txn_id}')"
    ]
    # The leader's statement was cancelled. A follower's leader went on, and committed it too.
    expected = DatabaseError if is_leader else Committed
    assert {type(outcome) for outcome in outcomes} == {expected}
    assert (session.writer.resolve(mine.txn_id, timeout_s=30) is None) == is_leader
    assert log.live() == (["first"] if is_leader else sorted(["first", "mine", *PATHS]))
    check_history(log)


@pytest.mark.soak
@pytest.mark.backends("postgres", "sqlite")
@pytest.mark.promise("N7")
def test_ctrl_c_at_any_moment_of_a_leader_strands_no_one(open_log: OpenLog) -> None:
    log = ready(open_log(pool_size=4, pool_timeout=5))
    session = log.catalog._session

    def lead(interrupt: Interrupt, name: str) -> tuple[str, Commit, list[Meanwhile[Committed]]]:
        """Commit with one follower in the batch, and one behind it."""
        mine, running = blind(log, f"mine {name}"), []

        def follow() -> None:
            until(lambda: is_led(log) or has_ended.is_set())
            running.append(Meanwhile(session.commit, blind(log, f"follower {name}")))

        has_ended = threading.Event()
        following = Meanwhile(follow)
        said = "committed"
        try:
            with gathering(2), interrupt:
                session.commit(mine)
        except KeyboardInterrupt as caught:
            said = "".join(getattr(caught, "__notes__", []))
        has_ended.set()
        assert following.outcome() is None
        return said, mine, running

    with_all = Interrupt()
    lead(with_all, "counted")[2][0].result()
    moments = with_all.places
    step = max(1, len(moments) // scaled(20, soak=len(moments)))
    for moment in moments[seed() % step :: step]:
        began = time.monotonic()
        said, mine, running = lead(Interrupt(moment), str(moment))
        outcome = running[0].outcome()
        assert time.monotonic() - began < 30, moment
        until(lambda: not is_led(log))
        there = stored(log)
        assert (f"follower {moment}" in there) == isinstance(outcome, Committed), moment
        is_committed = session.writer.resolve(mine.txn_id, timeout_s=30) is not None
        assert is_committed == (f"mine {moment}" in there)
        assert not is_committed or "did not commit" not in said, moment
        log.append()
    check_history(log)


def test_catalog_that_is_closed_while_commits_wait_commits_them(log: Log) -> None:
    with held(log) as release:
        waiting = [Meanwhile(log.catalog._session.commit, commit) for commit in all_blind(log)]
        until(lambda: queued(log) == 4)
        log.catalog.close()
        release()
        outcomes = [one.outcome() for one in waiting]
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert log.live() == sorted(["first", "leader", *PATHS])
    check_history(log)


@pytest.mark.backends("postgres", "sqlite")
def test_forked_child_has_no_queue_of_its_parent(log: Log) -> None:
    # The lock of the queues may be held at this moment too.
    with held(log), log.catalog._session.writer._groups._lock:
        assert in_child(lambda: _append(log, "child")) == 0
    assert log.live() == ["child", "first", "leader"]


def _append(log: Log, path: str) -> None:
    log.writer.append(log.table_id, [added(path)])


# -- other processes, the mirror ---------------------------------------------------------------------------------------


@pytest.mark.promise("N4")
def test_groups_of_several_processes_take_turns(open_log: OpenLog, migrated_uri: str) -> None:
    log = ready(open_log())
    log.catalog.close()
    processes, threads, count = 2, 3, 6
    told = run_racers(migrated_uri, processes, append_by_threads, log.table_id, threads, count)
    versions = {path: version for part in told for path, version in part.items()}
    assert len(versions) == processes * threads * count
    assert versions == {path: version for path, (_, version, _) in stored(log).items() if path != "first"}
    check_history(log)


@pytest.mark.promise("N6")
def test_every_version_of_a_batch_is_published_in_order(log: Log) -> None:
    def append(path: str) -> deltars.TransactionResult:
        with log.catalog.begin(isolation="serializable", mirror="inline") as tx:
            tx.stage(log.name, [added(path)])
        return tx.result

    with gathering(4) as sizes:
        results = [one.result() for one in [Meanwhile(append, path) for path in PATHS]]
    assert sizes[0] == 4
    assert sorted(result.versions[log.name] for result in results) == [2, 3, 4, 5]
    table = log.catalog.table(log.name)
    until(lambda: log.one("SELECT published_version FROM dl_mirror_status WHERE table_id = ?") == 5)
    assert [found for found in table.verify().findings if "_delta_log" in found.file] == []
    published = sorted(path.name for path in Path(f"{table.location}/_delta_log").glob("*.json"))
    assert published == [f"{version:020}.json" for version in range(6)]
