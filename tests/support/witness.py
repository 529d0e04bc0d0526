"""A second pair of eyes on a catalog: raw SQL over a connection of its own, past all that deltars does."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import duckdb_sqlalchemy
import psycopg
import sqlalchemy
from psycopg import sql
from psycopg.conninfo import make_conninfo

from deltars.uri import CatalogUri, parse_catalog_uri

# DuckDB lets a second connection in only with the first one's settings, and SQLAlchemy's driver has one of its own.
_DUCKDB_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "custom_user_agent": f"duckdb-sqlalchemy/{duckdb_sqlalchemy.__version__}(sqlalchemy/{sqlalchemy.__version__})"
}


def rows(uri: str, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """What a query answers; `?` marks a parameter on every backend, unless there are none.

    DuckDB: only from the process that has the catalog open, as DuckDB itself demands.
    """
    catalog = parse_catalog_uri(uri)
    if catalog.backend == "sqlite":
        url = f"{Path(catalog.database).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(url, uri=True)) as connection:
            return connection.execute(query, parameters).fetchall()
    if catalog.backend == "duckdb":
        with duckdb.connect(catalog.database, config=_DUCKDB_CONFIG) as database:
            return database.execute(query, parameters).fetchall()
    with postgres_connection(catalog) as postgres:
        text = query.replace("%", "%%").replace("?", "%s") if parameters else query
        return postgres.execute(text.encode(), parameters or None).fetchall()


def postgres_connection(catalog: CatalogUri) -> psycopg.Connection[tuple[Any, ...]]:
    """An autocommit connection whose search path is the catalog's schema."""
    assert catalog.schema is not None
    conninfo = make_conninfo(dbname=catalog.database, **catalog.parameters)
    connection = psycopg.connect(conninfo, autocommit=True)
    connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(catalog.schema)))
    return connection
