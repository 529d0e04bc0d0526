"""Raw access to tables' logs, below DataFrames and transactions.

SqlTxnLogWriter.commit(table_id, version, actions)      append one version, exactly as given
SqlTxnLogWriter.append(table_id, files)                 add files as the next version, whichever it is
SqlTxnLogWriter.append_all(table_id, [files, …])        add files as several versions: all of them, or none
SqlTxnLogReader.snapshot, history, changes, …           read what was committed; cannot write
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol
from uuid import UUID, uuid4

import pyarrow as pa

from deltars.arguments import check_flags, check_mappings, check_texts
from deltars.errors import ValidationError, VersionConflict, brief
from deltars.log.arrow_adds import canonical
from deltars.log.commit import Commit, Committed, TableCommit
from deltars.log.moments import Moment
from deltars.log.snapshot import HistoryEntry, Snapshot
from deltars.log.transaction_id import TxnId, as_txn_id
from deltars.log.validation import as_actions
from deltars.protocol import Action, AddFile
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

    It never retries: a lost race raises `VersionConflict`, and the caller decides whether to try again. `append` and
    `append_all` add files after the versions of other writers. None of these calls publishes to `_delta_log`.
    """

    def __init__(self, catalog: HasSession) -> None:
        self._session = catalog._session
        self._seen: dict[UUID, int] = {}
        """Last version of each table that this writer appended."""

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

    def append(
        self,
        table_id: UUID | str,
        files: Sequence[AddFile],
        *,
        operation: str = "WRITE",
        operation_params: Mapping[str, Any] | None = None,
        committer: str | None = None,
        txn_id: TxnId | None = None,
    ) -> CommitResult:
        """Add files as the next version, whichever it is. Versions of other writers are no conflict.

        Calls of several threads share database transactions, so they are faster together. If you give a `txn_id`, you
        can repeat the call: once committed, it returns the first result again. Such a call shares no transaction.
        """
        appends = _Appends.checked(table_id, [files], operation, operation_params, committer)
        own_id = uuid4() if txn_id is None else as_txn_id(txn_id)

        def commit(expected: int) -> list[Committed]:
            [only] = appends.commits(expected, [own_id], is_repeatable=txn_id is not None)
            return [self._session.commit(only)]

        [result] = self._after_others(appends.table_id, commit)
        return result

    def append_all(
        self,
        table_id: UUID | str,
        files_of_versions: Sequence[Sequence[AddFile]],
        *,
        operation: str = "WRITE",
        operation_params: Mapping[str, Any] | None = None,
        committer: str | None = None,
    ) -> list[CommitResult]:
        """Add a version for each list of files, in this order, in one database transaction: all of them, or none.

        Each version is a transaction with its own id. All of them have the same outcome: to find it out after
        `CommitUnknown`, call `catalog.resolve` with the id in that error.
        """
        if not isinstance(files_of_versions, list | tuple):
            raise ValidationError(
                f"the versions are a list of lists of files, got {brief(files_of_versions)}", field="files_of_versions"
            )
        appends = _Appends.checked(table_id, files_of_versions, operation, operation_params, committer)
        if not files_of_versions:
            return []
        ids = [uuid4() for _ in files_of_versions]
        return self._after_others(
            appends.table_id, lambda expected: self._session.commit_all(appends.commits(expected, ids))
        )

    def _after_others(self, table_id: UUID, commit: Callable[[int], list[Committed]]) -> list[CommitResult]:
        """Commit after the last version that this writer knows; if that is too old, after the current one."""
        seen = self._seen.get(table_id)
        try:
            committed = commit(self._session.reader.current_version(table_id) if seen is None else seen)
        except VersionConflict:
            # Metadata changed, the version expired, or the database was restored to an older version.
            if seen is None:
                raise
            committed = commit(self._session.reader.current_version(table_id))
        results = [CommitResult(table_id, one.versions[table_id], one.txn_id, one.commit_ts) for one in committed]
        self._seen[table_id] = results[-1].version
        return results


@dataclass(frozen=True, slots=True)
class _Appends:
    """Files to append to one table, a version for each list of them."""

    table_id: UUID
    parts: Sequence[Sequence[Action]]
    operation: str
    operation_params: Mapping[str, Any]
    committer: str | None

    @classmethod
    def checked(
        cls,
        table_id: UUID | str,
        files_of_versions: Sequence[Sequence[AddFile]],
        operation: str,
        operation_params: Mapping[str, Any] | None,
        committer: str | None,
    ) -> _Appends:
        check_texts(committer=committer)
        check_mappings(operation_params=operation_params)
        key = _as_table_id(table_id)
        parts = [as_actions(files) for files in files_of_versions]
        for action in chain.from_iterable(parts):
            if not isinstance(action, AddFile):
                raise ValidationError(
                    f"only files can be appended, got {brief(action)}",
                    table_id=key,
                    hint="Use commit() for other actions.",
                )
        return cls(key, parts, operation, operation_params or {}, committer)

    def commits(self, expected: int, ids: Sequence[UUID], *, is_repeatable: bool = False) -> list[Commit]:
        """Return a commit with each of the ids. `expected` is the last version that is known."""
        return [
            Commit(
                txn_id,
                (TableCommit(self.table_id, expected, part, self.operation, self.operation_params),),
                committer=self.committer,
                isolation="serializable",
                is_repeatable=is_repeatable,
            )
            for txn_id, part in zip(ids, self.parts, strict=True)
        ]


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
