"""A table as a stream, without Spark: which files a batch has, and where a stream stops."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.data.net_changes import net_rows
from deltars.data.reader import read_scan
from deltars.errors import DeltarsError, HistoryExpired, SchemaMismatch, ValidationError, VersionNotFound
from deltars.streams.feed_source import FeedSource
from deltars.streams.options import Options
from deltars.streams.table_source import Offset, ReadSize, TableSource
from tests.support.backup import take_backup
from tests.support.clock import clock_of
from tests.support.soak import record, scaled, seed

pytestmark = pytest.mark.backends("sqlite")


class Stream:
    """A query on the source: its checkpoint survives restarts."""

    def __init__(self, catalog: deltars.Catalog, table: str = "t", **options: Any) -> None:
        self._catalog, self._table = catalog, table
        self.options = options
        self.offset: Offset | None = None
        self.rows: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        options = Options.of({name: str(value) for name, value in self.options.items()})
        table = self._catalog.table(self._table)
        kind = FeedSource if options.flag("readChangeFeed") else TableSource
        schema_at = options.number("schemaVersion")
        self.source = kind(table, options, table.version if schema_at is None else schema_at)
        self._limit = ReadSize.of(options)

    def batch(self, *, is_repeated: bool = False) -> int:
        """Run one batch, and return how many rows it had. With `is_repeated`, it is planned twice."""
        start = Offset.from_json((self.offset or self.source.initial()).to_json())
        end = self.source.next_offset(start, self._limit)
        rows = _rows(self.source, start, end)
        if is_repeated:
            self.restart()
            # A restart may bring new columns, which these rows have no values for.
            assert [row["id"] for row in _rows(self.source, start, end)] == [row["id"] for row in rows]
        self.offset, self.rows = end, self.rows + rows
        return len(rows)

    def drain(self) -> list[int]:
        """Run batches until there is nothing more. Return their sizes."""
        sizes: list[int] = []
        while True:
            before = self.offset
            size = self.batch()
            if self.offset == before:
                return sizes
            sizes.append(size)

    @property
    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows)


def _rows(source: TableSource, start: Offset, end: Offset) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for kind, scan in source.scans(start, end):
        rows = read_scan(scan).read_all()
        found += pa.Table.from_batches(net_rows(rows), rows.schema).to_pylist() if kind == "net" else rows.to_pylist()
    return found


def rows(*ids: int, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), **{name: [value] * len(ids) for name, value in more.items()}})


def test_snapshot_comes_first_then_each_version(catalog: deltars.Catalog) -> None:
    catalog.write("t", rows(1, 2))
    catalog.write("t", rows(3))
    stream = Stream(catalog)
    assert stream.drain() == [3]
    catalog.write("t", rows(4))
    catalog.write("t", rows(5))
    assert stream.drain() == [2]
    stream.restart()
    assert stream.drain() == []
    assert stream.ids == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("limit", "sizes"), [({"maxFilesPerTrigger": 2}, [2, 2, 1]), ({"maxBytesPerTrigger": 1}, [1] * 5)]
)
def test_limits_divide_the_snapshot_and_versions(
    catalog: deltars.Catalog, limit: dict[str, Any], sizes: list[int]
) -> None:
    for number in range(5):
        catalog.write("t", rows(number))
    stream = Stream(catalog, **limit)
    while stream.batch(is_repeated=True):
        pass
    assert stream.ids == [0, 1, 2, 3, 4]
    later = Stream(catalog, startingVersion=0, **limit)
    assert [size for size in later.drain() if size] == sizes
    assert later.ids == [0, 1, 2, 3, 4]


def test_large_version_is_divided_and_a_restart_goes_on_inside_it(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT", partition_by=())
    with catalog.begin() as tx:
        for number in range(7):
            tx.write("t", rows(number))
    stream = Stream(catalog, startingVersion=0, maxFilesPerTrigger=3)
    assert stream.batch(is_repeated=True) == 3
    catalog.table("t").optimize()
    stream.restart()
    assert stream.drain() == [3, 1]
    assert stream.ids == list(range(7))


def test_start_by_version_time_and_latest(catalog: deltars.Catalog) -> None:
    for number in range(4):
        catalog.write("t", rows(number))
    moment = catalog.table("t").history(limit=2)[1].committed_at
    options: dict[str, Any]
    for options, wanted in (
        ({"startingVersion": 2}, [2, 3]),
        ({"startingTimestamp": moment.isoformat()}, [2, 3]),
        ({"startingVersion": "latest"}, []),
        ({"startingVersion": 4}, []),
        ({"startingTimestamp": (moment + timedelta(days=1)).isoformat()}, []),
    ):
        stream = Stream(catalog, **options)
        stream.drain()
        assert stream.ids == wanted, options
    for options, text in (
        ({"startingVersion": 9}, "no version 9"),
        ({"startingVersion": -1}, "startingVersion must be a whole number"),
        ({"startingTimestamp": "2026-01-01"}, "startingTimestamp must be a time with its zone"),
        ({"startingTimestamp": "2026-01-01T00:00:00Z", "startingVersion": 1}, "exclude each other"),
        ({"maxFilesPerTriger": 1}, "Did you mean maxFilesPerTrigger"),
        ({"skipChangeCommits": "yes"}, "skipChangeCommits must be true or false"),
    ):
        with pytest.raises(DeltarsError, match=text):
            Stream(catalog, **options).drain()


def test_optimize_delivers_no_row_again_and_vacuum_takes_none(catalog: deltars.Catalog) -> None:
    for number in range(6):
        catalog.write("t", rows(number))
    stream = Stream(catalog, maxFilesPerTrigger=4)
    assert stream.batch() == 4
    catalog.table("t").optimize()
    catalog.table("t").vacuum()
    catalog.write("t", rows(6))
    stream.restart()
    stream.drain()
    assert stream.ids == list(range(7))


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_changes_stop_the_stream_unless_an_option_says_what_to_do(catalog: deltars.Catalog, vectors: str) -> None:
    catalog.create_table("t", "id BIGINT, v BIGINT", properties={"delta.enableDeletionVectors": vectors})
    catalog.write("t", rows(1, 2, 3, v=0))
    streams = {
        name: Stream(catalog, **({} if name == "none" else {name: "true"}))
        for name in ("none", "skipChangeCommits", "ignoreDeletes", "ignoreChanges")
    }
    for stream in streams.values():
        stream.drain()
    catalog.write("t", rows(4, v=0))
    catalog.table("t").delete("id = 1")
    catalog.write("t", rows(5, v=0))
    assert streams["none"].batch() == 1
    with pytest.raises(ValidationError, match=r"version 3 \(DELETE\) .*skipChangeCommits"):
        streams["none"].batch()
    assert streams["none"].ids == [1, 2, 3, 4]
    streams["none"].options["skipChangeCommits"] = "true"
    streams["none"].restart()
    streams["none"].drain()
    assert streams["none"].ids == [1, 2, 3, 4, 5]
    streams["skipChangeCommits"].drain()
    assert streams["skipChangeCommits"].ids == [1, 2, 3, 4, 5]
    streams["ignoreChanges"].drain()
    assert set(streams["ignoreChanges"].ids) == {1, 2, 3, 4, 5}
    if vectors == "true":
        # A larger vector adds no row. Files written again do.
        streams["ignoreDeletes"].drain()
        assert streams["ignoreDeletes"].ids == streams["ignoreChanges"].ids == [1, 2, 3, 4, 5]
    catalog.table("t").update({"v": "9"}, "id = 2")
    with pytest.raises(ValidationError, match="changes rows"):
        Stream(catalog, startingVersion=5, ignoreDeletes="true").drain()


def test_new_column_stops_the_stream_and_a_restart_goes_on(catalog: deltars.Catalog) -> None:
    catalog.write("t", rows(1))
    stream = Stream(catalog)
    stream.drain()
    catalog.write("t", rows(2))
    catalog.write("t", rows(3, note="new"), merge_schema=True)
    assert stream.batch() == 1
    with pytest.raises(SchemaMismatch, match=r"(?s)columns \['note'\].*same checkpoint"):
        stream.batch()
    stream.restart()
    stream.drain()
    assert [(row["id"], row.get("note")) for row in stream.rows] == [(1, None), (2, None), (3, "new")]


def test_replaced_columns_are_delivered_with_their_own_schema(catalog: deltars.Catalog) -> None:
    catalog.write("t", rows(1))
    stream = Stream(catalog, skipChangeCommits="true")
    stream.drain()
    catalog.write("t", rows(2, a=1), merge_schema=True)
    catalog.write("t", rows(3, b=2), mode="overwrite", overwrite_schema=True)
    stream.restart()
    with pytest.raises(SchemaMismatch, match='schemaVersion", "1"'):
        stream.drain()
    stream.options["schemaVersion"] = 1
    stream.restart()
    with pytest.raises(SchemaMismatch, match="same checkpoint"):
        stream.drain()
    assert stream.ids == [1, 2]
    del stream.options["schemaVersion"]
    stream.restart()
    catalog.write("t", rows(4, b=2))
    stream.restart()
    stream.drain()
    assert stream.ids == [1, 2, 4]


def test_history_that_is_gone_is_an_error(catalog: deltars.Catalog) -> None:
    for number in range(3):
        catalog.write("t", rows(number))
    stream = Stream(catalog)
    stream.drain()
    for number in range(3, 8):
        catalog.write("t", rows(number))
    half = Stream(catalog, maxFilesPerTrigger=1)
    half.batch()
    catalog.write("t", rows(8))
    catalog.table("t").expire(timedelta(0), force=True)
    with pytest.raises(HistoryExpired, match=r"version 3, and that version is expired.*new checkpoint"):
        stream.drain()
    with pytest.raises(HistoryExpired, match="new checkpoint"):
        half.drain()


def test_other_table_of_the_same_name_and_a_restored_database_are_errors(catalog: deltars.Catalog) -> None:
    catalog.write("t", rows(1))
    stream = Stream(catalog)
    stream.drain()
    other = Offset(**{**stream.offset.to_json(), "commit_ts": 1})  # type: ignore[union-attr]
    with pytest.raises(VersionNotFound, match="replaced by another commit"):
        stream.source.next_offset(other, ReadSize())
    later = Offset(**{**stream.offset.to_json(), "version": 9})  # type: ignore[union-attr]
    with pytest.raises(VersionNotFound, match="restored"):
        stream.source.next_offset(later, ReadSize())
    catalog.drop_table("t")
    catalog.write("t", rows(2))
    stream.restart()
    with pytest.raises(ValidationError, match="belongs to another table"):
        stream.drain()


def test_database_that_is_restored_under_a_stream_stops_it(migrated_uri: str, tmp_path: Path) -> None:
    catalog = deltars.connect(migrated_uri, mirror="off")  # a published version would contradict the new one
    catalog.write("t", rows(1))
    backup = take_backup(catalog, tmp_path / "backup", None)
    catalog.write("t", rows(2))
    streams = [Stream(catalog), Stream(catalog, readChangeFeed="true")]
    for stream in streams:
        stream.drain()
    backup.restore()
    for stream in streams:
        with pytest.raises(VersionNotFound, match=r"delivered version 1.*at version 0.*restored"):
            stream.batch()
    for number in (3, 4):
        catalog.write("t", rows(number))
    for stream in streams:
        stream.restart()
        with pytest.raises(VersionNotFound, match="version 1, which the stream has delivered, was replaced"):
            stream.batch()


def test_clock_that_went_back_skips_no_version(catalog: deltars.Catalog) -> None:
    catalog.write("t", rows(1))
    with clock_of(catalog) as clock:
        begun = catalog.table("t").history()[0].committed_at
        clock.set(-3600)
        catalog.write("t", rows(2))
        catalog.write("t", rows(3))
        found = Stream(catalog, startingTimestamp=(begun + timedelta(milliseconds=1)).isoformat())
        found.drain()
        assert found.ids == [2, 3]
        assert sorted(catalog.table("t").changes(begun).to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_start_before_the_history_that_is_kept_is_an_error(catalog: deltars.Catalog) -> None:
    catalog.write("t", rows(1))
    before = catalog.table("t").history()[0].committed_at
    for number in (2, 3):
        catalog.write("t", rows(number))
    catalog.table("t").expire(timedelta(0), force=True)
    with pytest.raises(HistoryExpired, match="expired"):
        Stream(catalog, startingTimestamp=before.isoformat()).drain()
    with pytest.raises(HistoryExpired, match="expired"):
        Stream(catalog, startingVersion=0).drain()
    kept = Stream(catalog)
    kept.drain()
    assert kept.ids == [1, 2, 3]


def test_files_that_a_vacuum_deleted_are_an_error(catalog: deltars.Catalog) -> None:
    for number in range(3):
        catalog.write("t", rows(number))
    streams = [Stream(catalog, startingVersion=0, **more) for more in ({}, {"readChangeFeed": "true"})]
    catalog.table("t").optimize()
    catalog.table("t").vacuum(retention=timedelta(0), force=True)
    for stream in streams:
        with pytest.raises(DeltarsError, match=r"part-.*parquet"):
            stream.drain()
    later = Stream(catalog)
    later.drain()
    assert later.ids == [0, 1, 2]


def test_feed_delivers_a_snapshot_then_changes(catalog: deltars.Catalog) -> None:
    catalog.write("t", rows(1, 2, v=0))
    stream = Stream(catalog, readChangeFeed="true", maxFilesPerTrigger=1)
    catalog.table("t").update({"v": "1"}, "id = 1")
    catalog.write("t", rows(3, v=0))
    catalog.table("t").optimize()
    catalog.table("t").delete("id = 2")
    stream.drain()
    assert sorted((row["_commit_version"], row["_change_type"], row["id"], row["v"]) for row in stream.rows) == [
        (0, "insert", 1, 0), (0, "insert", 2, 0), (1, "delete", 1, 0), (1, "insert", 1, 1), (2, "insert", 3, 0),
        (4, "delete", 2, 0),
    ]  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_random_commits_are_delivered_exactly_once(catalog: deltars.Catalog) -> None:
    """Append, change, optimize and alter at random, with restarts and limits: each appended row comes once."""
    draw = random.Random(seed())
    catalog.create_table("t", "id BIGINT, v BIGINT", properties={"delta.enableDeletionVectors": "true"})
    stream = Stream(catalog, skipChangeCommits="true", maxFilesPerTrigger=draw.randint(1, 3))
    feed = Stream(catalog, readChangeFeed="true")
    for begun in (stream, feed):
        begun.batch()
    written, columns, stops = 0, 0, 0
    for _ in range(scaled(40, soak=1000)):
        match draw.choice(
            ["append"] * 4 + ["many", "delete", "update", "optimize", "column", "restart", "read", "read"]
        ):
            case "append":
                catalog.write("t", rows(*range(written, written := written + draw.randint(1, 3)), v=0))
            case "many":
                with catalog.begin() as tx:
                    for _ in range(draw.randint(2, 5)):
                        tx.write("t", rows(written, v=0))
                        written += 1
            case "delete":
                catalog.table("t").delete(f"id % 7 = {draw.randint(0, 6)}")
            case "update":
                catalog.table("t").update({"v": "v + 1"}, f"id % 5 = {draw.randint(0, 4)}")
            case "optimize":
                catalog.table("t").optimize()
            case "column":
                columns += 1
                catalog.table("t").alter.add_columns(f"c{columns} BIGINT")
            case "restart":
                stream.restart()
            case _:
                try:
                    stream.batch(is_repeated=draw.random() < 0.2)
                except SchemaMismatch:
                    stops += 1
                    stream.restart()
    stream.restart()
    stream.drain()
    assert stream.ids == list(range(written))
    feed.restart()
    feed.drain()
    state: Counter[tuple[int, int]] = Counter()
    for row in feed.rows:
        state[row["id"], row["v"]] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
    now = Counter((row["id"], row["v"]) for row in catalog.table("t").to_arrow().to_pylist())
    assert +state == now
    record("source against a model", commits=catalog.table("t").version, rows=written, stops=stops)
