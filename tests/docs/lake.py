"""The lake that the documentation's examples run on, and the names that they may use."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import deltars

URI = "deltasql://postgres/lake/public"
DAYS = [date(2026, 1, 1), date(2026, 1, 2)]


def features() -> pa.Table:
    return pa.table({"id": [1, 2, 7], "day": [DAYS[0], DAYS[0], DAYS[1]], "score": [0.5, 0.25, 0.75]})


def labels() -> pa.Table:
    return pa.table({"id": [1, 2, 7], "day": [DAYS[0]] * 3, "clicks": [12, 0, 31]})


def events() -> pa.Table:
    return pa.table({"day": DAYS, "user": [{"id": 7}, {"id": 9}], "kind": ["view", "click"]})


def names(spark: SparkSession, warehouse: str, *, is_empty: bool = False) -> dict[str, Any]:
    """Create a catalog on PostgreSQL with `features` and `labels` at version 3, and return it with frames for them."""
    catalog = deltars.connect(URI, warehouse=warehouse, migrate=True)
    if is_empty:
        return {"catalog": catalog}
    for _ in range(4):
        with catalog.begin() as tx:
            tx.write("features", features(), partition_by=["day"])
            tx.write("labels", labels())
    catalog.write("events", events())
    features_df, labels_df = spark.createDataFrame(features()), spark.createDataFrame(labels())
    return {
        "deltars": deltars,
        "pa": pa,
        "spark": spark,
        "uri": URI,
        "catalog": catalog,
        "table": catalog.table("features"),
        "tx": tx,
        "txn_id": tx.id,
        "cut": catalog.snapshot(),
        "features_df": features_df,
        "labels_df": labels_df,
        "last_night": datetime.now(UTC),
    }
