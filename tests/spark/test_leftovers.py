"""What Spark's own writer has on the disk while it writes: what a kill would leave, listed and deleted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

import deltars

PATIENCE_S = 60


def waiting(signs: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are; after the first half of them a task says so, and waits until it may go on."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            Path(signs, "half").touch()
            deadline = time.monotonic() + PATIENCE_S
            while not Path(signs, "go").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch.slice(batch.num_rows // 2)

    return work


@pytest.mark.backends("sqlite")
def test_files_of_a_write_under_way_are_listed_when_asked_for_and_deleted_with_the_table(
    spark: SparkSession, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    table = catalog.create_table("t", "id BIGINT, p BIGINT")
    rows = spark.range(0, 100_000, 1, 1).selectExpr("id", "id % 2 as p")
    frame = rows.mapInArrow(waiting(str(tmp_path)), "id BIGINT, p BIGINT")
    writer = InheritableThread(target=lambda: catalog.write("t", frame))
    writer.start()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (_data(table) and (tmp_path / "half").exists()) and time.monotonic() < deadline:
            time.sleep(0.05)
        under_way = _data(table)
        assert under_way
        listed = table.verify(orphans=True, min_age=timedelta(0)).findings
        assert [finding.problem for finding in listed] == ["orphan"] * len(under_way)
        checked = table.verify(orphans=True)
        assert (checked.findings, checked.young_files) == ((), len(under_way))
        shutil.copytree(table.location, tmp_path / "killed")
    finally:
        (tmp_path / "go").touch()
        writer.join()
    assert table.to_arrow().num_rows == 100_000
    # As a kill at that moment would have left it.
    shutil.copytree(tmp_path / "killed", table.location, dirs_exist_ok=True)
    assert len(table.verify(orphans=True, min_age=timedelta(0)).findings) == len(under_way)
    catalog.drop_table("t", delete_data=True)
    assert not Path(table.location).exists()


def _data(table: deltars.Table) -> list[Path]:
    return [path for path in Path(table.location).rglob("*") if path.is_file() and "_delta_log" not in path.parts]
