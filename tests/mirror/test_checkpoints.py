"""Checkpoints and checksums: what is in them, when they are written, and that other readers rely on them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from deltars.mirror import Publisher
from deltars.mirror.files.checkpoint import is_due, write_checkpoint
from deltars.mirror.files.last_checkpoint import parse_last_checkpoint
from deltars.protocol import (
    Action,
    CdcFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    RemoveFile,
    Txn,
    protocol_of,
    schema_from_ddl,
)
from deltars.protocol.log_files import LAST_CHECKPOINT
from deltars.storage import open_storage
from deltars.store.mirror import checkpoint_state
from deltars.store.mirror.checkpoint_state import CheckpointRows
from tests.mirror.ledger import Ledger, added

FEATURES = ("appendOnly", "invariants", "inCommitTimestamp", "deltars.sqlManaged", "domainMetadata", "changeDataFeed")
WEEK_MS = 7 * 86_400_000


def creation(ddl: str = "id BIGINT", partition_columns: tuple[str, ...] = (), **properties: str) -> list[Action]:
    configuration = {"delta.enableInCommitTimestamps": "true"} | {
        f"delta.{name.replace('__', '.')}": value for name, value in properties.items()
    }
    schema = schema_from_ddl(ddl)
    return [
        protocol_of((*FEATURES, "timestampNtz") if "TIMESTAMP_NTZ" in ddl else FEATURES),
        Metadata(
            id="m",
            schema_string=schema.to_json(),
            partition_columns=list(partition_columns),
            configuration=configuration,
        ),
    ]


def removed(path: str, deleted_at: int | None, **fields: Any) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_timestamp=deleted_at, **fields)


def checkpoint(ledger: Ledger, version: int, name: str = "t") -> list[dict[str, Any]]:
    """The rows, each with the one action that it has."""
    path = ledger.warehouse / name / "_delta_log" / f"{version:020}.checkpoint.parquet"
    rows = pq.read_table(path).to_pylist(maps_as_pydicts="strict")
    return [{kind: action for kind, action in row.items() if action is not None} for row in rows]


def actions(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row[kind] for row in rows if kind in row]


def last_checkpoint(ledger: Ledger, name: str = "t") -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ledger.warehouse / name / "_delta_log" / "_last_checkpoint").read_text())
    return document


def now_ms(publisher: Publisher, table: UUID) -> int:
    return publisher.status.read(table).now // 1000


def test_every_tenth_version_gets_a_checkpoint_and_the_hint_points_to_the_last(
    ledger: Ledger, publisher: Publisher
) -> None:
    table = ledger.create_table("t")
    for _ in range(25):
        ledger.append(table)
        publisher.publish_pending(table)
    assert ledger.files_of("t", "*.checkpoint.parquet") == [f"{v:020}.checkpoint.parquet" for v in (10, 20)]
    hint = last_checkpoint(ledger)
    assert (hint["version"], hint["size"], hint["numOfAddFiles"]) == (20, 22, 20)
    size = (ledger.warehouse / "t" / "_delta_log" / f"{20:020}.checkpoint.parquet").stat().st_size
    assert hint["sizeInBytes"] == size
    assert publisher.status.read(table).lease_owner is None


def test_backlog_gets_one_checkpoint_of_its_end(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    for _ in range(34):
        ledger.append(table)
    publisher.publish_pending(table)
    assert ledger.files_of("t", "*.checkpoint.parquet") == [f"{34:020}.checkpoint.parquet"]
    assert last_checkpoint(ledger)["version"] == 34


@pytest.mark.backends("sqlite")
def test_interval_is_the_tables_or_the_catalogs(ledger: Ledger) -> None:
    own = ledger.create_table("own", creation(checkpointInterval="3"))
    odd = ledger.create_table("odd", creation(checkpointInterval="never"))
    for publisher, table, name, versions in (
        (Publisher(ledger.database), own, "own", [3, 6]),
        (Publisher(ledger.database, checkpoint_interval=4), odd, "odd", [4]),
    ):
        for _ in range(6):
            ledger.append(table)
            publisher.publish_pending(table)
        assert ledger.files_of(name, "*.checkpoint.parquet") == [f"{v:020}.checkpoint.parquet" for v in versions]


def test_due_is_a_multiple_of_the_interval_among_what_was_published() -> None:
    assert [after for after in range(1, 40) if is_due(after - 1, after, 10)] == [10, 20, 30]
    assert is_due(-1, 10, 10)
    assert not is_due(-1, 9, 10)
    assert not is_due(10, 19, 10)
    assert is_due(9, 35, 10)


def test_checkpoint_holds_the_state_and_no_more(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t", creation())
    now = now_ms(publisher, table)
    ledger.commit({table: [added(f"{i}.parquet", size=i, stats=f'{{"numRecords":{i}}}') for i in range(6)]})
    ledger.commit(
        {
            table: [
                Txn(app_id="a", version=7, last_updated=1),
                Txn(app_id="b", version=1),
                DomainMetadata(domain="kept", configuration="1", removed=False),
                DomainMetadata(domain="gone", configuration="1", removed=False),
                CdcFile(path="_change_data/c.parquet", partition_values={}, size=1),
            ]
        }
    )
    ledger.commit(
        {
            table: [
                Txn(app_id="a", version=5),
                DomainMetadata(domain="kept", configuration="2", removed=False),
                DomainMetadata(domain="gone", configuration="", removed=True),
                removed("0.parquet", now, partition_values={}, size=0, extended_file_metadata=True),
                removed("1.parquet", now - 2 * WEEK_MS),
                removed("2.parquet", now),
                removed("3.parquet", None),
            ]
        }
    )
    ledger.commit({table: [added("2.parquet", size=22, tags={"k": None, "l": "v"})]})
    publisher.publish_pending(table)
    storage = publisher.storage_at(publisher.status.read(table).location)
    write_checkpoint(storage, CheckpointRows(ledger.database).at(table, 4))
    rows = checkpoint(ledger, 4)
    assert all(len(row) == 1 for row in rows)
    [protocol], [metadata] = actions(rows, "protocol"), actions(rows, "metaData")
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"], protocol["readerFeatures"]) == (1, 7, None)
    assert set(protocol["writerFeatures"]) == set(FEATURES)
    assert metadata["id"] == "m"
    assert metadata["format"] == {"provider": "parquet", "options": {}}
    assert metadata["configuration"] == {"delta.enableInCommitTimestamps": "true"}
    assert actions(rows, "txn") == [
        {"appId": "a", "version": 5, "lastUpdated": None},
        {"appId": "b", "version": 1, "lastUpdated": None},
    ]
    assert actions(rows, "domainMetadata") == [{"domain": "kept", "configuration": "2", "removed": False}]
    [tombstone] = actions(rows, "remove")
    assert (tombstone["path"], tombstone["deletionTimestamp"], tombstone["size"]) == ("0.parquet", now, 0)
    adds = {add["path"]: add for add in actions(rows, "add")}
    assert sorted(adds) == ["2.parquet", "4.parquet", "5.parquet"]
    assert adds["4.parquet"]["stats"] == '{"numRecords":4}'
    assert not adds["4.parquet"]["dataChange"]
    assert adds["2.parquet"]["size"] == 22
    assert adds["2.parquet"]["tags"] == {"k": None, "l": "v"}
    assert len(rows) == 2 + 2 + 1 + 1 + 3


def test_checkpoint_is_the_same_whether_its_files_come_at_once_or_streamed(
    ledger: Ledger, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, metadata = creation("id BIGINT, day STRING", ("day",), checkpointInterval="2")
    table = ledger.create_table("t", [protocol_of((*FEATURES, "deletionVectors")), metadata])
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", size_in_bytes=4, cardinality=2
    )
    kept = [
        added("é%20.parquet", partition_values={"day": "é"}, tags={"a": "1", "b": None}, stats='{"numRecords":1}'),
        added("no-stats.parquet", partition_values={"day": None}),
        added("vector.parquet", partition_values={"day": "2"}, stats='{"numRecords":3}', deletion_vector=vector),
    ]
    contents = []
    ledger.commit({table: [*kept, added("gone.parquet", partition_values={"day": "3"})]})
    for number, most in enumerate((1000, 4, 3, 0)):
        monkeypatch.setattr(checkpoint_state, "SMALL_FILES", most)
        fresh = Publisher(ledger.database)
        if number == 2:
            ledger.commit({table: [removed("gone.parquet", now_ms(publisher, table))]})
        else:
            ledger.commit({table: [Txn(app_id="a", version=1)]})
        last = ledger.commit({table: [Txn(app_id="a", version=1)]}).versions[table]
        fresh.publish_pending(table)
        rows = checkpoint(ledger, last)
        contents.append(sorted(actions(rows, "add"), key=lambda add: str(add["path"])))
    with_gone, alike, without, streamed = contents
    assert (len(with_gone), len(without)) == (4, 3)
    assert with_gone == alike
    assert without == streamed == [add for add in alike if add["path"] != "gone.parquet"]
    assert [add["path"] for add in without] == sorted(add.path for add in kept)


def test_table_without_files_has_a_checkpoint(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t", creation(checkpointInterval="1"))
    ledger.commit({table: [Txn(app_id="a", version=1)]})
    publisher.publish_pending(table)
    assert [next(iter(row)) for row in checkpoint(ledger, 1)] == ["protocol", "metaData", "txn"]
    assert last_checkpoint(ledger)["numOfAddFiles"] == 0


@pytest.mark.backends("sqlite")
def test_tombstones_are_kept_as_long_as_the_table_says(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t", creation(deletedFileRetentionDuration="interval 2 days"))
    now = now_ms(publisher, table)
    ages = {"young": 1, "old": 3}
    ledger.append(table, *ages)
    ledger.commit({table: [removed(path, now - days * 86_400_000) for path, days in ages.items()]})
    publisher.publish_pending(table)
    write_checkpoint(open_storage(str(ledger.warehouse / "t")), CheckpointRows(ledger.database).at(table, 2))
    assert [remove["path"] for remove in actions(checkpoint(ledger, 2), "remove")] == ["young"]


@pytest.mark.backends("postgres", "sqlite")
def test_statistics_are_structs_where_the_table_asks_for_it(ledger: Ledger, publisher: Publisher) -> None:
    ddl = (
        "id BIGINT, s STRING, d DECIMAL(20,2), t TIMESTAMP, n TIMESTAMP_NTZ, day DATE, x DOUBLE, a ARRAY<INT>,"
        " inner STRUCT<y: INT, z: BOOLEAN>, p DATE, `p 2` INT"
    )
    flags = {"checkpoint__writeStatsAsStruct": "true", "checkpoint__writeStatsAsJson": "false"}
    table = ledger.create_table("t", creation(ddl, ("p", "p 2"), **flags))
    stats = {
        "numRecords": 3,
        "minValues": {
            "id": 1, "s": "a", "d": 1.5, "t": "2024-01-01T00:00:00.000Z", "n": "2024-01-01T00:00:00.000",
            "day": "2024-02-01", "x": "NaN", "inner": {"y": -1},
        },
        "maxValues": {"id": 2**60, "inner": {"y": 9}},
        "nullCount": {"id": 0, "a": 2, "inner": {"y": 1, "z": 3}},
        "tightBounds": True,
    }  # fmt: skip
    values: dict[str, str | None] = {"p": "2024-05-05", "p 2": None}
    ledger.commit({table: [added("1.parquet", partition_values=values, stats=json.dumps(stats))]})
    ledger.commit({table: [added("2.parquet", partition_values={"p": None, "p 2": "4"})]})
    publisher.publish_pending(table)
    write_checkpoint(open_storage(str(ledger.warehouse / "t")), CheckpointRows(ledger.database).at(table, 2))
    one, two = sorted(actions(checkpoint(ledger, 2), "add"), key=lambda add: str(add["path"]))
    assert "stats" not in one
    parsed = one["stats_parsed"]
    assert (parsed["numRecords"], parsed["tightBounds"]) == (3, True)
    assert parsed["minValues"]["d"] == Decimal("1.50")
    assert parsed["minValues"]["t"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert parsed["minValues"]["n"] == datetime(2024, 1, 1)
    assert parsed["minValues"]["day"] == date(2024, 2, 1)
    assert parsed["minValues"]["x"] != parsed["minValues"]["x"]
    assert parsed["minValues"]["inner"] == {"y": -1}
    assert parsed["maxValues"]["id"] == 2**60
    assert parsed["maxValues"]["s"] is None
    assert parsed["nullCount"]["a"] == 2
    assert parsed["nullCount"]["inner"] == {"y": 1, "z": 3}
    assert "p" not in parsed["nullCount"]
    assert one["partitionValues_parsed"] == {"p": date(2024, 5, 5), "p 2": None}
    assert two["partitionValues_parsed"] == {"p": None, "p 2": 4}
    assert two["partitionValues"] == {"p": None, "p 2": "4"}
    assert two["stats_parsed"] is None


def test_reader_needs_no_commit_before_the_checkpoint(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    paths = [f"{number}.parquet" for number in range(12)]
    for path in paths:
        ledger.append(table, path)
        publisher.publish_pending(table)
    for version in range(10):
        ledger.version_file("t", version).unlink()
    reader = DeltaTable(ledger.warehouse / "t")
    assert reader.version() == 12
    assert sorted(pa.table(reader.get_add_actions())["path"].to_pylist()) == sorted(paths)
    assert DeltaTable(ledger.warehouse / "t", version=10).version() == 10


def test_another_programs_checkpoint_in_our_place_is_replaced(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    for _ in range(9):
        ledger.append(table)
    publisher.publish_pending(table)
    file = ledger.warehouse / "t" / "_delta_log" / f"{10:020}.checkpoint.parquet"
    pq.write_table(pa.table({"add": [1]}), file)
    (file.parent / "_last_checkpoint").write_text('{"version":99,"size":1}')
    ledger.append(table)
    publisher.publish_pending(table)
    assert len(actions(checkpoint(ledger, 10), "add")) == 10
    assert last_checkpoint(ledger)["version"] == 10
    ours = file.stat().st_ino
    publisher.checkpointer.write(publisher.storage_at(publisher.status.read(table).location), table, 10, "again")
    assert file.stat().st_ino == ours


def test_older_checkpoint_does_not_take_the_hint_from_a_newer_one(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    for _ in range(20):
        ledger.append(table)
    publisher.publish_pending(table)
    publisher.checkpointer.write(publisher.storage_at(publisher.status.read(table).location), table, 10, "late")
    assert ledger.files_of("t", "*.checkpoint.parquet") == [f"{v:020}.checkpoint.parquet" for v in (10, 20)]
    assert last_checkpoint(ledger)["version"] == 20


def test_hint_that_cannot_be_read_is_none() -> None:
    assert parse_last_checkpoint(None) is None
    assert parse_last_checkpoint(b"\x00") is None
    assert parse_last_checkpoint(b'{"version":"x"}') is None
    foreign = parse_last_checkpoint(b'{"version":3,"size":1,"unknown":{}}')
    assert foreign is not None
    assert (foreign.version, foreign.is_ours) == (3, False)
    assert LAST_CHECKPOINT == "_delta_log/_last_checkpoint"


def test_checksum_adds_up_at_every_version(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t", creation())
    commits: list[list[Action]] = [
        [added("a", size=5), added("b", size=7)],
        [removed("a", 1), removed("not there", 1)],
        [added("b", size=70)],
        [creation("id BIGINT, more STRING")[1], added("c", size=1)],
        [removed("c", 1), added("d", size=2)],
    ]
    expected = [(0, 0), (2, 12), (1, 7), (1, 70), (2, 71), (2, 72)]
    publisher.publish_pending(table)
    for commit in commits:
        ledger.commit({table: commit})
        publisher.publish_pending(table)
    for version, (num_files, size_bytes) in enumerate(expected):
        document = json.loads((ledger.warehouse / "t" / "_delta_log" / f"{version:020}.crc").read_text())
        info = json.loads(ledger.version_file("t", version).open().readline())["commitInfo"]
        assert (document["numFiles"], document["tableSizeBytes"]) == (num_files, size_bytes)
        assert (document["numMetadata"], document["numProtocol"]) == (1, 1)
        assert document["txnId"] == info["txnId"]
        assert document["inCommitTimestampOpt"] == info["inCommitTimestamp"]
        assert ("more" in document["metadata"]["schemaString"]) == (version >= 4)
        assert document["protocol"]["minWriterVersion"] == 7


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("left", ["nothing", "of another commit", "damaged"])
def test_checksum_is_counted_where_nothing_reliable_is_left_to_add_to(
    ledger: Ledger, publisher: Publisher, left: str
) -> None:
    table = ledger.create_table("t")
    ledger.commit({table: [added("a", size=5), added("b", size=7)]})
    publisher.publish_pending(table)
    before: Path = ledger.warehouse / "t" / "_delta_log" / f"{1:020}.crc"
    if left == "of another commit":
        before.write_text(before.read_text().replace('"txnId":"', '"txnId":"0').replace('"numFiles":2', '"numFiles":9'))
    elif left == "damaged":
        before.write_text("{")
    else:
        before.unlink()
    ledger.commit({table: [added("c", size=1)]})
    Publisher(ledger.database).publish_pending(table)
    document = json.loads((ledger.warehouse / "t" / "_delta_log" / f"{2:020}.crc").read_text())
    assert (document["numFiles"], document["tableSizeBytes"]) == (3, 13)


def test_backlog_gets_the_checksum_of_its_end(ledger: Ledger, publisher: Publisher) -> None:
    table = ledger.create_table("t")
    for _ in range(5):
        ledger.append(table)
    publisher.publish_pending(table)
    assert ledger.files_of("t", "*.crc") == [f"{5:020}.crc"]
