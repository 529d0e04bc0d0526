"""Servers that end sessions, speak another language, stand behind a pooler, run out of connections or of time."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from sqlalchemy import text

import deltars
from deltars.uri import CatalogUri, parse_catalog_uri
from tests.faults.audit import Auditor
from tests.faults.clients import Client, create_tables
from tests.support.campaign import Rounds
from tests.support.clock import clock_of
from tests.support.soak import record, scaled
from tests.support.wire import tapped_wire
from tests.support.witness import postgres_connection

pytestmark = [pytest.mark.backends("postgres"), pytest.mark.promise("N1", "N3", "N7")]

HOUR_S = 3_600.0
CONFLICTS = {"ConcurrentAppend", "ConcurrentDeleteRead", "ConcurrentDeleteDelete"}


@pytest.fixture
def auditor(catalog: deltars.Catalog, tmp_path: Path) -> Auditor:
    create_tables(catalog)
    (tmp_path / "journals").mkdir()
    return Auditor(tmp_path / "journals")


@pytest.mark.campaign(rounds=1)
def test_sessions_that_an_administrator_ends_lose_nothing(
    catalog: deltars.Catalog, catalog_uri: str, auditor: Auditor, rounds: Rounds
) -> None:
    client = Client(catalog, auditor.directory, 1, rounds.lot)
    ended = steps = 0
    for _ in rounds:
        with _ending_sessions(catalog_uri, rounds.lot) as count:
            done = client.committed
            while not count[0] or client.committed < done + scaled(5, soak=60):
                client.step()
                steps += 1
        ended += count[0]
        assert auditor.audit(catalog) == []
    client.close()
    record("sessions ended by an administrator", ended=ended, transactions=steps, untrue=0)


@contextmanager
def _ending_sessions(uri: str, lot: random.Random) -> Iterator[list[int]]:
    """End one session of deltars' after the other, a few times a second, and wait until each is gone."""
    stop, count = threading.Event(), [0]

    def end() -> None:
        with postgres_connection(parse_catalog_uri(uri)) as session:
            while not stop.wait(lot.uniform(0.05, 0.6)):
                ended = session.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name LIKE 'deltars%' ORDER BY random() LIMIT 1"
                ).fetchall()
                count[0] += len(ended)

    thread = threading.Thread(target=end)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()


def test_server_that_speaks_another_language_is_understood(
    catalog: deltars.Catalog, catalog_uri: str, auditor: Auditor
) -> None:
    """Every text of every error is translated on the wire, as by any `lc_messages`; only codes stay."""
    with tapped_wire(catalog_uri) as (uri, wire), deltars.connect(uri, timeout=20) as foreign:
        wire.translates = True
        client = Client(foreign, auditor.directory, 1, random.Random(1))
        for kind in ("pay", "amend", "cancel", "pay"):
            assert client.step(kind)
        before = wire.messages
        assert client.step("pay")
        length = wire.messages - before
        # Conflicts, names that are taken, lost connections and time-outs are told apart by their codes.
        with pytest.raises(deltars.TableExists):
            foreign.create_table("left", "id BIGINT")
        for distance in range(length - 10, length + 1):
            wire.cuts_at = {wire.messages + distance}.__contains__
            client.step("pay")
        wire.cuts_at = lambda number: False
        client.close()
        tx = foreign.begin(timeout=0.5)
        tx.delete("left", "true")
        with _locked(catalog_uri), pytest.raises(deltars.TimeoutError):
            tx.commit()
    assert auditor.audit(catalog) == []


@contextmanager
def _locked(uri: str) -> Iterator[None]:
    """Another session holds the rows of all tables."""
    with postgres_connection(parse_catalog_uri(uri)) as session, session.transaction():
        session.execute("SELECT 1 FROM dl_tables FOR UPDATE")
        yield


def test_pool_that_is_used_up_is_said_and_changes_nothing(
    catalog: deltars.Catalog, catalog_uri: str, auditor: Auditor
) -> None:
    with deltars.connect(catalog_uri, pool_size=1, pool_timeout=0.3) as small:
        client = Client(small, auditor.directory, 1, random.Random(1))
        assert client.step("pay")
        with small._session.database.write(10):
            assert not client.step("pay")
        assert set(client.errors) <= {"TimeoutError", "DatabaseError"}
        assert client.step("pay")
        client.close()
    assert auditor.audit(catalog) == []


def test_clock_an_hour_off_and_set_back_orders_nothing_wrongly(catalog: deltars.Catalog, auditor: Auditor) -> None:
    client = Client(catalog, auditor.directory, 1, random.Random(1))
    with clock_of(catalog) as clock:
        for offset_s in (0.0, HOUR_S, -HOUR_S, 0.0):
            clock.set(offset_s)
            assert client.step("pay")
            assert client.step("amend")
    client.close()
    assert auditor.audit(catalog) == []
    for table in catalog.tables():
        stamps = [entry.commit_ts for entry in table.history()]
        assert stamps == sorted(stamps, reverse=True)
        assert len(set(stamps)) == len(stamps)


def test_pooler_in_front_of_the_server_changes_nothing(
    catalog: deltars.Catalog, catalog_uri: str, auditor: Auditor
) -> None:
    with _pgbouncer(catalog_uri) as uri, deltars.connect(uri, timeout=20) as pooled:
        clients = [Client(pooled, auditor.directory, number, random.Random(number)) for number in (1, 2)]
        threads = [threading.Thread(target=lambda one=one: [one.step() for _ in range(8)]) for one in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(client.committed for client in clients) > 4
        for client in clients:
            assert set(client.errors) <= CONFLICTS
            client.close()
    assert auditor.audit(catalog) == []


def test_pooler_of_transactions_serves_or_refuses_and_runs_no_statement_of_another_client(
    catalog: deltars.Catalog, catalog_uri: str, auditor: Auditor
) -> None:
    """Without support for prepared statements, a session has those of any client, or lacks them."""
    with _pgbouncer(catalog_uri, "transaction") as uri:
        errors: set[str] = set()

        def work(number: int) -> None:
            # They prepare statements in another order each, and meet in a few sessions.
            with deltars.connect(uri, timeout=20, pool_size=2) as one:
                client = Client(one, auditor.directory, number, random.Random(number))
                for _ in range(6):
                    client.step()
                errors.update(client.errors)
                client.close()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors <= {*CONFLICTS, "DatabaseError"}
        with deltars.connect(uri, pool_size=1) as one, postgres_connection(parse_catalog_uri(uri)) as other:
            one.tables()
            # The other client takes the session in which the statement was prepared.
            said, names = "", {"left", "right"}
            with other.transaction():
                other.execute("SELECT 1")
                try:
                    names = {table.name for table in one.tables()}
                except deltars.DatabaseError as refusal:
                    said = f"{refusal.sqlstate} {refusal}"
    assert names == {"left", "right"}
    assert not said or all(text in said for text in ("26000", "PgBouncer 1.21", "session pooling"))
    # Whatever was said to the clients is true.
    assert auditor.audit(catalog) == []


def test_statement_has_a_name_of_its_text(catalog: deltars.Catalog, catalog_uri: str, auditor: Auditor) -> None:
    with deltars.connect(catalog_uri, pool_size=1) as other:
        prepared: list[dict[str, str]] = []
        for one in (catalog, other):
            one.write("left", pa.table({"id": [1], "state": ["paid"]}))
            with one._session.database.read() as connection:
                query = text("SELECT name, statement FROM pg_prepared_statements WHERE name LIKE 'deltars%'")
                prepared.append({row.name: row.statement for row in connection.execute(query)})
    first, second = prepared
    assert first.keys() & second.keys()
    assert all(first[name] == second[name] for name in first.keys() & second.keys())
    assert len({*first.values(), *second.values()}) == len(first.keys() | second.keys())


@contextmanager
def _pgbouncer(uri: str, mode: str | None = None, more: str = "") -> Iterator[str]:
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed (apt-get install pgbouncer)")
    words = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()
    version = tuple(int(part) for part in words[1].split(".")[:2])
    if mode is None:
        # Statements that are prepared by name pass a pool of transactions from 1.21 on.
        mode, more = ("transaction", "max_prepared_statements = 100\n") if version >= (1, 21) else ("session", "")
    direct = parse_catalog_uri(uri)
    # Root lends it another account, which has to get in; and a socket's path has to be short.
    directory = Path(tempfile.mkdtemp(prefix="pooler-"))
    directory.chmod(0o777)
    account = "user = nobody\n" if os.geteuid() == 0 else ""
    (directory / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={direct.parameters['host']} port=5432 user=postgres\n"
        f"[pgbouncer]\nunix_socket_dir = {directory}\nlisten_port = 6432\nlisten_addr =\nauth_type = any\n"
        f"pool_mode = {mode}\n{more}default_pool_size = 8\nignore_startup_parameters = extra_float_digits,options\n"
        f"{account}"
    )
    pooler = subprocess.Popen([program, str(directory / "pgbouncer.ini")], stderr=subprocess.DEVNULL)
    try:
        _wait_for(directory / ".s.PGSQL.6432")
        parameters = MappingProxyType({**direct.parameters, "host": str(directory), "port": "6432"})
        yield CatalogUri("postgres", direct.database, direct.schema, parameters).with_secrets()
    finally:
        pooler.terminate()
        pooler.wait(10)
        shutil.rmtree(directory)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)
