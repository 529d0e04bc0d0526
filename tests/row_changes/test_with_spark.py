"""Row-level changes by Spark at the edges: cached frames, sources too large for this process, Ctrl-C, Connect."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.errors import ConcurrentAppend, VersionConflict
from deltars.spark.change import source as change_source
from deltars.transaction import read_size
from tests.support.soak import is_soak, scaled
from tests.support.spark import connected

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.timeout(600)]

VECTORS = {"delta.enableDeletionVectors": "true"}
STORAGES = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "vectors"])


@pytest.fixture
def by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a change is, Spark runs a job."""
    monkeypatch.setattr(read_size, "SMALL_BYTES", -1)


def _table(catalog: deltars.Catalog, properties: dict[str, str], rows: int = 20) -> deltars.Table:
    table = catalog.create_table("t", "id BIGINT, v BIGINT", properties=properties)
    table.write(pa.table({"id": list(range(rows)), "v": [0] * rows}), max_records_per_file=rows // 2)
    return table


def _rows(table: deltars.Table) -> dict[int, int]:
    found = table.to_arrow()
    ids: list[int] = found["id"].to_pylist()
    assert len(ids) == len(set(ids)), "a row is there twice"
    return dict(zip(ids, found["v"].to_pylist(), strict=True))


def _upsert(tx: deltars.Transaction, source: Any, **options: Any) -> Any:
    merge = tx.merge("t", source, "t.id = s.id", **options)
    return merge.when_matched_update({"v": "t.v + s.v"}).when_not_matched_insert_all().execute()


def _cached(frame: DataFrame) -> DataFrame:
    frame = frame.cache()
    assert frame.count()
    return frame


# -- cached frames -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "properties",
    [pytest.param({}, id="rewritten", marks=pytest.mark.soak(only=True)), pytest.param(VECTORS, id="vectors")],
)
def test_frames_that_the_user_cached_are_changed_and_merged_as_they_are(
    catalog: deltars.Catalog, spark: SparkSession, by_jobs: None, properties: dict[str, str]
) -> None:
    """Spark replaces a plan by cached rows wherever it finds it: in the target, where rows need their place, too."""
    table = _table(catalog, properties)
    target = _cached(table.read(spark=spark))
    few = _cached(table.read(spark=spark, where="id < 5"))
    source = _cached(spark.createDataFrame([(3, 1), (50, 1)], "id BIGINT, v BIGINT"))
    try:
        table.update({"v": "v + length('x')"}, "id < 5", spark=spark)
        with catalog.begin() as tx:
            assert _upsert(tx, source, spark=spark).rows_inserted == 1
            # The table as it was, as the source of its own merge; and rows of this transaction that are cached.
            staged = _cached(tx.read("t", spark=spark))
            _upsert(tx, few.selectExpr("id", "10 AS v"), spark=spark)
            tx.delete("t", "length(concat('x', id)) = 3 AND id > 15", spark=spark)
            assert staged.count() == 21
        expected = {i: (11 if i < 5 else 0) for i in range(16)} | {3: 12}
        assert _rows(table) == expected
        assert {row.id: row.v for row in table.read(spark=spark).collect()} == expected
        # What was cached is what it was.
        assert (target.count(), few.count()) == (20, 5)
        assert {row.v for row in target.collect()} == {0}
    finally:
        spark.catalog.clearCache()


def test_a_cache_that_is_cleared_between_two_changes_changes_nothing(
    catalog: deltars.Catalog, spark: SparkSession, by_jobs: None
) -> None:
    table = _table(catalog, VECTORS)
    source = _cached(spark.range(15, 25).selectExpr("id", "id AS v"))
    with catalog.begin() as tx:
        _upsert(tx, source, spark=spark)
        spark.catalog.clearCache()
        _upsert(tx, source, spark=spark)
    assert _rows(table) == dict.fromkeys(range(15), 0) | {i: 2 * i for i in range(15, 25)}


# -- large sources -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "is_remote",
    [
        pytest.param(False, id="classic"),
        pytest.param(True, id="connect", marks=pytest.mark.soak(only=True)),
    ],
)
def test_a_source_too_large_for_this_process_stays_in_spark(
    catalog: deltars.Catalog,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    is_remote: bool,
) -> None:
    """Neither its rows nor the list of its keys come here; what it may match is told by the range of its keys."""
    monkeypatch.setattr(change_source, "MAX_HELD_ROWS", 5)
    monkeypatch.setattr(change_source, "MAX_KEY_VALUES", 3)
    table = _table(catalog, VECTORS)

    def merge_with(session: SparkSession) -> None:
        rows = session.range(10, 30, 1, 2).selectExpr("id", "1L AS v").distinct()
        with catalog.begin(isolation="serializable") as tx:
            metrics = _upsert(tx, rows, spark=session)
        assert (metrics.rows_updated, metrics.rows_inserted) == (10, 10)
        assert _rows(table) == dict.fromkeys(range(10), 0) | dict.fromkeys(range(10, 30), 1)
        # A row that came between its keys is a conflict: which keys it has is not known here.
        tx = catalog.begin(isolation="serializable")
        _upsert(tx, session.range(40, 60, 2, 2).selectExpr("id", "1L AS v").distinct(), spark=session)
        with catalog.begin(isolation="serializable") as winner:
            _upsert(winner, pa.table({"id": [41], "v": [7]}))
        with pytest.raises(ConcurrentAppend):
            tx.commit()
        # In a merge that changes other rows there is none.
        tx = catalog.begin(isolation="serializable")
        _upsert(tx, session.range(60, 80, 1, 2).selectExpr("id", "1L AS v").distinct(), spark=session)
        with catalog.begin(isolation="serializable") as winner:
            _upsert(winner, pa.table({"id": [3, 90], "v": [7, 7]}))
        tx.commit()
        assert _rows(table)[3] == 7
        assert len(_rows(table)) == 52

    if is_remote:
        with connected(request.getfixturevalue("connect_url")) as remote:
            merge_with(remote)
    else:
        merge_with(spark)


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def _waiting(signs: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        Path(signs, "at work").touch()
        deadline = time.monotonic() + 60
        while not Path(signs, "go").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        yield batch


@STORAGES
def test_ctrl_c_while_tasks_run_stages_nothing_and_leaves_the_transaction_usable(
    catalog: deltars.Catalog, spark: SparkSession, tmp_path: Path, by_jobs: None, properties: dict[str, str]
) -> None:
    table = _table(catalog, properties)
    signs = tmp_path / "signs"
    signs.mkdir()
    slow = spark.range(15, 25, 1, 1).selectExpr("id", "1L AS v")
    slow = slow.mapInArrow(partial(_waiting, str(signs)), "id BIGINT, v BIGINT")

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not (signs / "at work").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    with catalog.begin(isolation="serializable") as tx:
        tx.delete("t", "length(concat('x', id)) = 2 AND id = 1", spark=spark)
        hand = threading.Thread(target=interrupt)
        hand.start()
        with pytest.raises(KeyboardInterrupt):
            _upsert(tx, slow, spark=spark)
        hand.join()
        (signs / "go").touch()
        assert _upsert(tx, slow, spark=spark).rows_inserted == 5
    assert tx.result.versions == {"t": 2}
    expected = {i: int(i >= 15) for i in range(25) if i != 1}
    assert _rows(table) == expected
    assert not table.verify(deep=True).findings
    left = [path for path in Path(table.location).rglob("write-*/**/*") if path.is_file()]
    assert not left


# -- another attempt ---------------------------------------------------------------------------------------------------


def test_every_attempt_of_a_spark_change_sees_the_rows_of_its_own_moment(
    catalog: deltars.Catalog, spark: SparkSession, by_jobs: None
) -> None:
    table = _table(catalog, {})
    source = spark.range(18, 22).selectExpr("id", "1L AS v").distinct()
    seen: list[tuple[int | None, int | None]] = []

    def change(tx: deltars.Transaction) -> None:
        metrics = _upsert(tx, source, spark=spark)
        seen.append((metrics.rows_updated, metrics.rows_inserted))
        if len(seen) == 1:
            with catalog.begin(isolation="serializable") as winner:
                winner.delete("t", "id = 18")
                winner.update("t", {"v": 5}, "id = 19")
                _upsert(winner, pa.table({"id": [20], "v": [7]}))

    catalog.run(change, isolation="serializable")
    assert seen == [(2, 2), (2, 2)]
    assert _rows(table) == dict.fromkeys(range(18), 0) | {18: 1, 19: 6, 20: 8, 21: 1}


# -- change feeds ------------------------------------------------------------------------------------------------------

FEED: dict[str, Any] = {
    "keys": "id",
    "sequence_by": "at",
    "apply_as_deletes": "op = 'D'",
    "except_column_list": ["op", "at"],
}
FIRST = [(1, 1, "I", "Ada"), (2, 1, "I", "Alan"), (1, 3, "U", "Ada L.")]
LATE = [(1, 2, "U", "Ada K."), (2, 5, "D", None), (3, 4, "I", "Grace")]
STATE = [(1, "Ada L.", 3), (3, "Grace", 4)]
HISTORY = [(1, "Ada K.", 2, 3), (1, "Ada L.", 3, None), (1, "Ada", 1, 2), (2, "Alan", 1, 5), (3, "Grace", 4, None)]


def _apply_feeds(catalog: deltars.Catalog, session: SparkSession) -> None:
    def events(rows: list[Any]) -> DataFrame:
        return session.createDataFrame(rows, "id BIGINT, at BIGINT, op STRING, name STRING")

    for rows in (FIRST, LATE, LATE)[: scaled(2, soak=3)]:
        with catalog.begin(isolation="serializable", timeout=120) as tx:
            tx.apply_changes("people", events(rows), spark=session, **FEED)
            tx.apply_changes("history", events(rows), stored_as_scd_type=2, spark=session, **FEED)
    tables = [catalog.table("people"), catalog.table("history")]
    found = [sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=str) for table in tables]
    assert found == [STATE, HISTORY]
    if not is_soak():
        return
    # Of two batches with a late delete of one key, the second is refused, and applied in its next attempt.
    tx = catalog.begin(isolation="serializable")
    tx.apply_changes("people", events([(1, 9, "D", None)]), spark=session, **FEED)
    catalog.table("people").apply_changes(events([(1, 8, "U", "Ada B.")]), spark=session, **FEED)
    with pytest.raises(VersionConflict):
        tx.commit()
    catalog.run(
        lambda again: again.apply_changes("people", events([(1, 9, "D", None)]), spark=session, **FEED),
        isolation="serializable",
    )
    assert [row["id"] for row in catalog.table("people").to_arrow().to_pylist()] == [3]


@pytest.mark.soak(only=True)
@pytest.mark.backends("postgres")
def test_feeds_are_applied_on_postgres(catalog: deltars.Catalog, spark: SparkSession) -> None:
    _apply_feeds(catalog, spark)


@pytest.mark.soak(only=True)
def test_feeds_are_applied_by_spark_connect(catalog: deltars.Catalog, connect_url: str) -> None:
    with connected(connect_url) as remote:
        _apply_feeds(catalog, remote)
