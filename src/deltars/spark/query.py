"""A SQL query over scans, run by Spark with each table name replaced by a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltars.data.scan import Scan
from deltars.predicate import Query
from deltars.spark.read.scan import read_scan


def run_query(
    spark: SparkSession,
    query: Query,
    scans: Sequence[Scan],
    args: Mapping[str, Any] | Sequence[Any] | None = None,
) -> DataFrame:
    columns = query.columns([scan.schema for scan in scans])
    frames = {f"table_{place}": read_scan(spark, scan, columns=columns[place]) for place, scan in enumerate(scans)}
    given = dict(args) if isinstance(args, Mapping) else None if args is None else list(args)
    if not frames:
        return spark.sql(query.rewritten(_placeholder, str), given)
    # Spark makes views of the frames while it parses the query. The query's own braces are doubled to escape them.
    return spark.sql(query.rewritten(_placeholder, _doubled), given, **frames)


def _placeholder(place: int) -> str:
    return "{table_" + str(place) + "}"


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
