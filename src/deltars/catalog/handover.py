"""Import tables from plain Delta, release them, and adopt them again: the catalog's part."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

from deltars.errors import DeltarsError, ImportRefused, MirrorFailure, TableExists, TableHeld
from deltars.importer import Importer, Progress
from deltars.log.new_table import NewTable
from deltars.session import CatalogSession
from deltars.storage import open_storage, parse_location, refuse_overwriting
from deltars.store.mirror.status import MirrorMode, MirrorState
from deltars.store.names import check_name, is_same_name
from deltars.transaction.create_table import claim_place

PUBLISH_WAIT_S = 60.0


def import_table(
    session: CatalogSession,
    location: str,
    name: str | None,
    *,
    read_only: bool,
    take_over: bool,
    report: Callable[[Progress], None] | None,
) -> UUID:
    """Begin an import, or continue an interrupted one, even after its last step. Return the table's id."""
    place = str(parse_location(location))
    importer = Importer(session.database, session.settings.storage_options)
    wanted = name or place.rstrip("/").rpartition("/")[2]
    check_name(wanted)
    if not read_only and (finished := importer.writer.find_imported(place, wanted)) is not None:
        session.publish_registration(finished)
        return finished
    table_id = importer.writer.find_importing(place)
    known = None if table_id is None else importer.writer.read(table_id).name
    if name is not None and known is not None and not is_same_name(known, name):
        raise TableExists(f"the table at {place} is in this catalog already, as {known!r}", table=known)
    if table_id is None:
        for half_gone in importer.writer.find_half_gone(place):
            importer.writer.unregister(half_gone)
        claim_place(session, place, session.registry.warehouse())
        if not read_only:
            refuse_overwriting(open_storage(place, session.settings.storage_options))
        table_id = uuid4()
        importer.writer.register(NewTable(table_id, wanted, place))
    try:
        if read_only:
            importer.take_read_only(table_id, report=report)
        else:
            importer.take(table_id, take_over=take_over, report=report)
    except ImportRefused as error:
        if importer.writer.read(table_id).current_version < 0:
            importer.writer.unregister(table_id)
        raise error.located(table=name or place) from error.__cause__
    session.publish_registration(table_id)
    return table_id


def release(session: CatalogSession, table_id: UUID) -> int:
    """Release the table to plain Delta writers. Return its last version, which says so."""
    importer = Importer(session.database, session.settings.storage_options)
    table = importer.writer.read(table_id)
    if table.state is MirrorState.RELEASED:
        return table.current_version
    if table.state in (MirrorState.IMPORTING, MirrorState.READ_ONLY):
        raise TableHeld(
            "the table cannot be released: this catalog does not own its log", table=table.name, table_id=table_id
        )
    # Publish most of it while others can still commit.
    _publish(session, table_id)
    importer.hold(table_id)
    try:
        _publish(session, table_id)
    except DeltarsError:
        importer.writer.unhold(table_id)
        raise
    return importer.give(table_id)


def adopt(session: CatalogSession, table_id: UUID, *, report: Callable[[Progress], None] | None = None) -> int:
    """Adopt a table that was released or imported read-only. Return its last version, the fence."""
    importer = Importer(session.database, session.settings.storage_options)
    table = importer.writer.read(table_id)
    if not table.is_held:
        return table.current_version
    return importer.take(table_id, report=report)


def _publish(session: CatalogSession, table_id: UUID) -> None:
    """Publish every committed version. It must be in the log before other writers may add to it."""
    version = session.reader.current_version(table_id)
    publishing = session.publisher.publish_all({table_id: version}, mode=MirrorMode.INLINE, wait_s=PUBLISH_WAIT_S)
    outcome = publishing[table_id]
    if outcome.failure is not None:
        raise outcome.failure
    if outcome.published_version is None or outcome.published_version < version:
        raise MirrorFailure(
            error=f"version {version} is not published yet",
            table_id=table_id,
            version=version,
            hint="The table still belongs to this catalog: run the release again.",
        )
