"""Reading and writing Spark DataFrames. This is the only layer that imports pyspark."""

from deltars.spark.plane import SparkPlane
from deltars.spark.session import active_session

__all__ = ["SparkPlane", "active_session"]
