"""An enabled session in situations that are no plain sailing: interrupts, caches, threads, and a restored database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import deltars
from deltars import Catalog
from deltars.tables import DeltaTable
from deltars.transaction.table_write import TableWrite
from tests.enabled.jobs import rows

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def enabled(spark: SparkSession, catalog: Catalog) -> Iterator[SparkSession]:
    deltars.enable(spark, catalog)
    yield spark
    deltars.disable(spark)


def test_query_that_fails_at_the_end_of_an_atomic_block_leaves_nothing(enabled: SparkSession, catalog: Catalog) -> None:
    enabled.sql("CREATE TABLE t (id BIGINT) USING delta")
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        enabled.sql("BEGIN ATOMIC INSERT INTO t VALUES (1), (2); SELECT 1 / (id - 1) FROM t; END")
    assert catalog.table("t").version == 0
    done = enabled.sql("BEGIN ATOMIC INSERT INTO t VALUES (1), (2); SELECT id FROM t; END")
    enabled.sql("DELETE FROM t")
    assert rows(done) == [["1"], ["2"]]


def test_interrupt_inside_a_statement_and_a_verb_leaves_nothing(
    enabled: SparkSession, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    enabled.sql("CREATE TABLE t (id BIGINT) USING delta")

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TableWrite, "_write_rows", interrupt)
        for action in (
            lambda: enabled.sql("INSERT INTO t VALUES (1)"),
            lambda: enabled.sql("BEGIN ATOMIC DELETE FROM t; INSERT INTO t VALUES (1); END"),
            lambda: enabled.range(3).write.format("delta").mode("append").saveAsTable("t"),
            lambda: enabled.range(3).write.format("delta").save(str(tmp_path / "new")),
        ):
            with pytest.raises(KeyboardInterrupt):
                action()
    assert (catalog.table("t").version, [table.name for table in catalog.tables()]) == (0, ["t"])
    enabled.sql("INSERT INTO t VALUES (1)")  # the session's verbs still work
    enabled.range(5, 6).write.format("delta").mode("append").saveAsTable("t")
    assert rows(enabled.table("t")) == [["1"], ["5"]]


def test_cached_frame_is_written_as_it_was_cached(enabled: SparkSession, catalog: Catalog) -> None:
    enabled.range(2).write.format("delta").saveAsTable("t")
    kept = enabled.table("t").cache()
    kept.createOrReplaceTempView("kept")
    try:
        assert kept.count() == 2
        enabled.sql("INSERT INTO t VALUES (7)")
        enabled.sql("INSERT INTO t SELECT id + 10 FROM kept")
        enabled.sql("CREATE TABLE u USING delta AS SELECT * FROM kept")
        kept.write.format("delta").mode("overwrite").saveAsTable("t")  # also over the table that it reads
        assert rows(enabled.table("t")) == rows(enabled.table("u")) == [["0"], ["1"]]
        assert catalog.table("t").count(version=2) == 5
    finally:
        kept.unpersist()
        enabled.catalog.dropTempView("kept")


def test_two_enabled_sessions_in_threads_keep_to_their_catalogs(
    enabled: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    other = enabled.newSession()
    with deltars.connect(tmp_path / "other.db") as elsewhere:
        deltars.enable(other, elsewhere)
        try:
            barrier = Barrier(2)

            def job(session: SparkSession, first: int) -> int:
                barrier.wait()
                for number in range(first, first + 3):
                    session.range(number, number + 1).write.format("delta").mode("append").saveAsTable("t")
                    with deltars.begin():
                        session.sql("INSERT INTO t SELECT id + 100 FROM t WHERE id < 100")
                session.sql("CREATE OR REPLACE TEMP VIEW mine AS SELECT id FROM t WHERE id < 100")
                return session.table("mine").count()

            with ThreadPoolExecutor(2) as threads:
                counts = list(threads.map(job, (enabled, other), (0, 50)))
        finally:
            deltars.disable(other)
        assert counts == [3, 3]
        found = [sorted(one.table("t").to_arrow()["id"].to_pylist()) for one in (catalog, elsewhere)]
        assert found[0] == [0, 1, 2, 100, 100, 100, 101, 101, 102]
        assert found[1] == [50, 51, 52, 150, 150, 150, 151, 151, 152]


def test_restored_database_is_read_as_it_is_and_never_mixed(
    enabled: SparkSession, catalog: Catalog, migrated_uri: str, tmp_path: Path
) -> None:
    enabled.sql("CREATE TABLE t (id BIGINT) USING delta")
    enabled.sql("INSERT INTO t VALUES (1)")
    file = migrated_uri.partition("sqlite/")[2]
    with closing(sqlite3.connect(file)) as now, closing(sqlite3.connect(tmp_path / "backup")) as backup:
        now.backup(backup)
        enabled.sql("INSERT INTO t VALUES (2)")
        handle = DeltaTable.forName(enabled, "t")
        assert rows(handle.toDF()) == [["1"], ["2"]]
        backup.backup(now)
    for frame in (enabled.table("t"), enabled.sql("SELECT id FROM t"), handle.toDF()):
        assert rows(frame) == [["1"]]
    assert [row.version for row in handle.history().collect()] == [1, 0]
    try:
        enabled.sql("INSERT INTO t VALUES (3)")
    except deltars.DeltarsError:
        expected = [["1"]]  # the published log is ahead of the database, which is said
    else:
        expected = [["1"], ["3"]]
    assert rows(enabled.table("t")) == expected
