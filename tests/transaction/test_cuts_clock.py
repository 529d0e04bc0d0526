"""A cut of the past that was answered once never changes, whatever becomes of the database's clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

import deltars
from deltars.errors import ValidationError
from deltars.store.schema import dl_transactions
from tests.support.clock import Clock, clock_of
from tests.support.lake import Lake, OpenLake
from tests.support.log import added
from tests.support.tap import Tap
from tests.support.together import Meanwhile

HOUR_S = 3_600


@pytest.fixture
def clock(lake: Lake) -> Iterator[Clock]:
    with clock_of(lake.catalog) as clock:
        yield clock


def _commit(lake: Lake, *names: str) -> deltars.TransactionResult:
    with lake.begin() as tx:
        for name in names:
            tx.stage(name, [added(f"{tx.id}")])
    return tx.result


def _moment(result: deltars.TransactionResult) -> datetime:
    assert result.commit_ts is not None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=result.commit_ts)


def _count_transactions(lake: Lake) -> int:
    with lake.catalog._session.database.read() as connection:
        count: int = connection.execute(select(func.count()).select_from(dl_transactions)).scalar_one()
        return count


def test_cut_after_the_newest_commit_stays_when_the_clock_is_set_back(lake: Lake, clock: Clock) -> None:
    last = _commit(lake, "a", "b")
    time.sleep(0.01)
    asked = [_moment(last) + timedelta(milliseconds=1), datetime.now(UTC)]
    known = [lake.catalog.snapshot(moment).versions for moment in asked]
    assert known == [{"a": 1, "b": 1, "c": 0}] * 2
    clock.set(-HOUR_S)
    later = _commit(lake, "a", "c")
    lake.catalog.drop_table("b")
    assert later.commit_ts is not None
    assert _moment(later) > asked[-1]
    assert [lake.catalog.snapshot(moment).versions for moment in asked] == known
    assert lake.catalog.snapshot(later.txn_id).versions == {"a": 2, "b": 1, "c": 1}
    clock.set(0)
    assert [lake.catalog.snapshot(moment).versions for moment in asked] == known


def test_cut_that_was_answered_is_no_future_one_when_the_clock_is_set_back(lake: Lake, clock: Clock) -> None:
    last = _moment(_commit(lake, "a"))
    clock.set(-HOUR_S)
    assert lake.catalog.snapshot(last).versions == {"a": 1, "b": 0, "c": 0}
    with pytest.raises(ValidationError, match="future"):
        lake.catalog.snapshot(last + timedelta(seconds=10))


def test_moment_is_sealed_only_where_no_commit_does_it(lake: Lake, clock: Clock) -> None:
    first, last = _commit(lake, "a"), _commit(lake, "a")
    count = _count_transactions(lake)
    for as_of in (
        first.txn_id,
        _moment(first),
        _moment(first) + timedelta(microseconds=1),
        _moment(last),
        "2001-01-01",
    ):
        lake.catalog.snapshot(as_of)
    assert _count_transactions(lake) == count
    time.sleep(0.01)
    now = datetime.now(UTC)
    for _ in range(3):
        lake.catalog.snapshot(now)
    assert _count_transactions(lake) == count + 1
    # A seal is no transaction.
    assert lake.catalog.snapshot(now).as_of == now
    assert [entry.version for entry in lake.catalog.table("a").history()] == [2, 1, 0]


def test_cut_of_a_catalog_without_commits_is_sealed_too(catalog: deltars.Catalog) -> None:
    with clock_of(catalog) as clock:
        time.sleep(0.01)
        now = datetime.now(UTC)
        assert catalog.snapshot(now).versions == {}
        clock.set(-HOUR_S)
        catalog.create_table("a", "id BIGINT")
        assert catalog.snapshot(now).versions == {}
        assert catalog.snapshot().versions == {"a": 0}


@pytest.mark.backends("postgres")
def test_commit_is_not_stamped_before_its_transaction_began_though_the_clock_was_set_back(
    open_lake: OpenLake, tap: Tap
) -> None:
    lake = open_lake("a", "b", tap=tap)
    with clock_of(lake.catalog) as clock:
        past = _moment(_commit(lake, "b")) + timedelta(milliseconds=1)
        time.sleep(0.02)
        tx = lake.begin()
        tx.stage("a", [added("1")])
        with deltars.connect(lake.uri) as other, tap.holding("dl_table_versions (") as hold:
            committing = Meanwhile(tx.commit)
            hold.wait_until_reached()
            # It began after `past`, and so is not waited for. Now the clock is set back, and then it is stamped.
            clock.set(-HOUR_S, now_s=0)
            known = other.snapshot(past, timeout=0.5).versions
            hold.release()
            committing.result()
            assert known == {"a": 0, "b": 1}
            assert other.snapshot(past).versions == known
