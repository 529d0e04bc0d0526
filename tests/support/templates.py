"""Migrated catalogs for tests, copied from a template: Alembic takes longer than most tests do.

first use of a backend    migrate once ──▶ template: a database file, or the DDL as text
every test                copy the file, or run the DDL ──▶ a catalog with an id of its own

Copies of the DuckDB file keep the template's id: opening one to change it costs as much as the test itself does. No two
copies meet, because a test has one; another catalog that it makes is migrated, and gets its own id.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

from sqlalchemy import text, update

from deltars.store.database import Database
from deltars.store.migrations import runner
from deltars.store.schema import dl_catalog
from deltars.uri import CatalogUri, parse_catalog_uri

TIMEOUT_S = 60.0

_NEW_ID = update(dl_catalog)


class CatalogTemplates:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ddl: tuple[str, str] | None = None

    def lay_out(self, catalog_uri: str) -> None:
        """Make a migrated catalog at a URI where there is none yet."""
        uri = parse_catalog_uri(catalog_uri)
        if uri.backend == "postgres":
            self._run_ddl(uri)
        else:
            self._copy_file(uri)

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
