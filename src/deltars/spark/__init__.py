"""Spark: DataFrames in, DataFrames out. The only layer that imports pyspark."""

from deltars.spark.plane import SparkPlane
from deltars.spark.session import active_session

__all__ = ["SparkPlane", "active_session"]
