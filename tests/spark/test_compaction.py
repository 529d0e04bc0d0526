"""OPTIMIZE by Spark: bins are written again in tasks, with the rows and the ids that they had."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from tests.optimize.test_optimize import row_ids

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def table(catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch) -> deltars.Table:
    """Three partitions of four files each, with some rows deleted. Every run goes to Spark."""
    monkeypatch.setattr("deltars.transaction.optimize.SPARK_BYTES", 0)
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"}
    table = catalog.create_table("t", "id BIGINT, x DOUBLE, p STRING", partition_by="p", properties=properties)
    for number in range(4):
        ids = range(30 * number, 30 * number + 30)
        table.write(pa.table({"id": ids, "x": [i / 7 for i in ids], "p": [[None, "ü/=", "b"][i % 3] for i in ids]}))
    table.delete("id % 10 = 3")
    return table


def test_bins_are_compacted_in_tasks_with_rows_and_their_ids(spark: SparkSession, table: deltars.Table) -> None:
    before, rows = row_ids(table), table.to_arrow().sort_by("id")
    done = table.optimize(spark=spark)
    assert (done.num_files_removed, done.num_files_added, done.num_batches) == (12, 3, 1)
    assert row_ids(table) == before
    assert table.to_arrow().sort_by("id") == rows
    assert sorted(read["id"] for read in table.read(spark=spark).collect()) == rows["id"].to_pylist()
    found = table.to_arrow(where="p = 'b'")["id"].to_pylist()
    assert found == sorted(found), "rows keep their order"
    assert not table.optimize(spark=spark).is_changed
    assert table.verify(deep=True).is_ok


def test_cubes_are_sorted_in_tasks(spark: SparkSession, table: deltars.Table) -> None:
    before, rows = row_ids(table), table.to_arrow().sort_by("id")
    done = table.optimize(zorder_by=["x", "id"], spark=spark)
    assert done.num_files_added == 3
    assert row_ids(table) == before
    assert table.to_arrow().sort_by("id") == rows
    assert table.files()["tags"].null_count == 0
    assert not table.optimize(zorder_by=["x", "id"], spark=spark).is_changed


def test_missing_file_is_named_by_the_task(spark: SparkSession, table: deltars.Table) -> None:
    path = table.files()["path"][0].as_py()
    from deltars.protocol import uri_to_path

    (Path(table.location) / uri_to_path(path)).unlink()
    with pytest.raises(deltars.StorageError, match="is missing"):
        table.optimize(spark=spark)
