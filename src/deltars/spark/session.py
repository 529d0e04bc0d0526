"""Choice of the Spark session for a read or a write. The session must be running."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from deltars.errors import ConfigError, ValidationError

AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
_DEFAULT = "python3"
"""What pyspark takes where nothing names a Python."""


def active_session() -> SparkSession:
    """Return this thread's active session, or the default session: a new thread has no active one."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError as error:
        raise ConfigError(
            "there is no active Spark session",
            hint="Create one with SparkSession.builder.getOrCreate(), or pass one as spark=…. Without Spark:"
            " table.to_arrow(), cut.to_duckdb(table), and the command deltars sql.",
        ) from error


def running_session(spark: Any) -> SparkSession:
    """Return the given session, or the active one. Raise if it is no session or was stopped."""
    session = active_session() if spark is None else spark
    if not hasattr(session, "createDataFrame"):
        raise ValidationError(f"spark must be a SparkSession, got {session!r}", field="spark")
    if _is_stopped(session):
        raise ConfigError(
            "the Spark session was stopped",
            hint="Create a new one with SparkSession.builder.getOrCreate(), and create the DataFrame again from it.",
        )
    running: SparkSession = session
    use_own_python(running)
    return running


def use_own_python(session: Any) -> None:
    """Make the tasks of a local session use this Python, unless the user chose one.

    Spark's default is the `python3` of the PATH, which may not have deltars. Functions that were sent before keep it.
    """
    context = getattr(session, "_sc", None)  # Spark Connect has none: its server chooses.
    if context is None or "PYSPARK_PYTHON" in os.environ or not context.master.startswith("local"):
        return
    if context.pythonExec == _DEFAULT and context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable


def _is_stopped(session: Any) -> bool:
    stopped = getattr(session, "is_stopped", None)  # Spark Connect
    if stopped is not None:
        return bool(stopped)
    try:
        return not session.sparkContext.defaultParallelism
    except AttributeError:
        # A stopped session has no Java object behind it, and Spark offers no other way to find that out.
        return True


def auto_merges(spark: Any) -> bool:
    """Return whether a session lets writes and merges add columns to tables, by Delta's own setting."""
    return spark is not None and str(spark.conf.get(AUTO_MERGE, "false")).lower() == "true"
