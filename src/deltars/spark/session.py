"""The Spark session that a read uses when none is given."""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltars.errors import ConfigError


def active_session() -> SparkSession:
    session = SparkSession.getActiveSession()
    if session is None:
        raise ConfigError(
            "there is no active Spark session",
            hint="Make one with SparkSession.builder.getOrCreate(), or pass one as spark=….",
        )
    return session
