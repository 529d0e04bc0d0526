"""Random transactions, as in `tests/checker`, while statements fail and connections break under them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

import deltars
from deltars.config import ISOLATION_LEVELS
from deltars.uri import parse_catalog_uri
from tests.checker.anomalies import LOST_WRITE, find_anomalies, kinds
from tests.checker.rows import run_row_workload
from tests.checker.second_opinion import confirm
from tests.checker.test_histories import CONFLICTS
from tests.checker.workload import run_workload
from tests.support.campaign import Rounds
from tests.support.postgres import PostgresServer
from tests.support.racers import unpublished
from tests.support.soak import is_soak, record, scaled
from tests.support.tap import tapped
from tests.support.wire import Verdict, tapped_wire

pytestmark = [
    pytest.mark.xdist_group("races"),
    pytest.mark.backends(*(["postgres", "sqlite"] if is_soak() else ["postgres"])),
]

FAULTS = CONFLICTS | {"DatabaseError", "TimeoutError", "CommitUnknown"}
ONE_IN = 600
"""Messages, or statements, one of which goes wrong."""
TO_CONNECT = 150
"""Messages of a client before anything goes wrong: to open the catalog is not what is tried."""
DEFAULTS = ("read committed", "repeatable read", "serializable")


@contextmanager
def failing_statements() -> Iterator[None]:
    """In one process, one statement in many fails; SQLite has no connection that could break."""
    lot = random.Random()

    def judge(_: str) -> Verdict:
        is_open = len(tap.statements) > TO_CONNECT
        return Verdict.FAIL if is_open and lot.randrange(ONE_IN) == 0 else Verdict.PASS

    with unpublished(), tapped("deltasql://sqlite/any.db") as tap, tap.judging(judge):
        yield


@contextmanager
def all_is_committed() -> Iterator[None]:
    """A client that takes every failed commit for one that succeeded."""
    commit = deltars.Transaction.commit

    def told(self: deltars.Transaction) -> object:
        try:
            return commit(self)
        except deltars.DeltarsError:
            return mock.Mock(versions=dict.fromkeys(("list-0-0", "list-0-1"), 10_000))

    with unpublished(), mock.patch.object(deltars.Transaction, "commit", told):
        yield


@contextmanager
def _faulty(uri: str, clients: int, rounds: Rounds) -> Iterator[str]:
    """The way to a catalog on which now and then a connection breaks."""
    if parse_catalog_uri(uri).backend != "postgres":
        yield uri
        return
    with tapped_wire(uri) as (tapped_uri, wire):
        wire.cuts_at = lambda number: number > clients * TO_CONNECT and rounds.lot.randrange(ONE_IN) == 0
        yield tapped_uri


@pytest.mark.promise("N1", "N2", "N3", "N7")
@pytest.mark.campaign(rounds=1, weight=5)
def test_transactions_under_faults_show_no_anomaly_that_their_level_forbids(
    catalog: deltars.Catalog, catalog_uri: str, backend: str, rounds: Rounds, request: pytest.FixtureRequest
) -> None:
    clients, count = scaled(3, soak=6), scaled(8, soak=60)
    transactions = committed = faults = checked = confirmed = 0
    for number in rounds:
        default = rounds.lot.choice(DEFAULTS)
        if backend == "postgres":
            _set_default(request.getfixturevalue("postgres_server"), catalog, default)
        levels = rounds.lot.sample(ISOLATION_LEVELS, scaled(1, soak=4))
        run = rounds.lot.choice([run_workload, run_row_workload])
        sabotage = unpublished if backend == "postgres" else failing_statements
        with _faulty(catalog_uri, clients, rounds) as uri:
            histories = run(
                catalog,
                uri,
                levels,
                clients=clients,
                count=count,
                seed=rounds.lot.randrange(2**32),
                tables=2,
                sabotage=sabotage,
                first=number * len(levels),
            )
        for history, errors in histories:
            assert find_anomalies(history) == [], f"{history.level}, {default}"
            assert set(errors) <= FAULTS
            transactions += len(history.txns)
            committed += len(history.committed)
            faults += sum(errors[name] for name in FAULTS - CONFLICTS)
        checked += len(histories)
        confirmed += confirm(history for history, _ in histories)
    record(
        f"histories under faults, {backend}",
        transactions=transactions,
        committed=committed,
        faults=faults,
        anomalies=0,
        histories=checked,
        confirmed=confirmed,
    )


def _set_default(server: PostgresServer, catalog: deltars.Catalog, level: str) -> None:
    """Of sessions from here on; the catalog's own are opened again."""
    with server.connect() as connection:
        name = parse_catalog_uri(catalog.uri).database
        connection.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{level}'".encode())
    catalog.close()


@pytest.mark.control("N1", "N7")
@pytest.mark.backends("sqlite")
def test_client_that_is_told_a_lie_is_found_out(catalog: deltars.Catalog, catalog_uri: str) -> None:
    [(history, _)] = run_workload(
        catalog, catalog_uri, ["strict"], clients=2, count=12, seed=1, tables=2, sabotage=all_is_committed
    )
    assert LOST_WRITE in kinds(find_anomalies(history))
