"""The feature store that multi-table transactions are for: features and labels together, on PostgreSQL, read by all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.errors import VersionConflict
from tests.mirror.test_readers import READERS
from tests.support.delta_spark import DeltaSpark

pytestmark = [pytest.mark.backends("postgres"), pytest.mark.requirement("M-04")]

Uri = Callable[[str], str]
NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


@pytest.fixture
def uri(catalog: deltars.Catalog, catalog_uri: str) -> Uri:
    head, mark, query = catalog_uri.partition("?")
    return lambda table: f"{head}/{table}{mark}{query}"


def feature_rows(*customers: int) -> pa.Table:
    return pa.table(
        {
            "customer": pa.array(customers, pa.int64()),
            "seen_at": pa.array([NOON] * len(customers), pa.timestamp("us", "UTC")),
            "embedding": [[customer / 3, None] for customer in customers],
            "origin": pa.array([[("source", "web")]] * len(customers), pa.map_(pa.string(), pa.string())),
            "day": ["2026-03-29"] * len(customers),
        }
    )


def label_rows(*customers: int) -> pa.Table:
    return pa.table(
        {"customer": pa.array(customers, pa.int64()), "bought": [customer % 2 == 0 for customer in customers]}
    )


def features(spark: SparkSession, *customers: int) -> DataFrame:
    return spark.createDataFrame(feature_rows(*customers))


def labels(spark: SparkSession, *customers: int) -> DataFrame:
    return spark.createDataFrame(label_rows(*customers))


def write_both(spark: SparkSession, uri: Uri, *customers: int) -> dict[str, int]:
    with deltars.begin() as tx:
        tx.write(table=uri("features"), df=features(spark, *customers), mode="append", partition_by=["day"])
        tx.write(table=uri("labels"), df=labels(spark, *customers), mode="append")
    return dict(tx.result.versions)


def state(catalog: deltars.Catalog, spark: SparkSession) -> dict[str, tuple[int, list[int]]]:
    cut = catalog.snapshot()
    return {
        name: (version, sorted(row.customer for row in cut.read(name, spark=spark).select("customer").collect()))
        for name, version in cut.versions.items()
    }


def test_both_tables_are_committed_by_uri_in_one_transaction(
    catalog: deltars.Catalog, spark: SparkSession, uri: Uri
) -> None:
    assert write_both(spark, uri, 1, 2) == {"features": 0, "labels": 0}
    assert write_both(spark, uri, 3) == {"features": 1, "labels": 1}
    assert state(catalog, spark) == {"features": (1, [1, 2, 3]), "labels": (1, [1, 2, 3])}
    assert (
        deltars.read(uri("features"), spark=spark).join(deltars.read(uri("labels"), spark=spark), "customer").count()
        == 3
    )


def test_labels_that_fail_half_way_leave_the_features_as_they_were(
    catalog: deltars.Catalog, spark: SparkSession, uri: Uri
) -> None:
    write_both(spark, uri, 1)
    before = state(catalog, spark)
    published = sorted(Path(catalog.warehouse or "").rglob("_delta_log/*.json"))

    def fail() -> None:
        with deltars.begin() as tx:
            tx.write(table=uri("features"), df=features(spark, 2))
            failing = spark.sql("SELECT id AS customer, CAST(raise_error('lost') AS BOOLEAN) AS bought FROM range(9)")
            tx.write(table=uri("labels"), df=failing)

    with pytest.raises(PySparkException, match="lost"):
        fail()
    assert state(catalog, spark) == before
    assert sorted(Path(catalog.warehouse or "").rglob("_delta_log/*.json")) == published


def test_second_of_two_concurrent_transactions_conflicts_and_commits_when_tried_again(
    catalog: deltars.Catalog, spark: SparkSession, uri: Uri
) -> None:
    write_both(spark, uri, 1)
    late = deltars.begin()
    late.write(table=uri("labels"), df=labels(spark, 2))
    late.write(table=uri("features"), df=features(spark, 2))
    write_both(spark, uri, 3)
    with pytest.raises(VersionConflict) as caught:
        late.commit()
    assert (caught.value.table in {"features", "labels"}, caught.value.expected, caught.value.actual) == (True, 0, 1)
    assert state(catalog, spark) == {"features": (1, [1, 3]), "labels": (1, [1, 3])}

    def again(tx: deltars.Transaction) -> None:
        tx.write("features", features(spark, 2))
        tx.write("labels", labels(spark, 2))

    catalog.run(again)
    assert state(catalog, spark) == {"features": (2, [1, 2, 3]), "labels": (2, [1, 2, 3])}


def rows_of(found: pa.Table) -> list[dict[str, Any]]:
    rows = found.to_pylist()
    for row in rows:
        if "origin" in row:
            # Polars has no maps: a list of structs.
            row["origin"] = [tuple(entry.values()) if isinstance(entry, dict) else entry for entry in row["origin"]]
            row["seen_at"] = row["seen_at"].astimezone(UTC)
    return sorted(rows, key=lambda row: int(row["customer"]))


def test_every_outside_reader_finds_the_same_rows(catalog: deltars.Catalog, spark: SparkSession, uri: Uri) -> None:
    for customer in range(3):
        write_both(spark, uri, customer)
    for name, rows in (("features", feature_rows(0, 1, 2)), ("labels", label_rows(0, 1, 2))):
        place = Path(catalog.table(name).location)
        for reader, read in READERS.items():
            assert rows_of(read(place, None)) == rows_of(rows), reader
            assert rows_of(read(place, 1)) == rows_of(rows)[:2], reader


def test_delta_spark_finds_the_same_rows(catalog: deltars.Catalog, delta_spark: DeltaSpark) -> None:
    for customer in range(2):
        with catalog.begin() as tx:
            tx.write("features", feature_rows(customer), partition_by=["day"])
            tx.write("labels", label_rows(customer))
    for name, rows in (("features", feature_rows(0, 1)), ("labels", label_rows(0, 1))):
        assert rows_of(delta_spark.read(catalog.table(name).location)) == rows_of(rows)
        assert rows_of(delta_spark.read(catalog.table(name).location, version=0)) == rows_of(rows)[:1]
