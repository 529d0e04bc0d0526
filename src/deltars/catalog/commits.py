"""Commits of a catalog as they happen, each transaction once, with all its tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deltars.log.moments import from_microseconds
from deltars.log.new_table import NO_VERSION
from deltars.log.snapshot import HistoryEntry
from deltars.session import CatalogSession, TableLike
from deltars.store.read.cuts import CutTable


@dataclass(frozen=True, slots=True)
class CommitSeen:
    """A transaction that was committed."""

    committed_at: datetime
    tables: dict[str, int]
    """Version of each table that it wrote, by name."""
    operations: list[str]
    committer: str | None
    user_metadata: str | None
    txn_id: UUID


def follow_commits(
    session: CatalogSession, tables: Sequence[TableLike] | None, *, last: int, poll_s: float
) -> Iterator[CommitSeen]:
    """Yield the last commits of some tables, or of all, then each one that follows, in commit order. It never ends.

    A commit is yielded once all its tables are visible, which is at once: it is one transaction of the database. A
    table that is created later is followed if all tables are.
    """
    chosen = session.find_ids(tables)
    seen = {table.table_id: table.version for table in _tables(session, chosen)}
    began = [
        (table, entry)
        for table in _tables(session, chosen)
        for entry in session.reader.history(table.table_id, limit=last)
        if entry.version <= seen.get(table.table_id, NO_VERSION)
    ]
    yield from _by_transaction(began)[-last:] if last else ()
    while True:
        found = []
        for table in _tables(session, chosen):
            before = seen.get(table.table_id, NO_VERSION)
            if table.version > before:
                entries = session.reader.history(table.table_id, since=before + 1)
                # A later one belongs to the next cut, with the other tables of its transaction.
                found += [(table, entry) for entry in entries if entry.version <= table.version]
                seen[table.table_id] = table.version
        yield from _by_transaction(found)
        time.sleep(poll_s)


def _tables(session: CatalogSession, chosen: Sequence[UUID] | None) -> list[CutTable]:
    return [table for table in session.cuts.now().tables if chosen is None or table.table_id in chosen]


def _by_transaction(entries: Sequence[tuple[CutTable, HistoryEntry]]) -> list[CommitSeen]:
    found: dict[tuple[int, UUID], list[tuple[CutTable, HistoryEntry]]] = {}
    for table, entry in entries:
        found.setdefault((entry.commit_ts, entry.txn_id), []).append((table, entry))
    return [
        CommitSeen(
            committed_at=from_microseconds(commit_ts),
            tables={table.name: entry.version for table, entry in sorted(of, key=lambda pair: pair[0].name)},
            operations=sorted({entry.operation for _, entry in of}),
            committer=of[0][1].committer,
            user_metadata=of[0][1].user_metadata,
            txn_id=txn_id,
        )
        for (commit_ts, txn_id), of in sorted(found.items(), key=lambda item: item[0][0])
    ]
