"""A lost database, made again from what was published.

    <warehouse>/_deltars/tables/*.json ──> names, ids, locations
    <location>/_delta_log of each      ──> every published version, with its transaction and its place in time

What was never published is not there: row groups, and commits that the mirror had not reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from deltars.catalog.catalog import Catalog
from deltars.catalog.connection import open_catalog
from deltars.catalog.registrations import plan_of, suffixed
from deltars.config import configure
from deltars.errors import ImportRefused, NotADeltaTable, StorageError, ValidationError
from deltars.importer import Importer, Progress
from deltars.log.commit import NO_VERSION, NewTable
from deltars.mirror.warehouse import Registered
from deltars.storage import open_storage
from deltars.store.mirror.status import MirrorState
from deltars.store.registry import Origin

REGISTRATIONS = "_deltars/tables"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuilt catalog has."""

    versions: Mapping[str, int] = field(default_factory=dict)
    """The last version of each table, by name."""
    gone: tuple[str, ...] = ()
    """Tables that had been dropped, and whose log is no longer there: past cuts lack them."""
    torn: tuple[UUID, ...] = ()
    """Transactions over several tables of which some had not been published: there are only parts of them."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Tables that got a new name because a newer table has theirs: the old name of each, by the new one."""
    stale: tuple[str, ...] = ()
    """Entries of the warehouse that describe no table any more, and were left out: their files."""


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
        opened._session.publisher.warehouse.claim(take_over=True)
        plan = plan_of(found, lambda table: _has_log(opened, table))
        # The dropped ones first: past cuts have them.
        gone = [table.name for table in plan.gone]
        gone += [table.name for table in plan.dropped if not _restore_dropped(opened, table, report)]
        versions = {name: _restore(opened, table, name, report) for name, table in plan.living.items()}
        return Rebuilt(
            versions,
            tuple(sorted(gone)),
            tuple(_importer(opened).writer.torn_transactions()),
            {name: table.name for name, table in plan.living.items() if name != table.name},
            tuple(f"{REGISTRATIONS}/{table.table_id}.json" for table in plan.stale),
        )


def _registrations(catalog: Catalog) -> list[Registered]:
    """By name: whoever is interrupted and runs again goes the same way."""
    assert catalog.warehouse is not None
    storage = open_storage(catalog.warehouse, catalog._session.settings.storage_options)
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


def _restore(catalog: Catalog, table: Registered, name: str, report: Callable[[str, Progress], None] | None) -> int:
    """The table's last version; −1 where nothing was committed to it."""
    importer = _importer(catalog)
    if not importer.writer.is_there(table.table_id):
        new = NewTable(table.table_id, name, table.location)
        importer.writer.register(new, created_at=table.created_at, origin=Origin.RESTORED)
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
    """Whether its log can still be read: then past cuts have it."""
    assert table.dropped_at is not None
    writer = _importer(catalog).writer
    try:
        # Under a name that nobody has: a table that is there by now may have this one's.
        version = _restore(catalog, table, suffixed(table), report)
    except ImportRefused:
        # A deletion of its files was interrupted.
        version = NO_VERSION
    if version == NO_VERSION:
        writer.unregister(table.table_id)
        return False
    writer.drop(table.table_id, table.dropped_at, table.name)
    return True


def _has_log(catalog: Catalog, table: Registered) -> bool:
    storage = open_storage(table.location, catalog._session.settings.storage_options)
    return next(iter(storage.list("_delta_log")), None) is not None


def _importer(catalog: Catalog) -> Importer:
    return Importer(catalog._session.database, catalog._session.settings.storage_options)
