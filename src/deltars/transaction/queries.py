"""Queries: what the names in them mean, and their run on Spark. `duckdb_query` runs them without Spark.

Query ── each name ──▶ table of a cut, or as a transaction sees it ──▶ QueryTable: schema, and a scan by conditions
      │               └ with a moment: that version of the table
      └─ a name that is no table ──▶ temporary view of the Spark session
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from uuid import UUID

from deltars.data.scan import Scan
from deltars.errors import ConfigError, PredicateError, TableNotFound, ValidationError, located
from deltars.log.moments import Moment
from deltars.predicate import Predicate
from deltars.protocol import StructType
from deltars.session import CatalogSession
from deltars.transaction.plane import spark_plane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltars.data.changes import ChangeScans
    from deltars.predicate import Query, TableReference
    from deltars.predicate.statements.binding import Binder
    from deltars.predicate.statements.tree import Moment as WrittenMoment

_STRING = re.compile(r"""(?:\w+\s*)?(['"])(.*)\1""", re.DOTALL)
_COMPACT = re.compile(r"\d{14}(\d{3})?")


@dataclass(frozen=True, slots=True)
class QueryTable:
    """A table of a query: its schema, and the scan of files that may hold rows which fulfil a condition."""

    schema: StructType
    scan: Callable[[Predicate | None], Scan | ChangeScans]


@dataclass(frozen=True, slots=True)
class TableMoment:
    """The version or the time at which a query reads one table."""

    version: int | None = None
    timestamp: Moment | None = None


class QueryTables(Protocol):
    """Tables that a query can name: those of a cut, or those that a transaction sees."""

    def _has(self, name: str) -> bool: ...

    def _query_table(self, query: Query, reference: TableReference, moment: TableMoment | None) -> QueryTable:
        """Return a table that a query names. Raise `TableNotFound` that points at the name."""


def table_at(session: CatalogSession, table_id: UUID, name: str, moment: TableMoment) -> QueryTable:
    """Return a table at another moment than the rest of the query."""
    snapshot = session.reader.snapshot(table_id, moment.version, timestamp=moment.timestamp, is_living=True)
    return QueryTable(
        snapshot.schema,
        lambda where: Scan.of_snapshot(
            snapshot,
            where,
            catalog=str(session.uri),
            root=session.registry.location(table_id),
            table=name,
            storage_options=session.settings.storage_options,
        ),
    )


ReadChanges: TypeAlias = "Callable[[str, TableMoment, TableMoment | None], ChangeScans]"
"""Return the rows that versions of a table changed, from the first to the last, by default the current one."""


def tables_of(
    tables: QueryTables,
    query: Query,
    binder: Binder | None,
    spark: SparkSession | None = None,
    changes: ReadChanges | None = None,
) -> list[QueryTable]:
    """Return each table that a query names, in the order of its text; one that is named twice is fetched once."""
    found: dict[tuple[str, TableMoment | None], QueryTable] = {}
    named: list[QueryTable] = []
    for reference in query.tables:
        if reference.changes is not None:
            named.append(_changes(query, reference, binder, spark, changes))
            continue
        with nullcontext() if reference.moment is None else located(table=reference.name):
            moment = None if reference.moment is None else _moment(query, reference.moment, binder, spark)
            key = reference.name.lower(), moment
            found[key] = found.get(key) or tables._query_table(query, reference, moment)
        named.append(found[key])
    return named


def _changes(
    query: Query,
    reference: TableReference,
    binder: Binder | None,
    spark: SparkSession | None,
    changes: ReadChanges | None,
) -> QueryTable:
    if changes is None:
        raise query.error(
            "table_changes reads committed versions, so it is no part of this transaction",
            reference,
            hint="Use catalog.sql(…), or table.changes(first, last).read().",
        )
    assert reference.changes is not None
    first, last = (
        None if one is None else _moment(query, one, binder, spark)
        for one in (reference.changes.first, reference.changes.last)
    )
    assert first is not None
    try:
        scans = changes(reference.name, first, last)
    except TableNotFound as error:
        missing = query.error(error.message, reference, hint=error.hint or "")
        raise TableNotFound(missing.message, table=reference.name, hint=error.hint) from None
    return QueryTable(scans.schema, lambda where: scans)


def run_on_spark(
    tables: QueryTables,
    query: Query,
    binder: Binder,
    spark: SparkSession | None,
    changes: ReadChanges | None = None,
) -> DataFrame:
    """Run a query on Spark. A name that is no table may be a temporary view of the session."""
    plane = spark_plane("query without Spark: the command deltars sql, or catalog.sql_to_arrow(query)")
    views = [
        name
        for name in query.tables
        if name.changes is None and not tables._has(name.name) and plane.has_view(spark, name.name)
    ]
    for view in views:
        if view.moment is not None:
            raise query.error("a view has no versions", view, hint="Read the table that it is made of.")
    query = query.without(views)
    found = tables_of(tables, query, binder, spark, changes)
    predicates = plane.predicates(spark, query, [table.schema for table in found])
    scans = [table.scan(predicate) for table, predicate in zip(found, predicates, strict=True)]
    return plane.query(spark, query, scans, binder.native(query.parameters))


def _moment(query: Query, moment: WrittenMoment, binder: Binder | None, spark: SparkSession | None) -> TableMoment:
    start = moment.value.start
    return as_moment(moment, binder, spark, lambda problem, hint: query.source.error_at(problem, start, hint=hint))


def as_moment(
    moment: WrittenMoment,
    binder: Binder | None,
    spark: SparkSession | None,
    error: Callable[[str, str], PredicateError],
) -> TableMoment:
    """Return the moment that a text names: a literal, a parameter, or an expression that Spark evaluates."""
    text = moment.value.text if binder is None else binder.bound(moment.value).text
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    literal = _STRING.fullmatch(text)
    value = literal[2] if literal else text
    if moment.kind == "version":
        if not value.strip().isdecimal() or int(value) >= 1 << 63:
            raise error(f"{text} is no version", "Write VERSION AS OF 3.")
        return TableMoment(version=int(value))
    if _COMPACT.fullmatch(value):
        return TableMoment(timestamp=_from_compact(value, error))
    if literal:
        is_spark = spark is not None or _has_session()
        return TableMoment(timestamp=spark_plane().moment(spark, value) if is_spark else value)
    if not _has_session() and spark is None:
        raise error("only Spark can evaluate this time", "Write a literal: TIMESTAMP AS OF '2026-01-31 12:00:00'.")
    micros = spark_plane().microseconds(spark, text)
    if micros is None:
        raise error("the time is NULL", "Write a time.")
    return TableMoment(timestamp=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros))


def _from_compact(value: str, error: Callable[[str, str], PredicateError]) -> datetime:
    """Return the time of Delta's short form, yyyyMMddHHmmssSSS, in UTC."""
    try:
        return datetime.strptime(value.ljust(17, "0") + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    except ValueError:
        raise error(f"{value} is no time", "Write a year, month, day, hour, minute, second: @20260131120000.") from None


def active_spark() -> Any | None:
    """Return the active Spark session; None if there is none, or no pyspark."""
    if "pyspark" not in sys.modules:
        return None
    from deltars.spark.session import running_session

    try:
        return running_session(None)
    except (ConfigError, ValidationError):
        return None


def _has_session() -> bool:
    return active_spark() is not None
