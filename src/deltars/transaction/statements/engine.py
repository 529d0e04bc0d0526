"""Choice of who runs a query: Spark, or DuckDB in this process where its rows are the same as Spark's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from deltars.errors import ConfigError
from deltars.predicate import Query
from deltars.predicate.statements.binding import Binder
from deltars.predicate.statements.tree import Fragment
from deltars.transaction.duckdb_query import DuckDBQuery, NotForDuckDB, has_duckdb
from deltars.transaction.queries import QueryTables, ReadChanges, active_spark, run_on_spark
from deltars.transaction.statements.rows import DuckDBRows, Rows, SparkRows
from deltars.transaction.statements.views import Views, expanded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_SELECT = "SELECT * FROM "


class Engine:
    """Runs the queries of statements."""

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        prefers_spark: bool = False,
        start: Callable[[], SparkSession] | None = None,
        views: Views | None = None,
        changes: ReadChanges | None = None,
    ) -> None:
        """Use this session, by default the active one. `start` makes one for what only Spark can do.

        `views` are the temporary views that queries can name. `changes` reads what `table_changes` names.
        """
        self._given = spark
        self._start = start
        self.prefers_spark = prefers_spark
        self.views = Views() if views is None else views
        self.changes = changes

    def session(self) -> SparkSession | None:
        """Return the Spark session, if there is one. None is started."""
        return self._given if self._given is not None else active_spark()

    def required_session(self, reason: str) -> SparkSession:
        """Return the Spark session; start one if that is possible."""
        session = self.session()
        if session is None and self._start is not None:
            _log.info("Spark runs the statement: %s", reason)
            session = self._given = self._start()
        if session is None:
            raise ConfigError(
                f"this needs Spark: {reason}",
                hint="Create a session with SparkSession.builder.getOrCreate(), or pass one as spark=….",
            )
        return session

    @property
    def evolves(self) -> bool:
        """Whether the Spark session lets statements add columns to tables."""
        session = self.session()
        if session is None:
            return False
        from deltars.spark.session import auto_merges

        return auto_merges(session)

    @property
    def can_start(self) -> bool:
        """Whether a Spark session can be had that is not there yet."""
        return self._start is not None and self.session() is None

    def query(self, tables: QueryTables, binder: Binder, fragment: Fragment) -> Rows:
        """Return the rows of a query that is a part of the binder's text."""
        query, bound = self._parsed(binder, fragment)
        if not self.prefers_spark:
            found = self._on_duckdb(tables, bound)
            if isinstance(found, Rows):
                return found
            reason = found
        else:
            reason = "a query"
        session = self.required_session(reason)
        if query is bound:
            binder = Binder(bound.source, None)
        return SparkRows(run_on_spark(tables, query, binder, session, self.changes))

    def _parsed(self, binder: Binder, fragment: Fragment) -> tuple[Query, Query]:
        """Return the query as it is written, and with values for parameters; the latter twice if it names views."""
        prefix = _SELECT if _is_name(fragment.text) else ""
        inner, whole = _without_table(fragment), binder.source.text
        query = Query.inside(whole, inner, prefix)
        is_written = not any(self.views.has(one.name) for one in query.tables if one.changes is None)
        if is_written and self.prefers_spark:
            return query, query.without(())
        bound = Query.inside(whole, Fragment(binder.bound(inner).text, inner.start), prefix)
        if is_written:
            return query, bound
        bound = expanded(bound, self.views)
        return bound, bound

    def _on_duckdb(self, tables: QueryTables, query: Query) -> Rows | str:
        """Return the rows by DuckDB, or why Spark must run the query."""
        if not has_duckdb():
            return "DuckDB is not installed (pip install 'deltars[duckdb]')"
        binder = Binder(query.source, None)
        if (
            any(reference.changes is None and not tables._has(reference.name) for reference in query.tables)
            and self.session() is not None
        ):
            return "it names a view of the session"
        try:
            found = DuckDBQuery(tables, query, binder, self.changes)
        except NotForDuckDB as error:
            return error.message
        if found.doubt is not None:
            return f"DuckDB may give other rows, because of {found.doubt}"
        _log.info("DuckDB runs the query")
        return DuckDBRows(found)


def _is_name(text: str) -> bool:
    first = text.split(None, 1)[0].upper() if text.split() else ""
    return first not in ("SELECT", "WITH", "VALUES", "FROM") and not text.lstrip().startswith("(")


def _without_table(fragment: Fragment) -> Fragment:
    """Return `name` of `TABLE name`, and anything else as it is."""
    words = fragment.text.split(None, 1)
    if len(words) == 2 and words[0].upper() == "TABLE":
        return Fragment(words[1], fragment.start + fragment.text.index(words[1], len(words[0])))
    return fragment
