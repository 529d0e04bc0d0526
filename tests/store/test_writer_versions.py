"""Which version a commit may become, what the loser of a race is told, and what a transaction's id stands for."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import insert, update

import deltars
from deltars.errors import TableNotFound, ValidationError, VersionConflict
from deltars.log.commit import Commit, TableCommit
from deltars.store.schema import dl_table_versions, dl_tables
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, creation
from tests.support.tap import Tap


@pytest.mark.every_case_on("sqlite")
@pytest.mark.requirement("W-03")
@pytest.mark.parametrize("version", [0, 1, 2, 4, 9, 2**62])
def test_only_the_version_after_the_current_one_is_accepted(log: Log, version: int) -> None:
    log.append()
    log.append()
    before = log.dump()
    actions = creation() if version == 0 else [added("a")]
    with pytest.raises(VersionConflict) as caught:
        log.commit(actions, version=version)
    assert (caught.value.expected, caught.value.actual) == (version - 1, 2)
    assert log.dump() == before
    assert log.commit([added("a")], version=3).version == 3


@pytest.mark.requirement("W-03")
def test_first_version_of_a_registered_table_is_0(open_log: OpenLog) -> None:
    log = open_log()
    with pytest.raises(VersionConflict) as caught:
        log.append("a", version=1)
    assert (caught.value.expected, caught.value.actual) == (0, -1)
    assert log.commit(creation(), version=0).version == 0


@pytest.mark.requirement("W-04", "W-18", "W-13")
def test_second_writer_of_a_version_gets_version_conflict(log: Log, open_log: OpenLog) -> None:
    second = open_log(name="other").writer
    log.append("first", version=1)
    before = log.dump()
    with pytest.raises(VersionConflict) as caught:
        second.commit(log.table_id, 1, [added("second")], operation="WRITE")
    error = caught.value
    assert (error.expected, error.actual) == (0, 1)
    assert (error.table, error.table_id) == ("events", str(log.table_id))
    assert error.retryable
    assert error.stage == "check"
    for said in ("version 1", "expected version 0", "events", str(error.txn_id)):
        assert said in str(error)
    assert log.dump() == before
    assert log.live() == ["first"]


@pytest.mark.requirement("W-13")
def test_version_that_was_committed_is_refused_when_it_is_tried_again(log: Log) -> None:
    actions = [added("a")]
    log.commit(actions, version=1)
    before = log.dump()
    for _ in range(3):
        with pytest.raises(VersionConflict):
            log.commit(actions, version=1)
    assert log.dump() == before
    assert log.append().version == 2


@pytest.mark.requirement("D-06")
def test_lost_race_is_tried_once_and_told_to_the_caller(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    log.append(version=1)
    before = log.dump()
    with tap.recording() as statements, pytest.raises(VersionConflict):
        log.append(version=1)
    assert {**log.dump(), "dl_conflicts": []} == {**before, "dl_conflicts": []}
    # One attempt reads the tables' rows with what a commit needs of them. Then who won is looked up, for the message.
    assert sum(statement.startswith("SELECT") and "last_ict" in statement for statement in statements) == 1
    # The refusal itself is recorded afterwards, for people. A write that is sent with the lock is conditional.
    tried = [
        statement for statement in statements if "dl_conflicts" not in statement and "expected AS" not in statement
    ]
    assert not any("INSERT" in statement or "UPDATE dl_" in statement for statement in tried)


@pytest.mark.requirement("D-06")
def test_failed_statement_is_not_tried_again(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    with tap.recording() as statements:
        log.append("a")
    with tap.recording() as failed, tap.failing(len(statements) - 1), pytest.raises(deltars.DatabaseError):
        log.append("b", version=2)
    assert sum(statement.startswith("BEGIN") for statement in failed) == 1
    assert failed[: len(statements) - 1] == statements[:-1]


@pytest.mark.requirement("D-19")
def test_database_itself_refuses_a_second_row_for_a_version(log: Log) -> None:
    log.append("a")
    database = log.catalog._session.database
    row = {"table_id": log.table_id, "version": 1, "commit_ts": 1, "in_commit_timestamp": 1, "operation": "WRITE"}
    with database.read() as connection:
        committed_at = connection.execute(dl_table_versions.select()).mappings().first()["committed_at"]  # type: ignore[index]
    before = log.dump()
    with pytest.raises(deltars.DatabaseError), database.write(10) as connection:
        connection.execute(insert(dl_table_versions).values(**row, txn_id=uuid4(), committed_at=committed_at))
    assert log.dump() == before


@pytest.mark.requirement("D-19", "W-19", "D-18")
def test_commit_whose_check_was_bypassed_fails_at_the_key_and_says_so(log: Log, backend: str) -> None:
    log.append("a")
    log.append("b")
    with log.catalog._session.database.write(10) as connection:
        connection.execute(update(dl_tables).values(current_version=1))
    before = log.dump()
    with pytest.raises(deltars.DatabaseError) as caught:
        log.commit([], version=2)
    error = caught.value
    assert not error.retryable
    assert error.stage == "write"
    # The constraint and what broke it: SQLite names columns only, the error adds the values.
    expected = {
        "postgres": "pk_dl_table_versions",
        "sqlite": "dl_table_versions.table_id, dl_table_versions.version",
        "duckdb": "primary key",
    }[backend]
    assert error.constraint is not None
    assert expected in error.constraint
    assert (error.table_id, error.version) == (str(log.table_id), 2)
    assert str(log.table_id) in str(error)
    assert "version 2" in str(error)
    assert log.dump() == before
    with log.catalog._session.database.write(10) as connection:
        connection.execute(update(dl_tables).values(current_version=2))
    assert log.append().version == 3


def test_unknown_table_is_not_found(log: Log) -> None:
    for version, actions in ((0, creation()), (1, [added("a")])):
        with pytest.raises(TableNotFound) as caught:
            log.writer.commit(uuid4(), version, actions, operation="WRITE")
        assert caught.value.table_id is not None


def test_dropped_table_is_not_written_to(log: Log) -> None:
    log.catalog.drop_table(log.table_id)
    before = log.dump()
    with pytest.raises(TableNotFound, match="dropped"):
        log.append("a")
    assert log.dump() == before


# -- transaction ids ---------------------------------------------------------------------------------------------------


def test_commit_repeated_with_its_id_returns_the_first_result_and_changes_nothing(log: Log) -> None:
    txn_id = uuid4()
    first = log.commit([added("a")], version=1, txn_id=txn_id)
    log.append("b")
    before = log.dump()
    assert log.commit([added("a")], version=1, txn_id=txn_id) == first
    assert log.dump() == before


def test_commit_of_version_0_can_be_repeated_too(open_log: OpenLog) -> None:
    log = open_log()
    txn_id = uuid4()
    first = log.commit(creation(), version=0, txn_id=txn_id)
    assert log.commit(creation(), version=0, txn_id=txn_id) == first


def test_commit_over_tables_can_be_repeated(open_log: OpenLog) -> None:
    first, second = open_log().create(), open_log(name="other").create()
    parts = [TableCommit(log.table_id, 0, [added("a")], "WRITE") for log in (first, second)]
    commit = Commit(uuid4(), parts, is_repeatable=True)
    committed = first.catalog._session.commit(commit)
    assert first.catalog._session.commit(commit) == committed
    assert committed.versions == {first.table_id: 1, second.table_id: 1}


def test_id_of_a_commit_to_another_table_is_refused(open_log: OpenLog) -> None:
    first, second = open_log().create(), open_log(name="other").create()
    txn_id = uuid4()
    first.append("a", txn_id=txn_id)
    before = first.dump()
    with pytest.raises(ValidationError, match="committed before, to other tables") as caught:
        second.append("a", txn_id=txn_id)
    assert caught.value.txn_id == txn_id
    parts = [TableCommit(log.table_id, log.version, [added("b")], "WRITE") for log in (first, second)]
    with pytest.raises(ValidationError, match="committed before, to other tables"):
        first.catalog._session.commit(Commit(txn_id, parts, is_repeatable=True))
    assert first.dump() == before


def test_new_id_on_a_taken_version_is_a_conflict(log: Log) -> None:
    log.append("a", version=1, txn_id=uuid4())
    with pytest.raises(VersionConflict):
        log.append("a", version=1, txn_id=uuid4())


def test_id_of_a_lost_race_can_be_used_for_the_next_try(log: Log) -> None:
    txn_id = uuid4()
    log.append("a", version=1)
    with pytest.raises(VersionConflict):
        log.append("b", version=1, txn_id=txn_id)
    assert log.append("b", version=2, txn_id=txn_id).version == 2


def test_id_that_was_settled_as_aborted_is_refused_for_ever(log: Log) -> None:
    txn_id = uuid4()
    assert log.catalog.resolve(txn_id) is None
    before = log.dump()
    for _ in range(2):
        with pytest.raises(ValidationError, match="settled as aborted"):
            log.append("a", txn_id=txn_id)
    assert log.catalog.resolve(txn_id) is None
    assert log.dump() == before


def test_committed_transaction_is_resolved_to_its_result(log: Log) -> None:
    result = log.append("a")
    resolved = log.catalog.resolve(result.txn_id)
    assert resolved is not None
    assert (resolved.txn_id, resolved.commit_ts) == (result.txn_id, result.commit_ts)
    assert (resolved.versions, resolved.versions_by_id) == ({"events": 1}, {log.table_id: 1})
    assert log.catalog.resolve(result.txn_id) == resolved
