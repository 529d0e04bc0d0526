"""A hot standby is read as it is now; what it cannot answer for ever, and what it cannot do, it refuses by name."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import deltars
from deltars.errors import DatabaseError
from deltars.uri import parse_catalog_uri
from tests.support.postgres import URL_VARIABLE, PostgresServer, standby_of

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(URL_VARIABLE in os.environ, reason="a standby needs a server of this run's own"),
]


class Pair(NamedTuple):
    primary: deltars.Catalog
    standby_uri: str


@pytest.fixture(scope="module")
def pair(
    postgres_server: PostgresServer, postgres_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    uri = postgres_server.create_catalog_uri(postgres_database)
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    with deltars.connect(uri, warehouse=str(warehouse), migrate=True) as primary, standby_of(postgres_server) as server:
        schema = parse_catalog_uri(uri).schema
        assert schema is not None
        yield Pair(primary, server.catalog_uri(postgres_database, schema))


def _await(standby: deltars.Catalog, versions: dict[str, int]) -> None:
    deadline = time.monotonic() + 20
    while standby.snapshot().versions != versions:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_standby_says_that_it_is_one_and_reads_the_present(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.primary.create_table("features", "id BIGINT")
    pair.primary.write("features", pa.table({"id": [1, 2]}))
    with caplog.at_level(logging.WARNING, "deltars"), deltars.connect(pair.standby_uri) as standby:
        assert [record for record in caplog.records if "hot standby" in record.getMessage()]
        assert standby.is_standby
        assert not pair.primary.is_standby
        _await(standby, pair.primary.snapshot().versions)
        assert standby.table("features").to_arrow().num_rows == 2


def test_standby_refuses_cuts_of_the_past_and_the_primary_gives_them(pair: Pair) -> None:
    with pair.primary.begin() as tx:
        tx.write("past", pa.table({"id": [1]}))
    known = pair.primary.snapshot(tx.id).versions
    with deltars.connect(pair.standby_uri) as standby:
        _await(standby, pair.primary.snapshot().versions)
        for as_of in (tx.id, datetime.now(UTC), "2001-01-01"):
            with pytest.raises(DatabaseError, match="is a hot standby") as caught:
                standby.snapshot(as_of)
            assert "Connect to the primary" in str(caught.value)
    assert pair.primary.snapshot(tx.id).versions == known


def test_standby_gives_the_cut_of_a_tag(pair: Pair) -> None:
    with pair.primary.begin() as tx:
        tx.write("tagged", pa.table({"id": [1]}))
    pair.primary.tag("q3", tx.id)
    pair.primary.write("tagged", pa.table({"id": [2]}))
    with deltars.connect(pair.standby_uri) as standby:
        _await(standby, pair.primary.snapshot().versions)
        assert standby.snapshot("q3").versions["tagged"] == 0
        assert standby.table("tagged").to_arrow(as_of="q3").num_rows == 1


def test_write_to_a_standby_is_refused_by_name(pair: Pair) -> None:
    with deltars.connect(pair.standby_uri) as standby:
        pair.primary.create_table("written", "id BIGINT")
        _await(standby, pair.primary.snapshot().versions)
        attempts: list[Callable[[], object]] = [
            lambda: standby.write("written", pa.table({"id": [1]})),
            lambda: standby.create_table("new", "id BIGINT"),
            lambda: standby.drop_table("written"),
            lambda: standby.rename_table("written", "other"),
        ]
        for attempt in attempts:
            with pytest.raises(DatabaseError, match="refuses writes: the server is a standby or read-only") as caught:
                attempt()
            assert caught.value.sqlstate == "25006"
            assert not caught.value.retryable
            assert "Connect to the primary" in str(caught.value)
    assert pair.primary.table("written").version == 0
