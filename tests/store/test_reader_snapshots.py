"""Snapshots: a table at a version or a time, opened by one look-up, its contents fetched when they are asked for."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import delete

import deltars
from deltars.errors import TableNotFound, TimestampTooEarly, ValidationError, VersionNotFound
from deltars.log.commit import RowGroup
from deltars.log.snapshot import FILE_SCHEMA, ROW_GROUP_SCHEMA, Snapshot
from deltars.protocol import DomainMetadata, Txn
from deltars.store.schema import dl_table_versions
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, metadata, removed, row_groups, stats, vector
from tests.support.tap import Tap


@pytest.fixture
def reader(log: Log) -> deltars.SqlTxnLogReader:
    return deltars.SqlTxnLogReader(log.catalog)


def paths(snapshot: Snapshot, **options: Any) -> list[str]:
    found: list[str] = snapshot.select_files(columns=["path"], **options)["path"].to_pylist()
    return sorted(found)


def moment(log: Log, version: int) -> datetime:
    """The in-commit timestamp of a version."""
    query = f"SELECT in_commit_timestamp FROM dl_table_versions WHERE table_id = ? AND version = {version}"
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=log.one(query))


# -- which version -----------------------------------------------------------------------------------------------------


def test_snapshot_is_of_the_current_version_unless_another_is_asked_for(
    log: Log, reader: deltars.SqlTxnLogReader
) -> None:
    log.append("a")
    log.commit([added("b"), removed("a")])
    assert reader.current_version(log.table_id) == 2
    assert [(s.version, paths(s)) for s in (reader.snapshot(log.table_id), reader.snapshot(log.table_id, 2))] == [
        (2, ["b"]),
        (2, ["b"]),
    ]
    assert paths(reader.snapshot(log.table_id, 1)) == ["a"]
    assert paths(reader.snapshot(str(log.table_id), 0)) == []


def test_metadata_and_protocol_are_those_of_the_version(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.append("a")
    log.commit([metadata("id BIGINT, name STRING, day DATE", configuration={"owner": "me"})])
    log.append("b")
    assert reader.snapshot(log.table_id, 1).schema.names == ("id", "name")
    assert reader.snapshot(log.table_id, 1).metadata.configuration == {}
    for version in (2, 3):
        snapshot = reader.snapshot(log.table_id, version)
        assert snapshot.schema.names == ("id", "name", "day")
        assert snapshot.metadata.configuration == {"owner": "me"}
        assert snapshot.protocol == reader.snapshot(log.table_id, 0).protocol
        assert snapshot.timestamp == moment(log, version)


def test_timestamp_means_the_last_version_that_is_not_later(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    for number in range(5):
        log.append(f"{number}")
    at = [moment(log, version) for version in range(6)]
    for version, when in enumerate(at):
        assert reader.snapshot(log.table_id, timestamp=when).version == version
        assert reader.snapshot(log.table_id, timestamp=when + timedelta(microseconds=999)).version == version
        if version:
            assert reader.snapshot(log.table_id, timestamp=when - timedelta(microseconds=1)).version == version - 1
    assert reader.snapshot(log.table_id, timestamp=at[5] + timedelta(days=1000)).version == 5


def test_timestamp_is_a_datetime_of_any_zone_or_its_text(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.append("a")
    log.append("b")
    when = moment(log, 1)
    for same in (
        when.replace(tzinfo=None),
        when.astimezone(timezone(timedelta(hours=5, minutes=30))),
        when.isoformat(),
        when.isoformat().replace("+00:00", "Z"),
        when.replace(tzinfo=None).isoformat(sep=" "),
    ):
        assert reader.snapshot(log.table_id, timestamp=same).version == 1


def test_versions_of_one_millisecond_have_times_of_their_own(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    for number in range(20):
        log.append(f"{number}")
    found = [reader.snapshot(log.table_id, timestamp=moment(log, version)).version for version in range(21)]
    assert found == list(range(21))


# -- what is not there ------------------------------------------------------------------------------------------------


def test_table_version_and_time_that_are_not_there_are_errors_of_their_own(
    log: Log, reader: deltars.SqlTxnLogReader
) -> None:
    log.append("a")
    nobody = uuid4()
    for ask in (reader.snapshot, reader.current_version, reader.history):
        with pytest.raises(TableNotFound) as unknown:
            ask(nobody)
        assert unknown.value.table_id == str(nobody)
    for version in (2, 99, -1):
        with pytest.raises(VersionNotFound, match=f"there is no version {version} .*versions 0 to 1") as missing:
            reader.snapshot(log.table_id, version)
        assert (missing.value.earliest, missing.value.latest) == (0, 1)
    first = moment(log, 0)
    with pytest.raises(TimestampTooEarly, match=r"Its first version, 0, was committed at") as early:
        reader.snapshot(log.table_id, timestamp=first - timedelta(milliseconds=1))
    assert early.value.earliest == first
    assert isinstance(early.value, ValidationError)


def test_registered_table_has_no_version_to_show(open_log: OpenLog) -> None:
    log = open_log()
    reader = deltars.SqlTxnLogReader(log.catalog)
    assert reader.current_version(log.table_id) == -1
    assert reader.history(log.table_id) == []
    asked: list[dict[str, Any]] = [{}, {"version": 0}, {"timestamp": datetime.now(UTC)}]
    for options in asked:
        with pytest.raises(VersionNotFound, match="nothing was committed to the table yet"):
            reader.snapshot(log.table_id, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 0, "timestamp": "2026-01-01"}, "exclude each other"),
        ({"timestamp": "yesterday"}, "'yesterday' is not a time"),
        ({"timestamp": 0}, "a time is a datetime or its text, not 0"),
        ({"version": "abc"}, r"a version is a whole number, not 'abc'.*A time goes to timestamp="),
        ({"version": 1.5}, r"a version is a whole number, not 1\.5"),
        ({"version": True}, "a version is a whole number, not True"),
        ({"version": 2**63}, "a version is a whole number, not 9223372036854775808"),
    ],
)
@pytest.mark.backends("sqlite")
def test_question_that_makes_no_sense_is_refused(
    log: Log, reader: deltars.SqlTxnLogReader, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        reader.snapshot(log.table_id, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": -1}, "limit must be 0 or more, got -1.*Leave limit out"),
        ({"limit": "x"}, "a limit is a whole number, not 'x'.*Leave limit out"),
        ({"limit": True}, "a limit is a whole number, not True"),
        ({"limit": 2**70}, "a limit is a whole number"),
        ({"since": 1.5}, r"a version is a whole number, not 1\.5"),
        ({"since": False}, "a version is a whole number, not False"),
        ({"since": "yesterday"}, "'yesterday' is not a time"),
    ],
)
@pytest.mark.backends("sqlite")
def test_history_that_makes_no_sense_is_refused(
    log: Log, reader: deltars.SqlTxnLogReader, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        reader.history(log.table_id, **options)


def test_number_of_another_library_is_a_version(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.append("a")
    first = np.int64(1)
    assert reader.snapshot(log.table_id, first).version == 1  # type: ignore[arg-type]
    assert [entry.version for entry in reader.history(log.table_id, limit=first, since=first)] == [1]  # type: ignore[arg-type]
    assert [change.version for change in reader.changes(log.table_id, first, first)] == [1]  # type: ignore[arg-type]
    assert reader.history(log.table_id, limit=0) == []


@pytest.mark.backends("sqlite")
def test_what_is_no_table_id_is_refused(reader: deltars.SqlTxnLogReader) -> None:
    with pytest.raises(ValidationError, match="'events' is not a table id"):
        reader.snapshot("events")


# -- contents ---------------------------------------------------------------------------------------------------------


def test_opening_asks_one_statement_and_no_file(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    log.append("a")
    reader = deltars.SqlTxnLogReader(log.catalog)
    reader.snapshot(log.table_id)
    with tap.recording() as seen:
        snapshot = reader.snapshot(log.table_id)
        assert (snapshot.version, snapshot.schema.names) == (1, ("id", "name"))
    assert sum("dl_tables" in statement for statement in seen) == 1
    assert not any("dl_add_files" in statement for statement in seen)
    with tap.recording() as seen:
        assert snapshot.files.num_rows == 1
        assert snapshot.files.num_rows == 1
    assert sum("dl_add_files" in statement for statement in seen) <= 2


def test_files_have_every_field_of_their_action(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    whole = added(
        "day=%C3%A9/ä'b,%22x.parquet",
        partition_values={"b": None, "a": 'é "\\', "c": ""},
        size=2**53 + 1,
        modification_time=1_767_225_600_123,
        stats='{"numRecords":3,"minValues":{"name":"\\u0000\\\\"},"x":1.797e308}',
        tags={"k": "v\n,", "n": None},
        deletion_vector=vector(7),
        data_change=False,
        clustering_provider="",
    )
    log.commit([metadata("id BIGINT, name STRING, a STRING, b STRING, c STRING", partition_columns=["a", "b", "c"])])
    log.commit([whole])
    table = reader.snapshot(log.table_id).files
    assert table.schema == FILE_SCHEMA
    [file] = table.to_pylist()
    for name in ("partition_values", "tags", "deletion_vector"):
        file[name] = msgspec.json.decode(file[name])
    assert file == {
        "path": whole.path,
        "size": whole.size,
        "partition_values": {"b": None, "a": 'é "\\', "c": ""},
        "stats": whole.stats,
        "modification_time": whole.modification_time,
        "data_change": False,
        "deletion_vector": msgspec.to_builtins(whole.deletion_vector),
        "tags": {"k": "v\n,", "n": None},
        "base_row_id": None,
        "default_row_commit_version": None,
        "clustering_provider": "",
        "num_records": 3,
        "version": 2,
    }


def test_columns_can_be_chosen_and_come_in_that_order(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.commit([added("a", size=1), added("b", size=2)])
    snapshot = reader.snapshot(log.table_id)
    chosen = snapshot.select_files(columns=["size", "path"]).sort_by("size")
    assert chosen.schema.names == ["size", "path"]
    assert chosen.to_pydict() == {"size": [1, 2], "path": ["a", "b"]}
    with pytest.raises(ValidationError, match=r"no column 'bytes'.*It has: path, size"):
        snapshot.select_files(columns=["bytes"])
    for where in (None, "id = 1"):
        with pytest.raises(ValidationError, match=r"columns is empty.*Omit it"):
            snapshot.select_files(columns=[], where=where)
        with pytest.raises(ValidationError, match="duplicate column 'path'"):
            snapshot.select_files(columns=["path", "size", "path"], where=where)


def test_files_without_a_value_are_listed_when_it_is_all_that_is_asked_for(
    log: Log, reader: deltars.SqlTxnLogReader
) -> None:
    log.commit([added("a"), added("b", stats=stats(3)), added("c")])
    snapshot = reader.snapshot(log.table_id)
    assert sorted(snapshot.select_files(columns=["num_records"])["num_records"].to_pylist(), key=str) == [3, None, None]
    assert snapshot.select_files(columns=["stats"]).num_rows == 3
    assert snapshot.select_files(columns=["tags"])["tags"].to_pylist() == [None] * 3


def test_statistics_may_be_longer_than_a_block_of_rows(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    long = json.dumps({"numRecords": 1, "minValues": {"name": "x" * 3_000_000}})
    log.commit([added("a"), added("b", stats=long)])
    found = reader.snapshot(log.table_id).select_files(columns=["stats"])["stats"].to_pylist()
    assert sorted(found, key=str) == sorted([None, long], key=str)


def test_table_without_files_is_an_empty_arrow_table(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    snapshot = reader.snapshot(log.table_id)
    assert (snapshot.files.num_rows, snapshot.files.schema) == (0, FILE_SCHEMA)
    assert (snapshot.row_groups().num_rows, snapshot.row_groups().schema) == (0, ROW_GROUP_SCHEMA)
    assert list(snapshot.file_batches()) == []
    assert (snapshot.totals.num_files, snapshot.totals.size_bytes, snapshot.totals.num_records) == (0, 0, 0)


def test_files_come_as_a_stream_that_may_be_left(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.commit(_many(25_000))
    snapshot = reader.snapshot(log.table_id)
    batches = list(snapshot.file_batches(columns=["path"]))
    assert sum(batch.num_rows for batch in batches) == 25_000
    leaving: Iterator[pa.RecordBatch] = snapshot.file_batches()
    assert next(leaving).num_rows > 0
    leaving.close()  # type: ignore[attr-defined]
    assert log.append("after").version == 2
    assert len(paths(snapshot)) == 25_000


def test_files_fetched_late_are_those_of_the_snapshot(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.commit([added("a", size=1), added("b"), added("c")])
    snapshot = reader.snapshot(log.table_id)
    log.commit([removed("b"), added("a", size=2), added("d")])
    log.commit([removed("a"), removed("c")])
    files = snapshot.select_files(columns=["path", "size", "version"]).sort_by("path")
    assert files.to_pydict() == {"path": ["a", "b", "c"], "size": [1, 10, 10], "version": [1, 1, 1]}
    assert paths(reader.snapshot(log.table_id)) == ["d"]


def test_progress_is_the_latest_seen_of_each_application(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.commit([Txn(app_id="a", version=5, last_updated=1), Txn(app_id="b", version=1)])
    log.commit([Txn(app_id="a", version=3)])
    log.append("file")
    assert reader.snapshot(log.table_id, 0).txns == {}
    assert reader.snapshot(log.table_id, 1).txns == {
        "a": Txn(app_id="a", version=5, last_updated=1),
        "b": Txn(app_id="b", version=1),
    }
    newest = reader.snapshot(log.table_id).txns
    assert {name: txn.version for name, txn in newest.items()} == {"a": 3, "b": 1}


def test_removed_domain_is_gone_until_it_is_set_again(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    first = DomainMetadata(domain="d", configuration="1", removed=False)
    other = DomainMetadata(domain="e", configuration="x", removed=False)
    again = DomainMetadata(domain="d", configuration="2", removed=False)
    log.commit([first, other])
    log.commit([DomainMetadata(domain="d", configuration="1", removed=True)])
    log.commit([again])
    domains = [dict(reader.snapshot(log.table_id, version).domains) for version in range(4)]
    assert domains == [{}, {"d": first, "e": other}, {"e": other}, {"d": again, "e": other}]


def test_totals_are_summed_up_at_the_version(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.commit([added("a", size=2**40, stats=stats(7)), added("b", size=1, stats=stats(5))])
    log.commit([removed("a"), added("c", size=3)])
    first, second = (reader.snapshot(log.table_id, version).totals for version in (1, 2))
    assert (first.num_files, first.size_bytes, first.num_records) == (2, 2**40 + 1, 12)
    assert (second.num_files, second.size_bytes, second.num_records) == (2, 4, None)


def test_row_groups_are_those_of_the_live_files(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    groups = [*row_groups("a"), *row_groups("b", 1)]
    log.commit_data([added("a", stats=stats(10)), added("b", stats=stats(5))], row_groups=groups)
    log.commit([removed("a")])
    before, now = (reader.snapshot(log.table_id, version).row_groups() for version in (1, 2))
    assert before.schema == ROW_GROUP_SCHEMA
    assert [(row["path"], row["row_group"]) for row in before.to_pylist()] == [("a", 0), ("a", 1), ("b", 0)]
    assert now.to_pylist() == [
        {
            "path": "b",
            "row_group": 0,
            "num_rows": 5,
            "total_bytes": 100,
            "file_offset": 4,
            "stats": stats(5),
            "partition_values": "{}",
        }
    ]


def test_where_keeps_what_may_match_and_nothing_else(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    def between(path: str, low: int, high: int) -> Any:
        text = f'{{"numRecords":2,"minValues":{{"id":{low}}},"maxValues":{{"id":{high}}},"nullCount":{{"id":0}}}}'
        return added(path, stats=text), [
            RowGroup(path, 0, 1, 10, 4, text.replace(f'"maxValues":{{"id":{high}', f'"maxValues":{{"id":{low}')),
            RowGroup(path, 1, 1, 10, 14, text.replace(f'"minValues":{{"id":{low}', f'"minValues":{{"id":{high}')),
        ]

    made = [between("a", 0, 9), between("b", 10, 19), between("c", 20, 29)]
    unknown = added("d")
    log.commit_data([*(file for file, _ in made), unknown], row_groups=[group for _, both in made for group in both])
    snapshot = reader.snapshot(log.table_id)
    assert paths(snapshot, where="id = 15") == ["b", "d"]
    assert paths(snapshot, where="id >= 10 AND name IS NOT NULL") == ["b", "c", "d"]
    assert snapshot.select_files(where="id > 100", columns=["size", "path"]).to_pydict() == {
        "size": [10],
        "path": ["d"],
    }
    groups = snapshot.row_groups(where="id = 10").to_pylist()
    assert [(group["path"], group["row_group"]) for group in groups] == [("b", 0)]
    with pytest.raises(ValidationError, match="nobody"):
        snapshot.select_files(where="nobody = 1")


def test_snapshot_pickles_without_what_it_fetched(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.append("a")
    snapshot = reader.snapshot(log.table_id)
    assert snapshot.files.num_rows == 1
    again = pickle.loads(pickle.dumps(snapshot))
    assert again == snapshot
    assert "files" not in vars(again)
    assert paths(again) == ["a"]


def _many(count: int) -> pa.Table:
    return pa.table(
        {
            "path": [f"part-{number:06}.parquet" for number in range(count)],
            "partition_values": ["{}"] * count,
            "size": pa.array(range(count), pa.int64()),
            "modification_time": pa.array([0] * count, pa.int64()),
            "data_change": [True] * count,
            "stats": [f'{{"numRecords":{number}}}' for number in range(count)],
        }
    )


# -- history ----------------------------------------------------------------------------------------------------------


def test_history_can_be_cut_by_number_version_and_time(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    for number in range(4):
        log.append(f"{number}", committer=f"c{number}")

    def versions(**options: Any) -> list[int]:
        return [entry.version for entry in reader.history(log.table_id, **options)]

    assert versions() == [4, 3, 2, 1, 0]
    assert versions(limit=2) == [4, 3]
    assert versions(since=3) == [4, 3]
    assert versions(since=99) == []
    assert versions(since=1, limit=2) == [4, 3]
    at = moment(log, 2)
    assert versions(since=at) == [4, 3, 2]
    assert versions(since=at + timedelta(microseconds=1)) == [4, 3]
    assert versions(since=at - timedelta(days=400)) == [4, 3, 2, 1, 0]
    assert versions(since=(at + timedelta(days=400)).isoformat()) == []
    newest = reader.history(log.table_id, limit=1)[0]
    assert (newest.operation, newest.committer) == ("WRITE", "c3")


@pytest.mark.backends("sqlite")
def test_history_of_a_dropped_table_stays(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    log.append("a")
    log.catalog.drop_table(log.name)
    assert [entry.version for entry in reader.history(log.table_id)] == [1, 0]
    assert paths(reader.snapshot(log.table_id)) == ["a"]


def test_log_may_begin_later_than_version_0(log: Log, reader: deltars.SqlTxnLogReader) -> None:
    """As that of a table that was imported after its old versions were cleaned up."""
    log.append("a")
    with log.catalog._session.database.write(60) as connection:
        connection.execute(delete(dl_table_versions).where(dl_table_versions.c.version == 0))
    assert paths(reader.snapshot(log.table_id)) == ["a"]
    with pytest.raises(VersionNotFound, match="versions 1 to 1") as missing:
        reader.snapshot(log.table_id, 0)
    assert missing.value.earliest == 1
    with pytest.raises(TimestampTooEarly, match="Its first version, 1, "):
        reader.snapshot(log.table_id, timestamp="2001-01-01")


def test_table_shows_its_snapshots_history_and_detail(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, day DATE", partition_by=["day"], properties={"owner": "me"})
    rows = pa.table({"id": [1, 2, 3], "day": pa.array([0, 0, 1], pa.date32())})
    catalog.write("t", rows)
    first, second = table.history(since=0)[1], table.history(limit=1)[0]
    assert table.snapshot(timestamp=datetime.fromtimestamp(first.in_commit_timestamp / 1000, UTC)).version == 0
    assert [entry.version for entry in table.history(since=1)] == [1]
    detail = table.detail()
    assert (detail.id, detail.name, detail.location, detail.version) == (table.id, "t", table.location, 1)
    assert (detail.num_files, detail.num_records, detail.partition_columns) == (2, 3, ("day",))
    assert detail.size_bytes == sum(table.snapshot().files["size"].to_pylist())
    assert detail.properties["owner"] == "me"
    assert (detail.min_reader_version, detail.min_writer_version) == (1, 7)
    assert "inCommitTimestamp" in detail.table_features
    assert int(detail.last_modified.timestamp() * 1000) == second.in_commit_timestamp
