"""One statement, carried out in an open transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltars.errors import DeltarsError, PredicateError, TableNotFound, ValidationError
from deltars.predicate import Query
from deltars.predicate.statements.binding import Binder, Bound
from deltars.predicate.statements.parser import refuse_in_transaction
from deltars.predicate.statements.tree import (
    AlterTable,
    Assignment,
    CreateTable,
    CreateView,
    Delete,
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    DropTable,
    DropView,
    Explain,
    Fragment,
    Insert,
    Merge,
    MergeClause,
    Name,
    Purge,
    Restore,
    Select,
    ShowColumns,
    ShowCreate,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    Statement,
    Truncate,
    Update,
)
from deltars.protocol import StructType
from deltars.store.names import is_same_name
from deltars.transaction.assignments import find_column
from deltars.transaction.merge_builder import MergeBuilder, with_clause
from deltars.transaction.queries import as_moment
from deltars.transaction.spark_only import is_spark_only
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.statements import alteration, creation, descriptions, insertion
from deltars.transaction.statements.engine import Engine
from deltars.transaction.statements.rows import NOTHING, Rows, one_row

if TYPE_CHECKING:
    from deltars.transaction.statement_calls import StatementCalls


class Execution:
    """Carries out statements of one text in a transaction."""

    def __init__(self, tx: StatementCalls, binder: Binder, engine: Engine) -> None:
        self.tx = tx
        self.binder = binder
        self.engine = engine

    def run(self, statement: Statement) -> Rows:
        """Carry out a statement, and return its rows. One that cannot be part of a transaction raises."""
        refuse_in_transaction(self.binder.source, statement)
        with self.tx._reading(), readable_spark_errors(statement):
            try:
                return self._run(statement)
            except ValidationError as error:
                # Nothing is staged by a statement that fails, so it can be carried out again, on Spark.
                if not (is_spark_only(error) and self.engine.can_start):
                    raise
                self.engine.required_session(error.message)
                return self._run(statement)

    def _run(self, statement: Statement) -> Rows:
        match statement.action:
            case Select(query):
                return self.engine.query(self.tx, self.binder, query)
            case Insert():
                return insertion.insert(self, statement.action)
            case Update():
                return self._update(statement.action)
            case Delete():
                return self._delete(statement.action)
            case Truncate(table):
                self.readable(table)
                metrics = self.tx.delete(str(table), spark=self.engine.session())
                return one_row(num_affected_rows=metrics.rows_deleted)
            case Merge():
                return self._merge(statement.action)
            case CreateTable():
                return creation.create(self, statement.action)
            case CreateView():
                return self._create_view(statement.action)
            case DropView(view, if_exists):
                if not self.engine.views.forget(str(view)) and not if_exists:
                    raise self.binder.source.error_at(
                        f"there is no view {view}", view.position, hint="Write DROP VIEW IF EXISTS, or DROP TABLE."
                    )
                return NOTHING
            case Explain(query, mode):
                return one_row(plan=self.engine.query(self.tx, self.binder, query).plan(mode))
            case DropTable(table, if_exists):
                if not (if_exists and not self.tx._has(str(table))):
                    with self.named(table):
                        self.tx.drop_table(str(table))
                return NOTHING
            case AlterTable(table, changes):
                self.readable(table)
                for change in changes:
                    alteration.alter(self, self.tx.alter(str(table)), change)
                return NOTHING
            case Restore():
                return self._restore(statement.action)
            case Purge(table, where):
                return self._purge(table, where)
            case (
                DescribeTable()
                | DescribeHistory()
                | DescribeDetail()
                | ShowTables()
                | ShowProperties()
                | ShowColumns()
                | ShowPartitions()
                | ShowCreate()
            ):
                return descriptions.describe(self, statement.action)
        raise AssertionError(f"{type(statement.action).__name__} has no execution")

    # -- parts that statements share -------------------------------------------------------------------------------

    def readable(self, name: Name) -> StagedTable:
        """Return a table that has a schema. An error points at the name."""
        if self.engine.views.has(str(name)):
            raise self.binder.source.error_at(
                f"{name} is a temporary view", name.position, hint="Name the table, or drop the view: DROP VIEW."
            )
        with self.named(name):
            return self.tx._view_for(str(name)).readable(str(name))

    @contextmanager
    def named(self, name: Name) -> Iterator[None]:
        """Let the error for a missing table point at its name in the text."""
        try:
            yield
        except TableNotFound as error:
            pointed = self.binder.source.error_at(error.message, name.position, hint=error.hint or "")
            raise TableNotFound(pointed.message, table=str(name), hint=error.hint) from None

    def schema(self, name: Name) -> StructType:
        metadata = self.readable(name).metadata
        assert metadata is not None
        return metadata.schema

    def text(self, fragment: Fragment | None, table: Name, alias: str | None, schema: StructType) -> Bound | None:
        """Return an expression on one table: without the table's qualifiers, and with values for parameters."""
        if fragment is None:
            return None
        qualifiers = [alias] if alias is not None else [table.parts[-1]]
        return self.binder.bound(fragment, qualifiers, schema.names)

    @contextmanager
    def located(self, *parts: Bound | None) -> Iterator[None]:
        """Let an error in an expression point at its place in the text, if it is certain which one it is."""
        try:
            yield
        except PredicateError as error:
            given = [part for part in parts if part is not None]
            inside = [part for part in given if error.text is not None and part.text.strip() == error.text.strip()]
            found = inside or given
            if error.position is None or error.problem is None or len({part.text for part in found}) != 1:
                raise
            place = found[0].position(error.position)
            raise self.binder.source.error_at(error.problem, place, hint=error.hint or "") from None

    # -- changes of rows -------------------------------------------------------------------------------------------

    def _delete(self, action: Delete) -> Rows:
        schema = self.schema(action.table)
        where = self.text(action.where, action.table, action.alias, schema)
        with self.located(where):
            metrics = self.tx.delete(
                str(action.table), None if where is None else where.text, spark=self.engine.session()
            )
        return one_row(num_affected_rows=metrics.rows_deleted)

    def _update(self, action: Update) -> Rows:
        schema = self.schema(action.table)
        where = self.text(action.where, action.table, action.alias, schema)
        values, parts = self.assignments(action.assignments, action.table, action.alias, schema)
        with self.located(where, *parts):
            metrics = self.tx.update(
                str(action.table), values, None if where is None else where.text, spark=self.engine.session()
            )
        return one_row(num_affected_rows=metrics.rows_updated)

    def assignments(
        self,
        given: Iterable[Assignment],
        table: Name,
        alias: str | None,
        schema: StructType,
        *,
        keep: bool = False,
        evolves: bool = False,
    ) -> tuple[dict[str, str], list[Bound]]:
        """Return values by column. `keep` leaves qualifiers in the values, as a merge needs them."""
        values: dict[str, str] = {}
        parts: list[Bound] = []
        for one in given:
            column = _unqualified(one.column, alias or table.parts[-1], schema)
            if not evolves:
                self._check_column(column, one, schema)
            if any(column.lower() == known.lower() for known in values):
                raise self.binder.source.error_at(
                    f"the column {column} is assigned twice", one.position, hint="Assign it once."
                )
            value = self.binder.bound(one.value) if keep else self.text(one.value, table, alias, schema)
            assert value is not None
            values[column] = insertion.default_text(column, schema) if insertion.is_default(value.text) else value.text
            parts.append(value)
        return values, parts

    def _check_column(self, column: str, one: Assignment, schema: StructType) -> None:
        try:
            find_column(column, schema, field="set")
        except ValidationError as error:
            raise self.binder.source.error_at(error.message, one.position, hint=error.hint or "") from None

    def _merge(self, action: Merge) -> Rows:
        schema = self.schema(action.table)
        alias = action.alias or action.table.parts[-1]
        evolves = action.evolves or self.engine.evolves
        on = self.binder.bound(action.on)
        parts: list[Bound] = [on]
        source = self.engine.query(self.tx, self.binder, action.source)
        with source.opened() as frame:
            try:
                merge = self.tx.merge(
                    str(action.table),
                    frame,
                    on.text,
                    target_alias=alias,
                    source_alias=action.source_alias,
                    merge_schema=evolves,
                    spark=self.engine.session(),
                )
                with self.located(*parts):
                    for clause in action.clauses:
                        merge = self._with_clause(merge, clause, action, schema, parts)
                with self.located(*parts):
                    metrics = merge.execute()
            except DeltarsError:
                self.tx._forget_merges()
                raise
        return one_row(
            num_affected_rows=metrics.rows_changed,
            num_updated_rows=metrics.rows_updated,
            num_deleted_rows=metrics.rows_deleted,
            num_inserted_rows=metrics.rows_inserted,
        )

    def _with_clause(
        self, merge: MergeBuilder, clause: MergeClause, action: Merge, schema: StructType, parts: list[Bound]
    ) -> MergeBuilder:
        bound = None if clause.condition is None else self.binder.bound(clause.condition)
        condition = None if bound is None else bound.text
        parts += [] if bound is None else [bound]
        values: dict[str, Any] = {}
        if clause.assignments:
            values, more = self.assignments(
                clause.assignments,
                action.table,
                action.alias,
                schema,
                keep=True,
                evolves=action.evolves or self.engine.evolves,
            )
            parts += more
        return with_clause(merge, clause.kind, clause.action, condition, None if clause.assignments is None else values)

    def _create_view(self, action: CreateView) -> Rows:
        views, name = self.engine.views, str(action.view)
        if views.has(name) and not action.or_replace:
            if action.if_not_exists:
                return NOTHING
            raise self.binder.source.error_at(
                f"there is already a view {name}", action.view.position, hint="Write CREATE OR REPLACE TEMP VIEW."
            )
        text = self.binder.bound(action.query).text
        # Names that are wrong are found now, not by the first query. The text says what the view's own name means.
        self.engine.query(self.tx, self.binder, action.query)
        if any(is_same_name(one.name, name) for one in Query(text).tables):
            raise self.binder.source.error_at(
                f"the view {name} would hide the table that it reads", action.view.position, hint="Use another name."
            )
        if action.columns:
            names = ", ".join(f"`{column.replace('`', '``')}`" for column in action.columns)
            text = f"SELECT * FROM ({text}\n) AS rows_of({names})"
        views.put(name, text)
        return NOTHING

    # -- whole tables ----------------------------------------------------------------------------------------------

    def _restore(self, action: Restore) -> Rows:
        self.readable(action.table)
        start = action.moment.value.start
        moment = as_moment(
            action.moment,
            self.binder,
            self.engine.session(),
            lambda problem, hint: self.binder.source.error_at(problem, start, hint=hint),
        )
        restored = self.tx.restore(str(action.table), moment.version, timestamp=moment.timestamp)
        after = self.tx._view_for(str(action.table))
        files = after.files_to_move(after.readable(str(action.table)), None)
        return one_row(
            table_size_after_restore=sum(files["size"].to_pylist()),
            num_of_files_after_restore=files.num_rows,
            num_removed_files=restored.num_removed_files,
            num_restored_files=restored.num_restored_files,
            removed_files_size=restored.removed_bytes,
            restored_files_size=restored.restored_bytes,
        )

    def _purge(self, table: Name, where: Fragment | None) -> Rows:
        schema = self.schema(table)
        condition = self.text(where, table, None, schema)
        with self.located(condition):
            metrics = self.tx.purge(
                str(table), None if condition is None else condition.text, spark=self.engine.session()
            )
        location = self.readable(table).location
        return one_row(
            path=location,
            metrics={
                "numFilesAdded": metrics.files_added,
                "numFilesRemoved": metrics.files_removed,
                "numBytesAdded": metrics.bytes_added,
                "numBytesRemoved": metrics.bytes_removed,
            },
        )


def _unqualified(column: str, alias: str, schema: StructType) -> str:
    """Return `column` of `alias.column`, unless the alias is a struct of the table."""
    first, dot, rest = column.partition(".")
    is_column = rest.partition(".")[0].strip("`").lower() in (name.lower() for name in schema.names)
    return rest if dot and first.lower() == alias.lower() and is_column else column


@contextmanager
def readable_spark_errors(statement: Statement) -> Iterator[None]:
    """Raise Spark's refusal of a statement as our own error. A query's is Spark's own, as in spark.sql."""
    try:
        yield
    except Exception as error:
        if isinstance(statement.action, Select) or not type(error).__module__.startswith("pyspark."):
            raise
        from deltars.spark.query_refusal import statement_refusal

        refused = statement_refusal(error)
        if refused is None:
            raise
        raise refused from error
