"""A program of its own: delta-spark reads a table at every version, and tries every write it has.

    python -m tests.mirror.delta_spark <directory of JARs> <table> <directory for the answers>

The answers: <version>.parquet for each version, and answers.json. In a process of its own, because the session needs
JARs that no other test should have.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession


def main(jars: Path, table: Path, answers: Path) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    names = [str(jar) for pattern in ("delta-*.jar", "unitycatalog-*.jar") for jar in sorted(jars.glob(pattern))]
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(names))
        .config("spark.driver.memory", "900m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", str(answers / "warehouse"))
        .getOrCreate()
    )
    try:
        told = _read(spark, table, answers)
        told["refused"] = {name: _error(spark, statement) for name, statement in _writes(table).items()}
        (answers / "answers.json").write_text(json.dumps(told))
    finally:
        spark.stop()


def _read(spark: Any, table: Path, answers: Path) -> dict[str, Any]:
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").select("version", "timestamp").collect()
    by_time = {}
    for version, moment in sorted((row["version"], row["timestamp"]) for row in history):
        frame = spark.read.format("delta").option("versionAsOf", version).load(str(table))
        pq.write_table(frame.toArrow(), answers / f"{version}.parquet")
        text = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        then = spark.read.format("delta").option("timestampAsOf", text).load(str(table))
        by_time[version] = then.count()
    return {
        "latest": spark.read.format("delta").load(str(table)).count(),
        "times_ms": {row["version"]: round(row["timestamp"].astimezone(UTC).timestamp() * 1000) for row in history},
        "by_time": by_time,
        "now": datetime.now(UTC).isoformat(),
    }


def _writes(table: Path) -> dict[str, str]:
    name = f"delta.`{table}`"
    return {
        "insert": f"INSERT INTO {name} SELECT * FROM {name}",
        "overwrite": f"INSERT OVERWRITE {name} SELECT * FROM {name}",
        "delete": f"DELETE FROM {name}",
        "update": f"UPDATE {name} SET i = 1",
        "merge": f"MERGE INTO {name} t USING {name} s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "optimize": f"OPTIMIZE {name}",
        "vacuum": f"VACUUM {name} RETAIN 200 HOURS",
        "restore": f"RESTORE TABLE {name} TO VERSION AS OF 1",
        "properties": f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
        "add column": f"ALTER TABLE {name} ADD COLUMN extra INT",
    }


def _error(spark: Any, statement: str) -> str | None:
    try:
        spark.sql(statement).collect()
    except Exception as error:
        return str(error)
    return None


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
