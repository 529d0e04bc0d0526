"""The calls of a transaction that take SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.arguments import checks_calls
from deltars.transaction.plane import spark_plane
from deltars.transaction.row_statements import RowStatements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltars.predicate.statements.binding import Binder
    from deltars.predicate.statements.tree import Statement
    from deltars.transaction.statements.engine import Engine
    from deltars.transaction.statements.rows import Rows
    from deltars.transaction.statements.views import Views

# What executes statements is imported late: it loads sqlglot, which most transactions do not need.


@checks_calls
class StatementCalls(RowStatements):
    """The calls that take a statement in Spark's SQL. Each sees what the transaction staged before it."""

    def sql(
        self,
        statement: str,
        *,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Run a statement in Spark's SQL as part of this transaction, and return its rows as a Spark DataFrame.

        A query reads the tables as of the transaction's beginning, with its staged changes, and what it read is
        remembered, as for `read`. Changes (INSERT, UPDATE, DELETE, MERGE, CREATE TABLE, ALTER TABLE, …) are staged at
        once, and return what they did. `args` has the values of parameters: a dict for `:name`, or a list for `?`.
        """
        from deltars.transaction.statements.engine import Engine

        plane = spark_plane("tx.sql_to_arrow(statement)")
        session = plane.session(spark)
        engine = Engine(session, prefers_spark=True, views=self._views(session))
        with self._reading():
            return self._execute_text(statement, args, engine).to_spark(session)

    def sql_to_arrow(
        self,
        statement: str,
        *,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        spark: SparkSession | None = None,
    ) -> pa.Table:
        """Run a statement as `sql` does, and return its rows as a pyarrow table. It needs no Spark for most statements.

        DuckDB runs queries where its rows are the same as Spark's. The rest needs a Spark session.
        """
        from deltars.transaction.statements.engine import Engine

        with self._reading():
            return self._execute_text(statement, args, Engine(spark, views=self._views(spark))).to_arrow()

    def _views(self, spark: SparkSession | None) -> Views:
        from deltars.transaction.queries import active_spark
        from deltars.transaction.statements.views import views_of

        return views_of(self._view_for("views").session, spark or active_spark())

    def _execute_text(self, text: str, args: Any, engine: Engine) -> Rows:
        from deltars.predicate.source import Source
        from deltars.predicate.statements.binding import Binder
        from deltars.predicate.statements.parser import parse_statement

        statement = parse_statement(text)
        return self._execute(statement, Binder(Source(text, "statement"), args), engine)

    def _execute(self, statement: Statement, binder: Binder, engine: Engine) -> Rows:
        from deltars.transaction.statements.execution import Execution

        return Execution(self, binder, engine).run(statement)

    def _table_names(self) -> list[str]:
        return self._view_for("tables").names
