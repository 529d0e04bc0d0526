"""The fast lane: a committer publishes its own version without the lease, and does no harm to those who hold it."""

from __future__ import annotations

import json
import signal
import threading
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from deltars.log.commit import Committed
from deltars.mirror import MirrorOutcome, Publication, Publisher, Reconciler
from deltars.mirror.files.commit import render_commit
from deltars.protocol import Action, RemoveFile, Txn
from deltars.store.mirror.checkpoint_state import CheckpointRows
from deltars.store.mirror.lease import new_owner
from deltars.store.mirror.status import Advance, MirrorState
from tests.mirror.ledger import CREATE, Ledger, added, check_log
from tests.mirror.steps import DyingAt, stepping
from tests.support.children import in_child
from tests.support.soak import scaled


def commit(ledger: Ledger, table: UUID, *paths: str) -> Committed:
    return ledger.commit({table: [added(path) for path in paths]})


def publish(publisher: Publisher, committed: Committed) -> MirrorOutcome:
    outcomes = publisher.publish_all(committed.versions, next_version=committed.next_version, wait_s=60)
    [outcome] = outcomes.values()
    return outcome


def without_lease(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, whoever claims the lease fails."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the lease was claimed")

    monkeypatch.setattr(publisher.status, "claim", refuse)


def begun(ledger: Ledger, publisher: Publisher, name: str = "t") -> UUID:
    """A table whose version 0 is published."""
    table = ledger.create_table(name)
    assert publisher.publish_pending(table).published_version == 0
    return table


def test_next_version_is_published_without_a_lease_and_as_a_publisher_would(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = begun(ledger, publisher)
    actions: list[Action] = [
        added("z.parquet", tags={"z": "1", "a": "ü"}, stats='{"numRecords":3}'),
        added("a.parquet"),
        Txn(app_id="etl", version=7, last_updated=1),
    ]
    with monkeypatch.context() as patch:
        without_lease(publisher, patch)
        assert publish(publisher, ledger.commit({table: actions})).published_version == 1
        removed = RemoveFile(path="a.parquet", deletion_timestamp=8, data_change=True, size=1, partition_values={})
        outcome = publish(publisher, ledger.commit({table: [removed, added("b.parquet")]}))
        assert (outcome.publication, outcome.published_version) == (Publication.PUBLISHED, 2)
        altered = replace(CREATE[1], configuration={"z": "1", "delta.enableInCommitTimestamps": "true", "a": "2"})
        assert publish(publisher, ledger.commit({table: [altered]})).published_version == 3
    for version in (1, 2, 3):
        [stored] = publisher.status.pending(table, version - 1, 1)
        assert ledger.version_file("t", version).read_bytes() == render_commit(stored)
        assert (ledger.warehouse / "t" / "_delta_log" / f"{version:020}.crc").exists()
    assert check_log(ledger, table) == 4
    assert len(DeltaTable(ledger.warehouse / "t").file_uris()) == 2


def test_checksum_is_carried_on_and_counted_where_a_live_file_was_added_again(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit itself says whether it ended a file, so most checksums need no query."""
    table, queried = begun(ledger, publisher), []
    gone = CheckpointRows.gone

    def counted(rows: CheckpointRows, *arguments: Any) -> Any:
        queried.append(arguments[1])
        return gone(rows, *arguments)

    monkeypatch.setattr(CheckpointRows, "gone", counted)
    for path, size, files, size_bytes in (("a", 1, 1, 1), ("b", 2, 2, 3), ("a", 5, 2, 7), ("c", 1, 3, 8)):
        committed = ledger.commit({table: [added(path, size=size)]})
        version = publish(publisher, committed).published_version
        assert version is not None
        checksum = json.loads(ledger.version_file("t", version).with_suffix(".crc").read_bytes())
        assert (checksum["numFiles"], checksum["tableSizeBytes"]) == (files, size_bytes)
    # Version 0 was published by the other way, which remembers its checksum too.
    assert queried == [3]
    check_log(ledger, table)


@pytest.mark.backends("sqlite")
def test_checkpoint_that_is_due_is_written(ledger: Ledger) -> None:
    publisher = Publisher(ledger.database, checkpoint_interval=2)
    table = begun(ledger, publisher)
    for number in range(4):
        publish(publisher, commit(ledger, table, f"{number}.parquet"))
    publisher.close()
    assert ledger.files_of("t", "*.checkpoint.parquet") == [f"{v:020}.checkpoint.parquet" for v in (2, 4)]
    assert check_log(ledger, table) == 5


@pytest.mark.backends("sqlite")
def test_version_that_is_not_the_next_one_is_left_to_the_publisher(ledger: Ledger, publisher: Publisher) -> None:
    table = begun(ledger, publisher)
    pending = commit(ledger, table, "a.parquet")
    assert pending.next_version is not None
    assert commit(ledger, table, "b.parquet").next_version is None  # version 1 is not published
    assert publish(publisher, pending).published_version == 1
    other = begun(ledger, publisher, "other")
    both = ledger.commit({table: [added("c.parquet")], other: [added("c.parquet")]})
    assert both.next_version is None  # it also publishes the map of its versions
    assert publisher.publish_pending(table).published_version == 3
    ledger.set_status(table, state=MirrorState.FAILED.value)
    assert commit(ledger, table, "d.parquet").next_version is None
    assert publisher.publish_pending(table).published_version == 4
    assert check_log(ledger, table) == 5


@pytest.mark.backends("sqlite")
def test_log_that_lost_its_last_file_gets_no_next_one(ledger: Ledger, publisher: Publisher) -> None:
    table = begun(ledger, publisher)
    ledger.version_file("t", 0).unlink()
    outcome = publish(publisher, commit(ledger, table, "a.parquet"))
    assert outcome.publication is Publication.FAILED
    assert ledger.log_of("t") == []


@pytest.mark.backends("sqlite")
def test_file_of_another_writer_is_found_and_not_replaced(ledger: Ledger, publisher: Publisher) -> None:
    table = begun(ledger, publisher)
    ledger.version_file("t", 1).write_bytes(b'{"commitInfo":{"txnId":"another"}}\n')
    outcome = publish(publisher, commit(ledger, table, "a.parquet"))
    assert outcome.publication is Publication.FAILED
    assert publisher.status.read(table).state is MirrorState.DIVERGED
    assert b"another" in ledger.version_file("t", 1).read_bytes()


def test_holder_of_the_lease_meanwhile_moves_nothing_back(ledger: Ledger, publisher: Publisher) -> None:
    table = begun(ledger, publisher)
    first = commit(ledger, table, "a.parquet")
    owner = new_owner()
    assert publisher.status.claim(table, owner)[0]
    assert publish(publisher, first).published_version == 1
    assert publish(publisher, commit(ledger, table, "b.parquet")).published_version == 2
    # The holder found version 1 there, and notes it late.
    digest = sha256(ledger.version_file("t", 1).read_bytes()).hexdigest()
    noted = publisher.status.advance(table, owner, [(1, digest)])
    assert (noted.step, noted.before, noted.published) == (Advance.DONE, 2, 2)
    assert check_log(ledger, table) == 3


def test_version_that_another_publisher_noted_first_is_noted_once(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = begun(ledger, publisher)
    committed = commit(ledger, table, "a.parquet")
    other = Publisher(ledger.database)
    note_next = publisher.status.note_next

    def overtaken(*arguments: Any) -> int | None:
        assert other.publish_pending(table).published_version == 1
        noted = note_next(*arguments)
        assert noted is None
        return noted

    monkeypatch.setattr(publisher.status, "note_next", overtaken)
    assert publish(publisher, committed).published_version == 1
    assert check_log(ledger, table) == 2


@pytest.mark.soak
@pytest.mark.backends("postgres", "sqlite")
def test_process_killed_before_any_step_leaves_a_log_that_is_finished_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = begun(ledger, Publisher(ledger.database))
    ended, step = -signal.SIGKILL, 0
    while ended == -signal.SIGKILL:
        step += 1
        committed = commit(ledger, table, f"{step}.parquet")
        ledger.database.close()

        def work(committed: Committed = committed, step: int = step) -> None:
            with stepping(monkeypatch, DyingAt(step)):
                publisher = Publisher(ledger.database, checkpoint_interval=1_000)
                assert publish(publisher, committed).publication is Publication.PUBLISHED

        ended = in_child(work)
        publisher = Publisher(ledger.database)
        ledger.set_status(table, lease_until=1)
        Reconciler(ledger.database, publisher).once()
        publisher.close()
        assert check_log(ledger, table) == step + 1
    assert ended == 0
    assert step > 4


@pytest.mark.backends("postgres")
def test_fast_lanes_and_leased_publishers_at_once_publish_each_version_once(ledger: Ledger) -> None:
    table = begun(ledger, Publisher(ledger.database))
    commits, stop = scaled(12, soak=200), threading.Event()
    problems: list[BaseException] = []

    def lane() -> None:
        try:
            publisher = Publisher(ledger.database, checkpoint_interval=5)
            for _ in range(commits):
                committed = commit(ledger, table, f"{threading.get_ident()}-{_}.parquet")
                assert publish(publisher, committed).publication is Publication.PUBLISHED
            publisher.close()
        except BaseException as problem:
            problems.append(problem)

    def lease() -> None:
        publisher = Publisher(ledger.database)
        while not stop.wait(0.001):
            publisher.publish_pending(table)

    leased = threading.Thread(target=lease)
    lanes = [threading.Thread(target=lane) for _ in range(3)]
    for thread in (leased, *lanes):
        thread.start()
    for thread in lanes:
        thread.join()
    stop.set()
    leased.join()
    assert problems == []
    Reconciler(ledger.database, Publisher(ledger.database)).once()
    assert check_log(ledger, table) == 3 * commits + 1
