"""Rows that are evaluated once: every later use of the frame gives the same rows.

`persist` does not promise that: a block that is lost, or `clearCache`, evaluates the frame again, and a UDF or
`current_timestamp()` then gives other values. A checkpoint cuts the plan, so nothing can be evaluated again.
"""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


def materialized(frame: DataFrame) -> DataFrame:
    """Run the frame's job and return its rows."""
    spark = frame.sparkSession
    if is_speculative(spark):
        # Two attempts of a task may leave two different blocks of a local checkpoint. Files have one owner.
        if _has_checkpoint_directory(spark):
            return frame.checkpoint(eager=True)
        _log.warning("spark.speculation is on; set spark.checkpoint.dir, so that rows are kept in files, not in blocks")
    return frame.localCheckpoint(eager=True)


def is_speculative(spark: SparkSession) -> bool:
    return str(spark.conf.get("spark.speculation", "false")).lower() == "true"


def _has_checkpoint_directory(spark: SparkSession) -> bool:
    if hasattr(spark, "_jsparkSession"):
        return spark.sparkContext.getCheckpointDir() is not None
    return bool(spark.conf.get("spark.checkpoint.dir", ""))
