"""A stand-in for vacuum: deletes the files that were removed up to a version, and records it as vacuum does."""

from __future__ import annotations

from pathlib import Path

import msgspec
from sqlalchemy import and_, select

import deltars
from deltars.protocol import DeletionVector
from deltars.protocol.deletion_vectors import relative_path
from deltars.store.schema import dl_add_files, dl_cdc_files, dl_maintenance
from deltars.store.tags import pinned_versions


def vacuum(catalog: deltars.Catalog, name: str, version: int | None = None) -> None:
    """Delete what no version after `version` (by default the current one) and no tag needs."""
    table = catalog.table(name)
    last = table.version if version is None else version
    database = catalog._session.database
    files, changes = dl_add_files.c, dl_cdc_files.c
    columns = (files.path, files.deletion_vector, files.version, files.removed_version)
    with database.write(30) as connection:
        pinned = [kept for kept in pinned_versions(connection, table.id) if kept < last]
        rows = connection.execute(select(*columns).where(files.table_id == table.id)).all()
        needed, gone = set[str](), set[str]()
        for row in rows:
            vector = None if row.deletion_vector is None else msgspec.convert(row.deletion_vector, DeletionVector)
            names = {row.path, *([] if vector is None else filter(None, [relative_path(vector)]))}
            is_dead = row.removed_version is not None and row.removed_version <= last
            is_kept = any(row.version <= kept < (row.removed_version or 0) for kept in pinned)
            (gone if is_dead and not is_kept else needed).update(names)
        in_range = and_(changes.table_id == table.id, changes.version <= last)
        gone.update(connection.scalars(select(changes.path).where(in_range)))
        for path in gone - needed:
            (Path(table.location.removeprefix("file://")) / path).unlink(missing_ok=True)
        connection.execute(database.backend.insert_unless_present(dl_maintenance).values(table_id=table.id))
        values = {"vacuumed_version": last, "condemned_version": last, "kept_versions": pinned}
        connection.execute(dl_maintenance.update().where(dl_maintenance.c.table_id == table.id).values(values))
