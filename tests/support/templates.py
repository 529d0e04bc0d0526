"""Migrated catalogs for tests, copied from a template: Alembic takes longer than most tests do.

first use of a backend    migrate once ──▶ template: a database file, a database of PostgreSQL, or the DDL as text
every test                copy the file or the database ──▶ a catalog with an id of its own

On PostgreSQL, a test takes the database of the test before it, made as it was (`reused_database`).

The DDL serves tests that need several catalogs in one database of PostgreSQL.

Copies of the DuckDB file keep the template's id: opening one to change it costs as much as the test itself does. No two
copies meet, because a test has one; another catalog that it makes is migrated, and gets its own id.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import text, update

from deltars.store.database import Database
from deltars.store.migrations import runner
from deltars.store.schema import dl_catalog
from deltars.uri import CatalogUri, parse_catalog_uri
from tests.support.postgres import PostgresServer
from tests.support.reused_database import Original

TIMEOUT_S = 60.0

_NEW_ID = update(dl_catalog)


class CatalogTemplates:
    SCHEMA = "catalog_of_a_test"
    """Schema of the catalog in a copied database of PostgreSQL."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._database: str | None = None
        self._free: str | None = None
        self._original: Original | None = None
        self._ddl: tuple[str, str] | None = None

    def lay_out(self, catalog_uri: str) -> None:
        """Make a migrated catalog at a URI where there is none yet."""
        uri = parse_catalog_uri(catalog_uri)
        if uri.backend == "postgres":
            self._run_ddl(uri)
        else:
            self._copy_file(uri)

    def take_database(self, server: PostgresServer) -> str:
        """Return the name of a database with a migrated catalog in `SCHEMA`, which nothing has used."""
        free, self._free = self._free, None
        if free is not None:
            if self._is_restored(server, free):
                return server.rename_database(free, "catalog")
            server.drop_database(free)
        database = server.create_database("catalog", template=self._template(server))
        with server.connect(database) as connection:
            if self._original is None:
                self._original = Original.of(connection, self.SCHEMA)
            self._give_new_id(connection)
        return database

    def give_back(self, database: str) -> None:
        """Take back a database whose test has ended."""
        self._free = database

    def _is_restored(self, server: PostgresServer, database: str) -> bool:
        assert self._original is not None
        try:
            with server.connect(database) as connection:
                if is_restored := self._original.restore(connection):
                    self._give_new_id(connection)
                return is_restored
        except psycopg.OperationalError:  # The test dropped it, or no one may connect to it.
            return False

    def _give_new_id(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"UPDATE {self.SCHEMA}.dl_catalog SET catalog_id = %s", [uuid4()])

    def _template(self, server: PostgresServer) -> str:
        if self._database is None:
            name = server.create_database("template")
            with server.connect(name) as connection:
                connection.execute(f"CREATE SCHEMA {self.SCHEMA}")
            self._run_ddl(parse_catalog_uri(server.catalog_uri(name, self.SCHEMA)))
            self._database = name
        return self._database

    def _copy_file(self, uri: CatalogUri) -> None:
        template = self._directory / f"catalog.{uri.backend}.db"
        if not template.exists():
            made = Database(CatalogUri(uri.backend, str(template)), pool_size=1, pool_timeout_s=TIMEOUT_S)
            runner.up(made)
            made.close()
        shutil.copyfile(template, uri.database)
        if uri.backend == "duckdb":
            return
        database = Database(uri, pool_size=1, pool_timeout_s=TIMEOUT_S)
        with database.write(TIMEOUT_S) as connection:
            connection.execute(_NEW_ID, {"catalog_id": uuid4()})
        database.close()

    def _run_ddl(self, uri: CatalogUri) -> None:
        database = Database(uri, pool_size=1, pool_timeout_s=TIMEOUT_S)
        assert uri.schema is not None
        if self._ddl is None:
            self._ddl = uri.schema, runner.sql(database)
        schema, ddl = self._ddl
        with database.write(TIMEOUT_S) as connection:
            # The transaction is ours already, and so is its end.
            statements = ddl.replace(schema, uri.schema).removeprefix("BEGIN;").removesuffix("COMMIT;\n")
            connection.execute(text(statements.replace(":", "\\:")).execution_options(no_parameters=True))
            connection.execute(_NEW_ID, {"catalog_id": uuid4()})
        database.close()
