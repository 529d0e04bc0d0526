"""PostgreSQL is killed under its writers, forgets what it acknowledged, or a standby without all of it is promoted."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

import deltars
from deltars.errors import LogDiverged
from deltars.store.mirror.status import MirrorState
from deltars.uri import parse_catalog_uri
from tests.catalog.test_undo_crashes import repaired
from tests.faults.audit import Auditor, promises
from tests.faults.clients import TABLES, Client, create_tables
from tests.faults.crew import Crew
from tests.support.campaign import Rounds
from tests.support.postgres import URL_VARIABLE, KillableServer, PostgresServer, killable_server, standby_of
from tests.support.soak import record, scaled
from tests.support.templates import CatalogTemplates

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.xdist_group("races"),
    pytest.mark.skipif(URL_VARIABLE in os.environ, reason="these tests kill servers: they need their own"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[KillableServer]:
    with killable_server("killed", wal_writer_delay="10s") as started:
        yield started


@pytest.fixture
def uri(server: KillableServer, catalog_templates: CatalogTemplates) -> str:
    uri = server.server.create_catalog_uri(server.server.create_database("killed"))
    catalog_templates.lay_out(uri)
    return uri


@pytest.fixture
def auditor(uri: str, tmp_path: Path) -> Auditor:
    (tmp_path / "journals").mkdir()
    with deltars.connect(uri, warehouse=str(tmp_path / "warehouse")) as catalog:
        create_tables(catalog)
    return Auditor(tmp_path / "journals")


@pytest.mark.promise("N1", "N2", "N3", "N4", "N5", "N6", "N7")
@pytest.mark.campaign(rounds=1, weight=6, soak=500)
def test_killed_postmaster_loses_nothing_that_was_acknowledged(
    server: KillableServer, uri: str, auditor: Auditor, rounds: Rounds
) -> None:
    kills = scaled(1, soak=3)
    committed = 0
    for _ in rounds:
        with Crew(uri, auditor.directory, clients=3, lot=rounds.lot, timeout=20) as crew:
            for _ in range(kills):
                crew.wait_for(rounds.lot.randint(1, scaled(10, soak=30)))
                server.kill(everyone=rounds.lot.random() < 0.5)
                server.start()
            crew.wait_for(3)
        committed = crew.committed()
        with deltars.connect(uri) as catalog:
            assert auditor.audit(catalog) == []
            repaired(catalog)
            assert auditor.audit(catalog) == []
    record("postmaster killed", kills=rounds.done * kills, transactions=committed, lost=0)


@pytest.mark.control("N1", "N6")
def test_server_that_acknowledges_too_early_is_found_out(server: KillableServer, uri: str, auditor: Auditor) -> None:
    """With `synchronous_commit` off the server says that it has committed, and may forget it."""
    database = parse_catalog_uri(uri).database
    with server.server.connect() as connection:
        connection.execute(f'ALTER DATABASE "{database}" SET synchronous_commit = off'.encode())
    with deltars.connect(uri) as catalog:
        client = Client(catalog, auditor.directory, 1, random.Random(1))
        for _ in range(5):
            assert client.step("pay")
        client.close()
        server.kill(everyone=True)
    server.start()
    with deltars.connect(uri) as catalog:
        assert {"N1", "N6"} <= promises(auditor.audit(catalog))


@pytest.mark.promise("N5", "N6")
def test_standby_that_lacks_commits_is_found_out_and_overwrites_nothing(
    server: KillableServer, uri: str, auditor: Auditor
) -> None:
    with deltars.connect(uri) as primary, standby_of(server.server) as standby:
        client = Client(primary, auditor.directory, 1, random.Random(1))
        assert client.step("pay")
        _cut_off(server.server, standby)
        assert client.step("pay")
        assert client.step("pay")
        client.close()
        promoted = standby.catalog_uri(parse_catalog_uri(uri).database, str(parse_catalog_uri(uri).schema))
        with standby.connect() as connection:
            connection.execute("SELECT pg_promote()")
        with deltars.connect(promoted) as catalog:
            before = _published(catalog)
            assert catalog.table("left").version < primary.table("left").version
            assert {status.state for status in catalog.mirror_status()} == {MirrorState.DIVERGED}
            late = Client(catalog, auditor.directory, 2, random.Random(1))
            assert not late.step("pay")
            late.close()
            assert late.errors == {LogDiverged.__name__: 1}
            with pytest.raises(LogDiverged):
                catalog.table("left").vacuum()
            assert _published(catalog) == before
            # The way on: what was published is the truth.
            for name in TABLES:
                catalog.accept_log(name)
            assert auditor.audit(catalog) == []
            again = Client(catalog, auditor.directory, 3, random.Random(1))
            assert again.step("pay")
            again.close()
            assert auditor.audit(catalog) == []


def _published(catalog: deltars.Catalog) -> dict[str, bytes]:
    """Every file of every log, with its bytes."""
    logs = [Path(table.location) / "_delta_log" for table in catalog.tables()]
    return {str(path): path.read_bytes() for log in logs for path in log.iterdir() if path.is_file()}


def _cut_off(primary: PostgresServer, standby: PostgresServer) -> None:
    """Let the standby have all there is, and nothing from then on."""
    with primary.connect() as connection:
        [(written,)] = connection.execute("SELECT pg_current_wal_lsn()::text")
    with standby.connect() as connection:
        _wait(connection, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written)
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
        _wait(connection, "SELECT count(*) = 0 FROM pg_stat_wal_receiver")


def _wait(connection: psycopg.Connection[tuple[Any, ...]], query: LiteralString, *parameters: str) -> None:
    deadline = time.monotonic() + 30
    while not connection.execute(query, parameters).fetchall()[0][0]:
        assert time.monotonic() < deadline, query
        time.sleep(0.02)
