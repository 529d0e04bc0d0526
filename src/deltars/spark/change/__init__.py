"""Row-level changes as Spark jobs."""

from deltars.spark.change.plane import SparkChanges

__all__ = ["SparkChanges"]
