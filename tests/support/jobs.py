"""What the processes of a crowd do. Each of them is a program of its own: it opens the catalog itself."""

from __future__ import annotations

from uuid import UUID

import deltars
from deltars.catalog import migrate


def connect_and_count(uri: str | None) -> tuple[str | None, int]:
    with deltars.connect(uri) as catalog:
        return catalog.warehouse, len(catalog.tables())


def migrate_up(uri: str) -> str | None:
    return migrate.up(uri).current


def create_table(uri: str, name: str, if_not_exists: bool) -> UUID:
    with deltars.connect(uri) as catalog:
        return catalog.create_table(name, "id BIGINT", if_not_exists=if_not_exists).id


def create_at(uri: str, name: str | None, location: str) -> str:
    with deltars.connect(uri) as catalog:
        return catalog.create_table(name or f"t{id(catalog)}", "id BIGINT", location=location).location


def names_of(catalog: deltars.Catalog) -> list[str]:
    return [table.name for table in catalog.tables()]


def version_of(table: deltars.Table) -> int:
    return table.version
