"""`each_batch`: micro-batches into many tables, each exactly once."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from deltars import observe
from deltars.errors import ConfigError, ValidationError, VersionNotFound
from tests.streams.feed import KEYS, ROWS, feed
from tests.support.backup import take_backup
from tests.support.interrupts import Clock
from tests.support.soak import record, scaled, seed

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.spark]

_QUERY = "sql.streaming.queryId"


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(4).select("id", (F.col("id") * 2).alias("v"))


@contextmanager
def as_query(spark: SparkSession, query_id: str) -> Iterator[None]:
    """Let batches of this thread belong to a query, as Spark does it."""
    spark.sparkContext.setLocalProperty(_QUERY, query_id)
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(_QUERY, None)  # type: ignore[arg-type]


def two_tables(tx: deltars.Transaction, rows: DataFrame) -> None:
    tx.write("features", rows)
    tx.write("labels", rows.select("id"))


def ids(catalog: deltars.Catalog, table: str) -> list[int]:
    return sorted(catalog.table(table).to_arrow()["id"].to_pylist())


def test_batch_is_one_transaction_over_its_tables(catalog: deltars.Catalog, rows: DataFrame) -> None:
    deltars.each_batch(two_tables, app_id="load", catalog=catalog)(rows, 0)

    detail = catalog.transaction("load/0")
    assert {table.table: table.version for table in detail.tables} == {"features": 0, "labels": 0}
    for table in ("features", "labels"):
        [entry] = catalog.table(table).history()
        assert entry.operation_params["appId"] == "load"
        assert str(entry.operation_params["epochId"]) == "0"
        assert catalog.table(table).snapshot().txns["load"].version == 0


def test_repeated_batch_changes_nothing_whatever_it_does(catalog: deltars.Catalog, rows: DataFrame) -> None:
    catalog.write("features", rows)
    catalog.write("labels", rows.select("id"))
    catalog.write("gone", rows)

    def everything(tx: deltars.Transaction, batch: DataFrame) -> None:
        tx.write("features", batch)
        tx.delete("labels", "id = 0")
        tx.update("features", {"v": "v + 1"}, "id = 1")
        tx.merge("features", batch, "t.id = s.id AND t.id = 3").when_matched_delete().execute()
        tx.alter("labels").add_columns("note STRING")
        tx.drop_table("gone")

    calls: list[int] = []

    def counted(tx: deltars.Transaction, batch: DataFrame) -> None:
        calls.append(1)
        everything(tx, batch)

    each = deltars.each_batch(counted, app_id="all", catalog=catalog)
    new = rows.where("id > 1").withColumn("id", F.col("id") + 10)
    each(new, 5)
    state = (catalog.snapshot().versions, sorted(map(str, catalog.table("features").to_arrow().to_pylist())))
    for _ in range(2):
        each(new, 5)
        deltars.each_batch(counted, app_id="all", catalog=catalog)(new, 5)
    assert (catalog.snapshot().versions, sorted(map(str, catalog.table("features").to_arrow().to_pylist()))) == state
    assert calls == [1]


def test_batch_is_evaluated_once_however_often_it_is_used(
    catalog: deltars.Catalog, spark: SparkSession, rows: DataFrame
) -> None:
    seen = spark.sparkContext.accumulator(0)

    def touch(value: int) -> int:
        seen.add(1)
        return value

    batch = rows.select(F.udf(touch, "long")("id").alias("id"), F.rand().alias("chance"))

    def thrice(tx: deltars.Transaction, batch: DataFrame) -> None:
        tx.write("a", batch)
        tx.write("b", batch)
        assert batch.count() == 4

    deltars.each_batch(thrice, app_id="once", catalog=catalog)(batch, 0)
    assert seen.value == 4
    assert catalog.table("a").to_arrow().sort_by("id") == catalog.table("b").to_arrow().sort_by("id")


def test_large_batch_is_evaluated_once_too(catalog: deltars.Catalog, spark: SparkSession) -> None:
    batch = spark.range(300_000).select("id", F.rand().alias("chance"), F.uuid().alias("text"))

    def twice(tx: deltars.Transaction, batch: DataFrame) -> None:
        tx.write("a", batch)
        tx.write("b", batch)

    deltars.each_batch(twice, app_id="large", catalog=catalog)(batch, 0)
    a, b = (catalog.table(name).to_arrow().sort_by("id") for name in "ab")
    assert a.num_rows == 300_000
    assert a.equals(b)


def test_conflict_is_retried_with_the_same_rows(catalog: deltars.Catalog, rows: DataFrame) -> None:
    catalog.write("features", rows)
    attempts: list[list[Any]] = []

    def loses_once(tx: deltars.Transaction, batch: DataFrame) -> None:
        attempts.append(batch.collect())
        tx.write("features", batch)
        if len(attempts) == 1:
            catalog.write("features", rows.where("id = 0"))

    chance = rows.withColumn("v", (F.rand() * 1_000_000).cast("long"))
    deltars.each_batch(loses_once, app_id="again", catalog=catalog, isolation="strict")(chance, 0)
    assert len(attempts) == 2
    assert attempts[0] == attempts[1]
    assert catalog.table("features").count() == 9


def test_failed_batch_leaves_nothing_and_runs_again(catalog: deltars.Catalog, rows: DataFrame) -> None:
    def fails(tx: deltars.Transaction, batch: DataFrame) -> None:
        tx.write("features", batch)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        deltars.each_batch(fails, app_id="load", catalog=catalog)(rows, 0)
    assert "features" not in catalog
    deltars.each_batch(two_tables, app_id="load", catalog=catalog)(rows, 0)
    assert ids(catalog, "features") == [0, 1, 2, 3]


def test_batches_of_different_streams_and_numbers_are_not_confused(catalog: deltars.Catalog, rows: DataFrame) -> None:
    for app_id, batch_id in [("a", 0), ("a", 1), ("b", 0), ("a", 0), ("b", 0), ("b", 1), ("b", 2)]:
        deltars.each_batch(two_tables, app_id=app_id, catalog=catalog)(rows.limit(1), batch_id)
    assert catalog.table("features").count() == 5


def test_deleted_checkpoint_is_an_error_and_not_silence(
    catalog: deltars.Catalog, spark: SparkSession, rows: DataFrame
) -> None:
    each = deltars.each_batch(two_tables, app_id="load", catalog=catalog)
    with as_query(spark, "11111111-1111-1111-1111-111111111111"):
        each(rows, 0)
        each(rows, 0)
    with (
        as_query(spark, "22222222-2222-2222-2222-222222222222"),
        pytest.raises(ValidationError, match=r"another query, 11111111.*\n?.*new app_id"),
    ):
        each(rows, 0)
    assert catalog.table("features").count() == 4


def test_older_batch_without_a_record_is_an_error(catalog: deltars.Catalog, rows: DataFrame) -> None:
    catalog.write("features", rows, app_id="load", app_version=7)
    catalog.write("labels", rows.select("id"))
    each = deltars.each_batch(two_tables, app_id="load", catalog=catalog)
    with pytest.raises(ValidationError, match="batch 3 of 'load' is older than batch 7"):
        each(rows, 3)
    each(rows, 7)  # written by app_id and app_version before: a repetition
    assert (catalog.table("features").count(), catalog.table("labels").count()) == (4, 4)
    each(rows, 8)
    assert (catalog.table("features").count(), catalog.table("labels").count()) == (8, 8)


def test_two_copies_of_a_query_commit_a_batch_once(catalog: deltars.Catalog, rows: DataFrame) -> None:
    catalog.write("features", rows.limit(0))
    catalog.write("labels", rows.select("id").limit(0))
    at_once = threading.Barrier(2)

    def waits(tx: deltars.Transaction, batch: DataFrame) -> None:
        two_tables(tx, batch)
        if len(waited) < 2:
            waited.append(1)
            at_once.wait(60)

    waited: list[int] = []
    each = deltars.each_batch(waits, app_id="twin", catalog=catalog, isolation="serializable")
    threads = [threading.Thread(target=each, args=(rows, 0)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert ids(catalog, "features") == ids(catalog, "labels") == [0, 1, 2, 3]


def test_two_queries_of_one_name_at_once_are_an_error_for_one(
    catalog: deltars.Catalog, spark: SparkSession, rows: DataFrame
) -> None:
    """The later one's rows are others: to skip them silently would lose them."""
    catalog.write("features", rows.limit(0))
    catalog.write("labels", rows.select("id").limit(0))
    at_once = threading.Barrier(2)

    def waits(tx: deltars.Transaction, batch: DataFrame) -> None:
        two_tables(tx, batch)
        at_once.wait(60)

    errors: list[Exception] = []

    def run(number: int) -> None:
        each = deltars.each_batch(waits, app_id="twin", catalog=catalog, isolation="serializable")
        try:
            with as_query(spark, f"{number}1111111-1111-1111-1111-111111111111"):
                each(rows.where(f"id % 2 = {number}"), 0)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    [error] = errors
    assert isinstance(error, ValidationError)
    assert "committed by another query" in str(error)
    assert ids(catalog, "features") in ([0, 2], [1, 3])


def test_one_function_serves_queries_in_threads(catalog: deltars.Catalog, spark: SparkSession, rows: DataFrame) -> None:
    catalog.write("features", rows.limit(0))
    catalog.write("labels", rows.select("id").limit(0))
    each = deltars.each_batch(two_tables, catalog=catalog, isolation="serializable")

    def run(number: int) -> None:
        with as_query(spark, f"{number}1111111-1111-1111-1111-111111111111"):
            for batch in range(2):
                each(rows.where("id = 0").withColumn("id", F.lit(number * 10 + batch).cast("long")), batch)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert ids(catalog, "features") == ids(catalog, "labels") == [0, 1, 10, 11, 20, 21]


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_interrupt_at_any_moment_leaves_a_batch_whole_or_absent(catalog: deltars.Catalog, rows: DataFrame) -> None:
    catalog.write("features", rows.limit(0))
    catalog.write("labels", rows.select("id").limit(0))
    draw = random.Random(seed())

    def run(number: int) -> None:
        new = rows.where("id = 0").withColumn("id", F.lit(number).cast("long"))
        deltars.each_batch(two_tables, app_id="load", catalog=catalog)(new, number)

    with Clock() as clock:
        run(0)
    moments = sorted(draw.sample(clock.places, scaled(4, soak=150)))
    for number, moment in enumerate(moments, 1):
        with suppress(KeyboardInterrupt), Clock(moment):
            run(number)
        cut = catalog.snapshot()
        assert sorted(cut.to_arrow("features")["id"].to_pylist()) == sorted(cut.to_arrow("labels")["id"].to_pylist())
        run(number)  # as Spark does it after a restart
        assert ids(catalog, "features") == ids(catalog, "labels") == list(range(number + 1)), (number, moment)
    record("interrupted batches", interrupts=len(moments))


def test_restored_database_is_an_error_and_not_silence(migrated_uri: str, rows: DataFrame, tmp_path: Path) -> None:
    catalog = deltars.connect(migrated_uri, mirror="off")  # a published version would contradict the new one
    each = deltars.each_batch(two_tables, app_id="load", catalog=catalog)
    each(rows, 0)
    backup = take_backup(catalog, tmp_path / "backup", None)
    each(rows, 1)
    backup.restore()
    with pytest.raises(VersionNotFound, match=r"batch 1 of 'load', which this query committed.* restored"):
        each(rows, 2)
    catalog.write("features", rows)
    with pytest.raises(VersionNotFound, match="restored"):
        each(rows, 2)
    # A history that is expired is another matter.
    other = deltars.each_batch(two_tables, app_id="other", catalog=catalog)
    other(rows, 0)
    for name in ("features", "labels"):
        catalog.write(name, rows if name == "features" else rows.select("id"))
        catalog.table(name).expire(timedelta(0), force=True)
    other(rows, 1)


def test_outcome_of_each_batch_is_logged_and_emitted(
    catalog: deltars.Catalog, rows: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[observe.BatchEnded] = []

    def keep(event: observe.Event) -> None:
        if isinstance(event, observe.BatchEnded):
            events.append(event)

    observe.attach(keep)
    each = deltars.each_batch(two_tables, app_id="load", catalog=catalog)
    try:
        with caplog.at_level(logging.INFO, "deltars.stream"):
            each(rows, 0)
            each(rows, 0)
            deltars.each_batch(lambda tx, batch: None, app_id="idle", catalog=catalog)(rows, 0)
            with pytest.raises(deltars.TableNotFound):
                deltars.each_batch(lambda tx, batch: tx.delete("none"), app_id="bad", catalog=catalog)(rows, 0)
    finally:
        observe.detach(keep)
    assert [(event.app_id, event.batch_id, str(event.outcome)) for event in events] == [
        ("load", 0, "committed"), ("load", 0, "repeated"), ("idle", 0, "empty"), ("bad", 0, "failed"),
    ]  # fmt: skip
    assert events[0].versions == {"features": 0, "labels": 0}
    assert [record.getMessage().split(" of ")[0] for record in caplog.records] == ["batch 0"] * 4


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: deltars.each_batch(1), "fn must be a function"),  # type: ignore[arg-type]
        (lambda: deltars.each_batch(lambda tx: None), "fn must take a transaction and a batch"),  # type: ignore[arg-type]
        (lambda: deltars.each_batch(lambda tx, rows: None, app_id=" "), "app_id must not be empty"),
        (lambda: deltars.each_batch(lambda tx, rows: None, app_id=3), "app_id must be a text"),  # type: ignore[arg-type]
        (lambda: deltars.each_batch(lambda tx, rows: None, catalog=3), "catalog must be a catalog"),  # type: ignore[arg-type]
        (lambda: deltars.each_batch(lambda tx, rows: None, txn_id="x"), "makes the transaction's id itself"),
    ],
)
def test_wrong_arguments_are_refused_at_once(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        make()


def test_stream_without_a_name_or_a_query_is_refused(catalog: deltars.Catalog, rows: DataFrame) -> None:
    with pytest.raises(ConfigError, match="app_id="):
        deltars.each_batch(two_tables, catalog=catalog)(rows, 0)


def test_function_may_take_the_id_of_the_batch(catalog: deltars.Catalog, rows: DataFrame) -> None:
    def numbered(tx: deltars.Transaction, batch: DataFrame, batch_id: int) -> None:
        tx.write("features", batch.withColumn("batch", F.lit(batch_id)))

    deltars.each_batch(numbered, app_id="n", catalog=catalog)(rows, 9)
    assert set(catalog.table("features").to_arrow()["batch"].to_pylist()) == {9}


def test_stream_fills_three_tables_and_goes_on_from_its_checkpoint(
    catalog: deltars.Catalog, spark: SparkSession, tmp_path: Path
) -> None:
    catalog.create_table("events", "id BIGINT, key BIGINT")
    catalog.create_table("samples", "id BIGINT, key BIGINT")
    catalog.create_table("totals", "key BIGINT, n BIGINT")
    for batches in (2, 4):
        feed(spark, catalog, tmp_path / "checkpoint", batches)
    check_whole(catalog)


def check_whole(catalog: deltars.Catalog) -> None:
    """Check that each row is there exactly once, and that the tables agree at every cut."""
    written = ids(catalog, "events")
    assert written == list(range(len(written)))
    assert len(written) % ROWS == 0
    for entry in catalog.table("events").history():
        if entry.operation == "CREATE TABLE":
            continue  # the other tables came after it
        cut = catalog.snapshot(as_of=entry.txn_id)
        events = cut.to_arrow("events")
        totals = {row["key"]: row["n"] for row in cut.to_arrow("totals").to_pylist()}
        keys = events["key"].to_pylist()
        assert totals == {key: keys.count(key) for key in range(KEYS) if key in keys}
        assert sorted(cut.to_arrow("samples")["id"].to_pylist()) == sorted(
            one for one in events["id"].to_pylist() if one % 10 == 0
        )
