"""DataFrames of Spark Connect, whose server is another process: written, refused and read as those of this one."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import deltars
from deltars import progress_bar
from deltars.errors import ConfigError, SchemaMismatch, ValidationError
from deltars.spark import SparkPlane, active_session, progress
from deltars.spark.read import files as read_files
from tests.support.scans import scan_of_files, write_file
from tests.support.spark import connected

DAY_1, DAY_2 = date(2026, 1, 1), date(2026, 1, 2)

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture(scope="module")
def remote(connect_url: str) -> Iterator[SparkSession]:
    with connected(connect_url) as session:
        yield session


def content(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_tables_with_and_without_partitions_become_visible_together(
    catalog: deltars.Catalog, remote: SparkSession
) -> None:
    features = remote.createDataFrame([(1, DAY_1), (2, DAY_2), (3, None)], "id BIGINT, day DATE")
    with catalog.begin() as tx:
        tx.write("features", features, partition_by=["day"])
        named = remote.range(0, 1000, 1, 3).selectExpr("id", "named_struct('a b', array(id)) as `s.t`")
        tx.write("labels", named, properties={"delta.columnMapping.mode": "name"})
        assert ids(tx.read("features", where="day = DATE '2026-01-01'")) == [1]  # the active session is this one
        assert not catalog.table_exists("features")
    assert tx.result.versions == {"features": 0, "labels": 0}
    assert content(catalog.table("features").read(spark=remote)) == [(1, DAY_1), (2, DAY_2), (3, None)]
    labels = catalog.table("labels")
    assert content(labels.read(spark=remote, where="id >= 998", columns=["ID"])) == [(998,), (999,)]
    assert labels.to_arrow().num_rows == labels.read(spark=remote).count() == 1000


def test_overwriting_leaves_what_the_condition_and_the_partitions_leave(
    catalog: deltars.Catalog, remote: SparkSession
) -> None:
    def rows(*found: tuple[int, date]) -> DataFrame:
        return remote.createDataFrame(list(found), "id BIGINT, day DATE")

    catalog.write("events", rows((1, DAY_1), (2, DAY_2), (3, DAY_2)), partition_by=["day"])
    catalog.write("events", rows((13, DAY_2)), "overwrite", replace_where="id % 10 = 3")
    assert ids(catalog.table("events").read(spark=remote)) == [1, 2, 13]
    catalog.write("events", rows((4, DAY_1)), "overwrite", partition_overwrite="dynamic")
    assert ids(catalog.table("events").read(spark=remote)) == [2, 4, 13]
    with pytest.raises(ValidationError, match="replace_where"):
        catalog.write("events", rows((5, DAY_2)), "overwrite", replace_where="id < 2")
    assert ids(catalog.table("events").read(spark=remote, version=0)) == [1, 2, 3]


def test_what_the_table_asks_of_its_columns_is_kept_and_said_in_our_own_words(
    catalog: deltars.Catalog, remote: SparkSession
) -> None:
    computed = "day DATE DEFAULT DATE'2026-01-01', twice BIGINT GENERATED ALWAYS AS (id * 2)"
    table = catalog.create_table("features", f"id BIGINT NOT NULL, code CHAR(3), {computed}")
    table.alter.add_constraint("few", "coalesce(id, 0) < 10")
    catalog.write("features", remote.sql("select 1L as id, 'a' as code"))
    wanted = [(1, "a  ", DAY_1, 2)]
    assert content(table.read(spark=remote)) == wanted
    refused: list[tuple[type[deltars.DeltarsError], str, str]] = [
        (ValidationError, "few", "select 10L as id"),
        (ValidationError, "column code has a string that is longer than", "select 2L as id, 'long' as code"),
        (SchemaMismatch, "id is NOT NULL", "select cast(null as bigint) as id"),
        (SchemaMismatch, "other", "select 2L as id, 1 as other"),
    ]
    for kind, said, query in refused:
        with pytest.raises(kind, match=said):
            catalog.write("features", remote.sql(query))
    assert content(table.read(spark=remote)) == wanted


def test_many_files_go_by_a_list_that_the_server_reads_and_one_by_one_where_it_cannot(
    catalog: deltars.Catalog, remote: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pa.table({"id": list(range(40)), "p": [number % 2 for number in range(40)]})
    catalog.write("flat", rows, max_records_per_file=1)
    catalog.write("partitioned", rows, partition_by=["p"], max_records_per_file=1)
    with caplog.at_level(logging.WARNING, "deltars.spark"):
        for name in ("flat", "partitioned"):
            frame = catalog.table(name).read(spark=remote)
            assert len(frame.inputFiles()) == 40
            assert ids(frame) == list(range(40))
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        monkeypatch.setattr(read_files, "write_manifest", lambda files: "file:/a/place/of/the/client/alone")
        for name in ("flat", "partitioned"):
            assert ids(catalog.table(name).read(spark=remote, where="id > 2")) == list(range(3, 40))
    assert "passing each file instead" in caplog.text


@pytest.mark.soak(only=True)
def test_views_and_queries_see_every_table_at_one_cut(catalog: deltars.Catalog, remote: SparkSession) -> None:
    with catalog.begin() as tx:
        tx.write("features", remote.range(5))
        tx.write("labels", remote.sql("select id, id * 10 as clicks from range(5)"))
    catalog.write("labels", remote.sql("select 4L as id, 99L as clicks"))
    query = "select f.id, clicks from {0}features f join {0}labels using (id) where clicks > 25"
    now, before = [(3, 30), (4, 40), (4, 99)], [(3, 30), (4, 40)]
    assert content(deltars.sql(query.format(""), catalog=str(catalog.uri), spark=remote)) == now
    assert content(catalog.sql(query.format(""), spark=remote, as_of=tx.id)) == before
    query_of_one = "select id from labels where clicks > :least"
    assert content(catalog.sql(query_of_one, args={"least": 50}, spark=remote)) == [(4,)]
    catalog.snapshot(as_of=tx.id).register_views(spark=remote, prefix="then_")
    assert content(remote.sql(query.format("then_"))) == before


def test_times_are_in_the_sessions_zone(catalog: deltars.Catalog, connect_url: str, remote: SparkSession) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    catalog.write("events", pa.table({"id": [1, 2], "at": [noon, noon.replace(hour=18)]}), partition_by=["at"])
    with connected(connect_url) as elsewhere:
        elsewhere.conf.set("spark.sql.session.timeZone", "America/New_York")
        table = catalog.table("events")
        assert ids(table.read(spark=elsewhere, where="at = TIMESTAMP '2026-01-01 07:00:00'")) == [1]
        catalog.write("events", elsewhere.sql("select 3L as id, timestamp'2026-01-01 13:00:00' as at"))
        assert ids(table.read(spark=elsewhere, where="at = TIMESTAMP '2026-01-01 18:00:00Z'")) == [2, 3]
    assert ids(table.read(spark=remote, where="at = TIMESTAMP '2026-01-01 18:00:00'")) == [2, 3]


def test_deleted_rows_and_files_that_spark_would_hide_are_read_as_elsewhere(
    remote: SparkSession, tmp_path: Path
) -> None:
    rows = {"id": [1, 2, 3]}
    files = [
        write_file(tmp_path, "p=1/part-0.parquet", rows, {"p": "1"}, deleted=[1]),
        write_file(tmp_path, "p=2/part-1.parquet", rows, {"p": "2"}),
        write_file(tmp_path, "_hidden.parquet", rows, {"p": "3"}, deleted=[0]),
    ]
    scan = scan_of_files(tmp_path, "id BIGINT, p INT", files, ["p"])
    wanted = [(1, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)]
    assert content(SparkPlane().read(remote, scan)) == wanted


@pytest.mark.soak(only=True)
def test_long_write_shows_how_far_the_server_is(remote: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "PATIENCE_S", 0.0)
    slow = remote.sql("select java_method('java.lang.Thread', 'sleep', 2500L) from range(0, 4, 1, 4)")
    screen = io.StringIO()
    with progress.shown(remote, "/lake/events", Console(file=screen, force_terminal=True, width=100)):
        slow.collect()
    assert "writing /lake/events" in screen.getvalue()
    assert re.search(r"\d/4\b", screen.getvalue())


def test_a_stopped_session_is_called_that(catalog: deltars.Catalog, connect_url: str, remote: SparkSession) -> None:
    catalog.write("features", pa.table({"id": [1]}))
    with connected(connect_url) as session:
        frame = session.range(3)
    with pytest.raises(ConfigError, match="the Spark session was stopped"):
        catalog.table("features").read(spark=session)
    for name in ("features", "new"):
        with pytest.raises(ConfigError, match="the Spark session was stopped"):
            catalog.write(name, frame)
    assert not catalog.table_exists("new")
    assert active_session() is remote


@pytest.mark.parametrize("listed", [0, 32], ids=["manifest", "list"])
def test_a_cached_frame_does_not_break_other_reads_nor_answer_for_another_version(
    catalog: deltars.Catalog,
    remote: SparkSession,
    listed: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(read_files, "LISTED_FILES", listed)
    catalog.write("t", pa.table({"id": [1, 2], "d": [1.0, float("nan")]}), max_records_per_file=1)
    table = catalog.table("t")
    before = table.read(spark=remote).cache()
    try:
        assert before.count() == 2
        with caplog.at_level(logging.WARNING, "deltars.spark"):
            assert ids(table.read(spark=remote)) == [1, 2]
        assert ids(table.read(spark=remote).where("d > 1")) == [2]
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        catalog.write("t", pa.table({"id": [3], "d": [3.0]}), "overwrite")
        assert [ids(frame) for frame in (table.read(spark=remote), before, table.read(spark=remote, version=0))] == [
            [3],
            [1, 2],
            [1, 2],
        ]
    finally:
        before.unpersist()
