"""Publishing, on every backend."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from deltars.errors import MirrorFailure
from deltars.mirror import Publication, Publisher, Reconciler
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
from deltars.store.mirror.status import MirrorState
from tests.mirror.ledger import Ledger, added, version_names

MINUTE_US = 60_000_000


def test_pending_versions_are_published_in_order(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    for _ in range(44):
        ledger.append(table)
    outcome = publisher.publish_pending(table)
    assert (outcome.publication, outcome.published_version) == (Publication.PUBLISHED, 44)
    assert ledger.log_of("t") == version_names(45)
    digests = [sha256(ledger.version_file("t", v).read_bytes()).hexdigest() for v in range(45)]
    assert ledger.mirror_log(table) == list(enumerate(digests))
    status = publisher.status.read(table)
    assert (status.published_version, status.state) == (44, MirrorState.ACTIVE)
    assert (status.lease_owner, status.lease_until, status.attempts) == (None, None, 0)


def test_nothing_pending_is_published_already(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    publisher.publish_pending(table)
    before = publisher.status.read(table)
    assert publisher.publish_pending(table).publication is Publication.PUBLISHED
    assert publisher.status.read(table).published_version == before.published_version


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("at_once", [2, 10_000])
def test_every_kind_of_action_is_published_as_it_was_committed_and_in_its_order(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("deltars.store.read.committed_versions.FILES_AT_ONCE", at_once)
    monkeypatch.setattr("deltars.mirror.files.commit.ACTIONS_AT_ONCE", at_once)
    fields = ",".join(
        f'{{"name":"{name}","type":"string","nullable":true,"metadata":{{}}}}' for name in ("day", "city", "x")
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
    vector = DeletionVector(storage_type="u", path_or_inline_dv="ab^-a", offset=1, size_in_bytes=4, cardinality=2)
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
        RemoveFile(path="2.parquet", data_change=False, extended_file_metadata=True, partition_values=nowhere, size=1),
        added("4.parquet", partition_values=nowhere),
    ]
    table = ledger.create_table("t", create)
    ledger.commit({table: actions})
    publisher.publish_pending(table)
    assert decode_commit(ledger.version_file("t", 0).read_bytes())[1:] == create
    assert decode_commit(ledger.version_file("t", 1).read_bytes())[1:] == actions
    ledger.forget_publication(table)
    assert publisher.publish_pending(table).publication is Publication.PUBLISHED
    ledger.version_file("t", 1).write_bytes(b"{}")
    ledger.forget_publication(table)
    assert publisher.publish_pending(table).publication is Publication.FAILED
    assert ledger.version_file("t", 1).read_bytes() == b"{}"


def test_outside_reader_sees_the_data_and_the_commit_times(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    publisher.publish_pending(table)
    for version in (1, 2):
        data = ledger.warehouse / "t" / f"{version}.parquet"
        pq.write_table(pa.table({"id": [version]}), data)
        ledger.commit({table: [added(data.name, size=data.stat().st_size)]})
    publisher.publish_pending(table)
    times = [commit.in_commit_timestamp for commit in publisher.status.pending(table, after=-1, limit=10)]
    reader = DeltaTable(ledger.warehouse / "t")
    assert reader.version() == 2
    rows = QueryBuilder().register("t", reader).execute("select id from t order by id").read_all()
    assert pa.table(rows).column("id").to_pylist() == [1, 2]
    assert [entry["timestamp"] for entry in reader.history()] == times[::-1]
    written = [ledger.version_file("t", version).stat().st_mtime_ns for version in range(3)]
    assert written == [time_ms * 1_000_000 for time_ms in times]


def test_file_left_by_a_crash_before_the_status_was_written_is_recognised(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    ledger.append(table, "a.parquet", "b.parquet")
    publisher.publish_pending(table)
    first, *rest = ledger.version_file("t", 1).read_bytes().splitlines(keepends=True)
    theirs = b"".join([first, *reversed(rest)])
    ledger.version_file("t", 1).write_bytes(theirs)

    second = ledger.create_table("other")
    shutil.copytree(ledger.warehouse / "t", ledger.warehouse / "other", dirs_exist_ok=True)
    assert publisher.publish_pending(second).publication is Publication.FAILED  # another table's commit is not ours

    ledger.forget_publication(table)
    assert publisher.publish_pending(table).publication is Publication.PUBLISHED
    assert ledger.version_file("t", 1).read_bytes() == theirs
    assert ledger.mirror_log(table)[1] == (1, sha256(theirs).hexdigest())


def test_foreign_file_at_our_version_stops_the_table_and_is_not_overwritten(
    ledger: Ledger, publisher: Publisher
) -> None:
    table = ledger.create_table("t")
    publisher.publish_pending(table)
    ledger.append(table)
    ledger.append(table)
    foreign = b'{"commitInfo":{"operation":"WRITE","engineInfo":"other"}}\n'
    ledger.version_file("t", 1).write_bytes(foreign)

    outcome = publisher.publish_pending(table)
    assert outcome.publication is Publication.FAILED
    assert outcome.published_version == 0
    assert isinstance(outcome.failure, MirrorFailure)
    assert (outcome.failure.table, outcome.failure.version) == ("t", 1)
    assert "00000000000000000001.json" in outcome.failure.error
    assert publisher.status.read(table).state is MirrorState.DIVERGED
    assert publisher.status.read(table).lease_owner is None

    again = publisher.publish_pending(table)
    assert again.publication is Publication.FAILED
    assert again.failure is not None
    assert again.failure.error == outcome.failure.error
    assert publisher.status.due() == []
    assert ledger.version_file("t", 1).read_bytes() == foreign
    assert ledger.log_of("t") == version_names(2)


def test_storage_failure_is_noted_backs_off_and_is_repaired(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    (ledger.warehouse / "t").mkdir(parents=True)
    obstacle = ledger.warehouse / "t" / "_delta_log"
    obstacle.write_bytes(b"in the way")
    for attempt, pause_us in ((1, 1_000_000), (2, 2_000_000), (3, 4_000_000)):
        before = publisher.status.read(table).now
        outcome = publisher.publish_pending(table)
        assert outcome.publication is Publication.FAILED
        assert outcome.failure is not None
        assert (outcome.failure.version, outcome.failure.table_id) == (0, str(table))
        status = publisher.status.read(table)
        assert (status.state, status.attempts) == (MirrorState.FAILED, attempt)
        assert status.last_error == outcome.failure.error
        assert status.lease_owner is None
        assert status.next_attempt_at is not None
        assert before + pause_us <= status.next_attempt_at <= status.now + pause_us
    ledger.set_status(table, next_attempt_at=status.now + MINUTE_US)
    assert publisher.status.due() == []

    obstacle.unlink()
    ledger.set_status(table, next_attempt_at=1)
    assert publisher.status.due() == [table]
    assert publisher.publish_pending(table).publication is Publication.PUBLISHED
    status = publisher.status.read(table)
    assert (status.state, status.attempts, status.last_error, status.next_attempt_at) == (
        MirrorState.ACTIVE, 0, None, None,
    )  # fmt: skip


def test_dropped_table_is_left_alone(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    ledger.registry.drop(table)
    assert publisher.publish_pending(table).publication is Publication.PUBLISHED
    assert publisher.status.due() == []
    assert not (ledger.warehouse / "t").exists()


def test_table_is_entered_in_the_warehouse_registry(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("my table")
    publisher.publish_pending(table)
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


def test_version_map_of_a_transaction_appears_with_its_last_table(ledger: Ledger, publisher: Publisher) -> None:
    tables = sorted(ledger.create_table(name) for name in ("a", "b", "c"))
    ledger.append(tables[1])
    versions = ledger.commit({table: [added("x.parquet")] for table in tables}).versions
    maps = ledger.warehouse / "_deltars" / "txns"
    publisher.publish_pending(tables[0])
    publisher.publish_pending(tables[1])
    assert not maps.exists()
    publisher.publish_pending(tables[2])
    (file,) = maps.iterdir()
    document = json.loads(file.read_text())
    assert file.stem == document["txnId"]
    assert [(entry["tableId"], entry["version"]) for entry in document["tables"]] == [
        (str(table), versions[table]) for table in tables
    ]
    info = json.loads((Path(document["tables"][0]["location"]) / "_delta_log" / f"{1:020}.json").open().readline())
    assert info["commitInfo"]["txnId"] == document["txnId"]
    assert info["commitInfo"]["commitTs"] == document["commitTs"]
    assert info["commitInfo"]["participants"] == {str(table): versions[table] for table in tables}


def test_log_whose_directory_was_moved_away_is_not_begun_anew(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    ledger.append(table)
    assert publisher.publish_pending(table).publication is Publication.PUBLISHED
    home = ledger.warehouse / "t"
    home.rename(home.with_name("elsewhere"))

    ledger.append(table)
    outcome = publisher.publish_pending(table)
    assert outcome.publication is Publication.FAILED
    assert "the published version 1 is missing" in str(outcome.failure)
    assert "moved, deleted or unmounted" in str(outcome.failure)
    done = Reconciler(ledger.database, publisher).once()
    assert (done.repairs, len(done.errors)) == ([], 1)
    assert not home.exists()

    home.with_name("elsewhere").rename(home)
    ledger.set_status(table, next_attempt_at=1)
    assert publisher.publish_pending(table).publication is Publication.PUBLISHED
    assert ledger.files_of("t", "*.json") == [f"{version:020}.json" for version in range(3)]
