"""Removal of dropped tables for good: their files, then their rows, then their registry entries.

    drop ──▶ a tombstone: the history can be read, and no other table gets the directory
    purge ─▶ files (`deletion`) ──▶ rows of the catalog ──▶ registry entry ──▶ the tombstone itself

If it is interrupted, run it again: the tombstone goes last.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deltars.errors import LogDiverged, TableExists, TableHeld
from deltars.mirror.deletion import Deletion, tags_of_directory
from deltars.mirror.publisher import Publisher
from deltars.mirror.warehouse import registration_path
from deltars.store.database import Database
from deltars.store.history.deletion import HistoryDeletion
from deltars.store.registry import Registry

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PurgedTable:
    """A dropped table that was removed for good, or with `dry_run` would be."""

    table: str
    table_id: UUID
    location: str
    dropped_at: datetime
    num_files: int
    """Deleted files; 0 in a dry run."""
    held_by: str | None
    """Why the table, or only its directory, stays. None if both go."""
    is_purged: bool
    """Whether the catalog no longer has the table; False in a dry run."""


@dataclass(frozen=True, slots=True)
class _Obstacle:
    reason: str
    holds_rows: bool
    """Whether the rows stay too, and not only the files."""


class Purge:
    def __init__(self, database: Database, publisher: Publisher, registry: Registry) -> None:
        self._database = database
        self._publisher = publisher
        self._registry = registry
        self._deletion = Deletion(database, publisher, registry)
        self._history = HistoryDeletion(database)

    def purge_dropped(self, before: datetime, *, dry_run: bool) -> list[PurgedTable]:
        """Remove tables that were dropped before a time. Leave those that a tag needs or another program changed."""
        purged = []
        for entry in self._publisher.records.registrations():
            if entry.dropped_at is None or entry.dropped_at > before:
                continue
            obstacle = self._obstacle(entry.table_id)
            is_going = not dry_run and (obstacle is None or not obstacle.holds_rows)
            files = 0
            if is_going:
                files = self.purge(entry.table_id, with_files=obstacle is None)
            reason = None if obstacle is None else obstacle.reason
            purged.append(
                PurgedTable(
                    entry.name, entry.table_id, entry.location, entry.dropped_at, files, reason, is_purged=is_going
                )
            )
        return sorted(purged, key=lambda one: (one.table, one.dropped_at))

    def check_right(self) -> None:
        """Raise `DatabaseError` if the role cannot delete history: files must not go before that is known."""
        self._history.check_right()

    def purge(self, table_id: UUID, *, with_files: bool = True) -> int:
        """Remove a dropped table. Return how many files were deleted."""
        self.check_right()
        files = self._deletion.delete(table_id) if with_files else 0
        entry = self._publisher.records.registration(table_id)
        self._history.delete_rows(table_id)
        if entry.warehouse is not None:
            self._publisher.storage_at(entry.warehouse).delete([registration_path(table_id)])
        self._history.delete_table(table_id)
        _log.info("table %s (%s): removed for good, with %s files", entry.name, table_id, files)
        return files

    def _obstacle(self, table_id: UUID) -> _Obstacle | None:
        tags = tags_of_directory(self._database, self._registry, table_id)
        if tags:
            return _Obstacle(f"needed by {'the tags' if len(tags) > 1 else 'the tag'} {', '.join(tags[:10])}", True)
        try:
            self._deletion.check(table_id)
        except TableHeld:
            return _Obstacle("its files belong to other writers", False)
        except TableExists:
            return _Obstacle("its directory belongs to another table by now", False)
        except LogDiverged:
            return _Obstacle("another program wrote to its log", True)
        return None
