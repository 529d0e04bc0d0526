"""SQL statements of a catalog: each in its own transaction, or several in one.

    SELECT                         a snapshot of the catalog
    INSERT, CREATE TABLE …         a transaction of its own, with isolation "serializable", as `table.write` has
    BEGIN ATOMIC … END             one transaction over all statements in it, with the catalog's isolation
    BEGIN; …; COMMIT
    OPTIMIZE, VACUUM, RENAME TO    the call of the table, which commits by itself
    DROP FEATURE
    GENERATE, CONVERT              the call of the catalog

A text is parsed as a whole before any of its statements runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.catalog.changes import changes_of_table
from deltars.catalog.convert import convert_directory
from deltars.catalog.snapshot import CatalogSnapshot
from deltars.catalog.table import Table
from deltars.catalog.table_path import find_at, location_at
from deltars.errors import ValidationError
from deltars.predicate.source import Source
from deltars.predicate.statements.binding import Arguments, Binder
from deltars.predicate.statements.parser import parse_script, parse_statement
from deltars.predicate.statements.tree import (
    AlterTable,
    Atomic,
    Begin,
    Commit,
    Convert,
    DropFeature,
    DropTable,
    Explain,
    Generate,
    Name,
    Optimize,
    RenameTable,
    Rollback,
    Select,
    Statement,
    Vacuum,
)
from deltars.session import CatalogSession
from deltars.store.read.as_of import AsOf
from deltars.transaction import Transaction
from deltars.transaction.queries import ReadChanges, TableMoment
from deltars.transaction.statements.engine import Engine
from deltars.transaction.statements.execution import Execution
from deltars.transaction.statements.rows import NOTHING, ArrowRows, Rows, one_row
from deltars.transaction.statements.views import views_of

if TYPE_CHECKING:
    from deltars.catalog.catalog import Catalog
    from deltars.data.changes import ChangeScans
    from deltars.log.moments import Moment

_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
COMMITTED = pa.schema([("table", pa.string()), ("version", pa.int64())])


def run_statement(catalog: Catalog, text: str, args: Arguments, engine: Engine, *, as_of: AsOf | None = None) -> Rows:
    """Run one statement, or one BEGIN ATOMIC … END, and return its rows. `as_of` is for a query alone."""
    statement = parse_statement(text)
    if as_of is not None and not isinstance(statement.action, Select):
        raise ValidationError(
            "as_of goes with a query: a statement that changes tables changes them as they are now", field="as_of"
        )
    return StatementRun(catalog, text, args, engine, as_of=as_of).run(statement)


def run_script(catalog: Catalog, text: str, args: Arguments, engine: Engine) -> list[pa.Table]:
    """Run every statement of a script, and return the rows of each."""
    statements = parse_script(text)
    run = StatementRun(catalog, text, args, engine)
    try:
        # Rows are read before the next statement runs, which may change or delete what they come from.
        return [run.run(statement).to_arrow() for statement in statements]
    finally:
        run.close()


class StatementRun:
    """Statements of a text, run one after the other. BEGIN opens a transaction that COMMIT or ROLLBACK ends.

    A statement that fails ends the transaction: nothing of it is committed.
    """

    def __init__(
        self, catalog: Catalog, text: str, args: Arguments, engine: Engine, *, as_of: AsOf | None = None
    ) -> None:
        self._catalog = catalog
        self._session = catalog._session
        self._engine = engine
        engine.changes = read_changes(self._session)
        engine.views = views_of(self._session, engine.session())
        self._as_of = as_of
        self._binder = Binder(Source(text, "statement"), args)
        self.transaction: Transaction | None = None

    def close(self) -> None:
        """Roll back a transaction that is still open."""
        if self.transaction is not None:
            self.transaction.rollback()
            self.transaction = None

    def again(self, text: str) -> None:
        """Go on with another text, in the same transaction."""
        self._binder = Binder(Source(text, "statement"), None)

    def run(self, statement: Statement) -> Rows:
        """Run one statement. If it fails, the open transaction is rolled back."""
        if self.transaction is None:
            return self._run_alone(statement)
        try:
            return self._run_inside(self.transaction, statement)
        except BaseException:
            self.close()
            raise

    def _run_inside(self, tx: Transaction, statement: Statement) -> Rows:
        match statement.action:
            case Commit():
                self.transaction = None
                with tx:
                    pass
                return _committed(tx)
            case Rollback():
                self.close()
                return NOTHING
        return Execution(tx, self._binder, self._engine).run(statement)

    def _run_alone(self, statement: Statement) -> Rows:
        match statement.action:
            case Begin():
                self.transaction = Transaction(self._session)
                return NOTHING
            case Commit() | Rollback():
                word = statement.text.split()[0].upper()
                raise self._binder.source.error_at(
                    f"{word} without BEGIN", statement.position, hint="Write BEGIN first."
                )
            case Atomic(statements):
                return self._atomic(statements)
            case Select(query):
                return self._engine.query(self._cut(), self._binder, query)
            case Explain(query, mode):
                return one_row(plan=self._engine.query(self._cut(), self._binder, query).plan(mode))
            case Optimize() | Vacuum():
                return self._maintain(statement.action)
            case Generate(table, mode):
                with self._pointing().named(table):
                    self._catalog.table(str(table)).generate(mode.lower())
                return NOTHING
            case Convert():
                return self._convert(statement.action)
            case DropTable(table, if_exists, True):
                return self._purge(table, if_exists)
            case AlterTable(table, (DropFeature(feature, truncates),)):
                with self._pointing().named(table):
                    self._catalog.table(str(table)).drop_feature(
                        feature, truncate_history=truncates, spark=self._engine.session()
                    )
                return NOTHING
            case AlterTable(table, (RenameTable(new),)):
                return self._rename(table, new)
        with Transaction(self._session, isolation="serializable") as tx:
            return Execution(tx, self._binder, self._engine).run(statement)

    def _cut(self) -> CatalogSnapshot:
        return CatalogSnapshot(self._session, self._session.cut(self._as_of))

    def _atomic(self, statements: Sequence[Statement]) -> Rows:
        with Transaction(self._session) as tx:
            execution = Execution(tx, self._binder, self._engine)
            for statement in statements:
                rows = execution.run(statement)
            # Read before the commit: a query that fails must leave nothing.
            rows = rows.read_once()
        return rows

    # -- what commits by itself ------------------------------------------------------------------------------------

    def _table(self, execution: Execution, name: Name) -> Table:
        with execution.named(name):
            return Table(self._session, self._session.find(str(name)))

    def _pointing(self) -> Execution:
        """Return what points errors at the text, outside of a transaction."""
        return Execution(Transaction(self._session), self._binder, self._engine)

    def _maintain(self, action: Optimize | Vacuum) -> Rows:
        pointing = self._pointing()
        table = self._table(pointing, action.table)
        if isinstance(action, Vacuum):
            hours = action.retain_hours
            vacuumed = table.vacuum(
                retention=None if hours is None else _hours(hours),
                dry_run=action.dry_run,
                full=action.is_full,
                force=self._is_unchecked(),
            )
            files = [f"{table.location}/{file.path}" for file in vacuumed.files]
            return ArrowRows(pa.table({"path": pa.array(files if action.dry_run else [table.location], pa.string())}))
        where = pointing.text(action.where, action.table, None, table.schema)
        with pointing.located(where):
            done = table.optimize(
                None if where is None else where.text, zorder_by=action.zorder_by, spark=self._engine.session()
            )
        return one_row(path=table.location, metrics=done.metrics)

    def _is_unchecked(self) -> bool:
        """Return whether the Spark session allows a shorter retention than usual, by Delta's own switch."""
        session = self._engine.session()
        return session is not None and str(session.conf.get(_RETENTION_CHECK, "true")).lower() == "false"

    def _convert(self, action: Convert) -> Rows:
        """Make a table of a directory of Parquet files. One that is a table already stays as it is."""
        location = location_at(action.path)
        if find_at(self._session, location) is None:
            columns = action.partition_columns
            convert_directory(
                self._session,
                location,
                None,
                partition_schema=None if columns is None else columns.text,
                committer=None,
            )
        return NOTHING

    def _purge(self, name: Name, if_exists: bool) -> Rows:
        catalog = self._catalog
        if not (if_exists and not catalog.table_exists(str(name))):
            with self._pointing().named(name):
                catalog.drop_table(str(name), purge=True)
        return NOTHING

    def _rename(self, name: Name, new: Name) -> Rows:
        with self._pointing().named(name):
            self._catalog.rename_table(str(name), str(new))
        return NOTHING


def read_changes(session: CatalogSession) -> ReadChanges:
    """Return what reads the changed rows of a table of this catalog."""

    def read(name: str, first: TableMoment, last: TableMoment | None) -> ChangeScans:
        start, end = (None if one is None else _version_or_time(one) for one in (first, last))
        assert start is not None
        return changes_of_table(session, session.find(name), start, end)._scans

    return read


def _version_or_time(moment: TableMoment) -> int | Moment:
    found = moment.timestamp if moment.version is None else moment.version
    assert found is not None
    return found


def _hours(hours: float) -> timedelta:
    try:
        return timedelta(hours=hours)
    except OverflowError:
        raise ValidationError(
            f"{hours:g} hours are too many", field="retention", hint="Write RETAIN 168 HOURS."
        ) from None


def _committed(tx: Transaction) -> Rows:
    rows: list[dict[str, Any]] = [
        {"table": name, "version": version} for name, version in sorted(tx.result.versions.items())
    ]
    return ArrowRows(pa.Table.from_pylist(rows, COMMITTED))


__all__ = ["StatementRun", "run_script", "run_statement"]
