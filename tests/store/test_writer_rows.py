"""What a commit leaves in the database: a row for each action, one for the version, and the table moved on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from deltars.log.bounds import HIGHEST, LOWEST
from deltars.protocol import CdcFile, DomainMetadata, RemoveFile, Txn
from deltars.store.schema import dl_add_files
from tests.store.conftest import OpenLog
from tests.support import witness
from tests.support.log import Log, added, creation, every_kind, metadata, protocol, removed, row_groups, stats, vector

SIZES = pytest.mark.parametrize("threshold", [1_000, 1], ids=["small", "bulk"])
"""The same by both ways into the database: add actions go in bulk from this many on."""

# What databases like to change: key order, blanks, the spelling of numbers, -0.0, escapes, halves of surrogate pairs.
EXACT_STATS = (
    '{"numRecords": 3,  "minValues":{"id":1.797e308,"name":"\\u0000"},"maxValues":{"id":1.7976931348623157E308}}',
    '{"nullCount":{"z":0,"a":1},"minValues":{"id":-0.0},"numRecords":1}',
    '{"numRecords":1,"minValues":{"id":"NaN"},"maxValues":{"id":"Infinity"}}',
    '{"numRecords":1,"minValues":{"name":"\\ud800"},"maxValues":{"name":"\\udfffx"}}',
    '{"numRecords":1,"minValues":{"id":1e999},"maxValues":{"id":123456789012345678901234567890}}',
    '{"numRecords":1,"minValues":{"name":"it\'s \\"quoted\\" \\\\ 😀 \\n"},"a":1,"a":2}',
    "{}",
    " { } ",
)
VALUES: dict[str, str | None] = {"day": "2024-01-01", "city": 'São "Paulo" \\ it\'s 😀,\n{}', "none": None, "empty": ""}
PARTITIONED = "id BIGINT, day STRING, city STRING, none STRING, empty STRING"


@pytest.mark.requirement("W-01")
def test_all_actions_of_a_version_and_the_new_version_appear_together(log: Log) -> None:
    log.append("old")
    result = log.commit(every_kind(2, gone=["old"]), committer="ada")
    assert (result.table_id, result.version) == (log.table_id, 2)
    tables = ("add", "remove", "cdc")
    counts = [log.one(f"SELECT count(*) FROM dl_{kind}_files WHERE table_id = ? AND version = 2") for kind in tables]
    assert counts == [2, 1, 1]
    for name in ("metadata_updates", "protocol_updates", "txn_actions", "domain_metadata", "table_versions"):
        assert log.one(f"SELECT count(*) FROM dl_{name} WHERE table_id = ? AND version = 2") == 1, name
    current = log.rows("SELECT current_version, metadata_version, protocol_version FROM dl_tables WHERE table_id = ?")
    assert current == [(2, 2, 2)]
    [(outcome, commit_ts, committer, participants)] = witness.rows(
        log.uri,
        "SELECT outcome, commit_ts, committer, participants FROM dl_transactions WHERE txn_id = ?",
        [str(result.txn_id)],
    )
    assert (outcome, commit_ts, committer) == ("committed", result.commit_ts, "ada")
    assert _document(participants) == {str(log.table_id): 2}


@SIZES
@pytest.mark.requirement("W-06")
def test_add_action_is_stored_whole(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create(PARTITIONED, partition_columns=list(VALUES))
    full = added(
        "day=2024-01-01/part%20😀-'0'.parquet",
        partition_values=VALUES,
        size=2**62,
        modification_time=1_700_000_000_123,
        data_change=False,
        stats='{"numRecords":7,"minValues":{"id":1},"maxValues":{"id":9}}',
        tags={"k": "v", "none": None},
        deletion_vector=vector(4),
        base_row_id=5,
        default_row_commit_version=1,
        clustering_provider="liquid",
    )
    bare = added("bare.parquet", partition_values=dict.fromkeys(VALUES))
    log.commit([full, bare])
    columns = (
        "ord, path, size, partition_values, stats, modification_time, data_change, deletion_vector, dv_id, tags,"
        " base_row_id, default_row_commit_version, clustering_provider, num_records, removed_version"
    )
    first, second = log.rows(f"SELECT {columns} FROM dl_add_files WHERE table_id = ? AND version = 1 ORDER BY ord")
    assert first[:3] == (0, full.path, 2**62)
    assert _document(first[3]) == VALUES
    assert (first[4], first[5], bool(first[6])) == (full.stats, 1_700_000_000_123, False)
    assert _document(first[7]) == {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    assert first[8] == vector(4).unique_id
    assert _document(first[9]) == {"k": "v", "none": None}
    assert first[10:] == (5, 1, "liquid", 7, None)
    assert second[:3] == (1, "bare.parquet", 10)
    assert (second[4], second[7], second[8], second[9]) == (None, None, "", None)
    assert second[10:] == (None,) * 5
    found = log.catalog._session.reader.snapshot(log.table_id).files
    assert sorted(found["path"].to_pylist()) == sorted([full.path, bare.path])


@SIZES
@pytest.mark.requirement("W-06")
def test_statistics_are_stored_to_the_letter(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.commit([added(f"{i}", stats=text) for i, text in enumerate(EXACT_STATS)])
    # A single file takes a way of its own.
    for i, text in enumerate(EXACT_STATS):
        log.commit([added(f"single-{i}", stats=text)])
    rows = log.rows("SELECT stats FROM dl_add_files WHERE table_id = ? ORDER BY version, ord")
    assert [text for (text,) in rows] == [*EXACT_STATS, *EXACT_STATS]


@pytest.mark.backends("postgres")
def test_files_can_be_searched_by_statistics_beside_those_that_jsonb_cannot_hold(log: Log) -> None:
    log.commit([added(f"{i}", stats=text) for i, text in enumerate(EXACT_STATS)])
    query = "SELECT path FROM dl_add_files WHERE dl_stats_filter(stats) @> '{\"numRecords\":1}' AND table_id = ?"
    assert {path for (path,) in log.rows(query)} == {"1", "2", "4", "5"}


@SIZES
@pytest.mark.requirement("W-06")
def test_bounds_are_stored_beside_the_statistics(open_log: OpenLog, backend: str, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create("id BIGINT, x DOUBLE")
    some = '{"numRecords":2,"minValues":{"id":-3,"x":0.1},"maxValues":{"id":9007199254740993,"x":1e300}}'
    log.commit([added("some", stats=some), added("part", stats='{"minValues":{"x":1}}'), added("none")])
    rows = log.rows("SELECT mins, maxs FROM dl_add_files WHERE table_id = ? AND version = 1 ORDER BY ord")
    numbers = [tuple(json.loads(cell) if isinstance(cell, str) else cell for cell in row) for row in rows]
    assert numbers == [
        ([-3, -3, 0.1], [9007199254740994, 9007199254740994, 1e300]),
        ([LOWEST, None, 1], [HIGHEST, None, None]),
        ([LOWEST], [HIGHEST]),
    ]


@pytest.mark.requirement("W-07")
def test_remove_action_is_stored_whole_and_ends_the_file(log: Log) -> None:
    log.commit([added("a", deletion_vector=vector(), stats=stats()), added("b")])
    full = RemoveFile(
        path="a",
        deletion_timestamp=1_700_000_000_456,
        data_change=False,
        extended_file_metadata=True,
        partition_values={},
        size=10,
        stats=stats(),
        tags={"k": "v"},
        deletion_vector=vector(),
        base_row_id=1,
        default_row_commit_version=2,
    )
    log.commit([full, RemoveFile(path="b", data_change=True)])
    columns = (
        "ord, path, deletion_timestamp, size, stats, dv_id, base_row_id, default_row_commit_version,"
        " data_change, extended_file_metadata, partition_values, tags"
    )
    first, second = log.rows(f"SELECT {columns} FROM dl_remove_files WHERE table_id = ? AND version = 2 ORDER BY ord")
    assert first[:8] == (0, "a", 1_700_000_000_456, 10, stats(), vector().unique_id, 1, 2)
    assert [bool(first[8]), bool(first[9]), _document(first[10]), _document(first[11])] == [False, True, {}, {"k": "v"}]
    assert second[:8] == (1, "b", None, None, None, "", None, None)
    assert [bool(second[8]), *second[9:]] == [True, None, None, None]
    ends = log.rows("SELECT path, removed_version FROM dl_add_files WHERE table_id = ? ORDER BY path")
    assert ends == [("a", 2), ("b", 2)]


@pytest.mark.requirement("W-08")
def test_metadata_action_is_stored_whole(log: Log) -> None:
    configuration = {"z": "1", "a": 'quo"te \\ 😀', "delta.enableInCommitTimestamps": "true"}
    full = metadata(
        "id BIGINT NOT NULL, day DATE COMMENT 'it''s 😀'",
        id="not a uuid",
        name="naïve",
        description="desc\nription",
        partition_columns=["day"],
        configuration=configuration,
        created_time=12,
    )
    log.commit([full])
    columns = "metadata_id, name, description, schema_json, created_time, partition_columns, properties, format"
    [row] = log.rows(f"SELECT {columns} FROM dl_metadata_updates WHERE table_id = ? AND version = 1")
    assert row[:5] == ("not a uuid", "naïve", "desc\nription", full.schema_string, 12)
    assert _document(row[5]) == ["day"]
    assert _document(row[6]) == configuration
    assert _document(row[7]) == {"provider": "parquet", "options": {}}
    current = log.rows("SELECT metadata_version, properties FROM dl_tables WHERE table_id = ?")
    assert [(version, _document(properties)) for version, properties in current] == [(1, configuration)]
    assert log.catalog._session.reader.snapshot(log.table_id).metadata == full


@pytest.mark.requirement("W-09")
def test_protocol_action_is_stored_whole(open_log: OpenLog) -> None:
    log = open_log()
    log.commit([protocol(["appendOnly", "invariants"]), metadata()])
    raised = protocol(["appendOnly", "invariants", "deletionVectors"])
    log.commit([raised])
    columns = "min_reader_version, min_writer_version, reader_features, writer_features"
    rows = log.rows(f"SELECT {columns} FROM dl_protocol_updates WHERE table_id = ? ORDER BY version")
    assert [(*row[:2], _document(row[2]), _document(row[3])) for row in rows] == [
        (1, 7, None, ["appendOnly", "invariants"]),
        (3, 7, ["deletionVectors"], ["appendOnly", "invariants", "deletionVectors"]),
    ]
    [row] = log.rows(f"SELECT protocol_version, {columns} FROM dl_tables WHERE table_id = ?")
    assert (*row[:3], _document(row[3]), _document(row[4])) == (1, 3, 7, raised.reader_features, raised.writer_features)
    assert log.catalog._session.reader.snapshot(log.table_id).protocol == raised


@pytest.mark.requirement("W-10")
def test_progress_of_applications_is_stored(log: Log) -> None:
    log.commit([Txn(app_id="stream ü", version=5, last_updated=1_700_000_000_789), Txn(app_id="other", version=-3)])
    # Progress may go back: the latest that was said counts, not the greatest.
    log.commit([Txn(app_id="stream ü", version=2**62)])
    query = "SELECT version, ord, app_id, txn_version, last_update FROM dl_txn_actions WHERE table_id = ?"
    assert log.rows(f"{query} ORDER BY version, ord") == [
        (1, 0, "stream ü", 5, 1_700_000_000_789),
        (1, 1, "other", -3, None),
        (2, 0, "stream ü", 2**62, None),
    ]


def test_change_data_and_domains_are_stored(log: Log) -> None:
    log.commit(
        [
            CdcFile(path="_change_data/1", partition_values={}, size=3, tags={"k": None}),
            DomainMetadata(domain="d", configuration='{"a": 1}', removed=False),
            DomainMetadata(domain="gone", configuration="", removed=True),
        ]
    )
    [row] = log.rows("SELECT ord, path, size, data_change, partition_values, tags FROM dl_cdc_files WHERE table_id = ?")
    assert (*row[:3], bool(row[3]), _document(row[4]), _document(row[5])) == (
        0, "_change_data/1", 3, False, {}, {"k": None},
    )  # fmt: skip
    rows = log.rows(
        "SELECT ord, domain, configuration, removed FROM dl_domain_metadata WHERE table_id = ? ORDER BY ord"
    )
    assert [(*row[:3], bool(row[3])) for row in rows] == [(1, "d", '{"a": 1}', False), (2, "gone", "", True)]


@SIZES
def test_actions_keep_their_order_in_the_commit(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.append("old")
    log.commit([removed("old"), added("a"), Txn(app_id="x", version=1), added("b")])
    found: dict[str, int] = {}
    for table, name in (("dl_add_files", "path"), ("dl_remove_files", "path"), ("dl_txn_actions", "app_id")):
        found |= dict(log.rows(f"SELECT {name}, ord FROM {table} WHERE table_id = ? AND version = 2"))
    assert sorted(found.values()) == [0, 1, 2, 3]
    assert found["a"] < found["b"]
    if threshold > 1:
        assert found == {"old": 0, "a": 1, "x": 2, "b": 3}


@SIZES
def test_row_groups_are_stored_with_their_file(open_log: OpenLog, threshold: int) -> None:
    log = open_log(copy_threshold=threshold).create()
    log.commit_data([added("a"), added("b")], row_groups=[*row_groups("b"), *row_groups("a", 1)])
    rows = log.rows(
        "SELECT f.path, g.row_group, g.num_rows, g.total_bytes, g.file_offset, g.stats FROM dl_row_groups g"
        " JOIN dl_add_files f ON f.table_id = g.table_id AND f.version = g.version AND f.ord = g.ord"
        " WHERE g.table_id = ? ORDER BY f.path, g.row_group"
    )
    assert rows == [("a", 0, 5, 100, 4, stats(5)), ("b", 0, 5, 100, 4, stats(5)), ("b", 1, 5, 100, 5, stats(5))]


@pytest.mark.requirement("W-16")
def test_operation_is_recorded_as_it_was_given(log: Log) -> None:
    params: dict[str, Any] = {"mode": "Append", "nested": {"a": [1, None, 'quo"te 😀']}, "z": 1.5, "b": True}
    before = datetime.now(UTC)
    txn_id = uuid4()
    result = log.commit(
        [added("a")], operation="STREAMING UPDATE", operation_params=params, committer="ada 😀", txn_id=txn_id
    )
    assert result.txn_id == txn_id
    columns = "version, txn_id, operation, committer, operation_params, commit_ts, read_version, is_blind_append"
    [row] = log.rows(f"SELECT {columns} FROM dl_table_versions WHERE table_id = ? AND version = 1")
    assert (row[0], UUID(str(row[1])), row[2], row[3]) == (1, txn_id, "STREAMING UPDATE", "ada 😀")
    assert _document(row[4]) == params
    assert (row[5], row[6], bool(row[7])) == (result.commit_ts, 0, True)
    [entry] = log.catalog.table(log.table_id).history(limit=1)
    committed = datetime.fromtimestamp(result.commit_ts / 1e6, UTC)
    assert abs(entry.committed_at - committed) < timedelta(milliseconds=1)
    assert before - timedelta(seconds=1) < entry.committed_at < datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.requirement("W-17", "D-20")
def test_every_earlier_commit_stays_as_it_was_written(log: Log) -> None:
    log.append("0")
    for number in range(1, 8):
        before = log.dump()
        gone = [f"{number - 1}-0.parquet" if number > 1 else "0"]
        actions = every_kind(number, gone=gone) if number % 2 else [*every_kind(number, gone=gone)[2:]]
        log.commit(actions, operation=f"STEP {number}", committer=f"committer {number}")
        after = log.dump()
        for name in before.keys() - {"dl_tables", "dl_add_files"}:
            assert set(map(repr, before[name])) <= set(map(repr, after[name])), name
        # Of one added file one thing changes: the version that ended it.
        changed = [row for row in before["dl_add_files"] if row not in after["dl_add_files"]]
        assert len(changed) == 1
        assert sum(_but_for_its_end(row) == _but_for_its_end(changed[0]) for row in after["dl_add_files"]) == 1
    history = log.catalog.table(log.table_id).history()
    assert [entry.version for entry in history] == list(range(8, -1, -1))
    assert [entry.operation for entry in history[:7]] == [f"STEP {number}" for number in range(7, 0, -1)]
    assert [entry.committer for entry in history[:7]] == [f"committer {number}" for number in range(7, 0, -1)]


def _but_for_its_end(row: tuple[Any, ...]) -> tuple[Any, ...]:
    position = [column.name for column in dl_add_files.c].index("removed_version")
    return (*row[:position], *row[position + 1 :])


def _document(cell: Any) -> Any:
    return json.loads(cell) if isinstance(cell, str) else cell


def test_version_0_is_stored_like_any_other(open_log: OpenLog) -> None:
    log = open_log()
    result = log.commit([*creation(), added("a")], version=0)
    assert (result.version, log.version, log.live()) == (0, 0, ["a"])
    assert log.one("SELECT read_version FROM dl_table_versions WHERE table_id = ?") is None


def test_commit_without_actions_is_a_version_of_its_own(log: Log) -> None:
    assert log.commit([]).version == 1
    assert log.version == 1
