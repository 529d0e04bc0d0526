"""Many threads with one session: each gets its own rows, and the session's settings stay as they were."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.spark.read import files as read_files
from deltars.spark.read import frame_cache

pytestmark = pytest.mark.backends("sqlite")

THREADS = 8


def test_reads_of_many_threads_leave_the_sessions_settings_alone(
    catalog: deltars.Catalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": list(range(4)), "d": [1.0, float("nan"), -0.0, 0.0]})
    catalog.write("t", rows, max_records_per_file=1)
    table = catalog.table("t")
    monkeypatch.setattr(read_files, "LISTED_FILES", 1)
    monkeypatch.setattr(read_files, "write_manifest", lambda files: "file:/no/such/list")
    before = spark.conf.getAll
    together = Barrier(THREADS)

    def read(number: int) -> list[int]:
        together.wait()
        return sorted(row.id for row in table.read(spark=spark, where=f"id >= {number % 4}").collect())

    frame_cache.forget()
    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(read, range(THREADS))) == [list(range(n % 4, 4)) for n in range(THREADS)]
    after = spark.conf.getAll
    # What was a default is now said.
    assert {name: after[name] for name in before} == before
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == "32"


def test_a_thread_of_its_own_reads_and_queries_with_the_default_session(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    catalog.write("t", pa.table({"id": [1, 2]}))
    table = catalog.table("t")
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(lambda: table.read().count()).result() == 2
        assert threads.submit(lambda: catalog.sql("select id from t where id > 1").count()).result() == 1
