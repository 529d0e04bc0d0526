"""A transaction: read and stage any number of tables, commit them all at once or not at all.

begin ── the cut: every table's version at this moment
  files(table, where) ── the files as of the cut, with what is staged; remembered as read
  write(table, df) ───── data files are written, their add actions staged; nothing is visible
  stage(table, actions)
commit ── one SQL transaction: every table as the isolation level wants it, then all advance together
  └─ publish each table's new version to `_delta_log`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

import pyarrow as pa

from deltars.config import check_timeout
from deltars.data.conditions import Condition
from deltars.data.files import Scan
from deltars.errors import ConfigError, DeltarsError, TableExists, TableNotFound, TransactionClosed, ValidationError
from deltars.log.add_columns import file_keys
from deltars.log.commit import ISOLATION_LEVELS, NO_VERSION, Commit, Committed, Isolation, NewTable, RowGroup
from deltars.log.pruning import Pruner
from deltars.log.reads import FileKey
from deltars.log.snapshot import Snapshot
from deltars.predicate import Predicate, parse, to_sql
from deltars.protocol import Action, StructType
from deltars.store.cuts import Cut
from deltars.transaction.altering import Alter, AlteredTable, Change
from deltars.transaction.engine import Engine, HasEngine, check_mirror_mode
from deltars.transaction.limits import Limits
from deltars.transaction.metadata import metadata_actions
from deltars.transaction.new_table import initial_actions, location_of
from deltars.transaction.plane import any_breaks, plane_for, spark_plane
from deltars.transaction.reads import ReadLog
from deltars.transaction.result import TransactionResult
from deltars.transaction.staging import StagedTable, Step
from deltars.transaction.write_options import WriteOptions
from deltars.transaction.writing import TableWrite
from deltars.uri import CatalogUri, is_uri, parse_table_uri

_log = logging.getLogger(__name__)


class Transaction:
    """Use it as a context manager: it commits on clean exit and rolls back on any exception."""

    def __init__(
        self,
        engine: Engine | Callable[[CatalogUri | None], Engine],
        *,
        isolation: Isolation | None = None,
        timeout: float | None = None,
        committer: str | None = None,
        txn_id: UUID | None = None,
        user_metadata: str | None = None,
        max_tables: int | None = None,
        max_files_per_table: int | None = None,
        mirror: str | None = None,
    ) -> None:
        """`engine`: the catalog's, or how to open the one that the first table names."""
        self._mirror = check_mirror_mode(mirror)
        if txn_id is not None and not isinstance(txn_id, UUID):
            raise ConfigError(f"txn_id is a UUID, not {txn_id!r}")
        self.id = txn_id or uuid4()
        if isolation is not None and isolation not in ISOLATION_LEVELS:
            raise ConfigError(
                f"there is no isolation level {isolation!r}", hint=f"Levels are {', '.join(ISOLATION_LEVELS)}."
            )
        if timeout is not None:
            check_timeout("timeout", timeout)
        self._open = engine
        self._engine: Engine | None = None
        self._cut = Cut({})
        self._isolation = isolation
        self._timeout_s = timeout
        self._committer = committer
        self._user_metadata = user_metadata
        self._limits = Limits(max_tables, max_files_per_table)
        self._is_repeatable = txn_id is not None
        self._earlier: Committed | None = None
        self._tables: dict[str, StagedTable] = {}
        self._snapshots: dict[UUID, Snapshot] = {}
        self._reads = ReadLog()
        self._is_open = True
        self._result: TransactionResult | None = None
        if isinstance(engine, Engine):
            self._bind(engine)

    @property
    def result(self) -> TransactionResult:
        if self._result is None:
            raise TransactionClosed("this transaction has no result: it did not commit", txn_id=self.id)
        return self._result

    # -- reading -------------------------------------------------------------------------------------------------

    def files(self, table: str | UUID, where: str | None = None) -> pa.Table:
        """The live files of a table as this transaction sees them: at its beginning, and with what it staged.

        `where` leaves out files that hold no matching row, as far as partition values and statistics tell. What was
        asked is remembered: under `strict` and the serializable levels, whoever changes it first is in conflict.
        """
        staged = self._readable(table)
        assert staged.metadata is not None
        return self.read_files(staged, None if where is None else parse(where, staged.metadata.schema))

    def _readable(self, table: str | UUID) -> StagedTable:
        self._refuse_closed()
        staged = self._seen(self._engine_for(table), table)
        if staged.metadata is None:
            raise ValidationError("nothing was committed to the table yet", table=staged.name)
        return staged

    def read_files(self, table: StagedTable, predicate: Predicate | None) -> pa.Table:
        """The same for a condition that was parsed before."""
        assert table.metadata is not None
        pruner = None if predicate is None else Pruner(predicate, table.metadata)
        added = table.added()
        if pruner is not None:
            added = added.filter(pruner.keep(added))
        if table.version == NO_VERSION:
            return added
        snapshot = self._snapshot(table.table_id, table.version)
        live = snapshot.select_files(where=None if predicate is None else to_sql(predicate))
        if pruner is None:
            self._reads.whole_table(table.table_id, table.version)
        else:
            self._reads.matching(table.table_id, table.version, pruner, file_keys(live))
        return pa.concat_tables([table.over(live), added])

    def read_progress(self, table: StagedTable, app_id: str) -> int | None:
        """How far an application has come with a table: by what is staged, else by what was committed."""
        staged = table.progress(app_id)
        if staged is not None or table.version == NO_VERSION:
            return staged
        self._reads.application(table.table_id, table.version, app_id)
        committed = self._snapshot(table.table_id, table.version).txns.get(app_id)
        return None if committed is None else committed.version

    def read(
        self, table: str | UUID, *, where: str | None = None, columns: Sequence[str] | None = None, spark: Any = None
    ) -> Any:
        """The rows of a table as this transaction sees them, as a Spark DataFrame (of the active session).

        `where` and `columns` as in `Table.read`; what was asked is remembered as by `files`.
        """
        staged = self._readable(table)
        assert staged.metadata is not None
        plane = spark_plane()
        files = self.read_files(staged, plane.predicate(spark, where, staged.metadata.schema))
        return plane.read(spark, self._scan(staged, files), where=where, columns=columns)

    def _scan(self, table: StagedTable, files: pa.Table) -> Scan:
        assert table.metadata is not None
        return Scan.of(
            table.metadata,
            files,
            root=table.location,
            table=table.name,
            version=table.version,
            storage_options=self._bound().settings.storage_options,
        )

    # -- staging -------------------------------------------------------------------------------------------------

    def write(
        self,
        table: str | UUID,
        df: Any,
        mode: str = "append",
        *,
        replace_where: str | None = None,
        partition_overwrite: str = "static",
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        partition_by: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        app_id: str | None = None,
        app_version: int | None = None,
        target_file_size: int | None = None,
        max_records_per_file: int | None = None,
        compression: str | None = None,
        user_metadata: str | None = None,
    ) -> None:
        """Stage the rows of a frame for a table; a table that does not exist is created by the same commit.

        The data files are written now. Readers see them when the transaction commits, and never if it does not.

        `mode`: "append"; "overwrite" (all rows, those that match `replace_where`, or with
        `partition_overwrite="dynamic"` those of the partitions written); "error" or "ignore" where the table exists.
        `merge_schema` adds the frame's new columns to the table, `overwrite_schema` replaces its schema.
        `partition_by` and `properties` are for a new table. `app_id` and `app_version` make the write idempotent: one
        that was committed before, or a later one, is skipped.
        """
        self._refuse_closed()
        options = WriteOptions(
            mode,
            replace_where,
            partition_overwrite,
            merge_schema,
            overwrite_schema,
            partition_by,
            properties,
            app_id,
            app_version,
            target_file_size,
            max_records_per_file,
            compression,
        )
        plane = plane_for(df)
        engine = self._engine_for(table)
        name = engine.name_or_id(table)
        found = self._find(engine, name)
        if found is not None and found.exists and options.mode == "ignore":
            return
        if found is not None and found.exists and options.mode == "error":
            raise TableExists(f"there is already a table named {found.name!r}", table=found.name, field="mode")
        staged = found or self._new_table(engine, name, plane.schema(df), partition_by or (), properties)
        self._limits.check([*self._changed(), staged])
        self._user_metadata = self._user_metadata if user_metadata is None else user_metadata
        if self._earlier is not None:
            # Committed before under this id: the commit will say so, and needs to know of the table only.
            self._take(staged, (), Step("WRITE"))
            return
        write = TableWrite(self, staged, plane, options, dict(engine.settings.storage_options))
        if write.is_done():
            return
        actions, step, files = write.run(df)
        self._take(staged, actions, step, [group for file in files for group in file.row_groups])

    def stage(
        self,
        table: str | UUID,
        actions: Sequence[Action] | pa.Table,
        expected_version: int | None = None,
        *,
        operation: str = "WRITE",
        operation_params: Mapping[str, Any] | None = None,
    ) -> None:
        """Stage raw actions for a table. Several stages of one table become one version.

        `expected_version` is the current version that the actions were made for (−1: none), where that is another
        than at the beginning of this transaction.
        """
        self._refuse_closed()
        engine = self._engine_for(table)
        if expected_version is not None and (type(expected_version) is not int or expected_version < NO_VERSION):
            raise ValidationError(
                f"expected_version is a version, or −1 for none, not {expected_version!r}", field="expected_version"
            )
        staged = self._seen(engine, table, expected_version)
        self._take(staged, actions, Step(operation, operation_params or {}), expected_version=expected_version)

    stage_table = stage

    def _take(
        self,
        staged: StagedTable,
        actions: Sequence[Action] | pa.Table,
        step: Step,
        row_groups: Sequence[RowGroup] = (),
        *,
        expected_version: int | None = None,
    ) -> None:
        try:
            after = staged.with_step(actions, step, row_groups, expected_version=expected_version)
            self._limits.check([*(table for table in self._changed() if table.name != after.name), after])
        except DeltarsError as error:
            raise error.located(
                table=staged.name, table_id=str(staged.table_id), txn_id=self.id, stage="validate"
            ) from error.__cause__
        self._tables[after.name] = after

    def alter(self, table: str | UUID) -> Alter:
        """Change a table's schema or properties with this transaction."""
        altered = self.altered(table)
        return Alter(lambda: nullcontext(altered))

    def altered(self, table: str | UUID) -> AlteredTable:
        table_id = self._readable(table).table_id

        def apply(change: Change, operation: str, params: Mapping[str, Any]) -> None:
            staged = self._readable(table_id)
            assert staged.metadata is not None
            assert staged.protocol is not None
            actions = metadata_actions(staged.protocol, change(staged.metadata))
            self._take(staged, actions, Step(operation, params))

        def check_rows(condition: Condition) -> None:
            # All rows are remembered as read: who adds others meanwhile is in conflict.
            staged = self._readable(table_id)
            if any_breaks(self._scan(staged, self.read_files(staged, None)), condition.sql):
                raise condition.violated().located(table=staged.name, txn_id=self.id)

        return AlteredTable(apply, check_rows)

    # -- the end ---------------------------------------------------------------------------------------------------

    def commit(self) -> TransactionResult:
        """Commit everything staged as one SQL transaction, then publish it. Called for you on clean exit."""
        self._refuse_closed()
        self._is_open = False
        changed = self._changed()
        if self._engine is None or not changed:
            self._result = TransactionResult(self.id, None)
            return self._result
        names = {staged.table_id: staged.name for staged in changed}
        try:
            committed = self._repeated(names.keys()) or self._engine.commit(
                self._as_commit(), timeout_s=self._timeout_s
            )
        except DeltarsError as error:
            table_id = None if error.table_id is None else UUID(error.table_id)
            _log.info("transaction %s did not commit: %s", self.id, error)
            raise error.located(table=names.get(table_id) if table_id else None) from error.__cause__
        # Before anything is published: whatever happens there, the commit stands.
        self._result = TransactionResult(
            self.id,
            committed.commit_ts,
            {names[table_id]: version for table_id, version in committed.versions.items()},
            dict(committed.versions),
        )
        _log.info("transaction %s committed: %s", self.id, self._result.versions)
        outcomes = self._engine.publish(committed.versions, mirror=self._mirror)
        for staged in changed:
            if staged.new:
                self._engine.publish_registration(staged.table_id)
        for outcome in outcomes.values():
            if outcome.failure is not None:
                _log.warning("transaction %s: %s", self.id, outcome.failure.located(txn_id=self.id))
        self._result = replace(
            self._result, mirror={names[table_id]: outcome for table_id, outcome in outcomes.items()}
        )
        return self._result

    def _repeated(self, tables: Collection[UUID]) -> Committed | None:
        """The same transaction, committed before this one began."""
        return self._earlier if self._earlier and self._earlier.versions.keys() == set(tables) else None

    def rollback(self) -> None:
        """Forget everything staged. Data files already written stay unreferenced until a vacuum removes them."""
        self._refuse_closed()
        self._is_open = False
        self._tables.clear()

    def __enter__(self) -> Self:
        self._refuse_closed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_open:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def __repr__(self) -> str:
        state = "open" if self._is_open else "committed" if self._result else "rolled back"
        staged = ", ".join(table.name for table in self._changed())
        return f"<Transaction {self.id} {state}: {staged or 'nothing staged'}>"

    # -- tables ----------------------------------------------------------------------------------------------------

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise TransactionClosed(txn_id=self.id)

    def _bind(self, engine: Engine) -> Engine:
        """From here on every read and every version check is at this moment's cut."""
        self._engine = engine
        self._limits = self._limits.within(engine.settings)
        self._earlier = engine.writer.find_committed(self.id) if self._is_repeatable else None
        self._cut = engine.cuts.now()
        return engine

    def _bound(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _engine_for(self, table: str | UUID) -> Engine:
        if self._engine is not None:
            return self._engine
        assert not isinstance(self._open, Engine)
        uri = parse_table_uri(table)[0] if isinstance(table, str) and is_uri(table) else None
        return self._bind(self._open(uri))

    def _changed(self) -> list[StagedTable]:
        return [table for table in self._tables.values() if table.is_changed]

    def _seen(self, engine: Engine, table: str | UUID, expected_version: int | None = None) -> StagedTable:
        """The table as this transaction sees it; an error where it sees none."""
        name = engine.name_or_id(table)
        found = self._find(engine, name)
        if found is not None:
            return found
        record = engine.find(table)
        if expected_version is None:
            raise TableNotFound(
                f"the table {record.name!r} was not there when this transaction began",
                table=record.name,
                txn_id=self.id,
                hint="Begin the transaction after creating the table.",
            )
        return StagedTable(record.table_id, record.name, record.location, expected_version, None)

    def _find(self, engine: Engine, table: str | UUID) -> StagedTable | None:
        """The table as this transaction sees it: staged already, or as it was at the cut."""
        for staged in self._tables.values():
            if table in (staged.name, staged.table_id):
                return staged
        found = self._cut.find(table)
        if found is None:
            return None
        location = engine.registry.location(found.table_id)
        if found.version == NO_VERSION:
            return StagedTable(found.table_id, found.name, location, found.version, None)
        snapshot = self._snapshot(found.table_id, found.version)
        return StagedTable(
            found.table_id,
            found.name,
            location,
            found.version,
            snapshot.metadata,
            snapshot.protocol,
            is_live=partial(self._is_live, snapshot),
        )

    def _snapshot(self, table_id: UUID, version: int) -> Snapshot:
        if table_id not in self._snapshots:
            self._snapshots[table_id] = self._bound().reader.snapshot(table_id, version)
        return self._snapshots[table_id]

    @staticmethod
    def _is_live(snapshot: Snapshot, key: FileKey) -> bool:
        return key in file_keys(snapshot.files)

    def _new_table(
        self,
        engine: Engine,
        name: str | UUID,
        schema: StructType,
        partition_by: Sequence[str],
        properties: Mapping[str, str] | None,
    ) -> StagedTable:
        if isinstance(name, UUID):
            self._seen(engine, name)
        table_id = uuid4()
        new = NewTable(table_id, str(name), location_of(engine, str(name), table_id, None))
        actions = initial_actions(table_id, schema, partition_by=partition_by, properties=properties)
        return StagedTable(table_id, new.name, new.location, NO_VERSION, None, new=new, initial=actions)

    def _as_commit(self) -> Commit:
        changed = self._changed()
        return Commit(
            self.id,
            [staged.as_commit() for staged in changed],
            [staged.new for staged in changed if staged.new],
            committer=self._committer,
            user_metadata=self._user_metadata,
            isolation=self._isolation or self._bound().settings.isolation,
            read=self._reads.by_table(),
            is_repeatable=self._is_repeatable,
        )


class MultiTableTransaction(Transaction):
    """`catalog.begin()` by another name: stage tables, then commit them together."""

    def __init__(self, catalog: HasEngine, **options: Any) -> None:
        super().__init__(catalog.engine, **options)
