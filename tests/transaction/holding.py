"""Commits to a table, held in the middle by the database itself (PostgreSQL).

with held_at(uri, table, deferred=True) as hold:      # in its COMMIT; deferred=False: while it writes, its lock held
    commit = Meanwhile(tx.commit)
    hold.wait_until_reached(); …                      # it goes on when the block ends
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

import deltars
from deltars.uri import parse_catalog_uri
from tests.support.witness import postgres_connection

WAIT_S = 60.0

_KEY = 5
"""Of the advisory lock that they wait for."""


class Hold:
    def __init__(self, session: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._session = session

    def wait_until_reached(self) -> None:
        self._wait_for("locktype = 'advisory'")

    def wait_until_somebody_waits(self) -> None:
        """For the one that is held."""
        self._wait_for("locktype <> 'advisory'")

    def _wait_for(self, kind: str) -> None:
        query = (
            "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)"
            f" WHERE NOT granted AND datname = current_database() AND {kind}"
        )
        deadline = time.monotonic() + WAIT_S
        while not self._session.execute(query.encode()).fetchall():
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.01)


@contextmanager
def held_at(uri: str, table: deltars.Table, *, deferred: bool) -> Iterator[Hold]:
    """Whoever commits to this table stops while it writes its version, or in its COMMIT, as long as the block lasts."""
    with postgres_connection(parse_catalog_uri(uri)) as session:
        session.execute(
            sql.SQL(
                "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN PERFORM pg_advisory_xact_lock_shared({}); RETURN NULL; END'"
            ).format(sql.Literal(_KEY))
        )
        session.execute(
            sql.SQL(
                "CREATE CONSTRAINT TRIGGER stop AFTER INSERT ON dl_table_versions {} FOR EACH ROW"
                " WHEN (NEW.table_id = {}) EXECUTE FUNCTION stop()"
            ).format(
                sql.SQL("DEFERRABLE INITIALLY DEFERRED" if deferred else "NOT DEFERRABLE"), sql.Literal(str(table.id))
            )
        )
        session.execute("SELECT pg_advisory_lock(%s)", [_KEY])
        try:
            yield Hold(session)
        finally:
            session.execute("SELECT pg_advisory_unlock_all()")
