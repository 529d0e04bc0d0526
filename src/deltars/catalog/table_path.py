"""Tables by path: the table of a catalog that is at a directory, for programs that name tables by their path.

    path ──location_at──▶ location ──find_at──▶ record of the catalog's table, or None
                              └────table_at──▶ record ┬─ of the catalog's table
                                                      ├─ of a Delta table that no catalog had, if it may be imported
                                                      └─ or an error: no Delta table, or one to import first

`DeltaTable.forPath` and the verbs of an enabled Spark session use the same functions.
"""

from __future__ import annotations

import os
import re
from uuid import uuid4

from deltars import catalog
from deltars.errors import ImportRefused, NotADeltaTable, ValidationError, brief
from deltars.session import CatalogSession
from deltars.storage import parse_location
from deltars.store.names import MAX_NAME_LENGTH, is_id
from deltars.store.registry import TableRecord
from deltars.transaction.create_table import has_log

_NOT_IN_NAMES = re.compile(r"[/\x00-\x1f\x7f]+")


def location_at(path: str | os.PathLike[str]) -> str:
    """Return the location of a path in its normal form. A relative path is in the working directory, as in Spark."""
    if not isinstance(path, str | os.PathLike):
        raise ValidationError(f"a path is a text, got {brief(path)}", field="path")
    text = os.fspath(path)
    is_relative = bool(text) and not text.startswith("/") and ":" not in text
    return str(parse_location(os.path.abspath(text) if is_relative else text))


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


def free_name(session: CatalogSession, path: str | os.PathLike[str]) -> str:
    """Return a name for a table at a path: that of its directory, with a suffix if another table has it."""
    wanted = _NOT_IN_NAMES.sub("_", location_at(path).rstrip("/").rpartition("/")[2]).strip() or "table"
    # A name that looks like a table's id would be taken for one.
    wanted = wanted[: MAX_NAME_LENGTH - 9] if not is_id(wanted) else f"table_{wanted}"
    return wanted if session.registry.find(wanted) is None else f"{wanted}_{uuid4().hex[:8]}"
