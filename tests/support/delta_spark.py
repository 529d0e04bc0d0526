"""delta-spark, as another reader and writer of the same tables.

    test ──statement──▶ a process of its own: a Spark session with delta-spark's JARs ──rows, or the error──▶ test

In a process of its own, because the JARs are for no other test. They come from Maven, for the Spark that is installed;
DELTARS_TEST_DELTA_JARS names a directory that has them already. `delta_jars` and `delta_session` serve benchmarks too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
from pyspark.sql import SparkSession

from tests.support.jvm import SHORT_LIVED
from tests.support.maven import fetch_jars

JARS_VARIABLE = "DELTARS_TEST_DELTA_JARS"
DELTA = "4.4.0"
FETCH_S = 180


class DeltaSparkError(Exception):
    """delta-spark refused a statement."""


def delta_jars() -> Path:
    """The directory of the JARs; fetched once a run, whichever of its processes asks first."""
    given = os.environ.get(JARS_VARIABLE)
    if given:
        return Path(given)
    spark = ".".join(version("pyspark").split(".")[:2])
    artifact = f"delta-spark_{spark}_2.13"
    return fetch_jars("io.delta", artifact, DELTA, without="org.apache.spark", timeout_s=FETCH_S)


@contextmanager
def delta_session(
    jars: Path, scratch: Path, *, cores: int = 1, memory: str = "1g", java_options: str = ""
) -> Iterator[SparkSession]:
    """A session that knows Delta; it must be the first of its process, or the JARs come too late."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # The rest is in Spark already.
    names = [str(jar) for pattern in ("delta-*.jar", "unitycatalog-*.jar") for jar in sorted(jars.glob(pattern))]
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("deltars tests: delta-spark")
        .config("spark.jars", ",".join(names))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.driver.memory", memory)
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


class DeltaSpark:
    """Runs statements in the other process, one after the other; it starts while the test goes on."""

    def __init__(self, jars: Path, scratch: Path) -> None:
        self._answers = scratch / "answers.arrow"
        self._errors = (scratch / "stderr").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(jars), str(scratch)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> DeltaSpark:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=60)
        self._errors.close()

    def run(self, statement: str) -> None:
        """A statement that answers nothing of interest; `DeltaSparkError` if it is refused."""
        self._ask(statement, is_query=False)

    def sql(self, query: str) -> pa.Table:
        self._ask(query, is_query=True)
        return feather.read_table(self._answers, memory_map=False)

    def read(self, table: str | Path, *, version: int | None = None, timestamp: str | None = None) -> pa.Table:
        at = "" if version is None else f" VERSION AS OF {version}"
        at += "" if timestamp is None else f" TIMESTAMP AS OF '{timestamp}'"
        return self.sql(f"SELECT * FROM delta.`{table}`{at}")

    def call(self, function: Callable[..., Any], *args: str) -> Any:
        """What a function of a module returns there, called with that session and texts; as JSON can hold it."""
        self._send({"module": function.__module__, "name": function.__qualname__, "args": args})
        return json.loads(self._answers.with_suffix(".json").read_text())

    def _ask(self, statement: str, *, is_query: bool) -> None:
        self._send([statement, is_query])

    def _send(self, request: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._errors.seek(0)
            raise RuntimeError(f"delta-spark ended: {self._errors.read()[-3000:]}")
        if error := json.loads(answer):
            raise DeltaSparkError(error)


def _serve(jars: Path, scratch: Path) -> None:
    # What Spark and its JVM print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # The JAR has delta-spark's Python package too.
    sys.path += map(str, jars.glob("delta-spark_*.jar"))
    with delta_session(jars, scratch, java_options=SHORT_LIVED) as spark:
        for line in sys.stdin:
            request = json.loads(line)
            error = None
            try:
                if isinstance(request, dict):
                    function = getattr(import_module(request["module"]), request["name"])
                    (scratch / "answers.json").write_text(json.dumps(function(spark, *request["args"])))
                    print(json.dumps(None), file=answers, flush=True)
                    continue
                statement, is_query = request
                frame = spark.sql(statement)
                if is_query:
                    feather.write_feather(frame.toArrow(), str(scratch / "answers.arrow"), compression="uncompressed")
            except Exception as problem:
                error = str(problem) or repr(problem)
            print(json.dumps(error), file=answers, flush=True)


if __name__ == "__main__":
    _serve(*map(Path, sys.argv[1:]))
