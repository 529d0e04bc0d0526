"""One commit is one database transaction, over however many tables.

    validate ── no connection yet ──▶ BEGIN ─▶ lock ─▶ check ─▶ write ─▶ COMMIT
                                        │       │       │        │         └ lost? settle by the abort marker
                                        │       │       │        └ actions, transaction, versions, tables
                                        │       │       └ every table at the expected version, else VersionTaken
                                        │       └ every table's row, in table_id order, in a statement of its own
                                        └ whatever fails from here on rolls everything back

The lock has a statement of its own because a statement's snapshot is as old as its beginning: one that waited for
the lock and then wrote would not see what the other had committed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
from sqlalchemy import Connection, select

from deltars.errors import CommitUnknown, DatabaseError, DeltarsError, TableNotFound, ValidationError
from deltars.log.commit import (
    NO_VERSION,
    Commit,
    CommitOutcome,
    Committed,
    TableCommit,
    TableState,
    VersionTaken,
)
from deltars.log.validation import check_actions, check_state, tracks_rows
from deltars.protocol import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile
from deltars.store import schema
from deltars.store.bulk import AddBatches, Placement, batches_of, columns_of
from deltars.store.database import Database
from deltars.store.registry import create
from deltars.store.rows import TABLE_OF, Row, row_group_to_row, to_row
from deltars.store.schema import dl_add_files, dl_transactions
from deltars.store.statements import REMOVES, TRANSACTION, VERSIONS, CommitStatements
from deltars.store.states import UNCOMMITTED, KnownState, States, known_state

COPY_THRESHOLD = 1_000
ROW_TRACKING_DOMAIN = "delta.rowTracking"
ROW_GROUPS = schema.dl_row_groups.name

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class LockedTable:
    """A row of `dl_tables`, ours until the transaction ends."""

    table_id: UUID
    name: str
    current_version: int
    metadata_version: int
    protocol_version: int
    last_commit_ts: int
    last_ict: int
    next_row_id: int
    slot: int
    dropped_at: Any


@dataclass(slots=True)
class _Plan:
    """Everything a commit writes: rows by table, and add actions too many for rows."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    bulk: list[tuple[AddBatches, Placement]] = field(default_factory=list)
    removals: int = 0
    """How many live files must be found, where that is asked for."""
    states: dict[UUID, KnownState] = field(default_factory=dict)

    def put(self, table: str, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)


class LogWriter:
    """Commits to the tables of one database."""

    def __init__(self, database: Database, *, copy_threshold: int = COPY_THRESHOLD) -> None:
        self._database = database
        self._copy_threshold = copy_threshold
        self._statements = CommitStatements(database.backend)
        self._states = States()

    def commit(self, commit: Commit, *, timeout_s: float) -> CommitOutcome:
        stage = "validate"
        deadline = time.monotonic() + timeout_s
        try:
            self._validate(commit)
            stage = "lock"
            with self._database.write(timeout_s) as connection:
                locked = self._lock(connection, commit)
                stage = "check"
                outcome = self._check(connection, commit, locked)
                if outcome is None:
                    stage = "write"
                    plan = self._plan(connection, commit, locked)
                    outcome = self._write(connection, commit, locked, plan)
                    stage = "commit"
                else:
                    connection.get_transaction().rollback()  # type: ignore[union-attr]
        except DeltarsError as error:
            if stage == "commit" and self._database.backend.is_outcome_unknown(_driver_error(error)):
                return self._settle(commit, deadline, error)
            raise error.located(stage=stage, txn_id=commit.txn_id) from error.__cause__
        if stage == "commit":
            for table_id, state in plan.states.items():
                self._states.remember(table_id, state)
        return outcome

    def resolve(self, txn_id: UUID, *, timeout_s: float) -> Committed | None:
        """What became of a transaction. `None`: it did not commit, and from now on never can."""
        with self._database.write(timeout_s) as connection:
            marker = self._database.backend.insert_unless_present(dl_transactions)
            connection.execute(marker.values(txn_id=txn_id, outcome="aborted"))
            return _find_committed(connection, txn_id)

    # -- validate ------------------------------------------------------------------------------------------------

    def _validate(self, commit: Commit) -> None:
        for table in commit.tables:
            check_actions(table)
        if len({table.table_id for table in commit.tables}) != len(commit.tables):
            raise ValidationError("a table stands twice in one commit")
        for table in commit.tables:
            if table.expected_version == NO_VERSION:
                check_state(table, TableState())
            elif known := self._known(table.table_id):
                check_state(table, known.state)

    def _known(self, table_id: UUID) -> KnownState | None:
        if self._states.get(table_id) is None:
            with self._database.read() as connection:
                self._states.load(connection, [table_id])
        return self._states.get(table_id)

    # -- lock ----------------------------------------------------------------------------------------------------

    def _lock(self, connection: Connection, commit: Commit) -> dict[UUID, LockedTable]:
        new = {table.table_id for table in commit.new_tables}
        ids = sorted(table.table_id for table in commit.tables if table.table_id not in new)
        return self._locked(connection, ids) if ids else {}

    def _locked(self, connection: Connection, ids: list[UUID]) -> dict[UUID, LockedTable]:
        # As text: every database casts it to its own kind of UUID.
        values = {f"table_{i}": str(table_id) for i, table_id in enumerate(ids)}
        rows = self._database.backend.run(connection, self._statements.lock(len(ids)), values)
        locked = [LockedTable(UUID(str(row[0])), *row[1:]) for row in rows]
        return {table.table_id: table for table in locked}

    # -- check ---------------------------------------------------------------------------------------------------

    def _check(self, connection: Connection, commit: Commit, locked: dict[UUID, LockedTable]) -> CommitOutcome | None:
        if commit.is_repeatable and (earlier := self._earlier(connection, commit)):
            return earlier
        if commit.new_tables:
            owner = create(connection, commit.new_tables, self._database)
            if owner is not None:
                return VersionTaken(owner.table_id, owner.name, NO_VERSION, owner.current_version)
            locked |= self._locked(connection, sorted(table.table_id for table in commit.new_tables))
        for table in commit.tables:
            row = locked.get(table.table_id)
            if row is None or row.dropped_at is not None:
                raise TableNotFound(
                    "the table was dropped" if row else "no such table in this catalog",
                    table_id=table.table_id,
                )
            if row.current_version != table.expected_version:
                return VersionTaken(table.table_id, row.name, table.expected_version, row.current_version)
        return None

    def _earlier(self, connection: Connection, commit: Commit) -> Committed | None:
        """The result of the same transaction, when it was committed before."""
        earlier = _find_committed(connection, commit.txn_id)
        if earlier is None:
            aborted = select(dl_transactions.c.outcome).where(dl_transactions.c.txn_id == commit.txn_id)
            if connection.execute(aborted).scalar_one_or_none() is not None:
                raise ValidationError("this transaction id was settled as aborted", hint="Commit again with a new one.")
            return None
        if earlier.versions.keys() != {table.table_id for table in commit.tables}:
            raise ValidationError("this transaction id was committed before, to other tables", hint="Use a new one.")
        return earlier

    # -- write ---------------------------------------------------------------------------------------------------

    def _plan(self, connection: Connection, commit: Commit, locked: dict[UUID, LockedTable]) -> _Plan:
        plan = _Plan()
        for table in commit.tables:
            row = locked[table.table_id]
            self._plan_table(plan, commit, table, row, self._state(connection, table, row))
        plan.put(
            TRANSACTION,
            {
                "txn_id": str(commit.txn_id),
                "outcome": "committed",
                "committer": commit.committer,
                "user_metadata": commit.user_metadata,
                "participants": {str(t.table_id): t.expected_version + 1 for t in commit.tables},
            },
        )
        return plan

    def _state(self, connection: Connection, table: TableCommit, row: LockedTable) -> KnownState:
        """The state the commit was validated against, or the newer one, validated now."""
        known = self._states.get(table.table_id)
        now = (row.metadata_version, row.protocol_version)
        if now == (NO_VERSION, NO_VERSION):
            return UNCOMMITTED
        if known is None or (known.metadata_version, known.protocol_version) != now:
            self._states.load(connection, [table.table_id])
            known = self._states.get(table.table_id)
            assert known is not None
            check_state(table, known.state)
        return known

    def _plan_table(self, plan: _Plan, commit: Commit, table: TableCommit, row: LockedTable, known: KnownState) -> None:
        version = table.expected_version + 1
        key = {"table_id": str(table.table_id), "version": version}
        after = plan.states[table.table_id] = _state_after(known, table, version)
        metadata = after.state.metadata
        assert metadata is not None
        next_row_id = row.next_row_id if tracks_rows(metadata) else None

        adds = [action for action in table.actions if isinstance(action, AddFile)]
        is_bulk = table.adds is not None or len(adds) >= self._copy_threshold
        ords: dict[str, int] = {}
        ord_ = 0
        for action in table.actions:
            if is_bulk and isinstance(action, AddFile):
                continue
            values = key | {"ord": ord_} | to_row(action, after.bounds)
            if isinstance(action, AddFile):
                values["slot"] = row.slot
                ords[action.path] = ord_
                next_row_id = _give_row_ids(values, next_row_id, table)
            if isinstance(action, RemoveFile) and not table.tolerate_missing:
                plan.removals += 1
            plan.put(TABLE_OF[type(action)], values)
            ord_ += 1

        if is_bulk:
            columns = _joined(adds, table.adds)
            batches = AddBatches(columns, after.bounds, self._database.backend)
            ords |= {path: ord_ + i for i, path in enumerate(columns["path"].to_pylist())} if table.row_groups else {}
            plan.bulk.append((batches, Placement(table.table_id, version, ord_, row.slot, next_row_id)))
            ord_ += columns.num_rows
            if next_row_id is not None:
                next_row_id += sum(after.bounds.of(stats).num_records or 0 for stats in columns["stats"].to_pylist())

        if next_row_id is not None and next_row_id != row.next_row_id:
            mark = DomainMetadata(
                domain=ROW_TRACKING_DOMAIN,
                configuration=_encode({"rowIdHighWaterMark": next_row_id - 1}).decode(),
                removed=False,
            )
            plan.put(TABLE_OF[DomainMetadata], key | {"ord": ord_} | to_row(mark, after.bounds))

        for group in table.row_groups:
            plan.put(ROW_GROUPS, key | {"ord": ords[group.path]} | row_group_to_row(group))
        plan.put(VERSIONS, key | _version_row(commit, table, row, after, next_row_id))

    def _write(self, connection: Connection, commit: Commit, locked: dict[UUID, LockedTable], plan: _Plan) -> Committed:
        kinds = frozenset(plan.rows.keys() - {TRANSACTION, VERSIONS})
        loaded = self._load(connection, plan)
        documents = {f"rows_{name}": _encode(rows).decode() for name, rows in plan.rows.items() if name not in loaded}
        documents["floor"] = max(row.last_commit_ts for row in locked.values()) + 1  # type: ignore[assignment]
        statements = self._statements.write(kinds, loaded)
        backend = self._database.backend
        if backend.chains_writes:
            commit_ts, removed = backend.run(connection, statements[0], documents)[0]
        else:
            [(commit_ts,)] = backend.run(connection, self._statements.clock(), documents)
            documents["commit_ts"] = commit_ts
            results = [backend.run(connection, statement, documents) for statement in statements]
            removed = len(results[0]) if REMOVES in kinds else 0
        if removed < plan.removals:
            raise self._missing_file(connection, commit)
        versions = {table.table_id: table.expected_version + 1 for table in commit.tables}
        return Committed(commit.txn_id, commit_ts, versions)

    def _load(self, connection: Connection, plan: _Plan) -> frozenset[str]:
        """Whatever is many goes the database's fast way; says which tables were filled."""
        backend = self._database.backend
        loaded = set()
        for batches, place in plan.bulk:
            backend.load(connection, dl_add_files, batches.rows(place))
            if place.version > 0:
                files = {"table_id": str(place.table_id), "version": place.version}
                backend.run(connection, self._statements.supersede(), files)
        for name in (REMOVES, ROW_GROUPS):
            rows = plan.rows.get(name, ())
            if len(rows) >= self._copy_threshold:
                backend.load(connection, schema.metadata.tables[name], batches_of(rows))
                loaded.add(name)
        return frozenset(loaded)

    def _missing_file(self, connection: Connection, commit: Commit) -> ValidationError:
        """Which of the removed files was not live: asked again one by one, for the message."""
        for table in commit.tables:
            if table.tolerate_missing:
                continue
            for position, action in enumerate(table.actions):
                if isinstance(action, RemoveFile) and not _was_live(connection, table, action):
                    return ValidationError(
                        f"action {position} (RemoveFile): {action.path} is not a live file of the table",
                        table_id=table.table_id,
                        action=position,
                        field="path",
                    )
        raise AssertionError("fewer files were removed than asked for, yet none is missing")

    # -- commit --------------------------------------------------------------------------------------------------

    def _settle(self, commit: Commit, deadline: float, lost: DeltarsError) -> Committed:
        """The connection died during COMMIT: mark the transaction aborted, unless it committed.

        One look would not be enough: a COMMIT may still be under way on the server and land a moment later. The
        marker takes the transaction's own key, so that only one of the two can ever be there.
        """
        pause_s = 0.05
        while True:
            remaining_s = deadline - time.monotonic()
            try:
                found = self.resolve(commit.txn_id, timeout_s=max(remaining_s, 0.1))
            except DeltarsError as error:
                if remaining_s <= pause_s or not error.retryable:
                    raise CommitUnknown(txn_id=commit.txn_id, stage="commit") from error
                time.sleep(random.uniform(pause_s / 2, pause_s))
                pause_s = min(pause_s * 2, 1.0)
                continue
            if found is None:
                raise DatabaseError(
                    "the connection was lost during COMMIT; the transaction did not commit, and never will",
                    retryable=True,
                    txn_id=commit.txn_id,
                    stage="commit",
                ) from lost
            return found


def _driver_error(error: DeltarsError) -> BaseException:
    cause = error.__cause__
    return getattr(cause, "orig", None) or cause or error


def _find_committed(connection: Connection, txn_id: UUID) -> Committed | None:
    query = select(dl_transactions.c.commit_ts, dl_transactions.c.participants).where(
        dl_transactions.c.txn_id == txn_id, dl_transactions.c.outcome == "committed"
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return Committed(txn_id, row.commit_ts, {UUID(key): version for key, version in row.participants.items()})


def _state_after(known: KnownState, table: TableCommit, version: int) -> KnownState:
    metadata, protocol = known.state.metadata, known.state.protocol
    metadata_version, protocol_version = known.metadata_version, known.protocol_version
    for action in table.actions:
        if isinstance(action, Metadata):
            metadata, metadata_version = action, version
        elif isinstance(action, Protocol):
            protocol, protocol_version = action, version
    if (metadata_version, protocol_version) == (known.metadata_version, known.protocol_version):
        return known
    assert metadata is not None
    assert protocol is not None
    return known_state(metadata_version, metadata, protocol_version, protocol)


def _version_row(
    commit: Commit, table: TableCommit, row: LockedTable, after: KnownState, next_row_id: int | None
) -> Row:
    metadata, protocol = after.state.metadata, after.state.protocol
    assert metadata is not None
    assert protocol is not None
    blind = not any(isinstance(action, RemoveFile) for action in table.actions)
    values: Row = {
        "txn_id": str(commit.txn_id),
        "committer": commit.committer,
        "operation": table.operation,
        "operation_params": table.operation_params,
        "read_version": None if table.expected_version == NO_VERSION else table.expected_version,
        "isolation": commit.isolation,
        "is_blind_append": blind,
        "metrics": table.metrics,
        "user_metadata": commit.user_metadata,
        "last_ict": row.last_ict,
        "next_row_id": row.next_row_id if next_row_id is None else next_row_id,
        "metadata_version": after.metadata_version,
        "protocol_version": after.protocol_version,
    }
    if after.metadata_version == table.expected_version + 1:
        values["properties"] = metadata.configuration
    if after.protocol_version == table.expected_version + 1:
        values["min_reader_version"] = protocol.min_reader_version
        values["min_writer_version"] = protocol.min_writer_version
        values["reader_features"] = protocol.reader_features
        values["writer_features"] = protocol.writer_features
    return values


def _give_row_ids(values: Row, next_row_id: int | None, table: TableCommit) -> int | None:
    if next_row_id is None:
        return None
    if values["num_records"] is None:
        raise ValidationError(
            f"{values['path']}: a table that tracks rows needs numRecords in the statistics of every added file",
            table_id=table.table_id,
            field="stats",
        )
    if values["base_row_id"] is None:
        values["base_row_id"] = next_row_id
    if values["default_row_commit_version"] is None:
        values["default_row_commit_version"] = values["version"]
    following: int = next_row_id + values["num_records"]
    return following


def _joined(adds: Sequence[AddFile], columns: pa.Table | None) -> pa.Table:
    if columns is None:
        return columns_of(adds)
    return columns if not adds else pa.concat_tables([columns_of(adds), columns], promote_options="default")


def _was_live(connection: Connection, table: TableCommit, remove: RemoveFile) -> bool:
    files = dl_add_files.c
    query = select(files.ord).where(
        files.table_id == table.table_id,
        files.path == remove.path,
        files.dv_id == remove.dv_id,
        files.removed_version == table.expected_version + 1,
    )
    return connection.execute(query).first() is not None
