"""Publishing, on every backend."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from deltars.errors import MirrorFailure
from deltars.mirror import Publication, Publisher
from deltars.mirror import publisher as publisher_module
from deltars.protocol import (
    Action,
    CdcFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    decode_commit,
)
from deltars.storage import Location, Storage
from deltars.storage.local import LocalStorage
from deltars.storage.location import parse_location
from deltars.store.mirror_status import Advance, MirrorState
from tests.mirror.ledger import Ledger, added

HOUR_US = 3_600_000_000


def names(count: int) -> list[str]:
    return [f"{version:020}.json" for version in range(count)]


@contextmanager
def before_each_put(monkeypatch: pytest.MonkeyPatch, hook: Callable[[str], None]) -> Iterator[None]:
    """Local disk, with `hook` called before every put-if-absent."""

    class Hooked(LocalStorage):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            hook(path)
            return super().put_if_absent(path, data)

    def open_hooked(location: str, options: object = None) -> Storage:
        place: Location = parse_location(location)
        return Hooked(place)

    with monkeypatch.context() as patch:
        patch.setattr(publisher_module, "open_storage", open_hooked)
        yield


def test_pending_versions_are_published_in_order(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    for _ in range(44):
        ledger.append(table)
    outcome = publisher.drain(table)
    assert (outcome.publication, outcome.published_version) == (Publication.PUBLISHED, 44)
    assert ledger.log_of("t") == names(45)
    digests = [sha256(ledger.version_file("t", v).read_bytes()).hexdigest() for v in range(45)]
    assert ledger.mirror_log(table) == list(enumerate(digests))
    status = publisher.status.read(table)
    assert (status.published_version, status.state) == (44, MirrorState.ACTIVE)
    assert (status.lease_owner, status.lease_until, status.attempts) == (None, None, 0)


def test_nothing_pending_is_published_already(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    publisher.drain(table)
    before = publisher.status.read(table)
    assert publisher.drain(table).publication is Publication.PUBLISHED
    assert publisher.status.read(table).published_version == before.published_version


def test_every_kind_of_action_is_published_as_it_was_committed_and_in_its_order(
    ledger: Ledger, publisher: Publisher
) -> None:
    fields = ",".join(
        f'{{"name":"{name}","type":"string","nullable":true,"metadata":{{}}}}'
        for name in ("day", "city", "x")
    )
    features = [
        "appendOnly",
        "invariants",
        "inCommitTimestamp",
        "domainMetadata",
        "changeDataFeed",
        "deletionVectors",
    ]
    create: list[Action] = [
        Metadata(
            id="not a uuid",
            name="naïve",
            schema_string=f'{{"type":"struct","fields":[{fields}]}}',
            partition_columns=["day", "city"],
            configuration={"z": "1", "a": "\u2028"},
        ),
        Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=["deletionVectors"],
            writer_features=features,
        ),
    ]
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="ab^-a", offset=1, size_in_bytes=4, cardinality=2
    )
    nowhere: dict[str, str | None] = {"day": None, "city": "São Paulo"}
    actions: list[Action] = [
        Txn(app_id="app ü", version=5, last_updated=9),
        RemoveFile(path="old.parquet", deletion_timestamp=1, data_change=True),
        added("a%20b/1.parquet", partition_values=nowhere, stats='{"numRecords": 1,"minValues":{"x":"-0"}}'),
        DomainMetadata(domain="d", configuration='{"a":1}', removed=False),
        added(
            "2.parquet",
            partition_values=nowhere,
            stats='{"numRecords":9}',
            deletion_vector=vector,
            tags={"k": None},
            base_row_id=3,
            default_row_commit_version=1,
        ),
        CdcFile(path="_change_data/3.parquet", partition_values=nowhere, size=4),
        RemoveFile(
            path="2.parquet", data_change=False, extended_file_metadata=True, partition_values=nowhere, size=1
        ),
    ]
    table = ledger.create_table("t", create)
    ledger.commit({table: actions})
    publisher.drain(table)
    assert decode_commit(ledger.version_file("t", 0).read_bytes())[1:] == create
    assert decode_commit(ledger.version_file("t", 1).read_bytes())[1:] == actions


def test_outside_reader_sees_the_data_and_the_commit_times(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    publisher.drain(table)
    for version in (1, 2):
        data = ledger.warehouse / "t" / f"{version}.parquet"
        pq.write_table(pa.table({"id": [version]}), data)
        ledger.commit({table: [added(data.name, size=data.stat().st_size)]})
    publisher.drain(table)
    times = [commit.in_commit_timestamp for commit in publisher.status.pending(table, after=-1, limit=10)]
    reader = DeltaTable(ledger.warehouse / "t")
    assert reader.version() == 2
    rows = QueryBuilder().register("t", reader).execute("select id from t order by id").read_all()
    assert pa.table(rows).column("id").to_pylist() == [1, 2]
    assert [entry["timestamp"] for entry in reader.history()] == times[::-1]
    written = [ledger.version_file("t", version).stat().st_mtime_ns for version in range(3)]
    assert written == [time_ms * 1_000_000 for time_ms in times]


def test_file_left_by_a_crash_before_the_status_was_written_is_recognised(
    ledger: Ledger, publisher: Publisher
) -> None:
    table = ledger.create_table("t")
    ledger.append(table, "a.parquet", "b.parquet")
    publisher.drain(table)
    first, *rest = ledger.version_file("t", 1).read_bytes().splitlines(keepends=True)
    theirs = b"".join([first, *reversed(rest)])
    ledger.version_file("t", 1).write_bytes(theirs)

    second = ledger.create_table("other")
    shutil.copytree(ledger.warehouse / "t", ledger.warehouse / "other", dirs_exist_ok=True)
    assert publisher.drain(second).publication is Publication.FAILED  # another table's commit is not ours

    ledger.forget_publication(table)
    assert publisher.drain(table).publication is Publication.PUBLISHED
    assert ledger.version_file("t", 1).read_bytes() == theirs
    assert ledger.mirror_log(table)[1] == (1, sha256(theirs).hexdigest())


def test_foreign_file_at_our_version_stops_the_table_and_is_not_overwritten(
    ledger: Ledger, publisher: Publisher
) -> None:
    table = ledger.create_table("t")
    publisher.drain(table)
    ledger.append(table)
    ledger.append(table)
    foreign = b'{"commitInfo":{"operation":"WRITE","engineInfo":"other"}}\n'
    ledger.version_file("t", 1).write_bytes(foreign)

    outcome = publisher.drain(table)
    assert outcome.publication is Publication.FAILED
    assert outcome.published_version == 0
    assert isinstance(outcome.failure, MirrorFailure)
    assert (outcome.failure.table, outcome.failure.version) == ("t", 1)
    assert "00000000000000000001.json" in outcome.failure.error
    assert publisher.status.read(table).state is MirrorState.DIVERGED
    assert publisher.status.read(table).lease_owner is None

    again = publisher.drain(table)
    assert again.publication is Publication.FAILED
    assert again.failure is not None
    assert again.failure.error == outcome.failure.error
    assert publisher.status.due() == []
    assert ledger.version_file("t", 1).read_bytes() == foreign
    assert ledger.log_of("t") == names(2)


def test_storage_failure_is_noted_backs_off_and_is_repaired(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    (ledger.warehouse / "t").mkdir(parents=True)
    obstacle = ledger.warehouse / "t" / "_delta_log"
    obstacle.write_bytes(b"in the way")
    pauses = []
    for attempt in (1, 2, 3):
        outcome = publisher.drain(table)
        assert outcome.publication is Publication.FAILED
        assert outcome.failure is not None
        assert (outcome.failure.version, outcome.failure.table_id) == (0, str(table))
        status = publisher.status.read(table)
        assert (status.state, status.attempts) == (MirrorState.FAILED, attempt)
        assert status.last_error == outcome.failure.error
        assert status.lease_owner is None
        assert status.next_attempt_at is not None
        pauses.append(round((status.next_attempt_at - status.now) / 1e6))
    assert pauses == [1, 2, 4]
    assert publisher.status.due() == []

    obstacle.unlink()
    ledger.set_status(table, next_attempt_at=1)
    assert publisher.status.due() == [table]
    assert publisher.drain(table).publication is Publication.PUBLISHED
    status = publisher.status.read(table)
    assert (status.state, status.attempts, status.last_error, status.next_attempt_at) == (
        MirrorState.ACTIVE, 0, None, None,
    )  # fmt: skip


def test_no_lock_is_held_during_a_put(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    committed: list[int] = []

    def commit_meanwhile(path: str) -> None:
        if len(committed) < 3:
            committed.append(ledger.append(table))
            ledger.set_status(table, attempts=0)

    with before_each_put(monkeypatch, commit_meanwhile):
        outcome = publisher.drain(table)
    assert committed == [1, 2, 3]
    assert outcome.published_version == 3
    assert ledger.log_of("t") == names(4)


def test_lease_of_a_living_publisher_is_respected_and_of_a_dead_one_taken_over(
    ledger: Ledger, publisher: Publisher
) -> None:
    table = ledger.create_table("t")
    now = publisher.status.read(table).now
    ledger.set_status(table, lease_owner="somebody", lease_until=now + HOUR_US)
    assert publisher.drain(table).publication is Publication.PENDING
    assert publisher.status.due() == []
    assert ledger.log_of("t") == []
    ledger.set_status(table, lease_until=now - 1)
    assert publisher.status.due() == [table]
    assert publisher.drain(table).publication is Publication.PUBLISHED


def test_publisher_whose_lease_was_taken_over_changes_nothing(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    ledger.append(table)

    def lose_the_lease(path: str) -> None:
        ledger.set_status(table, lease_owner="somebody else")

    with before_each_put(monkeypatch, lose_the_lease):
        assert publisher.drain(table).publication is Publication.PENDING
    assert publisher.status.advance(table, "a stranger", 0, "") is Advance.LOST
    publisher.status.fail(table, "a stranger", MirrorState.FAILED, "no")
    publisher.status.release(table, "a stranger")
    status = publisher.status.read(table)
    assert (status.published_version, status.state, status.lease_owner) == (
        -1,
        MirrorState.ACTIVE,
        "somebody else",
    )
    assert ledger.mirror_log(table) == []
    # The new owner finds the file that the slow one put, and goes on.
    ledger.set_status(table, lease_until=1)
    assert publisher.drain(table).published_version == 1


def test_many_publishers_and_committers_at_once_publish_each_version_once_and_in_order(
    ledger: Ledger,
) -> None:
    tables = [ledger.create_table(name) for name in ("a", "b")]
    committers, commits = 4, 10

    def work(worker: int) -> None:
        for turn in range(commits):
            table = tables[(worker + turn) % 2]
            version = ledger.append(table)
            outcome = Publisher(ledger.database).publish_all({table: version}, wait_s=60)[table]
            assert outcome.publication is Publication.PUBLISHED
            assert outcome.published_version is not None
            assert outcome.published_version >= version

    with ThreadPoolExecutor(committers) as pool:
        list(pool.map(work, range(committers)))
    count = committers * commits // 2 + 1
    for name, table in zip(("a", "b"), tables, strict=True):
        assert ledger.log_of(name) == names(count)
        assert [version for version, _ in ledger.mirror_log(table)] == list(range(count))
        status = Publisher(ledger.database).status.read(table)
        assert (status.published_version, status.lease_owner) == (count - 1, None)


def test_no_commit_is_overlooked_when_its_publisher_found_another_at_work(ledger: Ledger) -> None:
    """Nobody waits or comes again: whoever has the lease must see all that is committed before giving it back."""
    table = ledger.create_table("t")
    workers, commits = 4, 10

    def work(worker: int) -> None:
        for _ in range(commits):
            ledger.append(table)
            Publisher(ledger.database).drain(table)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    assert ledger.log_of("t") == names(workers * commits + 1)


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


def test_slow_storage_leaves_the_version_pending_and_is_finished_later(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ledger.create_table("t")
    go_on = threading.Event()

    def stall(path: str) -> None:
        go_on.wait(30)

    with before_each_put(monkeypatch, stall):
        started = time.monotonic()
        outcome = publisher.publish_all({table: 0}, wait_s=0.2)[table]
        assert time.monotonic() - started < 5
        assert outcome.publication is Publication.PENDING
        go_on.set()
        _until(lambda: publisher.status.read(table).published_version == 0)
    assert ledger.log_of("t") == names(1)


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
        first = pool.submit(publisher.drain, table)
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


def test_lost_catalog_is_a_failure_on_the_result_and_raises_nothing(
    ledger: Ledger, publisher: Publisher
) -> None:
    unknown = UUID(int=0)
    outcome = publisher.publish_all({unknown: 0})[unknown]
    assert outcome.publication is Publication.FAILED
    assert outcome.failure is not None
    assert outcome.failure.table_id == str(unknown)


def test_dropped_table_is_left_alone(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    ledger.registry.drop(table)
    assert publisher.drain(table).publication is Publication.PUBLISHED
    assert publisher.status.due() == []
    assert not (ledger.warehouse / "t").exists()


def test_table_is_entered_in_the_warehouse_registry(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("my table")
    publisher.drain(table)
    entry = ledger.warehouse / "_deltars" / "tables" / f"{table}.json"
    document = json.loads(entry.read_text())
    assert document.pop("createdAt").endswith("Z")
    assert document == {
        "tableId": str(table),
        "name": "my table",
        "location": str(ledger.warehouse / "my table"),
        "catalogId": document["catalogId"],
    }
    ledger.registry.drop(table)
    publisher.publish_registration(table)
    assert "droppedAt" in json.loads(entry.read_text())


def test_version_map_of_a_transaction_appears_with_its_last_table(
    ledger: Ledger, publisher: Publisher
) -> None:
    tables = sorted(ledger.create_table(name) for name in ("a", "b", "c"))
    ledger.append(tables[1])
    versions = ledger.commit({table: [added("x.parquet")] for table in tables}).versions
    maps = ledger.warehouse / "_deltars" / "txns"
    publisher.drain(tables[0])
    publisher.drain(tables[1])
    assert not maps.exists()
    publisher.drain(tables[2])
    (file,) = maps.iterdir()
    document = json.loads(file.read_text())
    assert file.stem == document["txnId"]
    assert [(entry["tableId"], entry["version"]) for entry in document["tables"]] == [
        (str(table), versions[table]) for table in tables
    ]
    info = json.loads(
        (Path(document["tables"][0]["location"]) / "_delta_log" / f"{1:020}.json").open().readline()
    )
    assert info["commitInfo"]["txnId"] == document["txnId"]
    assert info["commitInfo"]["commitTs"] == document["commitTs"]
    assert info["commitInfo"]["participants"] == {str(table): versions[table] for table in tables}


def _until(reached: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.backends("postgres", "sqlite")
def test_forked_child_publishes_to_local_disk(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    publisher.drain(table)
    version = ledger.append(table)
    child = os.fork()
    if child == 0:
        outcome = publisher.publish_all({table: version}, wait_s=20)[table]
        os._exit(0 if outcome.publication is Publication.PUBLISHED else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ledger.log_of("t") == names(2)
