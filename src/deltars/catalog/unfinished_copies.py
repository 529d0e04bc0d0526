"""Notes of copies that are being made, so that a vacuum finds what killed ones left.

    copy ──▶ a note, <warehouse>/_deltars/copies/<table_id>.json ──▶ files ──▶ commit ──▶ the note is deleted
             └ killed: no table has the directory ──after a day──▶ a full vacuum deletes the files, then the note

The note names the source and its version. Only files that this version names are deleted. A copy that is alive has
announced itself (`store.writers`), and one that a vacuum took for dead cannot commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from deltars.errors import DeltarsError, StorageError
from deltars.mirror import MIN_AGE
from deltars.session import CatalogSession
from deltars.storage import Storage, open_storage
from deltars.transaction.restoration import files_of

_COPIES = "_deltars/copies"

_log = logging.getLogger(__name__)


class CopyNote(msgspec.Struct, frozen=True, rename="camel"):
    """One copy that is being made."""

    table_id: UUID
    """Id of the new table."""
    location: str
    source_id: UUID
    source_version: int


def write_notes(session: CatalogSession, notes: Iterable[CopyNote]) -> None:
    """Note copies before their first file is written. A catalog without a warehouse has no place for notes."""
    storage = _warehouse(session)
    if storage is not None:
        for note in notes:
            storage.put(_path(note.table_id), msgspec.json.encode(note))


def delete_notes(session: CatalogSession, table_ids: Iterable[UUID]) -> None:
    """Delete the notes of copies that have ended. One that stays is deleted by a vacuum."""
    storage = _warehouse(session)
    if storage is not None:
        with suppress(StorageError):
            storage.delete(list(map(_path, table_ids)))


def delete_unfinished_copies(session: CatalogSession, *, dry_run: bool) -> list[str]:
    """Delete what killed copies left. Return their locations. Call it when dead writers are withdrawn."""
    storage = _warehouse(session)
    if storage is None:
        return []
    living = {writer.table_id for writer in session.heartbeat.writers.all()}
    deleted = []
    for info in sorted(storage.list(_COPIES), key=lambda info: info.path):
        content = storage.get_or_none(info.path)
        if content is None or datetime.now(UTC) - info.modified < MIN_AGE:
            continue
        try:
            note = msgspec.json.decode(content, type=CopyNote)
            if note.table_id in living:
                continue
            # If a table has the directory, the copy was committed, or the files are orphans of that table.
            if not session.registry.neighbours(note.location):
                if not dry_run:
                    _delete_files(session, note)
                deleted.append(note.location)
        except (DeltarsError, msgspec.MsgspecError) as error:
            _log.warning("the files of an unfinished copy were not deleted (%s): %s", info.path, error)
            continue
        if not dry_run:
            storage.delete([info.path])
    return deleted


def _delete_files(session: CatalogSession, note: CopyNote) -> None:
    options = session.settings.storage_options
    target = open_storage(note.location, options)
    target.delete(_paths(session, note))
    target.delete([info.path for info in target.list_unfinished()])
    target.remove_empty_directories()
    _log.info("deleted the files of an unfinished copy at %s", note.location)


def _paths(session: CatalogSession, note: CopyNote) -> Sequence[str]:
    source = open_storage(session.registry.location(note.source_id), session.settings.storage_options)
    return files_of(source, session.reader.snapshot(note.source_id, note.source_version).files)


def _warehouse(session: CatalogSession) -> Storage | None:
    warehouse = session.registry.warehouse()
    return None if warehouse is None else open_storage(warehouse, session.settings.storage_options)


def _path(table_id: UUID) -> str:
    return f"{_COPIES}/{table_id}.json"
