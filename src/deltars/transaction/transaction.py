"""A transaction: stage writes to any number of tables, commit them all at once or not at all.

begin ── the cut: every table's version at this moment
  write(table, df) ── data files are written, their add actions staged; nothing is visible
  write(…)
commit ── one SQL transaction: every table still at its version of the cut, then all advance together
  └─ publish each table's new version to `_delta_log`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

from deltars.data.files import WriteTarget
from deltars.errors import DeltarsError, TransactionClosed, ValidationError
from deltars.log.commit import NO_VERSION, Commit, NewTable, RowGroup, TableCommit
from deltars.protocol import Action, Metadata, StructType
from deltars.transaction.engine import Engine, check_mirror_mode
from deltars.transaction.new_table import initial_actions, location_of
from deltars.transaction.plane import plane_for
from deltars.transaction.result import TransactionResult
from deltars.uri import CatalogUri, is_uri, parse_table_uri

MODES = ("append",)


@dataclass(slots=True)
class _Staged:
    """What one table gets from the transaction."""

    table_id: UUID
    name: str
    location: str
    expected_version: int
    metadata: Metadata
    new: NewTable | None
    actions: list[Action]
    row_groups: list[RowGroup] = field(default_factory=list)
    num_files: int = 0
    num_bytes: int = 0
    num_rows: int = 0

    def as_commit(self) -> TableCommit:
        columns = ",".join(f'"{name}"' for name in self.metadata.partition_columns)
        metrics = {
            "numFiles": self.num_files,
            "numOutputBytes": self.num_bytes,
            "numOutputRows": self.num_rows,
        }
        return TableCommit(
            self.table_id,
            self.expected_version,
            self.actions,
            "CREATE TABLE AS SELECT" if self.new else "WRITE",
            {"partitionBy": f"[{columns}]"} if self.new else {"mode": "Append", "partitionBy": f"[{columns}]"},
            row_groups=self.row_groups,
            metrics={name: str(value) for name, value in metrics.items()},
        )


class Transaction:
    """Use it as a context manager: it commits on clean exit and rolls back on any exception."""

    def __init__(
        self,
        engine: Engine | Callable[[CatalogUri | None], Engine],
        *,
        timeout: float | None = None,
        committer: str | None = None,
        txn_id: UUID | None = None,
        user_metadata: str | None = None,
        mirror: str | None = None,
    ) -> None:
        """`engine`: the catalog's, or how to open the one that the first table names."""
        self._mirror = check_mirror_mode(mirror)
        self.id = txn_id or uuid4()
        self._open = engine
        self._engine: Engine | None = None
        self._cut: Mapping[str, tuple[UUID, int]] = {}
        self._timeout_s = timeout
        self._committer = committer
        self._user_metadata = user_metadata
        self._is_repeatable = txn_id is not None
        self._staged: dict[str, _Staged] = {}
        self._is_open = True
        self._result: TransactionResult | None = None
        if isinstance(engine, Engine):
            self._bind(engine)

    @property
    def result(self) -> TransactionResult:
        if self._result is None:
            raise TransactionClosed("this transaction has no result: it did not commit", txn_id=self.id)
        return self._result

    def write(
        self,
        table: str | UUID,
        df: Any,
        mode: str = "append",
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Stage the rows of a frame for a table; a table that does not exist is created by the same commit.

        The data files are written now. Readers see them when the transaction commits, and never if it does not.
        """
        self._refuse_closed()
        if mode not in MODES:
            raise ValidationError(f"unknown mode {mode!r}", field="mode", hint=f"Known are: {', '.join(MODES)}.")
        plane = plane_for(df)
        engine = self._engine_for(table)
        name = engine.name_or_id(table)
        staged = self._staged_table(engine, name) or self._new_table(
            engine, name, plane.schema(df), partition_by, properties
        )
        target = WriteTarget(
            root=staged.location,
            schema=staged.metadata.schema,
            partition_columns=tuple(staged.metadata.partition_columns),
            properties=staged.metadata.configuration,
            storage_options=engine.settings.storage_options,
        )
        try:
            files = plane.write(df, target)
        except DeltarsError as error:
            raise error.located(table=staged.name, txn_id=self.id, stage="write data") from error.__cause__
        for file in files:
            staged.actions.append(file.add)
            staged.row_groups.extend(file.row_groups)
            staged.num_files += 1
            staged.num_bytes += file.add.size
            staged.num_rows += sum(group.num_rows for group in file.row_groups)
        self._staged[staged.name] = staged

    def commit(self) -> TransactionResult:
        """Commit everything staged as one SQL transaction, then publish it. Called for you on clean exit."""
        self._refuse_closed()
        self._is_open = False
        if self._engine is None or not self._staged:
            self._result = TransactionResult(self.id, None)
            return self._result
        committed = self._engine.commit(self._as_commit(), timeout_s=self._timeout_s)
        names = {staged.table_id: name for name, staged in self._staged.items()}
        outcomes = self._engine.publish(committed.versions, mirror=self._mirror)
        for staged in self._staged.values():
            if staged.new:
                self._engine.publish_registration(staged.table_id)
        self._result = TransactionResult(
            self.id,
            committed.commit_ts,
            {names[table_id]: version for table_id, version in committed.versions.items()},
            dict(committed.versions),
            {names[table_id]: outcome for table_id, outcome in outcomes.items()},
        )
        return self._result

    def rollback(self) -> None:
        """Forget everything staged. Data files already written stay unreferenced until a vacuum removes them."""
        self._refuse_closed()
        self._is_open = False
        self._staged.clear()

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
        return f"<Transaction {self.id} {state}: {', '.join(self._staged) or 'nothing staged'}>"

    def _refuse_closed(self) -> None:
        if not self._is_open:
            raise TransactionClosed(txn_id=self.id)

    def _bind(self, engine: Engine) -> Engine:
        """From here on every read and every version check is at this moment's cut."""
        self._engine = engine
        self._cut = engine.reader.cut()
        return engine

    def _engine_for(self, table: str | UUID) -> Engine:
        if self._engine is not None:
            return self._engine
        assert not isinstance(self._open, Engine)
        uri = parse_table_uri(table)[0] if isinstance(table, str) and is_uri(table) else None
        return self._bind(self._open(uri))

    def _staged_table(self, engine: Engine, table: str | UUID) -> _Staged | None:
        """The table as this transaction sees it: staged already, or as it was at the cut."""
        for staged in self._staged.values():
            if table in (staged.name, staged.table_id):
                return staged
        for name, (table_id, version) in self._cut.items():
            if table in (name, table_id):
                snapshot = engine.reader.snapshot(table_id, version)
                location = engine.find(table_id).location
                return _Staged(table_id, name, location, version, snapshot.metadata, None, [])
        return None

    def _new_table(
        self,
        engine: Engine,
        name: str | UUID,
        schema: StructType,
        partition_by: Sequence[str],
        properties: Mapping[str, str] | None,
    ) -> _Staged:
        if isinstance(name, UUID):
            engine.find(name)
        table_id = uuid4()
        new = NewTable(table_id, str(name), location_of(engine, str(name), table_id, None))
        actions = initial_actions(table_id, schema, partition_by=partition_by, properties=properties)
        metadata = next(action for action in actions if isinstance(action, Metadata))
        return _Staged(table_id, new.name, new.location, NO_VERSION, metadata, new, actions)

    def _as_commit(self) -> Commit:
        return Commit(
            self.id,
            [staged.as_commit() for staged in self._staged.values()],
            [staged.new for staged in self._staged.values() if staged.new],
            committer=self._committer,
            user_metadata=self._user_metadata,
            is_repeatable=self._is_repeatable,
        )
