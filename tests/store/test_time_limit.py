"""Reads that take too long are interrupted where the database runs in this process, and writes are not."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from sqlalchemy import text

import deltars
from deltars.errors import TimeoutError
from deltars.store.backends.time_limit import TimeLimit
from deltars.store.database import Database

ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "duckdb": "SELECT count(*) FROM range(100000000) AS a, range(1000000) AS b",
}

pytestmark = pytest.mark.backends("sqlite", "duckdb")


@pytest.fixture
def database(catalog: deltars.Catalog) -> Database:
    catalog.write("t", pa.table({"id": [1]}))
    return catalog._session.database


def test_endless_read_ends_and_its_connection_serves_again(
    catalog: deltars.Catalog, database: Database, backend: str
) -> None:
    database.backend.read_limit = TimeLimit(0.2)
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="reading for too long"), database.read() as connection:
            connection.execute(text(ENDLESS[backend])).all()
        assert time.monotonic() - began < 10
        use = database.pool_use()
        assert use is not None
        assert use.in_use == 0
        assert catalog.write("t", pa.table({"id": [2]})).versions.keys() == {"t"}
    assert catalog.table("t").version == 2


def test_read_that_goes_on_after_the_limit_is_interrupted_at_its_next_statement(
    database: Database, backend: str
) -> None:
    database.backend.read_limit = TimeLimit(0.1)
    with database.read() as connection:
        time.sleep(0.25)  # It computes, between two statements.
        with pytest.raises(Exception, match=r"(?i)interrupted"):
            connection.execute(text(ENDLESS[backend])).all()


def test_writes_have_no_limit(catalog: deltars.Catalog, database: Database) -> None:
    database.backend.read_limit = TimeLimit(0.05)
    with database.write(10) as connection:
        time.sleep(0.2)
        connection.execute(text("UPDATE dl_tables SET name = 'u'"))
    assert [table.name for table in catalog.tables()] == ["u"]
