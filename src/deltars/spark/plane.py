"""The data plane for Spark: classic and Spark Connect DataFrames, which share one base class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.conditions import Condition
from deltars.data.files import Scan, WriteTarget, WrittenFile
from deltars.protocol import StructType
from deltars.spark.read import read_scan
from deltars.spark.schema import schema_from_spark
from deltars.spark.session import active_session
from deltars.spark.write import write_frame


class SparkPlane:
    def accepts(self, frame: object) -> bool:
        return isinstance(frame, DataFrame)

    def schema(self, frame: object) -> StructType:
        """The schema a table would have that is made from this frame; no job runs."""
        return schema_from_spark(cast(DataFrame, frame).schema)

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        return write_frame(cast(DataFrame, frame), target, conditions)

    def without(self, frame: object, scan: Scan, where: str) -> DataFrame:
        """The rows of a scan that do not match, or where nobody can say."""
        rows = read_scan(cast(DataFrame, frame).sparkSession, scan)
        return rows.where(~F.coalesce(F.expr(where), F.lit(False)))

    def read(self, spark: SparkSession | None, scan: Scan) -> DataFrame:
        return read_scan(spark or active_session(), scan)
