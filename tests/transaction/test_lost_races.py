"""What a lost race says: who won, when, and whether another isolation level would have let both commit."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.errors import ConcurrentAppend, DatabaseError, VersionConflict
from deltars.store.commit import winner
from tests.support.lake import OpenLake
from tests.support.log import added, metadata, removed

OTHER_LEVEL = 'isolation="serializable" would have let both commit'


def lost(tx: deltars.Transaction) -> VersionConflict:
    with pytest.raises(VersionConflict) as caught:
        tx.commit()
    return caught.value


def test_conflict_names_the_transaction_that_won(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    tx = lake.begin()
    tx.stage("a", [added("mine")])
    with lake.begin(committer="nightly-etl") as other:
        other.stage("a", [added("theirs")], operation="STREAMING UPDATE")
    lake["a"].append("later")
    error = lost(tx)
    assert error.winner_txn_id == other.id
    assert error.winning_version == other.result.versions["a"] == error.actual - 1
    assert (error.winner_committer, error.winner_operation) == ("nightly-etl", "STREAMING UPDATE")
    assert error.winner_committed_at is not None
    assert abs(error.winner_committed_at - datetime.now(UTC)) < timedelta(minutes=5)
    for said in (str(other.id), "nightly-etl", "STREAMING UPDATE", f"version {error.winning_version}", "retry"):
        assert said in str(error), said


@pytest.mark.backends("sqlite")
def test_conflict_and_its_winner_survive_pickling(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    tx = lake.begin()
    tx.stage("a", [added("mine")])
    lake["a"].append("theirs")
    error = lost(tx)
    copy = pickle.loads(pickle.dumps(error))
    assert copy.__dict__ == error.__dict__
    assert (str(copy), copy.args) == (str(error), error.args)
    assert copy.winner_txn_id is not None


def test_blind_appends_learn_that_serializable_lets_both_commit(open_lake: OpenLake) -> None:
    lake = open_lake("a", "b")
    tx = lake.begin()
    tx.stage("a", [added("mine")])
    tx.stage("b", [added("mine")])
    lake["b"].append("theirs")
    error = lost(tx)
    assert error.is_serializable
    assert OTHER_LEVEL in str(error)
    # The promise holds: the same transaction commits at that level.
    with lake.begin(isolation="serializable") as again:
        again.stage("a", [added("mine")])
        again.stage("b", [added("mine")])
        lake["b"].append("theirs-too")
    assert again.result.versions == {"a": 1, "b": 3}


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("case", ["read rows", "same file", "metadata", "another table", "only read", "dropped"])
def test_no_promise_is_made_where_serializable_refuses_too(open_lake: OpenLake, case: str) -> None:
    lake = open_lake("a", "b")
    lake["a"].append("old")
    tx = lake.begin()
    if case in ("read rows", "only read"):
        tx.files("a")
    if case == "same file":
        tx.stage("a", [removed("old")])
    if case == "only read":
        tx.stage("b", [added("mine")])
    else:
        tx.stage("a", [added("mine")])
    if case in ("another table", "dropped"):
        tx.files("b")
    lake["a"].append("theirs")
    if case == "same file":
        lake["a"].commit([removed("old")])
    if case == "metadata":
        lake["a"].commit([metadata(configuration={"x": "y"})])
    if case == "another table":
        lake["b"].append("theirs")
    if case == "dropped":
        lake.catalog.drop_table("b")
    error = lost(tx)
    assert error.winner_txn_id is not None
    assert not error.is_serializable
    assert "serializable" not in str(error)


@pytest.mark.backends("sqlite")
def test_other_levels_name_the_winner_without_advice(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    tx = lake.begin(isolation="serializable")
    tx.files("a")
    tx.stage("a", [added("mine")])
    lake["a"].append("theirs")
    with lake.begin(committer="ada") as other:
        other.stage("a", [added("also-theirs")])
    error = lost(tx)
    assert type(error) is ConcurrentAppend
    assert error.winning_version == 1
    assert error.winner_txn_id not in (None, other.id, tx.id)
    assert not error.is_serializable
    assert str(error.winner_txn_id) in str(error)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(("constant", "value"), [("MOST_COMMITS", 1), ("MOST_FILES", 1)])
def test_evaluation_is_bounded(open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, constant: str, value: int) -> None:
    lake = open_lake("a", ddl="id BIGINT")
    lake.catalog.write("a", pa.table({"id": [1]}))
    tx = lake.begin()
    tx.files("a", "id > 100")
    tx.stage("a", [added("mine")])
    for number in range(2):
        lake.catalog.write("a", pa.table({"id": [number]}))
    monkeypatch.setattr(winner, constant, value)
    error = lost(tx)
    assert error.winner_txn_id is not None
    assert not error.is_serializable


@pytest.mark.backends("sqlite")
def test_failing_look_up_leaves_the_conflict_as_it_is(open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake("a")
    tx = lake.begin()
    tx.stage("a", [added("mine")])
    lake["a"].append("theirs")

    def broken(*_: Any) -> Any:
        raise DatabaseError("the connection was lost")

    monkeypatch.setattr(winner, "_winning_commit", broken)
    error = lost(tx)
    assert (error.winner_txn_id, error.winning_version, error.is_serializable) == (None, None, False)
    assert "at version 1, the commit expected version 0" in str(error)


@pytest.mark.backends("sqlite")
def test_two_creators_of_a_name_learn_who_created_it(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    tx = lake.begin()
    tx.write("new", pa.table({"id": [1]}))
    with lake.begin(committer="ada") as other:
        other.write("new", pa.table({"id": [2]}))
    error = lost(tx)
    assert (error.winner_txn_id, error.winner_committer, error.winning_version) == (other.id, "ada", 0)
    assert not error.is_serializable
