"""Publishers, committers and slow or broken storage at the same time, on every backend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from deltars.mirror import Publication, Publisher
from deltars.mirror import publisher as publisher_module
from deltars.storage import Location, Storage
from deltars.storage.local import LocalStorage
from deltars.storage.location import parse_location
from deltars.store.mirror.status import Advance, MirrorState
from tests.mirror.ledger import Ledger, version_names
from tests.storage.forking import is_true_in_forked_child

SECOND_US = 1_000_000


@contextmanager
def before_each_put(
    monkeypatch: pytest.MonkeyPatch, hook: Callable[[str], None], disk: Path | None = None
) -> Iterator[None]:
    """Local disk, with `hook` called before every put-if-absent; object stores are below `disk`."""

    class Hooked(LocalStorage):
        def put_if_absent(self, path: str, data: bytes, *, sync_name: bool = True) -> bool:
            hook(path)
            return super().put_if_absent(path, data, sync_name=sync_name)

    def open_hooked(location: str, options: object = None) -> Storage:
        place: Location = parse_location(location)
        return Hooked(place if place.is_local else parse_location(f"{disk}/{place.path}"))

    with monkeypatch.context() as patch:
        patch.setattr(publisher_module, "open_storage", open_hooked)
        yield


def test_no_lock_is_held_during_a_put(ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ledger.create_table("t")
    committed: list[int] = []

    def commit_meanwhile(path: str) -> None:
        if len(committed) < 3:
            committed.append(ledger.append(table))
            ledger.set_status(table, attempts=0)

    with before_each_put(monkeypatch, commit_meanwhile):
        outcome = publisher.publish_pending(table)
    assert committed == [1, 2, 3]
    assert outcome.published_version == 3
    assert ledger.log_of("t") == version_names(4)


def test_lease_of_a_living_publisher_is_respected_and_of_a_dead_one_taken_over(
    ledger: Ledger, publisher: Publisher
) -> None:
    table = ledger.create_table("t")
    now = publisher.status.read(table).now
    ledger.set_status(table, lease_owner="somebody", lease_until=now + 20 * SECOND_US)
    assert publisher.publish_pending(table).publication is Publication.PENDING
    assert publisher.status.due() == []
    assert ledger.log_of("t") == []
    ledger.set_status(table, lease_until=now - 1)
    assert publisher.status.due() == [table]
    assert publisher.publish_pending(table).publication is Publication.PUBLISHED


def test_publisher_whose_lease_was_taken_over_notes_what_it_put_and_leaves_the_lease(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    ledger.append(table)
    status = publisher.status

    def lose_the_lease(path: str) -> None:
        ledger.set_status(table, lease_owner="somebody else")

    with before_each_put(monkeypatch, lose_the_lease):
        assert publisher.publish_pending(table).published_version == 1
    assert (status.read(table).published_version, status.read(table).lease_owner) == (1, "somebody else")
    assert [version for version, _ in ledger.mirror_log(table)] == [0, 1]
    # Nothing goes back, nothing is left out, and nothing is noted that was not committed.
    ledger.append(table)
    ledger.append(table)
    for versions in ([0, 1], [3], [2, 3, 4]):
        noted = status.advance(table, "a stranger", [(version, "") for version in versions])
        assert (noted.step, noted.published) == (Advance.LOST, 1)
    status.fail(table, "a stranger", MirrorState.FAILED, "no")
    status.release(table, "a stranger")
    after = status.read(table)
    assert (after.published_version, after.state, after.lease_owner) == (1, MirrorState.ACTIVE, "somebody else")
    assert [version for version, _ in ledger.mirror_log(table)] == [0, 1]
    ledger.set_status(table, lease_until=1)
    assert publisher.publish_pending(table).published_version == 3


def test_many_publishers_and_committers_at_once_publish_each_version_once_and_in_order(
    ledger: Ledger,
) -> None:
    tables = [ledger.create_table(name) for name in ("a", "b")]
    committers, commits = 4, 10

    def work(worker: int) -> None:
        for turn in range(commits):
            table = tables[(worker + turn) % 2]
            version = ledger.append(table)
            publisher = Publisher(ledger.database)
            outcome = publisher.publish_all({table: version}, wait_s=60)[table]
            assert outcome.publication is Publication.PUBLISHED
            assert outcome.published_version is not None
            assert outcome.published_version >= version
            # A checkpoint that was due is written behind the caller's back, its hint under the lease.
            publisher.close()

    with ThreadPoolExecutor(committers) as pool:
        list(pool.map(work, range(committers)))
    count = committers * commits // 2 + 1
    for name, table in zip(("a", "b"), tables, strict=True):
        assert ledger.log_of(name) == version_names(count)
        assert [version for version, _ in ledger.mirror_log(table)] == list(range(count))
        status = Publisher(ledger.database).status.read(table)
        assert (status.published_version, status.lease_owner) == (count - 1, None)


def test_publisher_waits_for_one_who_is_just_giving_the_lease_back(ledger: Ledger, publisher: Publisher) -> None:
    """It must not believe what the row said before: the other has not seen its commit."""
    table = ledger.create_table("t")
    ledger.set_status(table, lease_owner="somebody", lease_until=publisher.status.read(table).now + 20 * SECOND_US)
    with ThreadPoolExecutor(1) as pool:
        with ledger.giving_lease_back(table):
            drained = pool.submit(publisher.publish_pending, table)
            time.sleep(0.2)
            assert not drained.done()
        assert drained.result().publication is Publication.PUBLISHED


def test_no_commit_is_overlooked_when_its_publisher_found_another_at_work(ledger: Ledger) -> None:
    """Nobody waits or comes again: whoever has the lease must see all that is committed before giving it back."""
    table = ledger.create_table("t")
    workers, commits = 4, 10

    def work(worker: int) -> None:
        for _ in range(commits):
            ledger.append(table)
            Publisher(ledger.database).publish_pending(table)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    assert ledger.log_of("t") == version_names(workers * commits + 1)


def test_failure_of_one_table_stops_no_other(ledger: Ledger, publisher: Publisher) -> None:
    tables = {name: ledger.create_table(name) for name in ("bad", "good", "fine")}
    (ledger.warehouse / "bad").mkdir(parents=True)
    (ledger.warehouse / "bad" / "_delta_log").write_bytes(b"in the way")
    outcomes = publisher.publish_all(dict.fromkeys(tables.values(), 0))
    assert {name: outcomes[table].publication for name, table in tables.items()} == {
        "bad": Publication.FAILED,
        "good": Publication.PUBLISHED,
        "fine": Publication.PUBLISHED,
    }
    assert outcomes[tables["bad"]].failure is not None
    assert outcomes[tables["good"]].failure is None


def test_slow_object_store_leaves_the_version_pending_and_is_finished_later(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t", location="s3://bucket/t")
    go_on = threading.Event()

    def stall(path: str) -> None:
        go_on.wait(30)

    with before_each_put(monkeypatch, stall, ledger.warehouse):
        started = time.monotonic()
        outcome = publisher.publish_all({table: 0}, wait_s=0.2)[table]
        assert time.monotonic() - started < 5
        assert outcome.publication is Publication.PENDING
        go_on.set()
        _until(lambda: publisher.status.read(table).published_version == 0)
    assert ledger.log_of("t") == version_names(1)


def test_committer_waits_for_another_who_is_publishing_its_version(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    go_on = threading.Event()
    stalled = threading.Event()

    def stall(path: str) -> None:
        stalled.set()
        go_on.wait(30)

    with before_each_put(monkeypatch, stall), ThreadPoolExecutor(2) as pool:
        first = pool.submit(publisher.publish_pending, table)
        stalled.wait(30)
        second = pool.submit(publisher.publish_all, {table: 0}, wait_s=30)
        time.sleep(0.1)
        assert not second.done()
        go_on.set()
        assert first.result().publication is Publication.PUBLISHED
        assert second.result()[table].publication is Publication.PUBLISHED


def test_failure_after_ones_own_version_is_not_ones_own(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    mine = ledger.append(table)
    ledger.append(table)
    ledger.version_file("t", 2).parent.mkdir(parents=True)
    ledger.version_file("t", 2).write_bytes(b"foreign")
    assert publisher.publish_all({table: mine})[table].publication is Publication.PUBLISHED
    _until(lambda: publisher.status.read(table).state is MirrorState.DIVERGED)


def test_lost_catalog_is_a_failure_on_the_result_and_raises_nothing(ledger: Ledger, publisher: Publisher) -> None:
    unknown = UUID(int=0)
    outcome = publisher.publish_all({unknown: 0})[unknown]
    assert outcome.publication is Publication.FAILED
    assert outcome.failure is not None
    assert outcome.failure.table_id == str(unknown)


def _until(reached: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.backends("postgres", "sqlite")
def test_forked_child_publishes_to_local_disk(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    publisher.publish_pending(table)
    version = ledger.append(table)
    assert is_true_in_forked_child(
        lambda: publisher.publish_all({table: version}, wait_s=20)[table].publication is Publication.PUBLISHED
    )
    assert ledger.log_of("t") == version_names(2)
