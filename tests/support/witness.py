"""A second pair of eyes on a catalog: raw SQL over a connection of its own, past all that deltars does."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

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


Rows: TypeAlias = list[tuple[Any, ...]]
Look: TypeAlias = Callable[..., Rows]


def rows(uri: str, query: str, parameters: Sequence[object] = ()) -> Rows:
    """What a query answers; `?` marks a parameter on every backend, unless there are none.

    DuckDB: only from the process that has the catalog open, as DuckDB itself demands.
    """
    with looking(uri) as look:
        return look(query, parameters)


@contextmanager
def looking(uri: str) -> Iterator[Look]:
    """`rows` for several queries over one connection, which costs more than they do."""
    catalog = parse_catalog_uri(uri)
    if catalog.backend == "sqlite":
        url = f"{Path(catalog.database).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(url, uri=True)) as connection:
            yield lambda query, parameters=(): connection.execute(query, parameters).fetchall()
    elif catalog.backend == "duckdb":
        with duckdb.connect(catalog.database, config=_DUCKDB_CONFIG) as database:
            yield lambda query, parameters=(): database.execute(query, parameters).fetchall()
    else:
        with _kept_connection(catalog) as postgres:

            def look(query: str, parameters: Sequence[object] = ()) -> Rows:
                text = query.replace("%", "%%").replace("?", "%s") if parameters else query
                return postgres.execute(text.encode(), parameters or None).fetchall()

            yield look


_kept: dict[tuple[int, CatalogUri], psycopg.Connection[tuple[Any, ...]]] = {}
"""One connection to the catalog that was looked at last, by the process that opened it."""


@contextmanager
def _kept_connection(catalog: CatalogUri) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection that the next look finds again; other threads than the main one have a connection for each look."""
    if threading.current_thread() is not threading.main_thread():
        with postgres_connection(catalog) as connection:
            yield connection
        return
    key = os.getpid(), catalog
    kept = _kept.pop(key, None) or postgres_connection(catalog)
    try:
        yield kept
    except BaseException:
        # Whatever it was, the next look begins anew.
        kept.close()
        raise
    for other in [other for other in _kept if other[0] == os.getpid()]:
        _kept.pop(other).close()
    _kept[key] = kept


def postgres_connection(catalog: CatalogUri) -> psycopg.Connection[tuple[Any, ...]]:
    """An autocommit connection whose search path is the catalog's schema."""
    assert catalog.schema is not None
    conninfo = make_conninfo(dbname=catalog.database, **catalog.parameters)
    connection = psycopg.connect(conninfo, autocommit=True)
    connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(catalog.schema)))
    return connection
