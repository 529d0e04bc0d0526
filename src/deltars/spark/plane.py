"""The data plane for Spark: classic and Spark Connect DataFrames, which share one base class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.conditions import Condition
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import ValidationError
from deltars.log.snapshot import Moment
from deltars.predicate import Predicate, Query, Unknown, parse
from deltars.predicate.literals import zone_of
from deltars.protocol import StructType
from deltars.spark.access import Access, access_to
from deltars.spark.query import run_query
from deltars.spark.read.scan import read_scan
from deltars.spark.schema import table_schema
from deltars.spark.session import running_session
from deltars.spark.write.computed_columns import complete
from deltars.spark.write.frame import write_frame

_ZONE = "spark.sql.session.timeZone"


class SparkPlane:
    def accepts(self, frame: object) -> bool:
        return isinstance(frame, DataFrame)

    def opened(self, frame: object) -> object:
        return frame

    def schema(self, frame: object) -> StructType:
        """The schema a table would have that is made from this frame; no job runs."""
        running_session(cast(DataFrame, frame).sparkSession)
        return table_schema(cast(DataFrame, frame).schema)

    def completed(self, frame: object, table: StructType) -> DataFrame:
        return complete(cast(DataFrame, frame), table)

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        return write_frame(cast(DataFrame, frame), target, conditions)

    def condition(self, frame: object, where: str, schema: StructType) -> Predicate:
        # Nothing known of the rows is no condition on them: every file may hold rows that match, and others.
        return self.predicate(cast(DataFrame, frame).sparkSession, where, schema) or Unknown(where)

    def without(self, frame: object, scan: Scan, where: str) -> DataFrame:
        """The rows of a scan that do not match, or where nobody can say."""
        rows = read_scan(cast(DataFrame, frame).sparkSession, scan)
        return rows.where(~F.coalesce(F.expr(where), F.lit(False)))

    def predicate(self, spark: SparkSession | None, where: str | None, schema: StructType) -> Predicate | None:
        if where is None:
            return None
        zone = _zone(spark)
        predicate = parse(where, schema, zone=zone or "UTC")
        # Spark knows zones that we do not. Then it is Spark alone that looks at the rows.
        return None if zone is None else predicate

    def predicates(
        self, spark: SparkSession | None, query: Query, schemas: Sequence[StructType]
    ) -> list[Predicate | None]:
        zone = zone_of(_zone(spark) or "")
        return [None] * len(schemas) if zone is None else query.predicates(schemas, zone)

    def query(
        self,
        spark: SparkSession | None,
        query: Query,
        scans: Sequence[Scan],
        predicates: Sequence[Predicate | None],
        args: Mapping[str, Any] | Sequence[Any] | None = None,
    ) -> DataFrame:
        return run_query(running_session(spark), query, scans, predicates, args)

    def access(self, spark: SparkSession | None, root: str, path: str) -> Access:
        return access_to(running_session(spark), root, path)

    def moment(self, spark: SparkSession | None, timestamp: Moment | None) -> Moment | None:
        if timestamp is None:
            return None
        try:
            parsed: Any = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
        except ValueError:
            return timestamp
        if not isinstance(parsed, datetime) or parsed.tzinfo:
            return timestamp
        zone = zone_of(name := _zone_name(spark))
        if zone is None:
            raise ValidationError(
                f"{timestamp} is in the session's time zone, and Python knows none that is called {name!r}",
                field="timestamp",
                hint=f"Say which one is meant: {parsed.isoformat()}Z for UTC.",
            )
        return parsed.replace(tzinfo=zone)

    def read(
        self,
        spark: SparkSession | None,
        scan: Scan,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        predicate = self.predicate(spark, where, scan.schema)
        return read_scan(running_session(spark), scan, where=where, predicate=predicate, columns=columns)


def _zone(spark: SparkSession | None) -> str | None:
    """The session's zone, if it is one that we know."""
    zone = _zone_name(spark)
    return zone if zone_of(zone) is not None else None


def _zone_name(spark: SparkSession | None) -> str:
    return str(running_session(spark).conf.get(_ZONE))
