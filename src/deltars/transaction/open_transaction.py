"""Open transaction: reads, and staged frames, actions and alterations.

Threads read and write rows at the same time. Staging happens inside `Lifetime.open()`, one thread at a time, on the
table's state at that moment. Work that was done for an older state of the table is repeated.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, Unpack
from uuid import UUID, uuid4

import pyarrow as pa

from deltars.arguments import check_flags, check_keywords, check_mappings, check_texts, checks_calls
from deltars.config import check_isolation, check_timeout
from deltars.data.scan import Scan
from deltars.errors import (
    ConfigError,
    TableExists,
    TableNotFound,
    TransactionTooLarge,
    ValidationError,
    located,
)
from deltars.log.commit import Commit, Committed, RowGroup, VersionTaken
from deltars.log.moments import Moment
from deltars.log.new_table import NO_VERSION
from deltars.log.stages import OPEN, READ
from deltars.log.table_state import tracks_rows
from deltars.log.transaction_id import as_txn_id
from deltars.log.validation import as_actions
from deltars.observe import (
    TransactionBegun,
    WriteSkipped,
    emit,
)
from deltars.observe.channel import is_heard
from deltars.predicate import parse
from deltars.protocol import Action, SchemaLike, as_schema
from deltars.protocol import Protocol as TableProtocol
from deltars.protocol.upgrade import ProtocolUpgrade
from deltars.session import CatalogSession, TableLike, check_mirror_mode, is_handle
from deltars.store.read.as_of import AsOf
from deltars.transaction.alter import Alter
from deltars.transaction.create_table import CREATE, check_request
from deltars.transaction.definition import Change, RowCheck, StageChange, definition_actions
from deltars.transaction.lifetime import Lifetime
from deltars.transaction.limits import FEWER_FILES, Limits, how_to_raise
from deltars.transaction.merge_builder import Pending
from deltars.transaction.options import (
    BeginOptions,
    CheckedWriteOptions,
    WriteMode,
    WriteOptions,
    check_expected_version,
)
from deltars.transaction.plane import Frame, any_breaks, plane_for, refuse_swapped, spark_plane
from deltars.transaction.queries import QueryTable, TableMoment, table_at
from deltars.transaction.restoration import RESTORE, RestoredTable, restoration, version_to_restore
from deltars.transaction.result import SkippedWrite
from deltars.transaction.rows_by_table import RowsByTable
from deltars.transaction.staged_table import StagedTable, Step, files_without_row_ids
from deltars.transaction.table_creation import TableCreation
from deltars.transaction.table_write import TableWrite
from deltars.transaction.view import View
from deltars.uri import CatalogUri, is_uri, parse_table_uri
from deltars.verbs_to_come import RefusesVerbs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltars.predicate import Query, TableReference

_log = logging.getLogger(__name__)


class _WritesRows(Protocol):
    """A write, or a row-level change."""

    def run(self, table: StagedTable, max_files: int | None) -> None: ...


@checks_calls
class OpenTransaction(RefusesVerbs, RowsByTable):
    """The calls of a transaction that are allowed until it ends: read, write, stage and alter."""

    def __init__(
        self,
        session: CatalogSession | Callable[[CatalogUri | None], CatalogSession],
        **options: Unpack[BeginOptions],
    ) -> None:
        """Begin. `session` is the catalog's, or a function that opens the catalog that the first table names."""
        check_keywords("begin", options, BeginOptions)
        isolation, timeout, txn_id = options.get("isolation"), options.get("timeout"), options.get("txn_id")
        self._mirror = check_mirror_mode(options.get("mirror"))
        try:
            self.id = uuid4() if txn_id is None else as_txn_id(txn_id)
        except ValidationError as error:
            raise ConfigError(f"txn_id cannot be used: {error.message}", hint=error.hint) from None
        check_texts(committer=options.get("committer"), user_metadata=options.get("user_metadata"))
        if isolation is not None:
            check_isolation(isolation)
        if timeout is not None:
            check_timeout("timeout", timeout)
        self._open = session
        self._view: View | None = None
        self._isolation = isolation
        self._timeout_s = timeout
        self._committer = options.get("committer")
        self._user_metadata = options.get("user_metadata")
        self._limits = Limits(options.get("max_tables"), options.get("max_files_per_table"))
        self._is_repeatable = txn_id is not None
        self._earlier: Committed | None = None
        self._is_repeated_drop = False
        self._skipped: list[SkippedWrite] = []
        self._pending_merges: list[Pending] = []
        self._applying: dict[str, threading.Lock] = {}
        self._lifetime = Lifetime(self.id)
        if isinstance(session, CatalogSession):
            self._bind(session)

    # -- reading -------------------------------------------------------------------------------------------------

    def files(self, table: TableLike, where: str | None = None) -> pa.Table:
        """Return the live files of a table as of the transaction's beginning, with its staged changes.

        `where` leaves out files that hold no matching row, as far as partition values and statistics show. The
        transaction remembers what it read: under `strict` and the serializable levels, it fails with a conflict if
        another transaction changes that first.
        """
        with self._reading():
            view = self._view_for(table)
            staged = view.readable(table)
            assert staged.metadata is not None
            return view.files(staged, None if where is None else parse(where, staged.metadata.schema))

    def read(
        self,
        table: TableLike,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Read a table as of the transaction's beginning, with its staged changes, as a Spark DataFrame.

        `where`, `columns` and `spark` are those of `Table.read`. The transaction remembers what it read, as for
        `files`.
        """
        with self._reading():
            view = self._view_for(table)
            staged = view.readable(table)
            assert staged.metadata is not None
            plane = spark_plane()
            scan = view.scan(staged, plane.predicate(spark, where, staged.metadata.schema))
            return plane.read(spark, scan, where=where, columns=columns)

    def _reading(self) -> AbstractContextManager[None]:
        return self._lifetime.spending(READ)

    def _scan_of(self, table: TableLike, where: str | None) -> Scan:
        """Return a scan for the reads without Spark (`to_pandas` …). It is remembered as read, as for `files`."""
        view = self._view_for(table)
        staged = view.readable(table)
        assert staged.metadata is not None
        return view.scan(staged, None if where is None else parse(where, staged.metadata.schema))

    def _has(self, name: str) -> bool:
        """Return whether the transaction sees a table of this name."""
        view = self._view_for(name)
        found = view.find(view.session.name_or_id(name))
        return found is not None and found.metadata is not None

    def _query_table(self, query: Query, reference: TableReference, moment: TableMoment | None) -> QueryTable:
        """Return a table for a query. What the query reads is remembered, as for `files`."""
        view = self._view_for(reference.name)
        try:
            staged = view.readable(reference.name)
        except TableNotFound as error:
            missing = query.error(error.message, reference, hint=error.hint or "")
            raise TableNotFound(missing.message, table=reference.name, hint=error.hint) from None
        if moment is not None:
            return table_at(view.session, staged.table_id, staged.name, moment)
        assert staged.metadata is not None
        return QueryTable(staged.metadata.schema, lambda where: view.scan(staged, where))

    # -- staging -------------------------------------------------------------------------------------------------

    def write(
        self,
        table: TableLike,
        df: Frame,
        mode: WriteMode = "append",
        **options: Unpack[WriteOptions],
    ) -> None:
        """Stage the rows of a frame for a table. The commit creates a table that does not exist.

        The data files are written now. Readers see them when the transaction commits, and never if it does not.

        `mode` is "append", "overwrite", or what to do if the table exists: "error" or "ignore". "overwrite" replaces
        all rows, those that match `replace_where`, or with `partition_overwrite="dynamic"` those of the partitions
        written. `merge_schema` adds the frame's new columns to the table; `overwrite_schema` replaces its schema.
        `partition_by`, `cluster_by`, `properties` and `location` are for a new table. `app_id` and `app_version` make
        the write idempotent: it is skipped if the application has already written this version or a later one.
        `expected_version` refuses the write unless the table is at this version. See `WriteOptions` for all options.
        """
        self._write(table, df, mode, **options)

    def _write(
        self,
        table: TableLike,
        df: Frame,
        mode: WriteMode = "append",
        by_path: bool = False,
        skips_nothing: bool = False,
        **options: Unpack[WriteOptions],
    ) -> int:
        """Stage the rows of a frame, and return their number: 0 if the write is skipped.

        `skips_nothing` stages no append that changes nothing, so that it makes no version, as in delta-spark.
        """
        check_keywords("write", options, WriteOptions)
        checked = CheckedWriteOptions(mode, **options)
        refuse_swapped(table, df)
        plane = plane_for(df)
        view = self._view_for(table)
        name = view.session.name_or_id(table)
        with self._lifetime.writing(view.name_of(name)):
            write = TableWrite(view, plane, checked, df, by_path=by_path)
            created: StagedTable | None = None
            while True:
                base = view.find(name)
                if base is not None and self._needs_no_rows(view, base, checked, write):
                    return 0
                self._check_expected(view, name, base, checked.expected_version)
                if base is None:
                    created = created or write.new_table(name)
                    base = created
                else:
                    write.check_place(base)
                others = [other for other in view.changed if other.table_id != base.table_id]
                self._limits.check([*others, base])
                if self._earlier is not None:
                    # A transaction with this id committed, but not to this table. `commit` raises the error.
                    self._stage(view, base, (), Step("WRITE"))
                    return 0
                self._write_rows(write, base, self._limits.max_new_files(others, base, overwrites=checked.overwrites))
                with self._lifetime.open():
                    now = view.find(name) or base
                    if now is not base and self._needs_no_rows(view, now, checked, write):
                        return 0
                    if write.is_made_for(now):
                        actions, step, row_groups = write.steps(now)
                        if skips_nothing and not actions and now.exists and mode == "append":
                            return 0
                        self._stage(view, now, actions, step, row_groups, is_exact=checked.expected_version is not None)
                        if checked.user_metadata is not None:
                            self._user_metadata = checked.user_metadata
                        return step.metrics["numOutputRows"]
                # Another thread has staged changes of the table since: repeat for its new state.

    def _check_expected(
        self, view: View, name: str | UUID, table: StagedTable | None, expected_version: int | None
    ) -> None:
        """Raise `VersionConflict` if the table did not have the expected version when the transaction began."""
        actual = NO_VERSION if table is None else table.version
        if expected_version is None or expected_version == actual:
            return
        if table is None:
            view.seen(name)
        assert table is not None
        taken = VersionTaken(table.table_id, table.name, expected_version, actual)
        raise view.session.conflict(Commit(self.id, ()), taken)

    def _needs_no_rows(self, view: View, table: StagedTable, options: CheckedWriteOptions, write: TableWrite) -> bool:
        """Return whether a write to an existing table is complete without writing rows."""
        if self._is_committed(table):
            self._stage(view, table, (), Step("WRITE"))
            return True
        if table.exists and options.mode == "ignore":
            return True
        if table.exists and options.mode == "error":
            raise TableExists(
                f"there is already a table named {table.name!r}",
                table=table.name,
                field="mode",
                hint="Write mode='append', 'overwrite' or 'ignore', or use another name.",
            )
        return self._is_skipped(view, write.skipped(table))

    def _is_skipped(self, view: View, skipped: SkippedWrite | None) -> bool:
        """Record a write or a change that its application has committed before. Return whether it is one."""
        if skipped is None:
            return False
        with self._lifetime.open():
            self._skipped.append(skipped)
        source = view.session.database.source
        emit(WriteSkipped(source, self.id, skipped.table, skipped.app_id, skipped.app_version, skipped.known_version))
        return True

    def _write_rows(self, write: _WritesRows, table: StagedTable, max_files: int | None) -> None:
        try:
            write.run(table, max_files)
        except TransactionTooLarge as error:
            needed = table.num_added + error.asked
            error.hint = error.hint or FEWER_FILES.format(how_to_raise("max_files_per_table", needed))
            error.message += f": max_files_per_table is {self._limits.max_files_per_table}"
            raise

    def stage(
        self,
        table: TableLike,
        actions: Sequence[Action] | pa.Table,
        expected_version: int | None = None,
        *,
        operation: str = "WRITE",
        operation_params: Mapping[str, Any] | None = None,
    ) -> None:
        """Stage raw actions for a table. Several stages of one table become one version.

        `expected_version` is the table's version that the actions were made for (−1: none). By default it is the
        version at the transaction's beginning.
        """
        view = self._view_for(table)
        expected_version = None if expected_version is None else check_expected_version(expected_version)
        check_mappings(operation_params=operation_params)
        if not isinstance(actions, pa.Table):
            actions = as_actions(actions)
        staged = view.seen(table, expected_version)
        self._stage(view, staged, actions, Step(operation, operation_params or {}), expected_version=expected_version)

    stage_table = stage

    def _is_committed(self, table: StagedTable) -> bool:
        """Return whether an earlier transaction with this id has changed the table.

        Such a table is staged without actions, so that the commit finds the same tables and returns the first result.
        """
        return self._earlier is not None and table.table_id in self._earlier.versions

    def _stage(
        self,
        view: View,
        staged: StagedTable,
        actions: Sequence[Action] | pa.Table,
        step: Step,
        row_groups: Sequence[RowGroup] = (),
        *,
        expected_version: int | None = None,
        is_exact: bool = False,
    ) -> None:
        """Add one step to the staged changes of a table, all of it or nothing."""
        with self._lifetime.open():
            now = view.latest(staged)
            with located(table=staged.name, table_id=str(staged.table_id), txn_id=self.id, stage="validate"):
                after = now.with_step(actions, step, row_groups, expected_version=expected_version, is_exact=is_exact)
                self._limits.check([*(table for table in view.changed if table.table_id != after.table_id), after])
            view.keep(after)
            self._lifetime.has_staged(self, after.name)

    # -- tables --------------------------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        schema: SchemaLike,
        *,
        location: str | None = None,
        partition_by: str | Sequence[str] = (),
        cluster_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        if_not_exists: bool = False,
        replace: bool = False,
    ) -> None:
        """Create a table as part of this transaction, which can write it at once. The commit creates it.

        The arguments are those of `Catalog.create_table`. If another transaction creates a table of this name first,
        the commit raises `VersionConflict`.
        """
        view = self._view_for(name)
        key = view.session.name_or_id(name)
        check_request(str(key), if_not_exists=if_not_exists, replace=replace)
        creation = TableCreation(
            key, as_schema(schema), location, partition_by, cluster_by, properties, description, if_not_exists, replace
        )
        while True:
            base = view.find(key)
            if base is not None and self._is_committed(base):
                return self._stage(view, base, (), Step(CREATE))
            made = creation.step(view, base)
            if made is None:
                return None
            with self._lifetime.open():
                if view.find(key) is base:
                    return self._stage(view, *made)
            # Another thread has staged changes of the table since: repeat for its new state.

    def drop_table(self, table: TableLike, *, delete_data: bool = False) -> None:
        """Drop a table as part of this transaction. What the transaction has staged for it is discarded.

        The commit drops it, at the same moment as everything else. At `strict`, it raises `VersionConflict` if the
        table has a newer version by then. The files stay: `delete_data` is refused here.
        """
        check_flags(delete_data=delete_data)
        if delete_data:
            raise ValidationError(
                "a transaction cannot delete files: a rollback could not bring them back",
                table=str(table),
                txn_id=self.id,
                field="delete_data",
                hint="Drop the table here. After the commit, catalog.drop_table(table_id, delete_data=True) deletes"
                " the files of the dropped table.",
            )
        view = self._view_for(table)
        key = view.session.name_or_id(table)
        found = view.find(key)
        if self._earlier is not None:
            # A transaction with this id committed. `commit` returns its result, unless it did something else.
            if found is not None and found.table_id not in self._earlier.versions:
                raise ValidationError(
                    "this transaction id was committed before, and did not drop the table",
                    table=found.name,
                    txn_id=self.id,
                    hint="Use a new transaction id; catalog.transaction() shows what this one committed.",
                )
            self._is_repeated_drop = True
            return
        staged = view.seen(table) if found is None else found
        with self._lifetime.open():
            view.drop(view.latest(staged))
            self._lifetime.has_staged(self, staged.name)

    def restore(
        self,
        table: TableLike,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        as_of: AsOf | None = None,
    ) -> RestoredTable:
        """Restore a table to an older version as part of this transaction: its rows, schema, properties, description.

        Give a version of the table, a time, or as `as_of` a tag, a transaction or a time of the catalog. The commit
        makes a new version; the versions in between stay readable. Raise `FilesMissing`, before anything is staged, if
        a file of the old version does not exist any more. The table counts as read in whole. A table that is as it
        was then stays unchanged.
        """
        view = self._view_for(table)
        base = view.readable(table)
        if self._is_committed(base):
            self._stage(view, base, (), Step(RESTORE))
            return RestoredTable(base.name, base.table_id, base.version)
        with located(table=base.name):
            target = version_to_restore(view.session, base, version, timestamp, as_of)
        while True:
            with located(table=base.name, table_id=str(base.table_id), txn_id=self.id):
                made = restoration(view, base, target, timestamp)
            if not made.result.is_changed:
                return made.result
            with self._lifetime.open():
                now = view.readable(base.table_id)
                if now is base:
                    self._stage(view, base, made.actions, made.step, made.row_groups)
                    return made.result
            base = now  # another thread has staged changes of the table since

    def alter(self, table: TableLike) -> Alter:
        """Return an object whose methods change the table's schema and properties, as part of this transaction."""
        stage_change = self._change_stager(table)
        return Alter(lambda: nullcontext(stage_change))

    def _change_stager(self, table: TableLike) -> StageChange:
        """Return the function that stages one change of a table's metadata."""
        view = self._view_for(table)
        table_id = view.readable(table).table_id

        def apply(change: Change, operation: str, check: RowCheck | None = None) -> ProtocolUpgrade | None:
            while True:
                base = view.readable(table_id)
                is_new = not self._is_committed(base)
                condition = check(view.definition(base)) if check is not None and is_new else None
                # All rows count as read, so a concurrent append conflicts with the new constraint.
                if condition is not None and any_breaks(view.scan(base), condition.sql):
                    raise condition.violated().located(table=base.name, txn_id=self.id)
                with self._lifetime.open():
                    now = view.readable(table_id)
                    if condition is not None and now is not base:
                        continue  # another thread has staged rows that were not checked
                    if self._is_committed(now):
                        self._stage(view, now, (), Step(operation))
                        return None
                    return self._stage_change(view, now, change, operation)

        return apply

    def _stage_change(self, view: View, table: StagedTable, change: Change, operation: str) -> ProtocolUpgrade | None:
        assert table.protocol is not None
        before = view.definition(table)
        after, params = change(before)
        actions = definition_actions(table.protocol, before, after)
        if tracks_rows(after.metadata) and not tracks_rows(before.metadata):
            actions += files_without_row_ids(view.files_to_move(table, None), table.version)
        self._stage(view, table, actions, Step(operation, params))
        raised = next((action for action in actions if isinstance(action, TableProtocol)), None)
        return None if raised is None else ProtocolUpgrade(table.protocol, raised)

    # -- the catalog -------------------------------------------------------------------------------------------------

    def _bind(self, session: CatalogSession) -> View:
        """Take the snapshot that all reads and version checks of the transaction use."""
        began_ns, self._began = time.time_ns(), time.perf_counter()
        self._limits = self._limits.within(session.settings)
        with self._lifetime.spending(OPEN):
            self._earlier = session.writer.find_committed(self.id) if self._is_repeatable else None
            self._view = View(session, self._lifetime)
        # Looked up here, the first time: a commit must not wait for it.
        isolation = self._isolation or session.isolation
        if is_heard(TransactionBegun):
            emit(TransactionBegun(session.database.source, self.id, isolation, began_ns))
        return self._view

    def _join(self, session: CatalogSession) -> View:
        """Bind to a session's catalog, unless the transaction is bound. Raise if it is bound to another catalog."""
        with self._lifetime.open():
            if self._view is None:
                self._open = session
                return self._bind(session)
            if self._view.session.is_other(session.uri):
                raise ValidationError(
                    f"the transaction belongs to {self._view.session.uri}, and the Spark session is enabled for"
                    f" {session.uri}",
                    txn_id=self.id,
                    hint="A transaction cannot span two catalogs: begin it with the catalog of deltars.enable.",
                )
            return self._view

    def _view_for(self, table: TableLike) -> View:
        with self._lifetime.open():
            if self._view is not None:
                if not isinstance(self._open, CatalogSession):
                    self._view.session.refuse_default_elsewhere(table)
                return self._view
            assert not isinstance(self._open, CatalogSession)
            if isinstance(table, str):
                uri = parse_table_uri(table)[0] if is_uri(table) else None
            else:
                uri = table._session.uri if is_handle(table) else None
            return self._bind(self._open(uri))
