"""A feature store: features and labels are written together, or not at all.

    python examples/feature_store.py                                      an embedded SQLite catalog, in ./.deltars
    python examples/feature_store.py 'deltasql://postgres/lake/demo?…'    the same on PostgreSQL

Run it as often as you like: each run adds one batch to both tables.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import deltars

CATALOG = "deltasql://sqlite/.deltars/demo.db"
SPARK_LOG = Path(".deltars/spark.log")


def main(catalog_uri: str = CATALOG) -> None:
    catalog = open_catalog(catalog_uri)
    features_uri = table_uri(catalog_uri, "features")
    labels_uri = table_uri(catalog_uri, "labels")
    print(f"The catalog is {catalog.uri}")
    print(f"The tables lie in {catalog.warehouse}")
    spark = start_spark()

    say("1. Two Spark DataFrames, two tables, one transaction")
    batch = datetime.now(UTC)
    features_df, labels_df = features_of(spark, batch), labels_of(spark, batch)

    with deltars.begin() as tx:
        tx.write(table=features_uri, df=features_df, mode="append")
        tx.write(table=labels_uri, df=labels_df, mode="append")

    print(f"Transaction {tx.id} is committed:")
    for name, version in tx.result.versions.items():
        print(f"  {name:8}  version {version}, {tx.result.mirror[name].publication} to _delta_log")

    say("2. Both tables read back, and by deltalake, which knows nothing but _delta_log")
    features, labels = deltars.read(spark, features_uri), deltars.read(spark, labels_uri)
    together = features.join(labels, ["customer", "seen_at"])
    together.where(together.seen_at == batch).orderBy("customer").show(truncate=False)
    before = look(spark, catalog, catalog_uri)
    print(before)

    say("3. A transaction over both tables that fails half-way")
    failing = deltars.begin()
    try:
        with failing:
            failing.write(table=features_uri, df=features_of(spark, datetime.now(UTC)))
            print(f"The features are written: {failing}")
            failing.write(table=labels_uri, df=labels_df.withColumnRenamed("churned", "chruned"))
    except deltars.SchemaMismatch as error:
        print(f"The labels are refused: {error.message}")
    print(f"Transaction {failing.id} is rolled back. The tables are:")
    after = look(spark, catalog, catalog_uri)
    print(after)
    if after != before:
        sys.exit("The failed transaction changed something: that must never happen.")
    print("Nothing changed: no new version and no new row, in either table, for either reader.")

    command = Path(sys.executable).with_name("deltars")
    print(
        f"\nTo look around: {shlex.join([os.path.relpath(command), 'history', 'features', '--catalog', catalog.uri])}"
    )
    spark.stop()


def open_catalog(uri: str) -> deltars.Catalog:
    """An embedded catalog makes itself on first use; one on a server is made here, with a warehouse if it has none."""
    catalog = deltars.connect(uri, migrate=True)
    if catalog.warehouse is None:
        catalog = deltars.connect(uri, warehouse=str(Path(".deltars/demo.warehouse").absolute()))
    return catalog


def table_uri(catalog_uri: str, name: str) -> str:
    path, mark, parameters = catalog_uri.partition("?")
    return f"{path}/{name}{mark}{parameters}"


def features_of(spark: SparkSession, batch: datetime) -> DataFrame:
    rows = [("ada", batch, 120.5, 7), ("bob", batch, 3.0, 1), ("cyd", batch, 48.25, 4)]
    return spark.createDataFrame(rows, "customer string, seen_at timestamp, spend_30d double, visits_30d int")


def labels_of(spark: SparkSession, batch: datetime) -> DataFrame:
    rows = [("ada", batch, False), ("bob", batch, True), ("cyd", batch, False)]
    return spark.createDataFrame(rows, "customer string, seen_at timestamp, churned boolean")


def look(spark: SparkSession, catalog: deltars.Catalog, catalog_uri: str) -> str:
    """Versions and rows: as Spark reads them through the catalog, and as deltalake reads them from the files."""
    lines = []
    for name in ("features", "labels"):
        table = catalog.table(name)
        rows = deltars.read(spark, table_uri(catalog_uri, name)).count()
        outside = DeltaTable(table.location)
        lines.append(
            f"  {name:8}  catalog: version {table.version}, {rows} rows"
            f"    deltalake: version {outside.version()}, {outside.to_pyarrow_table().num_rows} rows"
        )
    return "\n".join(lines)


def say(heading: str) -> None:
    print(f"\n{heading}\n{'-' * len(heading)}")


def start_spark() -> SparkSession:
    # Or Spark looks for a python3 on the PATH, which need not have deltars.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    print(f"Spark starts; what Java has to say goes to {SPARK_LOG}", flush=True)
    with java_talks_to(SPARK_LOG):
        return (
            SparkSession.builder.master("local[2]")
            .appName("feature store")
            .config("spark.driver.memory", "1g")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )


@contextmanager
def java_talks_to(log: Path) -> Iterator[None]:
    """Java keeps the standard error that it was started with: it gets a file, and Python its own back."""
    log.parent.mkdir(exist_ok=True)
    ours = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(ours, 2)
            os.close(ours)


if __name__ == "__main__":
    main(*sys.argv[1:2])
