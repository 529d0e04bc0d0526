"""A stream into three tables, as a program that can be killed.

    python -m tests.streams.feed CATALOG CHECKPOINT BATCHES [MASTER]

Batch n holds the rows n * ROWS … (n + 1) * ROWS − 1. They are appended to `events`, counted by key in `totals` by a
merge, and every tenth is written to `samples`. The query ends after BATCHES batches. MASTER is that of a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from tests.spark.driver import session_on
from tests.support.spark import local_session

ROWS = 100
KEYS = 7


def into_three_tables(tx: deltars.Transaction, rows: DataFrame) -> None:
    numbered = rows.select(F.col("value").alias("id"), (F.col("value") % KEYS).alias("key"))
    tx.write("events", numbered)
    tx.write("samples", numbered.where("id % 10 = 0"))
    counted = numbered.groupBy("key").agg(F.count("*").alias("n"))
    merge = tx.merge("totals", counted, "t.key = s.key").when_matched_update({"n": "t.n + s.n"})
    merge.when_not_matched_insert_all().execute()


def numbers(spark: SparkSession) -> DataFrame:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    return stream.load()


def feed(spark: SparkSession, catalog: deltars.Catalog, checkpoint: Path, batches: int) -> None:
    query = (
        numbers(spark)
        .writeStream.foreachBatch(deltars.each_batch(into_three_tables, catalog=catalog))
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        while catalog.table("events").count() < batches * ROWS:
            if query.awaitTermination(1):
                raise RuntimeError(f"the query ended: {query.exception()}")
    finally:
        query.stop()


def main() -> None:
    uri, checkpoint, batches, *master = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
    scratch = checkpoint.parent / "scratch"
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    with (
        closing_session(session_on(master[0], scratch, settings)) if master else local_session(scratch) as spark,
        deltars.connect(uri) as catalog,
    ):
        feed(spark, catalog, checkpoint, batches)


@contextmanager
def closing_session(spark: SparkSession) -> Iterator[SparkSession]:
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
