"""`catalog.snapshot()`: every table at one moment, of now or of the past, and the past never changes."""

from __future__ import annotations

import pickle
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import update

import deltars
from deltars.errors import TableNotFound, TimeoutError, TransactionNotFound, ValidationError
from deltars.store.schema import dl_table_versions, dl_tables
from tests.support.lake import Lake, OpenLake
from tests.support.log import SCHEMA, added, removed
from tests.support.tap import Hold, Tap
from tests.support.together import Meanwhile
from tests.support.wire import Verdict


def _commit(lake: Lake, *names: str) -> deltars.TransactionResult:
    with lake.begin() as tx:
        for name in names:
            tx.stage(name, [added(f"{tx.id}")])
    return tx.result


def _moment(result: deltars.TransactionResult) -> datetime:
    assert result.commit_ts is not None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=result.commit_ts)


def test_cut_of_now_has_every_table_and_stays_what_it_was(lake: Lake) -> None:
    first = _commit(lake, "a", "b")
    cut = lake.catalog.snapshot()
    assert cut.versions == {"a": 1, "b": 1, "c": 0}
    assert cut.versions_by_id == {lake["a"].table_id: 1, lake["b"].table_id: 1, lake["c"].table_id: 0}
    assert cut.as_of is None
    lake["a"].commit([removed(str(first.txn_id)), added("new")])
    lake.catalog.rename_table("b", "z")
    lake.catalog.drop_table("c")
    assert cut.versions == {"a": 1, "b": 1, "c": 0}
    for name in ("a", "b", lake["b"].table_id):
        assert cut.files(name)["path"].to_pylist() == [str(first.txn_id)]
    assert cut.table("c").version == 0


def test_cut_as_of_a_transaction_has_all_of_it_and_nothing_later(lake: Lake) -> None:
    results = [_commit(lake, *names) for names in ("ab", "bc", "a", "abc")]
    expected = [{"a": 1, "b": 1, "c": 0}, {"a": 1, "b": 2, "c": 1}, {"a": 2, "b": 2, "c": 1}, {"a": 3, "b": 3, "c": 2}]
    for result, versions in zip(results, expected, strict=True):
        for as_of in (result.txn_id, str(result.txn_id), _moment(result), _moment(result).isoformat()):
            cut = lake.catalog.snapshot(as_of)
            assert cut.versions == versions
            assert cut.as_of == _moment(result)
        for name, version in versions.items():
            assert cut.table(name).version == version
    before = _moment(results[1]) - timedelta(microseconds=1)
    assert lake.catalog.snapshot(before).versions == expected[0]


def test_past_cut_does_not_change_whatever_becomes_of_the_tables(lake: Lake) -> None:
    past = _commit(lake, "a", "b", "c")
    moments: list[Any] = [past.txn_id, _moment(past)]
    known = [lake.catalog.snapshot(moment).versions_by_id for moment in moments]
    _commit(lake, "a")
    lake.catalog.create_table("d", SCHEMA)
    lake.catalog.drop_table("c")
    # Given to a table that was there at the time, under another name.
    lake.catalog.rename_table("b", "c")
    lake.catalog.create_table("b", SCHEMA)
    lake.catalog.drop_table("a")
    assert [lake.catalog.snapshot(moment).versions_by_id for moment in moments] == known
    cut = lake.catalog.snapshot(past.txn_id)
    assert {cut.table(table_id).version for table_id in lake.ids.values()} == {1}
    # Names are those of today.
    assert cut.table("c").table_id == lake["b"].table_id
    assert "d" not in cut.versions


def test_dropped_table_is_in_the_cuts_of_its_lifetime_alone(lake: Lake) -> None:
    last = _commit(lake, "a", "b")
    lake.catalog.drop_table("b")
    after = _commit(lake, "a")
    assert lake.catalog.snapshot(last.txn_id).versions == {"a": 1, "b": 1, "c": 0}
    assert lake.catalog.snapshot(after.txn_id).versions == {"a": 2, "c": 0}
    with pytest.raises(TableNotFound, match="in this snapshot") as caught:
        lake.catalog.snapshot(after.txn_id).table("b")
    assert "It has: a, c." in str(caught.value)


def test_dropping_a_table_changes_no_cut_although_the_clock_was_set_back(lake: Lake) -> None:
    tomorrow = time.time_ns() // 1_000 + 86_400_000_000
    with lake.catalog._session.database.write(10) as connection:
        of_a = dl_tables.c.table_id == lake["a"].table_id
        connection.execute(update(dl_tables).where(of_a).values(last_commit_ts=tomorrow))
        of_a = dl_table_versions.c.table_id == lake["a"].table_id
        connection.execute(update(dl_table_versions).where(of_a).values(commit_ts=tomorrow))
    last = _commit(lake, "a")
    known = lake.catalog.snapshot(last.txn_id).versions
    lake.catalog.drop_table("b")
    assert lake.catalog.snapshot(last.txn_id).versions == known == {"a": 1, "b": 0, "c": 0}
    assert lake.catalog.snapshot(_commit(lake, "a").txn_id).versions == {"a": 2, "c": 0}


def test_cut_of_this_very_moment_is_given_and_holds(lake: Lake) -> None:
    for _ in range(5):
        _commit(lake, "a", "b")
        now = datetime.now(UTC)
        known = lake.catalog.snapshot(now).versions
        _commit(lake, "a", "c")
        assert lake.catalog.snapshot(now).versions == known


def test_time_before_the_catalog_has_no_tables_and_the_future_is_refused(lake: Lake) -> None:
    assert lake.catalog.snapshot("2001-01-01").versions == {}
    for future in (datetime.now(UTC) + timedelta(hours=1), "2999-12-31T00:00:00Z"):
        with pytest.raises(ValidationError, match="future") as caught:
            lake.catalog.snapshot(future)
        assert caught.value.field == "as_of"


def test_unknown_transaction_is_not_found(lake: Lake) -> None:
    lost = lake.begin()
    lost.stage("a", [added("1")])
    lost.rollback()
    aborted = uuid4()
    assert lake.catalog.resolve(aborted) is None
    for txn_id in (uuid4(), lost.id, aborted):
        with pytest.raises(TransactionNotFound) as caught:
            lake.catalog.snapshot(txn_id)
        assert caught.value.txn_id == txn_id


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("as_of", ["yesterday", "", 5, 1.5])
def test_what_is_no_moment_is_refused(lake: Lake, as_of: Any) -> None:
    with pytest.raises(ValidationError, match="neither a tag, nor a transaction's id, nor a time") as caught:
        lake.catalog.snapshot(as_of)
    assert caught.value.field == "as_of"


@pytest.mark.backends("sqlite")
def test_time_without_a_zone_is_in_utc(lake: Lake) -> None:
    result = _commit(lake, "a")
    for moment in (_moment(result).replace(tzinfo=None), _moment(result).astimezone(None)):
        assert lake.catalog.snapshot(moment).versions["a"] == 1


@pytest.mark.parametrize("where", ["dl_table_versions (", "COMMIT"], ids=["inside its lock", "inside its COMMIT"])
def test_past_cut_asked_for_while_a_commit_is_under_way_is_the_same_afterwards(
    open_lake: OpenLake, tap: Tap, where: str
) -> None:
    lake = open_lake("a", "b", "c", tap=tap)
    past = _commit(lake, "a", "b", "c")
    other = deltars.connect(lake.uri)
    tx = lake.begin()
    tx.stage("a", [added("1")])
    tx.stage("b", [added("1")])
    with other, tap.holding(where) as hold:
        committing = Meanwhile(tx.commit)
        hold.wait_until_reached()
        now = datetime.now(UTC)
        with pytest.raises(TimeoutError):
            other.snapshot(now, timeout=0.3)
        asked = Meanwhile(other.snapshot, now)
        asked.stays_for(0.2)
        hold.release()
        committing.result()
        cut = asked.result().versions
    assert cut["a"] == cut["b"]
    assert lake.catalog.snapshot(now).versions == cut
    assert lake.catalog.snapshot(past.txn_id).versions == {"a": 1, "b": 1, "c": 1}


@pytest.mark.backends("postgres")
def test_past_cut_waits_for_a_drop_that_is_under_way(open_lake: OpenLake, tap: Tap) -> None:
    lake = open_lake("a", "b", tap=tap)
    other = deltars.connect(lake.uri)
    hold, seen = Hold(), [""]

    def keep_the_drop(statement: str) -> Verdict:
        if statement == "COMMIT" and "dropped_at" in seen[-1] and "UPDATE" in seen[-1]:
            hold.keep()
        seen.append(statement)
        return Verdict.PASS

    with other, tap.judging(keep_the_drop):
        dropping = Meanwhile(lake.catalog.drop_table, "a")
        hold.wait_until_reached()
        time.sleep(0.01)
        now = datetime.now(UTC)
        asked = Meanwhile(other.snapshot, now)
        asked.stays_for(0.3)
        hold.release()
        dropping.result()
        assert asked.result().versions == {"b": 0}
    assert lake.catalog.snapshot(now).versions == {"b": 0}


def test_cut_that_is_older_than_every_open_transaction_waits_for_none(open_lake: OpenLake, tap: Tap) -> None:
    lake = open_lake("a", "b", tap=tap)
    past, last = _commit(lake, "a"), _commit(lake, "a")
    other = deltars.connect(lake.uri)
    tx = lake.begin()
    tx.stage("b", [added("1")])
    with other, tap.holding("COMMIT") as hold:
        committing = Meanwhile(tx.commit)
        hold.wait_until_reached()
        for moment in (past.txn_id, _moment(past)):
            assert other.snapshot(moment, timeout=0.1).versions == {"a": 1, "b": 0}
        assert other.snapshot(last.txn_id, timeout=0.1).versions == {"a": 2, "b": 0}
        hold.release()
        committing.result()
    assert lake.catalog.snapshot(last.txn_id).versions == {"a": 2, "b": 0}


@pytest.mark.backends("postgres", "sqlite")
def test_cut_pickles(lake: Lake) -> None:
    result = _commit(lake, "a", "b")
    for cut in (lake.catalog.snapshot(), lake.catalog.snapshot(result.txn_id)):
        copy = pickle.loads(pickle.dumps(cut))
        assert (copy.versions, copy.as_of) == (cut.versions, cut.as_of)
        assert copy.files("a")["path"].to_pylist() == [str(result.txn_id)]
    assert repr(cut).endswith(": 3 tables>")


# -- inside a transaction ----------------------------------------------------------------------------------------------


def test_every_read_of_a_transaction_is_at_its_beginning_however_late(lake: Lake) -> None:
    first = _commit(lake, "a", "b", "c")
    tx = lake.begin()
    _commit(lake, "a", "b")
    assert tx.files("a")["path"].to_pylist() == [str(first.txn_id)]
    lake["b"].commit([removed(str(first.txn_id))])
    lake.catalog.rename_table("b", "z")
    lake.catalog.drop_table("c")
    for _ in range(2):
        for name in ("a", "b", "c", lake["c"].table_id):
            assert tx.files(name)["path"].to_pylist() == [str(first.txn_id)]


def test_transaction_reads_its_own_writes(lake: Lake) -> None:
    lake["a"].append("1", "2")
    tx = lake.begin()
    tx.stage("a", [added("3"), removed("1")])
    assert sorted(tx.files("a")["path"].to_pylist()) == ["2", "3"]
    tx.stage("a", [removed("3"), removed("2"), added("4", size=77)])
    assert tx.files("a").select(["path", "size", "version"]).to_pylist() == [{"path": "4", "size": 77, "version": 2}]
    # Nobody else does.
    assert lake.begin().files("a")["path"].to_pylist() == ["1", "2"]
    tx.commit()
    assert lake["a"].live() == ["4"]


def test_where_leaves_out_files_of_both_that_cannot_match(lake: Lake) -> None:
    def of(path: str, low: int, high: int) -> Any:
        bounds = f'"minValues":{{"id":{low}}},"maxValues":{{"id":{high}}},"nullCount":{{"id":0}}'
        return added(path, stats=f'{{"numRecords":2,{bounds}}}')

    lake["a"].commit([of("low", 0, 9), of("high", 90, 99), of("gone", 0, 9), added("no statistics")])
    tx = lake.begin()
    tx.stage("a", [of("my low", 5, 6), of("my high", 95, 96), removed("gone")])
    assert sorted(tx.files("a", "id < 10")["path"].to_pylist()) == ["low", "my low", "no statistics"]
    assert sorted(tx.files("a", "id > 50")["path"].to_pylist()) == ["high", "my high", "no statistics"]
    assert len(tx.files("a")) == 5


@pytest.mark.backends("sqlite")
def test_what_is_no_transaction_id_is_not_settled(lake: Lake) -> None:
    before = lake.dump()
    with pytest.raises(ValidationError, match="a UUID or a text that is not empty, not 5"):
        lake.catalog.resolve(5)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="looks like a UUID and is not one"):
        lake.catalog.resolve("7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d1")
    assert lake.dump() == before
