"""A program of its own: a job on an object store, in a session whose UI and event log are on.

    python -m tests.spark.watched <directory>

In a process of its own because a session's UI is there from the start or never. <directory>/asked.json says where all
is. What could be seen of the job goes to <directory>/seen, the event log to <directory>/events, the log to
<directory>/log.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import deltars
from tests.support.jvm import SHORT_LIVED

WATCHED = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.sql.maxPlanStringLength": str(10**8),
    "spark.sql.debug.maxToStringFields": "10000",
}
"""And an event log's directory, without which it is not."""

# To a file: what goes to the console of Python's driver is filtered, whatever the level.
_LOGGING = """
appender.file.type = File
appender.file.name = file
appender.file.fileName = {place}/log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def main(directory: Path) -> None:
    asked = json.loads((directory / "asked.json").read_text())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "600m")
    for name, value in settings(directory).items():
        builder = builder.config(name, value)
    (directory / "log4j2.properties").write_text(_LOGGING.format(place=directory))
    options = f"{SHORT_LIVED} -Dlog4j2.configurationFile=file:{directory}/log4j2.properties"
    spark = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()
    try:
        plans = work(spark, asked)
        url = str(spark.sparkContext.uiWebUrl)
        (directory / "seen").write_text("\n".join([*plans, *pages(url)]))
    finally:
        spark.stop()


def settings(directory: Path) -> dict[str, str]:
    (directory / "events").mkdir()
    return {
        **WATCHED,
        "spark.eventLog.dir": f"file:{directory}/events",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.shuffle.partitions": "2",
    }


def work(spark: SparkSession, asked: dict[str, Any]) -> list[str]:
    """Tasks write and read with credentials; all that can be seen of it."""
    with deltars.connect(asked["catalog"], warehouse=asked["warehouse"], storage_options=asked["options"]) as catalog:
        # A server of Spark Connect has none of our modules.
        def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from batches

        rows = spark.range(0, 60, 1, 2).selectExpr("id", "id % 3 AS p")
        # Not so plain that the driver would write the rows by itself.
        frame = rows.mapInArrow(as_they_are, "id BIGINT, p BIGINT")
        with catalog.begin(timeout=600) as tx:
            tx.write("plain", frame)
            tx.write("parted", frame, partition_by=["p"])
        frames = [
            catalog.table("plain").read(spark=spark, where="id < 40"),
            catalog.sql("SELECT count(*) AS n FROM plain JOIN parted USING (id) WHERE id < 10", spark=spark),
        ]
        assert [len(frame.collect()) for frame in frames] == [40, 1]
        seen = [explained(frame, mode) for frame in frames for mode in ("extended", "formatted", "codegen", "cost")]
        return [*seen, *by_format(spark, asked, catalog), *processes()]


def by_format(spark: SparkSession, asked: dict[str, Any], catalog: deltars.Catalog) -> Iterator[str]:
    """What is seen of reads, writes and streams by `format("deltasql")`, whose options have the catalog's password."""
    near = catalog.create_table("near", "id BIGINT", location=asked["near"])
    catalog.write("near", pa.table({"id": [1, 2, 3]}))
    secret = {"catalogSecret": asked["catalog"], "fs.s3a.secret.key": asked["option"]}

    def read(**more: str) -> DataFrame:
        return spark.read.format("deltasql").options(**secret, **more).load("near")

    frame = read(where="id > 1")
    assert frame.count() == 2
    frame.write.format("deltasql").options(**secret).mode("append").save("near")
    assert near.version == 2
    yield from (explained(frame, mode) for mode in ("extended", "formatted", "codegen", "cost"))
    yield repr(frame)
    java = getattr(frame, "_jdf", None)
    if java is not None:
        yield java.queryExecution().toString()
        yield java.queryExecution().analyzed().toJSON()
        yield java.queryExecution().debug().codegenToSeq().toString()
    try:
        read(versionAsOf="99").count()
    except Exception as error:  # of Spark's, by whichever way it comes
        yield "".join(traceback.format_exception(error)) + repr(vars(error))
    else:
        raise AssertionError("the read did not fail")
    stream = deltars.transactions_stream(spark, catalog=catalog)
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    yield f"{query.recentProgress} {query.status} {query!r} {stream!r}"
    said = io.StringIO()
    with redirect_stdout(said):
        query.explain(True)
    yield said.getvalue()


def processes() -> Iterator[str]:
    """The command lines of all processes: those of Spark are among them."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield process.read_bytes().decode(errors="replace")


def explained(frame: DataFrame, mode: str) -> str:
    said = io.StringIO()
    with redirect_stdout(said):
        frame.explain(mode=mode)
    return said.getvalue()


def pages(url: str) -> Iterator[str]:
    """All that the UI and its REST API tell."""
    api = f"{url}/api/v1/applications"
    [application] = json.loads(fetched(api))
    here = f"{api}/{application['id']}"
    yield fetched(f"{here}/environment")
    for what in ("jobs", "executors", "storage/rdd"):
        yield fetched(f"{here}/{what}")
    for stage in json.loads(fetched(f"{here}/stages")):
        yield fetched(f"{here}/stages/{stage['stageId']}?details=true")
    executions = json.loads(fetched(f"{here}/sql?details=true&planDescription=true&length=1000"))
    yield json.dumps(executions)
    for execution in executions:
        yield fetched(f"{url}/SQL/execution/?id={execution['id']}")
    for tab in ("jobs/", "stages/", "SQL/", "environment/", "executors/"):
        yield fetched(f"{url}/{tab}")


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


if __name__ == "__main__":
    main(Path(sys.argv[1]))
