"""A lost database, made again from what was published.

    <warehouse>/_deltars/tables/*.json ──> names, ids, locations
    <location>/_delta_log of each      ──> every published version, with its transaction and its place in time

What was never published is not there: row groups, and commits that the mirror had not reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import msgspec

from deltars.catalog.catalog import Catalog
from deltars.catalog.connecting import open_catalog
from deltars.config import configure
from deltars.errors import NotADeltaTable, StorageError, ValidationError
from deltars.importer import Importer, Progress
from deltars.log.commit import NO_VERSION, NewTable
from deltars.storage import open_storage
from deltars.store.mirror_status import MirrorState

REGISTRATIONS = "_deltars/tables"


class Registered(msgspec.Struct, frozen=True, rename="camel"):
    """A table as the warehouse remembers it."""

    table_id: UUID
    name: str
    location: str
    created_at: datetime | None = None
    dropped_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuilt catalog has."""

    versions: Mapping[str, int] = field(default_factory=dict)
    """The last version of each table, by name."""
    gone: tuple[str, ...] = ()
    """Tables that had been dropped, and whose log is no longer there: past cuts lack them."""
    torn: tuple[UUID, ...] = ()
    """Transactions over several tables of which some had not been published: there are only parts of them."""


def rebuild(
    warehouse: str,
    catalog: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    report: Callable[[str, Progress], None] | None = None,
) -> Rebuilt:
    """Make a catalog again from the logs that it published. Run it again if it was interrupted."""
    config = configure(catalog, warehouse=warehouse, storage_options=storage_options)
    with open_catalog(config, migrate=True, claim=False) as opened:
        found = _registrations(opened)
        # The catalog that is made again takes the place of the lost one.
        opened.engine.publisher.warehouse.claim(take_over=True)
        # The dropped ones first: afterwards their names and locations are free for those who have them now.
        dropped = [table for table in found if table.dropped_at is not None]
        gone = tuple(table.name for table in dropped if not _restore_dropped(opened, table, report))
        versions = {table.name: _restore(opened, table, report) for table in found if table.dropped_at is None}
        return Rebuilt(versions, gone, tuple(_importer(opened).writer.torn_transactions()))


def _registrations(catalog: Catalog) -> list[Registered]:
    """By name: whoever is interrupted and runs again goes the same way."""
    assert catalog.warehouse is not None
    storage = open_storage(catalog.warehouse, catalog.engine.settings.storage_options)
    found = []
    for file in storage.list(REGISTRATIONS):
        try:
            found.append(msgspec.json.decode(storage.get(file.path), type=Registered))
        except msgspec.MsgspecError as error:
            raise StorageError(f"{file.path} does not describe a table: {error}", path=file.path) from error
    if not found:
        raise ValidationError(
            f"{catalog.warehouse} remembers no tables: it has nothing in {REGISTRATIONS}",
            field="warehouse",
            hint="Give the warehouse that the lost catalog had.",
        )
    return sorted(found, key=lambda table: (table.name, str(table.table_id)))


def _restore(catalog: Catalog, table: Registered, report: Callable[[str, Progress], None] | None) -> int:
    """The table's last version; −1 where nothing was committed to it."""
    importer = _importer(catalog)
    if not importer.writer.is_there(table.table_id):
        importer.writer.register(NewTable(table.table_id, table.name, table.location), created_at=table.created_at)
    elif importer.writer.read(table.table_id).state is not MirrorState.IMPORTING:
        return importer.writer.read(table.table_id).current_version
    try:
        return importer.restore(
            table.table_id, report=None if report is None else lambda progress: report(table.name, progress)
        )
    except NotADeltaTable:
        importer.writer.let_go(table.table_id)
        return NO_VERSION


def _restore_dropped(catalog: Catalog, table: Registered, report: Callable[[str, Progress], None] | None) -> bool:
    """Whether its log is still there: then past cuts have it."""
    assert table.dropped_at is not None
    writer = _importer(catalog).writer
    if _restore(catalog, table, report) == NO_VERSION:
        writer.unregister(table.table_id)
        return False
    writer.drop(table.table_id, table.dropped_at)
    return True


def _importer(catalog: Catalog) -> Importer:
    return Importer(catalog.engine.database, catalog.engine.settings.storage_options)
