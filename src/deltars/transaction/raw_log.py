"""Raw access to tables' logs, below DataFrames and transactions.

SqlTxnLogWriter.commit(table_id, version, actions)      append one version, exactly as given
SqlTxnLogReader.snapshot, history, changes, …           read what was committed; cannot write
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID, uuid4

import pyarrow as pa

from deltars.arguments import check_flags, check_mappings, check_texts
from deltars.errors import ValidationError, brief
from deltars.log.arrow_adds import canonical
from deltars.log.commit import Commit, TableCommit
from deltars.log.moments import Moment
from deltars.log.snapshot import HistoryEntry, Snapshot
from deltars.log.transaction_id import TxnId, as_txn_id
from deltars.log.validation import as_actions
from deltars.protocol import Action
from deltars.session import HasSession
from deltars.store.read.committed_versions import CommittedTransaction, CommittedVersion


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Result of a commit to one table."""

    table_id: UUID
    version: int
    txn_id: UUID
    commit_ts: int
    """Microseconds since 1970, by the database's clock."""


class TxnLogWriter(Protocol):
    """Interface that appends versions to tables' logs. A log store that is not SQL implements this."""

    def commit(
        self,
        table_id: UUID | str,
        version: int,
        actions: Sequence[Action] | pa.Table,
        *,
        operation: str,
        operation_params: Mapping[str, Any] | None = None,
        committer: str | None = None,
        txn_id: TxnId | None = None,
    ) -> CommitResult: ...


class SqlTxnLogWriter:
    """Writer of the log in SQL. `commit(version=N + 1)` succeeds only while the table is at version N.

    It never retries: a lost race raises `VersionConflict`, and the caller decides whether to try again.
    """

    def __init__(self, catalog: HasSession) -> None:
        self._session = catalog._session

    def commit(
        self,
        table_id: UUID | str,
        version: int,
        actions: Sequence[Action] | pa.Table,
        *,
        operation: str,
        operation_params: Mapping[str, Any] | None = None,
        committer: str | None = None,
        txn_id: TxnId | None = None,
        tolerate_missing: bool = False,
    ) -> CommitResult:
        """Commit these actions as `version`. Nothing is published to `_delta_log`.

        An Arrow table holds add actions; its columns are named like the fields of `AddFile`. If you give a `txn_id`,
        you can repeat the call: once committed, it returns the first result again.
        """
        check_texts(committer=committer)
        check_flags(tolerate_missing=tolerate_missing)
        key = _as_table_id(table_id)
        if type(version) is not int or version < 0:
            raise ValidationError(f"version must be 0 or more, got {brief(version)}", table_id=key, field="version")
        check_mappings(operation_params=operation_params)
        is_arrow = isinstance(actions, pa.Table)
        table = TableCommit(
            key,
            version - 1,
            () if is_arrow else as_actions(actions),
            operation,
            operation_params or {},
            adds=canonical(actions) if is_arrow else None,
            tolerate_missing=tolerate_missing,
        )
        transaction_id = uuid4() if txn_id is None else as_txn_id(txn_id)
        commit = Commit(transaction_id, (table,), committer=committer, is_repeatable=txn_id is not None)
        committed = self._session.commit(commit)
        return CommitResult(key, committed.versions[key], committed.txn_id, committed.commit_ts)


class TxnLogReader(Protocol):
    """Interface that reads tables' logs and cannot write. A log store that is not SQL implements this."""

    def current_version(self, table_id: UUID | str) -> int: ...

    def history(
        self, table_id: UUID | str, *, limit: int | None = None, since: int | Moment | None = None
    ) -> list[HistoryEntry]: ...

    def snapshot(
        self, table_id: UUID | str, version: int | None = None, *, timestamp: Moment | None = None
    ) -> Snapshot: ...

    def changes(
        self, table_id: UUID | str, from_version: int, to_version: int | None = None
    ) -> Iterator[CommittedVersion]: ...

    def transaction(self, txn_id: TxnId) -> CommittedTransaction | None: ...


class SqlTxnLogReader:
    """Reader of the log in SQL. It blocks no writer, waits for none, and never sees half a commit.

    Its database transactions are read-only, so a program that holds a reader cannot write by mistake.
    """

    def __init__(self, catalog: HasSession) -> None:
        self._reader = catalog._session.reader

    def current_version(self, table_id: UUID | str) -> int:
        """Return the current version; −1 before the first commit."""
        return self._reader.current_version(_as_table_id(table_id))

    def history(
        self, table_id: UUID | str, *, limit: int | None = None, since: int | Moment | None = None
    ) -> list[HistoryEntry]:
        """Return the commits, newest first: at most `limit`, none before `since` (a version or a time)."""
        return self._reader.history(_as_table_id(table_id), limit=limit, since=since)

    def snapshot(
        self, table_id: UUID | str, version: int | None = None, *, timestamp: Moment | None = None
    ) -> Snapshot:
        """Return the table at a version, at a time (the last version that is not later), or now."""
        return self._reader.snapshot(_as_table_id(table_id), version, timestamp=timestamp)

    def changes(
        self, table_id: UUID | str, from_version: int, to_version: int | None = None
    ) -> Iterator[CommittedVersion]:
        """Stream the actions of each version, oldest first, both ends included. `to_version`: the current one."""
        return self._reader.changes(_as_table_id(table_id), from_version, to_version)

    def transaction(self, txn_id: TxnId) -> CommittedTransaction | None:
        """Return what one transaction did to each of its tables; None if nothing was committed under this id."""
        return self._reader.transaction(txn_id)


def _as_table_id(table_id: UUID | str) -> UUID:
    try:
        return table_id if isinstance(table_id, UUID) else UUID(table_id)
    except (ValueError, TypeError, AttributeError):
        raise ValidationError(f"{brief(table_id)} is not a table id: it must be a UUID", field="table_id") from None
