"""Purge by Spark: files are written again in tasks, one for one, in order."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget
from deltars.errors import StorageError
from deltars.protocol import uri_to_path
from deltars.spark.change import SparkChanges
from deltars.spark.change import purge as spark_purge
from tests.support.scans import scan_of_files, write_file
from tests.support.spark import connected


def parted(root: Path) -> Scan:
    files = [
        write_file(root, f"p={n}/part.parquet", {"id": [10 * n + i for i in range(4)]}, {"p": str(n)}, [0] * (n == 1))
        for n in range(5)
    ]
    return scan_of_files(root, "id BIGINT, p INT", files, ["p"])


def purged(changes: SparkChanges, scan: Scan, root: Path) -> dict[int, list[tuple[str | None, list[int]]]]:
    positions = {0: BitMap64([0, 3]), 1: BitMap64([2]), 3: BitMap64([0, 1, 2, 3]), 4: BitMap64([1])}
    found = changes.purge(scan, positions, WriteTarget(str(root), scan.schema, ("p",)))
    return {
        place: [
            (file.add.partition_values["p"], pq.ParquetFile(root / uri_to_path(file.add.path)).read()["id"].to_pylist())
            for file in files
        ]
        for place, files in sorted(found.items())
    }


EXPECTED = {0: [("0", [1, 2])], 1: [("1", [11, 13])], 3: [], 4: [("4", [40, 42, 43])]}


@pytest.mark.parametrize("here", [True, False], ids=["here", "in tasks"])
def test_files_are_written_again_without_the_rows(
    spark: SparkSession, tmp_path: Path, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not here:
        monkeypatch.setattr(spark_purge, "HERE_BYTES", 0)
        monkeypatch.setattr(spark_purge, "TASKS_PER_CORE", 1)
    assert purged(SparkChanges(spark), parted(tmp_path), tmp_path) == EXPECTED


def test_a_missing_file_is_named_by_the_task(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_purge, "HERE_BYTES", 0)
    scan = parted(tmp_path)
    (tmp_path / "p=4" / "part.parquet").unlink()
    with pytest.raises(StorageError, match=r"p=4/part\.parquet is missing"):
        purged(SparkChanges(spark), scan, tmp_path)


def test_shares_have_about_the_same_size() -> None:
    sizes = {0: 100, 1: 10, 2: 60, 3: 50, 4: 40}
    shares = spark_purge.deal_out(sizes, 2)
    assert sorted(sum(sizes[place] for place in share) for share in shares) == [120, 140]
    assert spark_purge.deal_out({7: 1}, 4) == [[7]]


@pytest.mark.soak(only=True)
def test_purge_by_spark_connect(connect_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_purge, "HERE_BYTES", 0)
    with connected(connect_url) as remote:
        assert purged(SparkChanges(remote), parted(tmp_path), tmp_path) == EXPECTED
