"""Tables by path: the table of a catalog that is at a directory, for programs that name tables by their path.

    path ──location_at──▶ location ──find_at──▶ record of the catalog's table, or None
                              └────table_at──▶ record ┬─ of the catalog's table
                                                      ├─ of a Delta table that no catalog had, if it may be imported
                                                      └─ or an error: no Delta table, or one to import first

`DeltaTable.forPath` and the verbs of an enabled Spark session use the same functions.
"""

from __future__ import annotations

import os

from deltars import catalog
from deltars.errors import ImportRefused, NotADeltaTable
from deltars.session import CatalogSession, location_at
from deltars.store.registry import TableRecord
from deltars.transaction.create_table import free_name, has_log

__all__ = ["find_at", "free_name", "location_at", "table_at"]


def find_at(session: CatalogSession, path: str | os.PathLike[str]) -> TableRecord | None:
    """Return the catalog's table at a path, in any spelling of it; None if there is none."""
    return session.registry.find_at(location_at(path))


def table_at(session: CatalogSession, path: str | os.PathLike[str], *, imports: bool = False) -> TableRecord:
    """Return the catalog's table at a path. `imports` imports a Delta table that the catalog does not have.

    Raise `NotADeltaTable` if there is none, and `ImportRefused` if there is one that must be imported first.
    """
    location = location_at(path)
    found = session.registry.find_at(location)
    if found is not None:
        return found
    if not has_log(session, location):
        raise NotADeltaTable(
            f"there is no Delta table at {location}", hint="Check the path; catalog.tables() lists the tables."
        )
    if not imports:
        raise ImportRefused(
            f"the Delta table at {location} is not in {session.uri}",
            hint="Import it once with catalog.import_table(location). It stays where it is.",
        )
    table_id = catalog.import_table(
        session, location, free_name(session, location), read_only=False, take_over=False, report=None
    )
    return session.find(table_id)
