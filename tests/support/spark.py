"""The Spark sessions of the tests, small, quiet, and in UTC: a local one, and a server of Spark Connect."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from tests.support.jvm import SHORT_LIVED, Jvm

_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""Whether pyspark's functions make columns of Spark Connect; it looks at each call."""


@contextmanager
def local_session(scratch: Path) -> Iterator[SparkSession]:
    # Or Spark looks for a python3 on the PATH, which is not the one with our packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("deltars tests")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.python.daemon.module", "tests.support.warm_daemon")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def connect_server(scratch: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a server on this machine, in a process of its own; `more` settings than it needs."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        **(more or {}),
    }
    command = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "--driver-memory", "1g"]
    command += ["--driver-java-options", SHORT_LIVED]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with Jvm(scratch, "connect", command, os.environ) as server:
        port = server.wait_for(r"Spark Connect server started at: \S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def connected(url: str) -> Iterator[SparkSession]:
    """A session of Spark Connect, the active one of this process for as long as the block lasts."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    is_first = _CONNECT_MODE not in os.environ
    os.environ[_CONNECT_MODE] = "1"
    session = ConnectSession.builder.remote(url).create()
    try:
        yield cast(SparkSession, session)  # as users see it: pyspark's own types know one session
    finally:
        session.stop()
        if is_first:
            os.environ.pop(_CONNECT_MODE, None)
