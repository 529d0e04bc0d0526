"""Reading tables' logs: what `SqlTxnLogWriter` wrote, for whoever has no business writing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from uuid import UUID

from deltars.log.snapshot import HistoryEntry, Moment, Snapshot
from deltars.log.transaction_id import TxnId
from deltars.session import HasSession
from deltars.store.read.committed_versions import CommittedTransaction, CommittedVersion
from deltars.transaction.log_writer import as_table_id


class TxnLogReader(Protocol):
    """Reads tables' logs, and can do nothing else. Another store of the log would implement just this."""

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

    def transaction(self, txn_id: UUID) -> CommittedTransaction | None: ...


class SqlTxnLogReader:
    """Reads the log in SQL. It blocks no writer, waits for none, and never sees half a commit.

    Its transactions are read-only to the database as well: what holds one cannot write, not even by mistake.
    """

    def __init__(self, catalog: HasSession) -> None:
        self._reader = catalog._session.reader

    def current_version(self, table_id: UUID | str) -> int:
        """−1 before the first commit."""
        return self._reader.current_version(as_table_id(table_id))

    def history(
        self, table_id: UUID | str, *, limit: int | None = None, since: int | Moment | None = None
    ) -> list[HistoryEntry]:
        """The commits, newest first: at most `limit`, none before `since`, which is a version or a time."""
        return self._reader.history(as_table_id(table_id), limit=limit, since=since)

    def snapshot(
        self, table_id: UUID | str, version: int | None = None, *, timestamp: Moment | None = None
    ) -> Snapshot:
        """The table at a version, at a time (the last version that is not later), or now."""
        return self._reader.snapshot(as_table_id(table_id), version, timestamp=timestamp)

    def changes(
        self, table_id: UUID | str, from_version: int, to_version: int | None = None
    ) -> Iterator[CommittedVersion]:
        """What each version did, oldest first and streamed; both ends belong to it, the last is by default now."""
        return self._reader.changes(as_table_id(table_id), from_version, to_version)

    def transaction(self, txn_id: TxnId) -> CommittedTransaction | None:
        """What one transaction did to each of its tables; None where nothing was committed under this id."""
        return self._reader.transaction(txn_id)
