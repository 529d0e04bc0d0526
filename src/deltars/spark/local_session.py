"""A small local Spark session for commands. It logs to a file, and its workers use this Python interpreter."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from deltars.spark.query_refusal import query_refusal

LOG = Path(".deltars/spark.log")
"""File that receives the standard error of Java."""


@contextmanager
def local_spark(name: str) -> Iterator[SparkSession]:
    """Yield the active session, or a new one that is stopped at the end of the block."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    # Otherwise Spark uses the python3 on the PATH, which may not have deltars.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with _stderr_to(LOG):
        session = (
            SparkSession.builder.master("local[2]")
            .appName(name)
            .config("spark.driver.memory", "1g")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def readable_errors() -> Iterator[None]:
    """Raise Spark's errors about a query as ValidationError, without the plan and the trace that Spark adds."""
    # pyspark also logs such an error itself, with its trace as one long line. Its own class must make the logger.
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    except PySparkException as error:
        raise query_refusal(error) from error
    finally:
        log.setLevel(level)


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect standard error to a file during the block. A Java process started in it keeps the redirection."""
    log.parent.mkdir(exist_ok=True)
    ours = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(ours, 2)
            os.close(ours)
