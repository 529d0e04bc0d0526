"""Data plane of Spark DataFrames: classic and Spark Connect, which share one base class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from deltars.data.change_feed import ChangeFeed
from deltars.data.changes import ChangeScans
from deltars.data.conditions import Condition
from deltars.data.row_change import ChangePlane
from deltars.data.scan import Scan, refuse_no_columns
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import PredicateError, ValidationError
from deltars.log.moments import Moment, parse_moment
from deltars.predicate import Predicate, Query, Unknown, parse
from deltars.predicate.literals import zone_of
from deltars.protocol import StructType
from deltars.spark.access import Access, access_to
from deltars.spark.batch import batch_rows, query_id
from deltars.spark.change.assignment import assigned
from deltars.spark.query_refusal import query_refusal
from deltars.spark.read.changes import read_changes
from deltars.spark.read.columns import quoted
from deltars.spark.read.scan import read_scan
from deltars.spark.schema import schema_to_spark, table_schema
from deltars.spark.session import running_session
from deltars.spark.write.checks import translate_task_errors
from deltars.spark.write.computed_columns import with_computed_columns
from deltars.spark.write.frame import write_frame
from deltars.spark.write.small_frames import small_rows

_ZONE = "spark.sql.session.timeZone"


class SparkPlane:
    """Data plane of Spark DataFrames. Spark's tasks write them, except small ones."""

    def accepts(self, frame: object) -> bool:
        return isinstance(frame, DataFrame)

    def opened(self, frame: object) -> object:
        running_session(cast(DataFrame, frame).sparkSession)
        if cast(DataFrame, frame).isStreaming:
            raise ValidationError(
                "a streaming DataFrame cannot be written as a whole",
                field="df",
                hint="Write each batch: df.writeStream.foreachBatch(deltars.each_batch(lambda tx, batch:"
                " tx.write(table, batch))).start(). A repeated batch is then written once.",
            )
        return frame

    def schema(self, frame: object) -> StructType:
        """Return the schema of a table that is created from this frame. No job runs."""
        running_session(cast(DataFrame, frame).sparkSession)
        return table_schema(cast(DataFrame, frame).schema)

    def with_computed_columns(self, frame: object, table: StructType) -> DataFrame:
        return with_computed_columns(cast(DataFrame, frame), table)

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        return write_frame(cast(DataFrame, frame), target, conditions)

    def condition(self, frame: object, where: str, schema: StructType) -> Predicate:
        # Without a known predicate, any file may hold rows that match and rows that do not.
        return self._parsed(cast(DataFrame, frame).sparkSession, where, schema, "replace_where") or Unknown(where)

    def without(self, frame: object, scan: Scan, where: str) -> DataFrame:
        """Return the rows of a scan for which the condition is false or null."""
        rows = read_scan(cast(DataFrame, frame).sparkSession, replace(scan, condition=None))
        return rows.where(~F.coalesce(F.expr(where), F.lit(False)))

    def changes(self, frame: object) -> ChangePlane:
        # Imported late: few writes need it.
        from deltars.spark.change.plane import SparkChanges

        return SparkChanges(cast(DataFrame, frame).sparkSession)

    def predicate(self, spark: SparkSession | None, where: str | None, schema: StructType) -> Predicate | None:
        """Parse a condition in the session's time zone. Return None if Python does not know that zone."""
        return None if where is None else self._parsed(spark, where, schema, "where")

    def _parsed(self, spark: SparkSession | None, where: str, schema: StructType, field: str) -> Predicate | None:
        zone = _zone_name(spark)
        is_known = zone_of(zone) is not None
        # Parsed in any case, so that a syntax error is raised here.
        predicate = parse(where, schema, zone=zone if is_known else "UTC", field=field)
        # Spark knows time zones that Python does not. Then only Spark evaluates the condition.
        return predicate if is_known else None

    def predicates(
        self, spark: SparkSession | None, query: Query, schemas: Sequence[StructType]
    ) -> list[Predicate | None]:
        """Return, for each table of the query, the condition that the query sets on it alone."""
        zone = zone_of(_zone_name(spark))
        return [None] * len(schemas) if zone is None else query.predicates(schemas, zone)

    def zone(self, spark: SparkSession | None) -> str:
        """Return the session's time zone. Python may not know it."""
        return _zone_name(spark)

    def hold_events(self, frame: DataFrame, feed: ChangeFeed) -> DataFrame | pa.Table:
        """Return the rows of a frame, evaluated once: as an Arrow table if they are few."""
        from deltars.spark.change.events import hold_events

        with translate_task_errors([]):
            rows = small_rows(frame)
        return hold_events(frame, feed) if rows is None else rows

    def query(
        self,
        spark: SparkSession | None,
        query: Query,
        scans: Sequence[Scan | ChangeScans],
        args: Mapping[str, Any] | Sequence[Any] | None = None,
    ) -> DataFrame:
        """Run a query over scans. Each table name in it is replaced by a frame."""
        session = running_session(spark)
        columns = query.columns([scan.schema for scan in scans])
        frames = {
            f"table_{place}": read_changes(session, scan)
            if isinstance(scan, ChangeScans)
            else read_scan(session, scan, columns=columns[place])
            for place, scan in enumerate(scans)
        }
        given = dict(args) if isinstance(args, Mapping) else None if args is None else list(args)
        try:
            if not frames:
                return session.sql(query.rewritten(_placeholder, str), given)
            # Spark makes views of the frames while it parses the query. The query's own braces are doubled to escape
            # them.
            return session.sql(query.rewritten(_placeholder, _doubled), given, **frames)
        except AnalysisException as error:
            # Spark does not see the columns that the query does not name, so it would suggest wrong ones.
            try:
                query.check_columns([scan.schema for scan in scans])
            except PredicateError as ours:
                raise ours from error
            if isinstance(error, ParseException):
                # It would show the text that Spark got, with names that are not the user's.
                raise query_refusal(error) from error
            raise

    def has_view(self, spark: SparkSession | None, name: str) -> bool:
        """Return whether the session has a temporary view of this name."""
        catalog, quoted = running_session(spark).catalog, "`" + name.replace("`", "``") + "`"
        return bool(catalog.tableExists(quoted)) and bool(catalog.getTable(quoted).isTemporary)

    def batch_rows(self, batch: DataFrame) -> DataFrame:
        """Return the rows of a stream's micro-batch, evaluated once."""
        return batch_rows(batch)

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return a stream by `format("deltasql")`."""
        return running_session(spark).readStream.format("deltasql").options(**options).load()

    def rows_with(self, frame: DataFrame, columns: Sequence[str]) -> list[dict[str, Any]] | None:
        """Return the rows of a small frame with exactly these columns; None for a frame with others."""
        return [row.asDict() for row in frame.collect()] if frame.columns == list(columns) else None

    def query_id(self, batch: DataFrame) -> str | None:
        """Return the id of the query that a micro-batch belongs to; None with Spark Connect."""
        return query_id(batch)

    def access(self, spark: SparkSession | None, root: str, path: str) -> Access:
        return access_to(running_session(spark), root, path)

    def moment(self, spark: SparkSession | None, timestamp: Moment | None) -> Moment | None:
        """Return the timestamp with the session's time zone, unless it has its own."""
        if timestamp is None:
            return None
        parsed = parse_moment(timestamp, zone=None)
        if parsed is None or parsed.tzinfo:
            return timestamp
        zone = zone_of(name := _zone_name(spark))
        if zone is None:
            raise ValidationError(
                f"timestamp {timestamp} has no time zone, and Python does not know the session's time zone {name!r}",
                field="timestamp",
                hint=f"Add the offset to the timestamp, for example {parsed.isoformat()}Z for UTC.",
            )
        return parsed.replace(tzinfo=zone)

    def session(self, spark: SparkSession | None) -> SparkSession:
        """Return the given session, or the active one. Raise if there is none, or if it was stopped."""
        return running_session(spark)

    def local_frame(self, spark: SparkSession | None, rows: pa.Table) -> DataFrame:
        """Return rows that are here as a DataFrame. It runs nothing again when it is read."""
        session = running_session(spark)
        if not rows.column_names:
            return session.createDataFrame([], T.StructType([]))
        return session.createDataFrame(rows)

    def to_arrow(self, frame: DataFrame) -> pa.Table:
        return frame.toArrow()

    def assigned(
        self, frame: DataFrame, names: Sequence[str] | None, table: StructType, constants: Mapping[str, str]
    ) -> DataFrame:
        """Return the rows of an INSERT in the table's types, by its store assignment.

        `names` are the table's columns that the frame's have, in their order. `constants` are columns with SQL texts.
        """
        given = frame if names is None else frame.toDF(*names)
        whole = given.withColumns({name: F.expr(text) for name, text in constants.items()}) if constants else given
        types = {field.name.lower(): field for field in schema_to_spark(table).fields}
        columns = []
        for field in whole.schema.fields:
            wanted = types.get(field.name.lower())
            column = F.col(quoted(field.name))
            if wanted is not None:
                column = assigned(column, field.dataType, wanted.dataType, wanted.name).alias(wanted.name)
            columns.append(column)
        return whole.select(*columns)

    def microseconds(self, spark: SparkSession | None, expression: str) -> int | None:
        """Return the time that a SQL expression without columns has, in microseconds since 1970; None for NULL."""
        try:
            [row] = running_session(spark).sql(f"SELECT unix_micros(CAST({expression} AS TIMESTAMP))").collect()
        except PySparkException as error:
            raise query_refusal(error) from error
        return None if row[0] is None else int(row[0])

    def read(
        self,
        spark: SparkSession | None,
        scan: Scan,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """Return the rows of a scan that match `where`, with the given columns."""
        refuse_no_columns(scan, columns)
        return read_scan(running_session(spark), scan, where=where, columns=columns)

    def read_changes(self, spark: SparkSession | None, scans: ChangeScans) -> DataFrame:
        """Return changed rows of versions of a table."""
        return read_changes(running_session(spark), scans)


def _zone_name(spark: SparkSession | None) -> str:
    return str(running_session(spark).conf.get(_ZONE))


def _placeholder(place: int) -> str:
    return "{table_" + str(place) + "}"


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
