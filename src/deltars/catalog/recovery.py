"""Rebuild a lost catalog from what it published.

    <warehouse>/_deltars/tables/*.json ──> names, ids, locations
    <location>/_delta_log of each      ──> every published version, with its transaction and its time
    <warehouse>/_deltars/tags/*.json   ──> tags whose versions are all there
    <warehouse>/_deltars/settings.json ──> the default isolation level

What was never published is lost: row groups, and commits that the mirror had not reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from deltars.arguments import check_reports
from deltars.catalog.catalog import Catalog
from deltars.catalog.connection import open_catalog, warehouse_location
from deltars.catalog.registrations import plan_of, suffixed
from deltars.config import Isolation, configure
from deltars.errors import ImportRefused, NotADeltaTable, StorageError, ValidationError
from deltars.importer import Importer, Progress
from deltars.log.new_table import NO_VERSION, NewTable
from deltars.mirror.settings_file import published_settings
from deltars.mirror.tag_files import published_tags
from deltars.mirror.warehouse import Registered
from deltars.storage import Storage, open_storage
from deltars.store.mirror.status import MirrorState
from deltars.store.registry import Origin
from deltars.store.vacuum_marks import refuse_condemned_cut
from deltars.transaction.create_table import has_log

REGISTRATIONS = "_deltars/tables"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Contents of a rebuilt catalog."""

    versions: Mapping[str, int] = field(default_factory=dict)
    """Last version of each table, by name."""
    gone: tuple[str, ...] = ()
    """Dropped tables whose log no longer exists: snapshots of the past lack them."""
    torn: tuple[UUID, ...] = ()
    """Transactions over several tables that were published only in part: the rest is lost."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Old name, by new name, of tables that were renamed because a newer table has their name."""
    stale: tuple[str, ...] = ()
    """Files of registry entries that describe no table any more, and were ignored."""
    tags: tuple[str, ...] = ()
    """Tags that were restored."""
    lost_tags: tuple[str, ...] = ()
    """Tags that were not restored, because a version in their cut is lost or another one."""
    isolation: Isolation | None = None
    """Default isolation level that the catalog stores now."""


def rebuild(
    warehouse: str,
    catalog: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    report: Callable[[str, Progress], None] | None = None,
) -> Rebuilt:
    """Rebuild a catalog from the logs that it published. Run it again if it was interrupted."""
    check_reports(report=report)
    config = configure(catalog, warehouse=warehouse, storage_options=storage_options)
    # Read first: a catalog keeps the warehouse that it was opened with, even a mistyped one.
    storage = open_storage(warehouse_location(warehouse), config.settings.storage_options)
    found = _registrations(storage)
    isolation = published_settings(storage).isolation
    with open_catalog(config, migrate=True, claim=False) as opened:
        # The rebuilt catalog replaces the lost one as the warehouse's owner.
        opened._session.publisher.warehouse.claim(take_over=True)
        plan = plan_of(found, lambda table: has_log(opened._session, table.location))
        # Dropped tables first: snapshots of the past have them.
        gone = [table.name for table in plan.gone]
        gone += [table.name for table in plan.dropped if not _restore_dropped(opened, table, report)]
        versions = {name: _restore(opened, table, name, report) for name, table in plan.living.items()}
        tags, lost_tags = _restore_tags(opened)
        registry = opened._session.registry
        if isolation is not None and registry.default_isolation() is None:
            registry.set_default_isolation(isolation)
        return Rebuilt(
            versions,
            tuple(sorted(gone)),
            tuple(_importer(opened).writer.torn_transactions()),
            {name: table.name for name, table in plan.living.items() if name != table.name},
            tuple(f"{REGISTRATIONS}/{table.table_id}.json" for table in plan.stale),
            tags,
            lost_tags,
            registry.default_isolation(),
        )


def _registrations(storage: Storage) -> list[Registered]:
    """Return the registry entries by name, so that a repeated run takes the same order."""
    found = []
    for file in storage.list(REGISTRATIONS):
        try:
            found.append(msgspec.json.decode(storage.get(file.path), type=Registered))
        except msgspec.MsgspecError as error:
            raise StorageError(f"{file.path} does not describe a table: {error}", path=file.path) from error
    if not found:
        raise ValidationError(
            f"{storage.url_of('')} has no registry entries: {REGISTRATIONS} is empty",
            field="warehouse",
            hint="Give the warehouse that the lost catalog had.",
        )
    return sorted(found, key=lambda table: (table.name, str(table.table_id)))


def _restore(catalog: Catalog, table: Registered, name: str, report: Callable[[str, Progress], None] | None) -> int:
    """Restore a table, and return its last version; −1 if nothing was committed to it."""
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
    """Restore a dropped table for snapshots of the past. Return whether its log could be read."""
    assert table.dropped_at is not None
    writer = _importer(catalog).writer
    try:
        # Under an unused name, because a newer table may have this one's.
        version = _restore(catalog, table, suffixed(table), report)
    except ImportRefused:
        # The deletion of its files was interrupted.
        version = NO_VERSION
    if version == NO_VERSION:
        writer.unregister(table.table_id)
        return False
    writer.drop(table.table_id, table.dropped_at, table.name)
    return True


def _restore_tags(catalog: Catalog) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Restore the published tags whose cuts the rebuilt catalog still has. Return their names, and the others'."""
    session = catalog._session
    assert catalog.warehouse is not None
    restored, lost = [], []
    for published in published_tags(open_storage(catalog.warehouse, session.settings.storage_options)):
        tag = published.tag
        known = session.tags.find(tag.name)
        # The newest commit of the lost catalog may be older than the tag, so the tag is no seal by itself.
        session.cuts.seal(tag.commit_ts, session.settings.timeout)
        versions = {table.table_id: table.version for table in published.tables}
        if session.cuts.sealed(tag.commit_ts).versions_by_id != versions:
            lost.append(tag.name)
            continue
        if known is None:
            session.tags.create(tag, refuse_condemned_cut)
        restored.append(tag.name)
    return tuple(restored), tuple(lost)


def _importer(catalog: Catalog) -> Importer:
    return Importer(catalog._session.database, catalog._session.settings.storage_options)
