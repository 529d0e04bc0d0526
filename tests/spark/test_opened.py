"""A version that is read again: what was opened is used again, while it is sure that nothing has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.data.scan import Scan
from deltars.errors import StorageError
from deltars.spark.read import files as read_files
from deltars.spark.read import frame_cache
from deltars.spark.read import scan as read
from deltars.spark.read.frame_cache import Directories
from tests.support.scans import scan_of_files, write_file

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many files were looked at, for each time that it was done."""
    counts: list[int] = []

    def counted(scan: Scan, root: str | None) -> tuple[list[read_files.DataFile], Directories | None]:
        found = read_files.data_files(scan, root)
        counts.append(len(found[0]))
        return found

    monkeypatch.setattr(read, "data_files", counted)
    frame_cache.forget()
    yield counts
    frame_cache.forget()


def table_of(catalog: deltars.Catalog, count: int = 3, partition_by: tuple[str, ...] = ()) -> deltars.Table:
    for n in range(count):
        catalog.write("t", pa.table({"id": [2 * n, 2 * n + 1], "p": [n, n]}), partition_by=partition_by)
    settle(catalog.table("t"))
    return catalog.table("t")


def settle(table: deltars.Table) -> None:
    """As if the last file had been written long ago."""
    long_ago = time.time() - 100
    for directory, _, _ in os.walk(table.location):
        os.utime(directory, (long_ago, long_ago))


def ids(frame: object) -> list[int]:
    return sorted(row.id for row in frame.collect())  # type: ignore[attr-defined]


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["flat", "partitioned"])
@pytest.mark.parametrize("listed", [0, 32], ids=["manifest", "list"])
def test_version_that_is_read_again_is_not_looked_at_again(
    catalog: deltars.Catalog,
    spark: SparkSession,
    looked_at: list[int],
    partition_by: tuple[str, ...],
    listed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_files, "LISTED_FILES", listed)
    table = table_of(catalog, partition_by=partition_by)
    assert [ids(table.read(spark=spark)) for _ in range(3)] == [list(range(6))] * 3
    assert ids(table.read(columns=["id"])) == list(range(6))  # with the active session, which is the same
    assert ids(catalog.snapshot().read("t", spark=spark)) == list(range(6))
    assert looked_at == [3]
    # Each condition has files of its own, and so has each version.
    assert [ids(table.read(spark=spark, where="id > 3")) for _ in range(2)] == [[4, 5]] * 2
    assert [ids(table.read(spark=spark, version=1)) for _ in range(2)] == [list(range(4))] * 2
    assert looked_at == [3, 1, 2]
    assert ids(table.read(spark=spark.newSession())) == list(range(6))
    catalog.write("t", pa.table({"id": [6], "p": [6]}))
    assert ids(table.read(spark=spark)) == list(range(7))
    assert looked_at == [3, 1, 2, 3, 4]


def test_two_frames_of_one_version_are_told_apart_in_a_join(
    catalog: deltars.Catalog, spark: SparkSession, looked_at: list[int]
) -> None:
    table = table_of(catalog)
    left, right = table.read(spark=spark), table.read(spark=spark)
    joined = left.join(right, left.id == right.id + 1).select(left.id, right.id)
    assert looked_at == [3]
    assert sorted(map(tuple, joined.collect())) == [(n + 1, n) for n in range(5)]


def test_file_that_is_gone_since_is_named_as_on_the_first_read(
    catalog: deltars.Catalog, spark: SparkSession, looked_at: list[int]
) -> None:
    table = table_of(catalog)
    assert [ids(table.read(spark=spark)) for _ in range(2)] == [list(range(6))] * 2
    gone = table.snapshot().files["path"][1].as_py()
    Path(table.location, gone).unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match=f"{gone} is missing, and version 2 needs it"):
            table.read(spark=spark)


@pytest.mark.parametrize("listed", [0, 32], ids=["manifest", "list"])
def test_file_that_was_emptied_since_is_an_error_and_not_a_file_without_rows(
    catalog: deltars.Catalog,
    spark: SparkSession,
    looked_at: list[int],
    listed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_files, "LISTED_FILES", listed)
    table = table_of(catalog)
    assert ids(table.read(spark=spark)) == list(range(6))
    os.truncate(Path(table.location, table.snapshot().files["path"][1].as_py()), 0)
    with pytest.raises(Exception, match=r"not a Parquet file"):
        table.read(spark=spark).collect()
    assert looked_at == [3]


def test_what_changed_just_now_or_is_linked_is_looked_at_every_time(
    catalog: deltars.Catalog, spark: SparkSession, looked_at: list[int]
) -> None:
    table = table_of(catalog)
    os.utime(table.location)
    assert [ids(table.read(spark=spark)) for _ in range(2)] == [list(range(6))] * 2
    assert looked_at == [3, 3]
    path = Path(table.location, table.snapshot().files["path"][1].as_py())
    (Path(table.location) / "elsewhere").mkdir()
    path.rename(target := Path(table.location, "elsewhere", "a.parquet"))
    path.symlink_to(target)
    settle(table)
    assert ids(table.read(spark=spark)) == list(range(6))
    target.unlink()
    with pytest.raises(StorageError, match="is missing"):
        table.read(spark=spark)


def test_no_more_files_are_kept_than_the_limit(
    catalog: deltars.Catalog, spark: SparkSession, looked_at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(catalog)
    monkeypatch.setattr(frame_cache, "MAX_FILES", 5)
    for _ in range(2):
        for version in (0, 1, 2):  # of one, two and three files
            table.read(spark=spark, version=version)
    # The last two fit, and the first is gone when it is asked for again; and so they drive each other out.
    assert looked_at == [1, 2, 3, 1, 2, 3]
    table.read(spark=spark, version=2)
    assert looked_at == [1, 2, 3, 1, 2, 3]


def test_frames_with_deleted_rows_are_kept_while_their_bitmaps_are_small(
    spark: SparkSession, looked_at: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "table"
    files = [write_file(root, f"{n}.parquet", {"id": [2 * n, 2 * n + 1]}, deleted=[n % 2]) for n in range(3)]
    os.utime(root, (time.time() - 100,) * 2)
    scan = replace(scan_of_files(root, "id BIGINT", files), identity="with vectors")
    assert [ids(read.read_scan(spark, scan)) for _ in range(2)] == [[1, 2, 5]] * 2
    assert ids(read.read_scan(spark, scan).join(read.read_scan(spark, scan, where="id > 1"), "id")) == [2, 5]
    assert looked_at == [3]
    monkeypatch.setattr(frame_cache, "MAX_BYTES", 0)
    scan = replace(scan, identity="too large")
    assert [ids(read.read_scan(spark, scan)) for _ in range(2)] == [[1, 2, 5]] * 2
    assert looked_at == [3, 3, 3]
