"""Large commits: in bulk, in little time, and row for row what the same files would be one by one."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from deltars.config import Settings
from deltars.errors import ConfigError
from deltars.log.bounds import LOWEST
from deltars.protocol import Action, AddFile
from tests.store.conftest import OpenLog
from tests.support.log import Log, added, creation, removed, row_groups, stats, vector
from tests.support.tap import Tap

MAP = pa.map_(pa.string(), pa.string())


def files(count: int, prefix: str = "part") -> pa.Table:
    """Add actions as a real writer has them."""
    numbers = range(count)
    text = (
        '{{"numRecords":1000,"minValues":{{"id":{0},"name":"a{0}"}},'
        '"maxValues":{{"id":{1},"name":"z{0}"}},"nullCount":{{"id":0,"name":3}}}}'
    )
    return pa.table(
        {
            "path": [f"{prefix}-{n:08}-c000.zstd.parquet" for n in numbers],
            "partition_values": ["{}"] * count,
            "size": pa.array(numbers, pa.int64()),
            "modification_time": [1_700_000_000_000] * count,
            "data_change": [True] * count,
            "stats": [text.format(n, n + 999) for n in numbers],
        }
    )


# -- never row by row --------------------------------------------------------------------------------------------------


@pytest.mark.every_case_on("postgres", "sqlite")
@pytest.mark.requirement("W-11")
@pytest.mark.parametrize("kind", ["adds", "columns", "removes", "row groups"])
def test_number_of_statements_does_not_grow_with_the_number_of_files(open_log: OpenLog, tap: Tap, kind: str) -> None:
    log = open_log(tap=tap).create()
    needed = [_statements(log, tap, kind, count) for count in (1_000, 3_000)]
    # What must travel in batches may take one more for some thousand rows: not one for each.
    assert needed[1] - needed[0] <= 4
    assert needed[1] < 30


def _statements(log: Log, tap: Tap, kind: str, count: int) -> int:
    prefix = f"{log.version}"
    adds = [added(f"{prefix}-{i}", stats=stats()) for i in range(count)]
    if kind == "removes":
        log.commit(adds)
    with tap.recording() as statements:
        match kind:
            case "adds":
                log.commit(adds)
            case "columns":
                log.commit(files(count, prefix))
            case "removes":
                log.commit([removed(add.path) for add in adds])
            case _:
                log.commit_data(adds[:10], row_groups=row_groups(f"{prefix}-0", count))
    return len(statements)


@pytest.mark.requirement("W-11")
def test_small_commits_are_not_written_row_by_row_either(open_log: OpenLog, tap: Tap) -> None:
    log = open_log(tap=tap).create()
    counts = []
    for number in (2, 200):
        with tap.recording() as statements:
            log.commit([added(f"{number}-{i}") for i in range(number)])
        counts.append(len(statements))
    assert counts[0] == counts[1]


@pytest.mark.requirement("D-03")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    ("threshold", "count", "is_copied"),
    [(None, 999, False), (None, 1_000, True), (5, 4, False), (5, 5, True), (2_000, 1_999, False), (2_000, 2_000, True)],
)
def test_copy_begins_at_the_threshold(
    open_log: OpenLog, tap: Tap, threshold: int | None, count: int, is_copied: bool
) -> None:
    settings: dict[str, Any] = {} if threshold is None else {"copy_threshold": threshold}
    log = open_log(tap=tap, **settings).create()
    with tap.recording() as statements:
        log.commit([added(f"{i}") for i in range(count)])
    assert any(statement.startswith("COPY") for statement in statements) == is_copied
    inserts = [statement for statement in statements if "INSERT INTO" in statement and ".dl_add_files" in statement]
    assert bool(inserts) != is_copied
    assert len(log.live()) == count


@pytest.mark.requirement("D-03")
@pytest.mark.backends("postgres")
def test_threshold_is_a_thousand_and_can_be_set(open_log: OpenLog) -> None:
    assert Settings().copy_threshold == 1_000
    assert open_log(copy_threshold=7).catalog._session.settings.copy_threshold == 7
    with pytest.raises(ConfigError, match="copy_threshold must be at least 1"):
        open_log(copy_threshold=0)


# -- size and speed ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("W-12")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("form", ["actions", "columns"])
def test_ten_thousand_files_take_far_less_than_five_seconds(open_log: OpenLog, form: str) -> None:
    log = open_log().create()
    table = files(10_000)
    actions: Any = table
    if form == "actions":
        actions = [AddFile(**{**row, "partition_values": {}}) for row in table.to_pylist()]
    started = time.monotonic()
    log.commit(actions, version=1)
    assert time.monotonic() - started < 5
    assert log.one("SELECT count(*) FROM dl_add_files WHERE table_id = ?") == 10_000


@pytest.mark.slow
@pytest.mark.requirement("D-17")
def test_hundred_thousand_files_fit_into_one_commit(open_log: OpenLog) -> None:
    log = open_log().create()
    count = 100_000
    table = files(count)
    assert log.commit(table).version == 1
    [(rows, size, records)] = log.rows(
        "SELECT count(*), sum(size), sum(num_records) FROM dl_add_files WHERE table_id = ? AND removed_version IS NULL"
    )
    assert (rows, size, records) == (count, sum(range(count)), 1_000 * count)
    [(paths, ords, first, last)] = log.rows(
        "SELECT count(DISTINCT path), count(DISTINCT ord), min(ord), max(ord) FROM dl_add_files WHERE table_id = ?"
    )
    assert (paths, ords, first, last) == (count, count, 0, count - 1)
    assert log.append("one more").version == 2


# -- the same, whichever way it came -----------------------------------------------------------------------------------

SOME: Sequence[AddFile] = (
    added("bare"),
    added("a%20b/'quoted'.parquet", size=2**62, data_change=False, stats='{"numRecords": 3,"minValues":{"id":-0.0}}'),
    added(
        "values", stats='{"minValues":{"id":1,"name":"é\\u0000"},"maxValues":{"id":9}}', tags={"k": 'v"\n', "n": None}
    ),
    added("vector", deletion_vector=vector(7), stats=stats(5)),
    added("inline", deletion_vector=vector(None, storage_type="i"), stats=stats(5), clustering_provider="x"),
    added("ids", base_row_id=12, default_row_commit_version=0),
    added("huge", stats='{"minValues":{"id":-1.7976931348623157e308},"maxValues":{"id":1.7976931348623157e308}}'),
    added("tiny", stats='{"numRecords":1,"minValues":{"id":5e-324,"name":""},"maxValues":{"id":5e-324,"name":""}}'),
    added(
        "no number", stats='{"numRecords":1,"minValues":{"id":"NaN"},"maxValues":{"id":"NaN","name":"é😀"}}', tags={}
    ),
)


def _columns(adds: Sequence[AddFile], form: str) -> pa.Table:
    def document(value: Any) -> Any:
        if form == "json" or value is None:
            return None if value is None else msgspec.json.encode(value).decode()
        return list(value.items())

    def a_vector(add: AddFile) -> Any:
        if form == "json" or add.deletion_vector is None:
            return document(add.deletion_vector)
        return msgspec.structs.asdict(add.deletion_vector)

    names = [name for name in AddFile.__struct_fields__ if name not in ("partition_values", "tags", "deletion_vector")]
    documents = pa.string() if form == "json" else MAP
    return pa.table(
        {
            **{name: [getattr(add, name) for add in adds] for name in names},
            "partition_values": pa.array([document(add.partition_values) for add in adds], documents),
            "tags": pa.array([document(add.tags) for add in adds], documents),
            "deletion_vector": [a_vector(add) for add in adds],
        }
    )


def _rows(log: Log) -> list[dict[str, Any]]:
    """The rows of the last version, without what every commit has of its own."""
    names = [
        "ord", "path", "size", "partition_values", "stats", "modification_time", "data_change", "deletion_vector",
        "dv_id", "tags", "base_row_id", "default_row_commit_version", "clustering_provider", "num_records",
        "removed_version", "mins", "maxs",
    ]  # fmt: skip
    query = f"SELECT {', '.join(names)} FROM dl_add_files WHERE table_id = ? AND version = {log.version} ORDER BY ord"
    found = [dict(zip(names, row, strict=True)) for row in log.rows(query)]
    for row in found:
        for name in ("partition_values", "deletion_vector", "tags", "mins", "maxs"):
            row[name] = json.loads(row[name]) if isinstance(row[name], str) else row[name]
    return found


@pytest.mark.requirement("W-06", "W-11")
def test_same_files_leave_the_same_rows_whichever_way_they_come(open_log: OpenLog) -> None:
    ddl, fields = "id DOUBLE, name STRING, day STRING, city STRING", {"partition_columns": ["day", "city"]}
    values: dict[str, str | None] = {"day": "2024-01-01", "city": '😀 "it\'s"'}
    adds = [msgspec.structs.replace(add, partition_values=values) for add in SOME]
    small, bulk = open_log().create(ddl, **fields), open_log(name="bulk", copy_threshold=1).create(ddl, **fields)
    small.commit(adds)
    expected = _rows(small)
    assert len(expected) == len(SOME)
    ways: list[Sequence[Action] | pa.Table] = [adds, _columns(adds, "json"), _columns(adds, "arrow")]
    for number, actions in enumerate(ways):
        log = bulk if number == 0 else open_log(name=f"other-{number}").create(ddl, **fields)
        log.commit(actions)
        assert _rows(log) == expected
    # And one by one: each at the first place of a version of its own.
    for add, row in zip(adds, expected, strict=True):
        small.commit([msgspec.structs.replace(add, path=f"single-{add.path}")])
        assert _rows(small) == [{**row, "path": f"single-{add.path}", "ord": 0}]


def test_columns_may_leave_out_what_is_optional(log: Log) -> None:
    table = files(3).drop_columns(["stats"])
    log.commit(table)
    assert [(row["stats"], row["mins"], row["dv_id"]) for row in _rows(log)] == [(None, [LOWEST], "")] * 3


def test_columns_in_many_chunks_keep_their_order(log: Log) -> None:
    parts = [files(3, prefix) for prefix in "cab"]
    log.commit(pa.concat_tables(parts))
    expected = [path for part in parts for path in part["path"].to_pylist()]
    assert [row["path"] for row in _rows(log)] == expected
    assert [row["ord"] for row in _rows(log)] == list(range(9))


def test_no_files_at_all_are_a_commit_too(log: Log) -> None:
    assert log.commit(files(0)).version == 1
    assert log.live() == []


def test_columns_and_other_actions_go_into_one_version(open_log: OpenLog) -> None:
    log = open_log()
    log.commit_data([*creation(), added("single")], version=0, adds=files(3))
    log.commit_data([removed("single"), added("another")], adds=files(2, "more"), row_groups=row_groups("another"))
    assert len(log.live()) == 6
    assert "single" not in log.live()
    ords = [row["ord"] for row in _rows(log)]
    assert len(set(ords)) == len(ords) == 3
    assert log.one("SELECT count(*) FROM dl_row_groups WHERE table_id = ?") == 2
