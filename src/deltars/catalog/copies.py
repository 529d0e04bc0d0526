"""Copy tables of one cut to new tables, or in place of others, in one transaction.

files of the old version ──storage──▶ a new directory ──▶ version 0 (CLONE) of a new table, or the next of an old one
                          └ killed: a full vacuum deletes the new directory (`unfinished_copies`)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

from deltars.catalog.restore import ANY_NUMBER
from deltars.catalog.unfinished_copies import CopyNote, delete_notes, write_notes
from deltars.errors import StorageError, TableExists, TableNotFound, ValidationError, VersionConflict, located
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.log.snapshot import Snapshot
from deltars.session import CatalogSession, TableLike
from deltars.storage import Storage, open_storage, parse_location
from deltars.storage.table_files import copy_file, relative_path
from deltars.store.names import check_name, is_same_name
from deltars.store.read.as_of import AsOf
from deltars.store.registry import TableRecord
from deltars.transaction import Transaction
from deltars.transaction.create_table import location_of
from deltars.transaction.restoration import files_of
from deltars.transaction.table_copy import copied_table, refuse_absolute_vectors, replaced_table

FILES_AT_ONCE = 16
"""Files that are copied at the same time."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One table to copy. Without a version, the one in the cut."""

    source: TableLike
    name: str
    version: int | None = None
    location: str | None = None
    replace: bool = False
    """Whether a table of this name is replaced. It keeps its id, its location and its history."""


@dataclass(frozen=True, slots=True)
class _Planned:
    new: NewTable
    snapshot: Snapshot
    source_name: str
    source: Storage
    target: Storage
    paths: Sequence[str]
    replaces: str | None = None
    """Directory for the new files of a table that is replaced."""


def copy_tables(
    session: CatalogSession, copies: Sequence[Copy], *, as_of: AsOf | None, committer: str | None
) -> list[TableRecord]:
    """Check everything, copy the files, and commit. Return the new tables."""
    _check_names(session, copies)
    if as_of is not None and any(copy.version is not None for copy in copies):
        raise ValidationError("as_of and version exclude each other", field="version")
    tx = Transaction(
        session,
        isolation="serializable",
        committer=committer,
        max_tables=max(len(copies), 1),
        max_files_per_table=ANY_NUMBER,
    )
    with tx:
        planned = _plan(session, copies, as_of)
        new_ids = [each.new.table_id for each in planned]
        try:
            # New files of a table that is replaced are below its directory, where a full vacuum finds them.
            write_notes(session, [_note(each) for each in planned if each.replaces is None])
            for each in planned:
                tx._view_for(each.new.name).announce(each.new.table_id)
                with located(table=each.source_name):
                    _copy_files(each)
                _stage(tx, each)
        except BaseException:
            _delete(planned)
            delete_notes(session, new_ids)
            raise
        try:
            tx.commit()
        except VersionConflict as conflict:
            # Nothing was committed, for certain.
            _delete(planned)
            delete_notes(session, new_ids)
            if any(each.replaces is not None for each in planned):
                raise
            raise TableExists(
                f"another transaction created one of {', '.join(copy.name for copy in copies)}", table=conflict.table
            ) from conflict
        delete_notes(session, new_ids)
    return [session.find(each.new.table_id) for each in planned]


def _stage(tx: Transaction, planned: _Planned) -> None:
    view = tx._view_for(planned.new.table_id if planned.replaces else planned.new.name)
    if planned.replaces is None:
        tx._stage(view, *copied_table(planned.new, planned.snapshot, planned.source))
        return
    table = view.readable(planned.new.table_id)
    tx._stage(view, *replaced_table(view, table, planned.snapshot, planned.source, planned.replaces))


def _check_names(session: CatalogSession, copies: Sequence[Copy]) -> None:
    for number, copy in enumerate(copies):
        check_name(copy.name)
        if any(is_same_name(copy.name, other.name) for other in copies[:number]):
            raise ValidationError(f"two tables would be named {copy.name!r}", field="name")
        existing = session.registry.find(copy.name)
        if existing is not None and not (copy.replace and existing.current_version != NO_VERSION):
            raise TableExists(
                f"there is already a table named {existing.name!r}, at {existing.location}",
                table=existing.name,
                table_id=existing.table_id,
                hint="Use another name, or replace=True, or drop the table first.",
            )
        if existing is not None:
            _check_replaced(session, copy, existing)


def _check_replaced(session: CatalogSession, copy: Copy, existing: TableRecord) -> None:
    if session.find(copy.source).table_id == existing.table_id:
        raise ValidationError(f"the table {existing.name} cannot be replaced by a copy of itself", field="name")
    if copy.location is not None and str(parse_location(copy.location)) != existing.location.rstrip("/"):
        raise ValidationError(
            f"the table {existing.name} is at {existing.location}, and stays there",
            field="location",
            hint="Omit the location, or use another name.",
        )


def _plan(session: CatalogSession, copies: Sequence[Copy], as_of: AsOf | None) -> list[_Planned]:
    cut = session.cut(as_of)
    planned = []
    for copy in copies:
        session.refuse_expired(cut, session.name_or_id(copy.source))
        found = cut.find(session.name_or_id(copy.source))
        if found is None or found.version == NO_VERSION:
            raise TableNotFound(f"there is no table {str(copy.source)!r} in this cut", table=str(copy.source))
        version = found.version if copy.version is None else copy.version
        snapshot = session.reader.snapshot(found.table_id, version)
        source = open_storage(session.registry.location(found.table_id), session.settings.storage_options)
        with located(table=found.name, table_id=str(found.table_id)):
            refuse_absolute_vectors(snapshot.files)
            paths = files_of(source, snapshot.files)
        replaced = session.registry.find(copy.name)
        if replaced is None:
            table_id = uuid4()
            new, directory = NewTable(table_id, copy.name, _place(session, copy, table_id)), None
            place = new.location
        else:
            new, directory = NewTable(replaced.table_id, replaced.name, replaced.location), uuid4().hex[:8]
            place = f"{new.location.rstrip('/')}/{directory}"
        target = open_storage(place, session.settings.storage_options)
        planned.append(_Planned(new, snapshot, found.name, source, target, paths, directory))
    return planned


def _place(session: CatalogSession, copy: Copy, table_id: UUID) -> str:
    """Return a directory that no other process writes to, so that two copies at once cannot mix their files."""
    if copy.location is None:
        place = location_of(session, copy.name, table_id, None).rstrip("/")
        suffix = f"-{table_id.hex[:8]}"
        return place if place.endswith(suffix) else location_of(session, copy.name, table_id, place + suffix)
    place = location_of(session, copy.name, table_id, str(parse_location(copy.location)))
    if next(iter(open_storage(place, session.settings.storage_options).list()), None) is not None:
        raise ValidationError(f"the directory {place} is not empty", table=copy.name, field="location")
    return place


def _note(planned: _Planned) -> CopyNote:
    snapshot = planned.snapshot
    return CopyNote(planned.new.table_id, planned.new.location, snapshot.table_id, snapshot.version)


def _copy_files(planned: _Planned) -> None:
    if not planned.paths:
        return
    with ThreadPoolExecutor(min(FILES_AT_ONCE, len(planned.paths)), thread_name_prefix="deltars-clone") as pool:
        try:
            sizes = dict(zip(planned.paths, pool.map(partial(_copy_file, planned), planned.paths), strict=True))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for file in planned.snapshot.files.select(["path", "size"]).to_pylist():
        path = relative_path(planned.source, file["path"])
        if sizes[path] != file["size"]:
            raise StorageError(
                f"{planned.source.url_of(path)} has {sizes[path]} bytes, but {file['size']} in the log", path=path
            )


def _copy_file(planned: _Planned, path: str) -> int:
    return copy_file(planned.source, path, planned.target)


def _delete(planned: Sequence[_Planned]) -> None:
    """Delete what was copied so far. What cannot be deleted stays as orphans: the first error is the one to report."""
    for each in planned:
        with suppress(StorageError):
            each.target.delete(each.paths)
            each.target.remove_empty_directories()
