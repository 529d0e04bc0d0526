"""A program of its own: a session that has Hadoop's S3 classes, and tables in an object store.

    python -m tests.spark.on_s3a <directory>

In a process of its own because the classes must be there when Java starts. <directory>/asked.json says where all is;
what was seen goes to told.json.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.doctor.object_store import reading
from deltars.spark import SparkPlane
from tests.spark.behaviours import chosen
from tests.support.jvm import SHORT_LIVED
from tests.support.scans import without_first_rows

ROWS = [(number, f"a b/ü{number % 3}", f"name {number}") for number in range(90)]
COLUMNS = "id int, part string, name string"


def main(directory: Path) -> None:
    asked = json.loads((directory / "asked.json").read_text())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = session(asked, directory)
    try:
        told: dict[str, Any] = {name: seen(spark, name, asked) for name in ("native", "elsewhere")}
        told["behaviours"] = behaved(spark, asked)
        (directory / "told.json").write_text(json.dumps(told))
    finally:
        spark.stop()


def behaved(spark: SparkSession, asked: Mapping[str, Any]) -> list[str]:
    """The behaviours that were seen; one that was not ends the program."""
    warehouse = f"s3a://{asked['buckets']['native']}/behaviours"
    with deltars.connect(
        asked["catalogs"]["behaviours"], warehouse=warehouse, storage_options=asked["options"]
    ) as lake:
        for behaviour in chosen().values():
            behaviour(spark, lake)
    return list(chosen())


def session(asked: Mapping[str, Any], directory: Path) -> SparkSession:
    settings = {
        "endpoint": asked["options"]["aws_endpoint"],
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": asked["options"]["aws_access_key_id"],
        "secret.key": asked["options"]["aws_secret_access_key"],
        # A session that looks for this bucket in another store.
        f"bucket.{asked['buckets']['elsewhere']}.endpoint": asked["other_endpoint"],
        "attempts.maximum": "1",
        "retry.limit": "1",
    }
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraClassPath", asked["class_path"])
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(directory / "local"))
    )
    for name, value in settings.items():
        builder = builder.config(f"spark.hadoop.fs.s3a.{name}", value)
    return builder.getOrCreate()


def seen(spark: SparkSession, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a bucket's tables look like to the session; `flat` and the others stay for others to read."""
    uri = asked["catalogs"][name]
    warehouse = f"s3://{asked['buckets'][name]}/lake"
    with deltars.connect(uri, warehouse=warehouse, storage_options=asked["options"]) as catalog:
        frame = spark.createDataFrame(ROWS, COLUMNS).repartition(2)
        with catalog.begin(timeout=600) as tx:
            tx.write("flat", frame)
            tx.write("partitioned", frame, partition_by=["part"])
            tx.write("mapped", frame.withColumnRenamed("name", "a name"), properties={"delta.columnMapping.mode": "id"})
            tx.write("many", frame, max_records_per_file=2)
        catalog.write("flat", frame.where("id < 10"), "overwrite", replace_where="id < 10")
        some = catalog.table("flat").read(spark=spark, where="id < 40", columns=["name"])
        names = ("flat", "partitioned", "mapped", "many")
        frames = {name: catalog.table(name).read(spark=spark) for name in names}
        query = "SELECT count(*) AS n FROM flat JOIN partitioned USING (id) WHERE id BETWEEN 10 AND 19"
        [finding] = reading(warehouse, asked["options"], spark)
        return {
            "files": sorted({file for frame in frames.values() for file in frame.inputFiles()}),
            "plans": {name: plan_of(frame) for name, frame in frames.items()},
            "plan of some": plan_of(some),
            "some": sorted(row.name for row in some.collect()),
            "rows": {name: sorted(map(list, frame.collect())) for name, frame in frames.items()},
            "query": catalog.sql(query, spark=spark).collect()[0]["n"],
            "without deleted": sorted(
                row.id for row in SparkPlane().read(spark, without_first_rows(catalog, "many")).collect()
            ),
            "reading": [finding.state, finding.found],
        }


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
