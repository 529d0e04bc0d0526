"""A small Spark of this process's own, for commands: local, quiet, and with this very Python in its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

LOG = Path(".deltars/spark.log")
"""Where Java writes what it has to say."""


@contextmanager
def local_spark(name: str) -> Iterator[SparkSession]:
    """The session that is there already, or one that ends with the block."""
    there = SparkSession.getActiveSession()
    if there is not None:
        yield there
        return
    # Or Spark looks for a python3 on the PATH, which need not have deltars.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with _java_talks_to(LOG):
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
def _java_talks_to(log: Path) -> Iterator[None]:
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
