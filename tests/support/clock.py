"""A catalog's database whose clock can be set back, as an administrator or a fail-over does it.

Our code asks the database for the time in SQL. Here the function that it calls is put in front of the database's own:
real databases, real statements, another clock.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import sql
from sqlalchemy import event

import deltars
from tests.support.witness import postgres_connection

_JULIAN_EPOCH = 2440587.5
_DAY_S = 86_400


class Clock:
    """How far the catalog's database is off the true time; `now` is the start of a transaction (PostgreSQL)."""

    def __init__(self, set_offsets: Any) -> None:
        self._set_offsets = set_offsets

    def set(self, offset_s: float, *, now_s: float | None = None) -> None:
        self._set_offsets(offset_s, offset_s if now_s is None else now_s)


@contextmanager
def clock_of(catalog: deltars.Catalog) -> Iterator[Clock]:
    """The clock of this catalog's database, right at first."""
    uri = catalog._session.uri
    if uri.backend == "sqlite":
        yield _sqlite(catalog)
    elif uri.backend == "duckdb":
        yield _duckdb(catalog)
    else:
        with _postgres(catalog) as clock:
            yield clock


def _sqlite(catalog: deltars.Catalog) -> Clock:
    offset = [0.0]

    def julianday(_: str) -> float:
        return (time.time() + offset[0]) / _DAY_S + _JULIAN_EPOCH

    def put_in_front(driver: sqlite3.Connection, *_: Any) -> None:
        driver.create_function("julianday", 1, julianday)

    event.listen(catalog._session.database.engine, "checkout", put_in_front)
    return Clock(lambda offset_s, _: offset.__setitem__(0, offset_s))


def _duckdb(catalog: deltars.Catalog) -> Clock:
    def put_in_front(offset_s: float, _: float) -> None:
        moment = f"get_current_timestamp() + to_microseconds({round(offset_s * 1_000_000)})"
        with catalog._session.database.write(10) as connection:
            connection.exec_driver_sql(f"CREATE OR REPLACE MACRO now() AS {moment}")

    return Clock(put_in_front)


@contextmanager
def _postgres(catalog: deltars.Catalog) -> Iterator[Clock]:
    uri = catalog._session.uri
    place, database = sql.Identifier(f"clock_{secrets.token_hex(4)}"), sql.Identifier(uri.database)
    with postgres_connection(uri) as connection:

        def put_in_front(offset_s: float, now_s: float) -> None:
            offsets = {"clock_timestamp": offset_s, "now": now_s}
            for name, seconds in offsets.items():
                statement = sql.SQL("UPDATE {}.offsets SET by = make_interval(secs => %s) WHERE of = %s").format(place)
                connection.execute(statement, [seconds, name])

        connection.execute(sql.SQL("CREATE SCHEMA {}").format(place))
        connection.execute(sql.SQL("CREATE TABLE {}.offsets (of text, by interval)").format(place))
        for name in ("clock_timestamp", "now"):
            connection.execute(sql.SQL("INSERT INTO {}.offsets VALUES (%s, '0')").format(place), [name])
            body = sql.SQL("SELECT pg_catalog.{}() + by FROM {}.offsets WHERE of = {}").format(
                sql.Identifier(name), place, sql.Literal(name)
            )
            made = sql.SQL("CREATE FUNCTION {}.{}() RETURNS timestamptz LANGUAGE sql VOLATILE AS {}")
            connection.execute(made.format(place, sql.Identifier(name), sql.Literal(body.as_string())))
        # For sessions that begin from here on.
        connection.execute(sql.SQL("ALTER DATABASE {} SET search_path = {}, pg_catalog").format(database, place))
        catalog.close()
        try:
            yield Clock(put_in_front)
        finally:
            connection.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(database))
            catalog.close()
