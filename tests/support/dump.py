"""A whole catalog as plain data, for comparing before and after."""

from __future__ import annotations

from typing import Any, TypeAlias

from deltars.uri import parse_catalog_uri
from tests.support import witness

Dump: TypeAlias = dict[str, list[tuple[Any, ...]]]

_TABLES = {
    "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table'",
    "duckdb": "SELECT table_name FROM duckdb_tables() WHERE NOT internal",
    "postgres": "SELECT table_name FROM information_schema.tables"
    " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'",
}


def dump(uri: str) -> Dump:
    """Every row of every table but the record of lost races, which is written after a refusal and is not the log's."""
    with witness.looking(uri) as look:
        names = sorted(name for (name,) in look(_TABLES[parse_catalog_uri(uri).backend]) if name != "dl_conflicts")
        assert "dl_tables" in names
        return {name: sorted(look(f'SELECT * FROM "{name}"'), key=repr) for name in names}
