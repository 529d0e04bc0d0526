"""A list of appends handed over at once: a version each, all of them or none."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, LiteralString
from uuid import uuid4

import pytest

import deltars
from deltars.errors import (
    CommitUnknown,
    DatabaseError,
    LogDiverged,
    TableNotFound,
    TimeoutError,
    ValidationError,
    VersionConflict,
)
from deltars.log.commit import Commit, TableCommit
from deltars.observe import CommitEnded
from deltars.observe.channel import attach, detach
from deltars.protocol import AddFile
from deltars.store.backends.postgresql.backend import PostgreSQL
from deltars.store.commit.writer import LogWriter
from deltars.uri import parse_catalog_uri
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, metadata, removed, stats
from tests.support.tap import Tap
from tests.support.together import Meanwhile
from tests.support.wire import Verdict
from tests.support.witness import postgres_connection

LISTS = [["a"], ["b", "c"], ["d"]]


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    """A table whose state, and whose committer, the writer remembers."""
    return ready(open_log())


def ready(log: Log, **fields: Any) -> Log:
    log.create(**fields)
    log.writer.append(log.table_id, [added("first", stats=stats(2))])
    return log


def files(lists: list[list[str]]) -> list[list[AddFile]]:
    return [[added(path, stats=stats(2)) for path in paths] for paths in lists]


def append_all(log: Log, lists: list[list[str]] = LISTS, **options: Any) -> list[deltars.CommitResult]:
    return log.writer.append_all(log.table_id, files(lists), **options)


def check(log: Log, results: list[deltars.CommitResult], lists: list[list[str]] = LISTS) -> None:
    """Each list is the version that its result says, and times rise."""
    query = "SELECT version, commit_ts, in_commit_timestamp, txn_id FROM dl_table_versions WHERE table_id = ?"
    versions = {version: (commit_ts, str(txn_id)) for version, commit_ts, _, txn_id in log.rows(query)}
    assert sorted(versions) == list(range(log.version + 1))
    for column in (1, 2):
        assert all(one[column] < other[column] for one, other in pairwise(sorted(log.rows(query))))
    paths: dict[int, list[str]] = {}
    for version, path in log.rows("SELECT version, path FROM dl_add_files WHERE table_id = ? ORDER BY version, ord"):
        paths.setdefault(version, []).append(path)
    assert [paths[result.version] for result in results] == lists
    for result in results:
        assert versions[result.version] == (result.commit_ts, str(result.txn_id))
        found = log.catalog._session.writer.find_committed(result.txn_id)
        assert found is not None
        assert (found.versions, found.commit_ts) == ({log.table_id: result.version}, result.commit_ts)
    assert [result.version for result in results] == list(range(results[0].version, results[0].version + len(lists)))


def test_each_list_is_a_version(log: Log) -> None:
    check(log, append_all(log, operation="STREAMING UPDATE", operation_params={"epoch": "7"}, committer="etl"))
    described = (
        "SELECT DISTINCT operation, committer, isolation FROM dl_table_versions WHERE table_id = ? AND version > 1"
    )
    assert log.rows(described) == [("STREAMING UPDATE", "etl", "serializable")]
    assert log.append("next").version == 5


def test_first_list_of_a_process_is_committed_too(open_log: OpenLog) -> None:
    log = open_log().create()
    other = deltars.SqlTxnLogWriter(open_log(name="other").catalog)
    results = other.append_all(log.table_id, files(LISTS))
    assert [result.version for result in results] == [1, 2, 3]
    check(log, results)


@pytest.mark.parametrize("at_once", [2, 500], ids=["several statements", "one statement"])
def test_list_that_is_too_long_to_be_sent_at_once_is_one_transaction(
    log: Log, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("deltars.store.commit.batch_commit.MOST_AT_ONCE", at_once)
    monkeypatch.setattr("deltars.store.commit.batch_commit.MOST_BYTES", 100)
    lists = [[f"{number}"] for number in range(7)]
    check(log, append_all(log, lists), lists)


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE dl_mirror_status SET state = 'diverged' WHERE table_id = %s", LogDiverged),
        (
            "INSERT INTO dl_maintenance (table_id, first_version) VALUES (%s, 1000)"
            " ON CONFLICT (table_id) DO UPDATE SET first_version = 1000",
            VersionConflict,
        ),
    ],
    ids=["diverged", "expired"],
)
def test_list_whose_table_changes_between_two_statements_is_not_committed_in_part(
    log: Log, monkeypatch: pytest.MonkeyPatch, change: LiteralString, error: type[Exception], part: int
) -> None:
    """The table's row is locked, but not the marks that publishers and expiry make."""
    monkeypatch.setattr("deltars.store.commit.batch_commit.MOST_AT_ONCE", 2)
    run, written, before = PostgreSQL.run, list[bool](), log.version

    def changing(self: PostgreSQL, connection: Any, statement: Any, values: Any) -> Any:
        rows = run(self, connection, statement, values)
        if "last_place" in values:
            written.append(bool(rows))
            if len(written) == part:
                with postgres_connection(parse_catalog_uri(log.catalog.uri)) as other:
                    assert other.execute(change, [log.table_id]).rowcount == 1
        return rows

    monkeypatch.setattr(PostgreSQL, "run", changing)
    with pytest.raises(error):
        append_all(log, [[f"{number}"] for number in range(7)])
    assert written[: part + 1] == [True] * part + [False]
    assert log.version == before
    assert log.live() == ["first"]


def test_same_file_in_two_lists_is_live_once(log: Log) -> None:
    lists = [["a"], ["b", "a"], ["first"]]
    check(log, append_all(log, lists), lists)
    assert log.live() == ["a", "b", "first"]


def test_rows_of_a_table_that_tracks_them_get_their_ids(open_log: OpenLog) -> None:
    log = ready(open_log(), configuration={"delta.enableRowTracking": "true"})
    check(log, append_all(log))
    found = log.rows("SELECT path, base_row_id FROM dl_add_files WHERE table_id = ? AND version > 1 ORDER BY 2")
    assert [first for _, first in found] == [found[0][1] + 2 * n for n in range(4)]


def test_nothing_and_no_list_at_all(log: Log) -> None:
    assert append_all(log, []) == []
    assert log.version == 1


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize(
    "wrong", [removed("first"), metadata(), None, added("x", partition_values={"day": "1"})], ids=lambda one: type(one)
)
def test_list_with_one_wrong_action_leaves_nothing(log: Log, wrong: Any) -> None:
    before = log.dump()
    with pytest.raises(ValidationError):
        log.writer.append_all(log.table_id, [[added("a")], [wrong]])
    assert log.dump() == before


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("wrong", [None, 5, "abc", {}, iter([])], ids=lambda one: type(one).__name__)
def test_versions_that_are_no_list_are_refused(log: Log, wrong: Any) -> None:
    with pytest.raises(ValidationError, match="list of lists of files"):
        log.writer.append_all(log.table_id, wrong)


def test_table_that_was_dropped_meanwhile_takes_nothing(log: Log) -> None:
    log.catalog.drop_table(log.table_id)
    with pytest.raises(TableNotFound):
        append_all(log)
    assert log.live() == ["first"]


def test_lists_follow_versions_and_metadata_of_others(log: Log, open_log: OpenLog) -> None:
    append_all(log)
    other = LogWriter(open_log(name="other").catalog._session.database)
    table = TableCommit(log.table_id, 4, [metadata("id BIGINT, more STRING"), added("theirs")], "WRITE")
    other.commit(Commit(uuid4(), [table]), timeout_s=30)
    lists = [["e"], ["f"]]
    check(log, append_all(log, lists), lists)
    assert log.version == 7


def test_statement_that_fails_leaves_nothing_of_any_list(open_log: OpenLog, tap: Tap) -> None:
    log = ready(open_log(tap=tap))
    before, waiting = log.dump(), iter([Verdict.FAIL])

    def judge(statement: str) -> Verdict:
        return next(waiting, Verdict.PASS) if "dl_table_versions (" in statement else Verdict.PASS

    with tap.judging(judge), pytest.raises(DatabaseError):
        append_all(log)
    assert log.dump() == before
    check(log, append_all(log))


def test_observers_hear_of_every_version_once(log: Log) -> None:
    heard: list[Any] = []
    attach(heard.append)
    try:
        results = append_all(log)
        log.catalog.drop_table(log.table_id)
        with pytest.raises(TableNotFound):
            append_all(log)
    finally:
        detach(heard.append)
    events = [event for event in heard if isinstance(event, CommitEnded)]
    assert [event.txn_id for event in events[:3]] == [result.txn_id for result in results]
    assert [str(event.outcome) for event in events] == ["committed"] * 3 + ["failed"] * (len(events) - 3)
    assert len(events) >= 6


@pytest.mark.backends("postgres")
def test_wait_that_is_too_long_is_a_time_out_at_the_lock(open_log: OpenLog, migrated_uri: str) -> None:
    log = ready(open_log(timeout=0.5))
    with postgres_connection(parse_catalog_uri(migrated_uri)) as connection, connection.transaction():
        connection.execute("SELECT 1 FROM dl_tables FOR UPDATE")
        with pytest.raises(TimeoutError) as caught:
            append_all(log)
    assert (caught.value.stage, caught.value.table_id) == ("lock", str(log.table_id))
    assert log.version == 1


@pytest.mark.backends("postgres")
@pytest.mark.promise("N1", "N3", "N7")
@pytest.mark.parametrize("most_bytes", [60_000, 100], ids=["one trip", "two trips"])
@pytest.mark.parametrize("verdict", [Verdict.CUT_BEFORE, Verdict.CUT_DURING, Verdict.CUT_AFTER])
def test_connection_cut_around_commit_says_what_happened(
    open_log: OpenLog, tap: Tap, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, most_bytes: int
) -> None:
    monkeypatch.setattr("deltars.store.commit.batch_commit.MOST_BYTES", most_bytes)
    log = ready(open_log(tap=tap))
    before, waiting = log.live(), iter([verdict])
    with tap.judging(lambda text: next(waiting, Verdict.PASS) if text == "COMMIT" else Verdict.PASS):
        outcome = Meanwhile(append_all, log).outcome()
    if isinstance(outcome, BaseException):
        assert isinstance(outcome, DatabaseError)
        assert "did not commit, and never will" in str(outcome)
        assert verdict is not Verdict.CUT_AFTER
        assert log.live() == before
    else:
        assert verdict is not Verdict.CUT_BEFORE
        check(log, outcome)
    assert log.append("next").version == log.version


@pytest.mark.backends("postgres")
def test_outcome_that_cannot_be_known_is_that_of_the_first_for_all(open_log: OpenLog, tap: Tap) -> None:
    log = ready(open_log(tap=tap, timeout=1.0))
    is_down = False

    def judge(statement: str) -> Verdict:
        nonlocal is_down
        if is_down:
            return Verdict.CUT_BEFORE
        is_down = statement == "COMMIT"
        return Verdict.CUT_AFTER if is_down else Verdict.PASS

    with tap.judging(judge), pytest.raises(CommitUnknown) as caught:
        append_all(log)
    assert caught.value.txn_id is not None
    resolved = log.catalog.resolve(caught.value.txn_id)
    assert resolved is not None
    assert resolved.versions_by_id == {log.table_id: 2}
    assert log.live() == ["a", "b", "c", "d", "first"]
