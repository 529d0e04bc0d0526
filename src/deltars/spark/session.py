"""The Spark session that a read or a write uses, which has to be there and running."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from deltars.errors import ConfigError, ValidationError


def active_session() -> SparkSession:
    """The active session of this thread, or the default one: a new thread has no active session."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError as error:
        raise ConfigError(
            "there is no active Spark session",
            hint="Make one with SparkSession.builder.getOrCreate(), or pass one as spark=….",
        ) from error


def running_session(spark: Any) -> SparkSession:
    """The session, or the active one where none is given."""
    session = active_session() if spark is None else spark
    if not hasattr(session, "createDataFrame"):
        raise ValidationError(f"spark is a SparkSession, not {session!r}", field="spark")
    if _is_stopped(session):
        raise ConfigError(
            "the Spark session was stopped",
            hint="Make a new one with SparkSession.builder.getOrCreate(), and the DataFrame again from it.",
        )
    running: SparkSession = session
    return running


def _is_stopped(session: Any) -> bool:
    stopped = getattr(session, "is_stopped", None)  # Spark Connect
    if stopped is not None:
        return bool(stopped)
    try:
        return not session.sparkContext.defaultParallelism
    except AttributeError:
        # There is no Java behind it any more, and Spark has no kinder way to say so.
        return True
