"""Doing it again: a transaction of the same id, and a function that is run until its transaction commits."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow as pa
import pytest

import deltars
from deltars.errors import ConfigError, DatabaseError, ValidationError, VersionConflict
from deltars.uri import parse_catalog_uri
from tests.support.lake import Lake, OpenLake
from tests.support.log import FEATURES, added, metadata, protocol, removed
from tests.support.together import Meanwhile
from tests.support.witness import postgres_connection

SOON_S = 20.0


def _parquet_files(lake: Lake) -> list[Path]:
    assert lake.catalog.warehouse is not None
    return sorted(Path(lake.catalog.warehouse).rglob("*.parquet"))


# -- the same id -------------------------------------------------------------------------------------------------------


def test_repeated_id_returns_the_first_result_and_changes_nothing(lake: Lake) -> None:
    txn_id = uuid4()

    def transfer() -> deltars.TransactionResult:
        with lake.begin(txn_id=txn_id) as tx:
            tx.write("a", pa.table({"id": [1]}))
            tx.write("new", pa.table({"id": [2]}))
            tx.stage("b", [added("1")])
        assert tx.id == txn_id
        return tx.result

    first = transfer()
    assert first.versions == {"a": 1, "new": 0, "b": 1}
    lake["a"].append("later")
    lake["b"].commit([metadata(description="later")])
    before, files = lake.dump(), _parquet_files(lake)
    again = transfer()
    assert (again.txn_id, again.commit_ts) == (txn_id, first.commit_ts)
    assert (again.versions, again.versions_by_id) == (first.versions, first.versions_by_id)
    assert lake.dump() == before
    assert _parquet_files(lake) == files


@pytest.mark.backends("sqlite")
def test_repeated_id_changes_nothing_whatever_the_transaction_did(lake: Lake) -> None:
    lake.catalog.write("done", pa.table({"id": [1]}), app_id="job", app_version=1)
    txn_id = uuid4()

    def load() -> deltars.TransactionResult:
        with lake.begin(txn_id=txn_id) as tx:
            tx.write("new", pa.table({"id": [1]}), "error")
            tx.write("a", pa.table({"id": [2]}), "ignore")
            tx.write("done", pa.table({"id": [1]}), app_id="job", app_version=1)
            tx.write("done too", pa.table({"id": [1]}), app_id="job", app_version=1)
            tx.alter("b").add_columns("more STRING")
            tx.alter("b").add_constraint("positive", "id > 0")
        return tx.result

    first = load()
    assert first.versions == {"new": 0, "done too": 0, "b": 1}
    before, files = lake.dump(), _parquet_files(lake)
    assert load().versions == first.versions
    assert lake.dump() == before
    assert _parquet_files(lake) == files


@pytest.mark.backends("sqlite")
def test_repeated_id_is_known_though_its_actions_would_not_be_valid_any_more(lake: Lake) -> None:
    lake["a"].append("gone")
    actions = [removed("gone"), protocol((*FEATURES, "checkConstraints"))]
    txn_id = uuid4()
    results = []
    for _ in range(2):
        with lake.begin(txn_id=txn_id) as tx:
            tx.stage("a", actions)
        results.append(tx.result)
        if tx.result.versions == {"a": 2} and lake["a"].version == 2:
            # The protocol that was staged would take this feature away again.
            lake["a"].commit([protocol((*FEATURES, "checkConstraints", "generatedColumns"))])
    assert results[0].versions == results[1].versions == {"a": 2}
    assert lake["a"].version == 3


def test_repeated_id_for_other_tables_is_refused(lake: Lake) -> None:
    txn_id = uuid4()
    with lake.begin(txn_id=txn_id) as tx:
        tx.stage("a", [added("1")])
    before = lake.dump()
    for tables in ("b", "ab"):
        tx = lake.begin(txn_id=txn_id)
        for name in tables:
            tx.stage(name, [added("2")])
        with pytest.raises(ValidationError, match="committed before, to other tables"):
            tx.commit()
    assert lake.dump() == before


def test_id_that_was_not_committed_may_be_used_again(lake: Lake) -> None:
    txn_id = uuid4()
    lost = lake.begin(txn_id=txn_id)
    lost.stage("a", [added("1")])
    lake["a"].append()
    with pytest.raises(VersionConflict):
        lost.commit()
    with lake.begin(txn_id=txn_id) as tx:
        tx.stage("a", [added("1")])
    assert tx.result.versions == {"a": 2}


def test_of_two_at_once_that_make_a_table_with_one_id_the_second_is_told_to_begin_again(lake: Lake) -> None:
    txn_id = uuid4()
    first, second = lake.begin(txn_id=txn_id), lake.begin(txn_id=txn_id)
    for tx in (first, second):
        tx.write("new", pa.table({"id": [1]}))
    versions = first.commit().versions_by_id
    with pytest.raises(VersionConflict, match="a new attempt with this id returns that transaction's result"):
        second.commit()
    third = lake.begin(txn_id=txn_id)
    third.write("new", pa.table({"id": [1]}))
    assert third.commit().versions_by_id == versions
    assert lake.catalog.table("new").to_arrow().num_rows == 1


def test_of_two_at_once_with_one_id_one_commits_and_both_have_its_result(lake: Lake) -> None:
    txn_id = uuid4()
    both = [lake.begin(txn_id=txn_id) for _ in range(2)]
    for tx in both:
        tx.stage("a", [added("1")])
        tx.stage("b", [added("1")])
    racers = [Meanwhile(tx.commit) for tx in both]
    first, second = (racer.result() for racer in racers)
    assert (first.commit_ts, first.versions) == (second.commit_ts, second.versions)
    assert lake.versions == {"a": 1, "b": 1, "c": 0}


# -- run ---------------------------------------------------------------------------------------------------------------


def test_run_gives_a_fresh_transaction_each_time_until_one_commits(lake: Lake) -> None:
    seen: list[deltars.Transaction] = []

    def append(tx: deltars.Transaction) -> str:
        seen.append(tx)
        assert len(tx.files("a")) == len(seen) - 1
        tx.stage("a", [added(f"mine-{len(seen)}")])
        tx.stage("b", [added(f"mine-{len(seen)}")])
        if len(seen) < 3:
            lake["a"].append(f"theirs-{len(seen)}")
        return f"answer {len(seen)}"

    assert lake.catalog.run(append, committer="ada") == "answer 3"
    assert len({tx.id for tx in seen}) == 3
    assert lake.live() == {"a": ["mine-3", "theirs-1", "theirs-2"], "b": ["mine-3"], "c": []}
    assert lake.catalog.table("b").history()[0].committer == "ada"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("retries", [0, 2])
def test_run_gives_up_after_so_many_retries(lake: Lake, retries: int) -> None:
    seen: list[UUID] = []

    def lose(tx: deltars.Transaction) -> None:
        seen.append(tx.id)
        tx.stage("a", [added(str(tx.id))])
        lake["a"].append()

    with pytest.raises(VersionConflict) as caught:
        lake.catalog.run(lose, retries=retries)
    assert len(seen) == retries + 1
    assert caught.value.txn_id == seen[-1]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyboardInterrupt(),
        ValidationError("no"),
        deltars.TimeoutError("no"),
        deltars.CommitUnknown(txn_id=uuid4()),
        DatabaseError("no", retryable=True, sqlstate="57P01"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_run_does_not_retry_anything_else(lake: Lake, error: BaseException) -> None:
    seen: list[UUID] = []

    def fail(tx: deltars.Transaction) -> None:
        seen.append(tx.id)
        tx.stage("a", [added("1")])
        raise error

    with pytest.raises(type(error)):
        lake.catalog.run(fail)
    assert len(seen) == 1
    assert lake["a"].live() == []


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("retries", [-1, 1.5, "2", True])
def test_number_of_retries_must_be_one(lake: Lake, retries: int) -> None:
    with pytest.raises(ConfigError, match="retries must be a whole number of 0 or more"):
        lake.catalog.run(lambda tx: None, retries=retries)


def test_run_serves_many_at_once(lake: Lake) -> None:
    """Each adds one to a count that it has read: none may be lost."""

    def increment(tx: deltars.Transaction) -> None:
        count = len(tx.files("a"))
        tx.stage("a", [added(f"{count}")])
        tx.stage("b", [added(f"{count}")])

    workers = [Meanwhile(lake.catalog.run, increment, retries=50) for _ in range(4)]
    for worker in workers:
        worker.result()
    assert lake["a"].live() == lake["b"].live() == ["0", "1", "2", "3"]


@pytest.mark.requirement("M-24")
@pytest.mark.backends("postgres")
def test_deadlock_made_by_another_program_is_retried_and_then_works(lake: Lake) -> None:
    first, second = lake.by_id[:2]
    tries: list[UUID] = []
    freed = threading.Event()

    def write(tx: deltars.Transaction) -> None:
        tries.append(tx.id)
        if len(tries) == 2:
            assert freed.wait(SOON_S)
        for name in (first, second):
            tx.stage(name, [added("mine")])

    lock = "SELECT 1 FROM dl_tables WHERE table_id = %s FOR UPDATE"
    with postgres_connection(parse_catalog_uri(lake.uri)) as session:
        # Whoever looks first is ended; the other program does not look.
        session.execute("SET deadlock_timeout = '5min'")
        with session.transaction():
            session.execute(lock, [lake[second].table_id])
            running = Meanwhile(lake.catalog.run, write)
            _wait_until_blocked(session)
            # Ours holds the first and waits for the second: this closes the circle, and ours is ended.
            session.execute(lock, [lake[first].table_id])
        freed.set()
        running.result()
    assert len(tries) == 2
    assert lake.versions == {first: 1, second: 1, lake.by_id[2]: 0}


def _wait_until_blocked(session: psycopg.Connection[tuple[object, ...]]) -> None:
    deadline = time.monotonic() + SOON_S
    waits = "SELECT 1 FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while session.execute(waits).fetchone() is None:
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.01)


@pytest.mark.backends("postgres")
def test_serialization_failure_is_retried(open_lake: OpenLake) -> None:
    lake = open_lake("a")
    tries: list[UUID] = []

    def write(tx: deltars.Transaction) -> None:
        tries.append(tx.id)
        tx.stage("a", [added("1")])
        if len(tries) == 1:
            raise DatabaseError("could not serialise", retryable=True, sqlstate="40001")

    lake.catalog.run(write)
    assert len(tries) == 2
    assert lake["a"].live() == ["1"]


@pytest.mark.backends("sqlite")
def test_function_whose_body_would_run_later_is_refused(lake: Lake) -> None:
    def generator(tx: deltars.Transaction) -> Iterator[None]:
        tx.write("a", pa.table({"id": [1]}))
        yield

    async def coroutine(tx: deltars.Transaction) -> None:
        tx.write("a", pa.table({"id": [1]}))

    async def both(tx: deltars.Transaction) -> AsyncIterator[None]:
        tx.write("a", pa.table({"id": [1]}))
        yield

    functions: list[Callable[..., Any]] = [generator, coroutine, both, partial(generator)]
    for function in functions:
        with pytest.raises(ConfigError, match="takes a plain function"):
            lake.catalog.run(function)
