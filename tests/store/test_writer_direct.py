"""A commit in one round trip: it writes what the usual way writes, and nothing where the table is not as expected."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from deltars.errors import (
    DatabaseError,
    LogDiverged,
    MetadataChanged,
    TableNotFound,
    TimeoutError,
    ValidationError,
    VersionConflict,
)
from deltars.log.commit import Base, Commit, Committed, TableCommit
from deltars.protocol import Action, Txn
from deltars.store.commit.direct_commit import DirectCommits
from deltars.store.commit.writer import LogWriter
from deltars.uri import parse_catalog_uri
from tests.store.conftest import OpenLog
from tests.support.clock import clock_of
from tests.support.interrupts import Clock as Interrupt
from tests.support.log import Log, added, metadata, removed, row_groups
from tests.support.soak import scaled, seed
from tests.support.tap import Tap
from tests.support.together import Meanwhile
from tests.support.wire import Verdict
from tests.support.witness import postgres_connection

pytestmark = pytest.mark.backends("postgres")

WRITING = "dl_table_versions ("
HOUR_S = 3_600


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    """A table whose state, and whose committer, the writer remembers."""
    log = open_log().create()
    log.append("first")
    return log


def made(log: Log, actions: list[Action], expected: int | None = None, **fields: Any) -> Commit:
    table = TableCommit(log.table_id, log.version if expected is None else expected, actions, "WRITE")
    return Commit(uuid4(), [table], **fields)


@contextmanager
def only_one_trip(log: Log) -> Iterator[None]:
    """The usual way is closed."""
    database = log.catalog._session.database

    def refuse(*_: Any) -> None:
        raise AssertionError("this commit took the usual way")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(database), "write", refuse)
        yield


def test_rows_are_those_of_the_usual_way(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    actions: list[Action] = [
        added("a", tags={"b": "1", "a": "2"}),
        added("b"),
        Txn(app_id="etl", version=3, last_updated=1),
    ]
    logs = {name: open_log(name=name).create() for name in ("quick", "usual")}
    for name, log in logs.items():
        log.append("first")
        with monkeypatch.context() as patch:
            if name == "usual":
                patch.setattr(DirectCommits, "ready", lambda *_: None)
            table = TableCommit(log.table_id, 1, actions, "WRITE", {"mode": "Append"}, row_groups=row_groups("a"))
            commit = Commit(uuid4(), [table], committer="etl", user_metadata="x")
            with only_one_trip(log) if name == "quick" else monkeypatch.context():
                outcome = log.catalog._session.commit(commit)
            assert outcome.versions == {log.table_id: 2}
    for table_name, columns in {
        "dl_add_files": "version, ord, path, dv_id, partition_values, size, stats, tags, num_records, mins, maxs",
        "dl_txn_actions": "version, ord, app_id, txn_version, last_update",
        "dl_row_groups": "version, ord, row_group, num_rows, total_bytes",
        "dl_table_versions": "version, operation, operation_params, read_version, isolation, is_blind_append, metrics,"
        " committer, user_metadata",
        "dl_tables": "current_version, metadata_version, protocol_version, next_row_id, properties",
    }.items():
        query = f"SELECT {columns} FROM {table_name} WHERE table_id = ? ORDER BY 1, 2"
        assert logs["quick"].rows(query) == logs["usual"].rows(query), table_name
    participants = "SELECT participants FROM dl_transactions JOIN dl_table_versions USING (txn_id) WHERE table_id = ?"
    found = logs["quick"].rows(f"{participants} AND version = 2")
    assert found == [({str(logs["quick"].table_id): 2},)]
    slots = "SELECT count(*) FROM dl_add_files f JOIN dl_tables t USING (table_id, slot) WHERE table_id = ?"
    assert logs["quick"].one(slots) == 3


def test_blind_append_is_written_after_versions_of_others(log: Log) -> None:
    commit = made(log, [added("mine")], isolation="serializable")
    log.append("theirs")
    with only_one_trip(log):
        outcome = log.catalog._session.commit(commit)
    assert outcome.versions == {log.table_id: 3}
    assert log.live() == ["first", "mine", "theirs"]
    # In-commit timestamps rise, and the file that the mirror gets has the version that it became.
    stamps = [stamp for (stamp,) in log.rows("SELECT in_commit_timestamp FROM dl_table_versions WHERE table_id = ?")]
    assert stamps == sorted(set(stamps))


@pytest.mark.parametrize("fields", [{}, {"isolation": "strict"}], ids=["default", "strict"])
def test_strict_commit_after_a_version_of_others_conflicts(log: Log, fields: dict[str, Any]) -> None:
    commit = made(log, [added("mine")], **fields)
    log.append("theirs")
    before = log.dump()
    with pytest.raises(VersionConflict) as caught:
        log.catalog._session.commit(commit)
    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert log.dump().keys() == before.keys()
    assert log.live() == ["first", "theirs"]


def test_blind_append_conflicts_with_metadata_that_changed_after_it_began(log: Log) -> None:
    commit = made(log, [added("mine")], isolation="serializable")
    log.commit([metadata("id BIGINT, more STRING")])
    log.append("theirs")  # the writer now remembers the new metadata
    with pytest.raises(MetadataChanged):
        log.catalog._session.commit(commit)
    assert log.live() == ["first", "theirs"]


def test_state_that_another_writer_changed_is_not_believed(log: Log, open_log: OpenLog) -> None:
    other = LogWriter(open_log(name="other").catalog._session.database)
    partitioned = metadata("id BIGINT, day STRING", partition_columns=["day"])
    outcome = other.commit(made(log, [removed("first"), partitioned]), timeout_s=30)
    assert isinstance(outcome, Committed)
    with pytest.raises(ValidationError, match="day"):
        log.append("mine")
    assert log.live() == []


def test_version_of_a_restored_database_is_recognised_by_its_time(log: Log) -> None:
    bases = {log.table_id: Base(1, 1)}
    with pytest.raises(VersionConflict, match="was replaced"):
        log.catalog._session.commit(made(log, [added("mine")], bases=bases))
    log.append("theirs")
    with pytest.raises(VersionConflict, match="was replaced"):
        log.catalog._session.commit(made(log, [added("mine")], 1, bases=bases, isolation="serializable"))
    assert log.live() == ["first", "theirs"]


def test_dropped_or_diverged_table_refuses_the_commit(log: Log, migrated_uri: str) -> None:
    with postgres_connection(parse_catalog_uri(migrated_uri)) as connection:
        connection.execute("UPDATE dl_mirror_status SET state = 'diverged'")
    with pytest.raises(LogDiverged):
        log.append("mine")
    log.catalog.drop_table(log.table_id)
    with pytest.raises(TableNotFound):
        log.append("mine", version=2)
    assert log.live() == ["first"]


def test_lock_of_another_is_waited_for_and_its_version_is_seen(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    log.append("first")
    session = log.catalog._session
    blind, strict = (made(log, [added(name)], isolation=name) for name in ("serializable", "strict"))
    with tap.holding(WRITING) as hold:
        holder = Meanwhile(log.commit, [removed("first"), added("holder")])
        hold.wait_until_reached()
        waiting = [Meanwhile(session.commit, commit) for commit in (blind, strict)]
        for one in waiting:
            one.stays_for(0.2)
        hold.release()
    assert not isinstance(holder.outcome(), BaseException)
    outcomes = [one.outcome() for one in waiting]
    assert isinstance(outcomes[0], Committed)
    assert isinstance(outcomes[1], VersionConflict)
    assert log.live() == ["holder", "serializable"]


def test_wait_that_is_too_long_is_a_time_out_at_the_lock(open_log: OpenLog, migrated_uri: str) -> None:
    log = open_log(timeout=0.5).create()
    log.append("first")
    with postgres_connection(parse_catalog_uri(migrated_uri)) as connection, connection.transaction():
        connection.execute("SELECT 1 FROM dl_tables FOR UPDATE")
        with pytest.raises(TimeoutError) as caught:
            log.append("mine", version=2)
    assert (caught.value.stage, caught.value.table_id) == ("lock", str(log.table_id))
    assert log.live() == ["first"]
    assert log.append("mine").version == 2


def test_connection_lost_while_waiting_for_the_lock_is_settled(open_log: OpenLog, migrated_uri: str) -> None:
    log = open_log().create()
    log.append("first")
    session, commit = log.catalog._session, made(log, [added("mine")])
    with postgres_connection(parse_catalog_uri(migrated_uri)) as connection, connection.transaction():
        connection.execute("SELECT 1 FROM dl_tables FOR UPDATE")
        waiting = Meanwhile(session.commit, commit)
        waiting.stays_for(0.2)
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'deltars until%' AND datname = current_database()"
        ).fetchall()
        assert ended == [(True,)]
    outcome = waiting.outcome()
    assert isinstance(outcome, DatabaseError)
    assert outcome.retryable
    assert "did not commit, and never will" in str(outcome)
    assert log.live() == ["first"]
    assert session.writer.resolve(commit.txn_id, timeout_s=30) is None


@pytest.mark.parametrize("verdict", [Verdict.CUT_BEFORE, Verdict.CUT_AFTER], ids=["before", "after"])
def test_connection_cut_around_commit_says_what_happened(open_log: OpenLog, tap: Tap, verdict: Verdict) -> None:
    log = open_log(tap=tap).create()
    log.append("first")
    waiting = iter([verdict])
    with tap.judging(lambda text: next(waiting, Verdict.PASS) if text == "COMMIT" else Verdict.PASS):
        outcome = Meanwhile(log.append, "mine", version=2).outcome()
    assert isinstance(outcome, DatabaseError) == (verdict is Verdict.CUT_BEFORE)
    assert log.live() == (["first"] if verdict is Verdict.CUT_BEFORE else ["first", "mine"])


def test_transaction_that_was_settled_as_aborted_never_commits(log: Log) -> None:
    commit = made(log, [added("mine")])
    session = log.catalog._session
    assert session.writer.resolve(commit.txn_id, timeout_s=30) is None
    with pytest.raises(DatabaseError) as caught:
        session.commit(commit)
    assert caught.value.stage == "write"
    assert log.live() == ["first"]


def test_long_statistics_take_the_usual_way(log: Log) -> None:
    with pytest.raises(AssertionError, match="usual way"), only_one_trip(log):
        log.append("long", operation_params={"note": "x" * 70_000}, version=2)


def test_time_stamps_follow_the_servers_clock_and_never_go_back(log: Log) -> None:
    with clock_of(log.catalog) as clock:
        log.append("before")
        stamps: list[float] = []
        for offset_s in (0, HOUR_S, 0, -HOUR_S, 2 * HOUR_S):
            clock.set(offset_s)
            with only_one_trip(log):
                stamps.append(log.append(version=len(stamps) + 3).commit_ts / 1e6 - time.time())
    assert stamps == pytest.approx([0, HOUR_S, HOUR_S, HOUR_S, 2 * HOUR_S], abs=60)
    found = log.rows("SELECT commit_ts, in_commit_timestamp FROM dl_table_versions WHERE table_id = ? ORDER BY version")
    for column in (0, 1):
        assert all(one[column] < other[column] for one, other in pairwise(found))


def test_ctrl_c_while_waiting_for_the_lock_says_that_the_outcome_is_unknown(
    open_log: OpenLog, migrated_uri: str
) -> None:
    log = open_log(pool_size=1, pool_timeout=5).create()
    log.append("first")
    commit, session = made(log, [added("mine")]), log.catalog._session
    with postgres_connection(parse_catalog_uri(migrated_uri)) as connection, connection.transaction():
        connection.execute("SELECT 1 FROM dl_tables FOR UPDATE")
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )

        def press_ctrl_c() -> None:
            with postgres_connection(parse_catalog_uri(migrated_uri)) as witness:
                while witness.execute(waiting).fetchall() == [(0,)]:
                    time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        pressing = Meanwhile(press_ctrl_c)
        with pytest.raises(KeyboardInterrupt) as caught:
            session.commit(commit)
        assert pressing.outcome() is None
    assert caught.value.__notes__ == [
        f"deltars: it is not known whether transaction {commit.txn_id} committed; to find out:"
        f" catalog.resolve('{commit.txn_id}')"
    ]
    # psycopg cancelled the statement, and its session was closed: the pool's only place has a new one.
    assert session.writer.resolve(commit.txn_id, timeout_s=30) is None
    assert log.append("next").version == 2
    assert log.live() == ["first", "next"]


@pytest.mark.soak
def test_ctrl_c_at_any_moment_leaves_a_usable_pool_and_a_known_outcome(open_log: OpenLog) -> None:
    log = open_log(pool_size=1, pool_timeout=5).create()
    log.append("first")
    session = log.catalog._session
    with Interrupt() as counted:
        log.catalog._session.commit(made(log, [added("second")]))
    moments = counted.places
    step = max(1, len(moments) // scaled(60, soak=len(moments)))
    for moment in moments[seed() % step :: step]:
        log.append()  # after the last interrupt the pool may have had to open a connection
        version, commit = log.version, made(log, [added(f"at {moment}")])
        try:
            with Interrupt(moment):
                session.commit(commit)
        except KeyboardInterrupt as interrupt:
            said = "".join(getattr(interrupt, "__notes__", []))
        else:
            said = "committed"
        # Until it is settled, the server may still be committing.
        is_committed = session.writer.resolve(commit.txn_id, timeout_s=30) is not None
        assert (log.version == version + 1) == is_committed
        assert f"at {moment}" in log.live() or not is_committed
        assert not is_committed or "did not commit" not in said, moment
        use = session.database.pool_use()
        assert use is not None
        assert use.in_use == 0


@pytest.mark.soak
def test_race_on_few_paths_leaves_one_live_row_each_and_unbroken_chains(open_log: OpenLog) -> None:
    """Lock and write in one statement would break the chains: it would miss what the last holder wrote."""
    log = open_log().create()
    paths, threads, commits = ["a", "b", "c"], 4, scaled(25, soak=300)
    chances = random.Random(seed())
    results: list[bool] = []
    problems: list[BaseException] = []

    def race(choices: list[tuple[str, bool]]) -> None:
        writer = LogWriter(log.catalog._session.database)
        try:
            for path, is_strict in choices:
                isolation: Any = "strict" if is_strict else "serializable"
                outcome = writer.commit(made(log, [added(path)], isolation=isolation), timeout_s=60)
                results.append(isinstance(outcome, Committed))
                assert is_strict or results[-1]
        except BaseException as problem:
            problems.append(problem)

    choices = [[(chances.choice(paths), chances.random() < 0.3) for _ in range(commits)] for _ in range(threads)]
    racers = [threading.Thread(target=race, args=[mine]) for mine in choices]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert problems == []
    assert log.version == sum(results)
    assert log.live() == paths
    chain = (
        "SELECT path, version, removed_version, lead(version) OVER (PARTITION BY path ORDER BY version)"
        " FROM dl_add_files WHERE table_id = ?"
    )
    assert all(removed_at == following for _, _, removed_at, following in log.rows(chain))
    stamps = log.rows("SELECT version, commit_ts, in_commit_timestamp FROM dl_table_versions WHERE table_id = ?")
    ordered = sorted(stamps)
    for column in (1, 2):
        assert all(one[column] < other[column] for one, other in pairwise(ordered))
    assert [version for version, *_ in ordered] == list(range(len(ordered)))
