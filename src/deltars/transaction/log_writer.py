"""Committing raw actions to one table's log: the small, exact interface below DataFrames and transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID, uuid4

import pyarrow as pa

from deltars.errors import ValidationError
from deltars.log.arrow_adds import canonical
from deltars.log.commit import Commit, TableCommit
from deltars.log.transaction_id import TxnId, as_txn_id
from deltars.protocol import Action
from deltars.session import HasSession


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit of one table."""

    table_id: UUID
    version: int
    txn_id: UUID
    commit_ts: int
    """Microseconds since 1970, by the database's clock."""


class TxnLogWriter(Protocol):
    """Appends versions to tables' logs. Another store of the log would implement just this."""

    def commit(
        self,
        table_id: UUID | str,
        version: int,
        actions: Sequence[Action] | pa.Table,
        *,
        operation: str,
        operation_params: Mapping[str, Any] | None = None,
        committer: str | None = None,
        txn_id: UUID | None = None,
    ) -> CommitResult: ...


class SqlTxnLogWriter:
    """Writes to the log in SQL: `commit(version=N + 1)` goes through only while the table is at version N.

    It never retries by itself: a lost race is a `VersionConflict`, and whether to try again is the caller's business.
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
        """Commit these actions as `version`. An Arrow table holds add actions, named as the fields of `AddFile`.

        With a `txn_id` of your own the call can be repeated: once committed, it returns the first result again.
        """
        key = as_table_id(table_id)
        if type(version) is not int or version < 0:
            raise ValidationError(f"a version is a number from 0 on, not {version!r}", table_id=key, field="version")
        is_columns = isinstance(actions, pa.Table)
        table = TableCommit(
            key,
            version - 1,
            () if is_columns else tuple(actions),
            operation,
            operation_params or {},
            adds=canonical(actions) if is_columns else None,
            tolerate_missing=tolerate_missing,
        )
        key_of_txn = uuid4() if txn_id is None else as_txn_id(txn_id)
        commit = Commit(key_of_txn, (table,), committer=committer, is_repeatable=txn_id is not None)
        committed = self._session.commit(commit)
        return CommitResult(key, committed.versions[key], committed.txn_id, committed.commit_ts)


def as_table_id(table_id: UUID | str) -> UUID:
    try:
        return table_id if isinstance(table_id, UUID) else UUID(table_id)
    except (ValueError, TypeError, AttributeError):
        raise ValidationError(f"{table_id!r} is not a table id: it is a UUID", field="table_id") from None
