"""Random transactions of many clients, judged from outside: none does what its level forbids, and planted bugs show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

import pytest

import deltars
from deltars.config import ISOLATION_LEVELS, Isolation
from tests.checker import anomalies, sabotage
from tests.checker.anomalies import find_anomalies, kinds
from tests.checker.history import History
from tests.checker.rows import AMENDS, INSERTS, run_row_workload, run_rows_in_turn
from tests.checker.second_opinion import confirm
from tests.checker.workload import ANYTHING, CROSSWISE, ONE_TABLE, run_workload
from tests.support.groups import gathering
from tests.support.racers import unpublished
from tests.support.soak import is_soak, record, scaled, seed

# Many processes on few cores: not beside other tests.
pytestmark = pytest.mark.xdist_group("races")

CONFLICTS = {
    "VersionConflict",
    "ConcurrentAppend",
    "ConcurrentDeleteRead",
    "ConcurrentDeleteDelete",
}
"""What may happen to a transaction, and nothing else."""

Histories: TypeAlias = Sequence[tuple[History, Counter[str]]]
"""Histories, each with the errors that its clients met."""


@pytest.mark.soak
@pytest.mark.timeout(36_000)
@pytest.mark.promise("N1", "N2", "N3")
def test_random_transactions_show_no_anomaly_that_their_level_forbids(
    catalog: deltars.Catalog, catalog_uri: str, backend: str
) -> None:
    clients, count = (8, 100) if is_soak() else (4, 10)

    def play(number: int) -> Histories:
        histories = run_workload(
            catalog,
            catalog_uri,
            ISOLATION_LEVELS,
            clients=clients,
            count=count,
            seed=seed() + number,
            tables=3 if is_soak() else 2,
            first=number * len(ISOLATION_LEVELS),
        )
        assert all(len(history.txns) == clients * count for history, _ in histories)
        return histories

    _check_rounds(play, clients, backend).record(f"histories checked, {backend}")


def _check_rounds(play: Callable[[int], Histories], clients: int, backend: str) -> Tally:
    """Check the histories of all rounds. Each has 3,200 transactions in a soak run, and a whole run has 200,000."""
    tally = Tally(clients)
    for number in range(scaled(1, soak=1 if backend == "duckdb" else 63)):
        tally.check(play(number))
    return tally


@dataclass(slots=True)
class Tally:
    """Check the histories of each round, and count them."""

    clients: int
    histories: int = 0
    transactions: int = 0
    committed: int = 0
    confirmed: int = 0

    def check(self, histories: Histories) -> None:
        for history, errors in histories:
            found = find_anomalies(history)
            assert found == [], f"seed {seed()}, {history.level}"
            assert set(errors) <= CONFLICTS
            assert len(history.committed) > len(history.txns) / 10
            self.histories += 1
            self.transactions += len(history.txns)
            self.committed += len(history.committed)
        self.confirmed += confirm(history for history, _ in histories)

    def record(self, name: str) -> None:
        record(
            name,
            levels=len(ISOLATION_LEVELS),
            clients=self.clients,
            transactions=self.transactions,
            committed=self.committed,
            anomalies=0,
            histories=self.histories,
            confirmed=self.confirmed,
        )


def _with_bug(
    catalog: deltars.Catalog,
    uri: str,
    bug: Callable[[], AbstractContextManager[object]],
    level: Isolation,
    mix: Mapping[str, int] = ANYTHING,
) -> set[str]:
    [(history, _)] = run_workload(
        catalog, uri, [level], clients=4, count=scaled(25, soak=200), seed=seed(), tables=2, mix=mix, sabotage=bug
    )
    return kinds(find_anomalies(history))


# What holds transactions apart differs. PostgreSQL locks rows, those that are only read too. DuckDB lets one thread
# write at a time, and that turn stands for both locks. SQLite has no such bug to plant: who does not BEGIN IMMEDIATE
# is refused by the database as soon as it writes after somebody else (SQLITE_BUSY_SNAPSHOT).


@pytest.mark.soak
@pytest.mark.backends("duckdb")
def test_missing_turn_is_found(catalog: deltars.Catalog, catalog_uri: str) -> None:
    assert anomalies.WRITE_SKEW in _with_bug(catalog, catalog_uri, sabotage.no_turn, "strict", CROSSWISE)


@pytest.mark.soak
@pytest.mark.backends("postgres")
def test_missing_lock_is_found(catalog: deltars.Catalog, catalog_uri: str) -> None:
    assert anomalies.WRITE_SKEW in _with_bug(catalog, catalog_uri, sabotage.no_lock, "strict", CROSSWISE)


@pytest.mark.soak
@pytest.mark.backends("postgres")
def test_missing_read_lock_is_found(catalog: deltars.Catalog, catalog_uri: str) -> None:
    assert anomalies.WRITE_SKEW in _with_bug(catalog, catalog_uri, sabotage.no_read_lock, "serializable", CROSSWISE)


@pytest.mark.soak(on=["duckdb"])
@pytest.mark.backends("postgres", "duckdb")
def test_pauses_of_planted_bugs_alone_break_nothing(catalog: deltars.Catalog, catalog_uri: str) -> None:
    assert _with_bug(catalog, catalog_uri, sabotage.pauses, "serializable", CROSSWISE) == set()


@pytest.mark.soak(on=["sqlite", "duckdb"])
@pytest.mark.control("N1")
def test_missing_version_check_is_found(catalog: deltars.Catalog, catalog_uri: str) -> None:
    found = _with_bug(catalog, catalog_uri, sabotage.no_version_check, "strict")
    assert found & {anomalies.LOST_UPDATE, anomalies.SINGLE}


@pytest.mark.soak(on=["sqlite", "duckdb"])
@pytest.mark.control("N3")
def test_missing_cut_is_found(catalog: deltars.Catalog, catalog_uri: str) -> None:
    found = _with_bug(catalog, catalog_uri, sabotage.no_cut, "snapshot")
    assert found & {anomalies.FRACTURED_READ, anomalies.UNREPEATABLE_READ, anomalies.SINGLE}


# -- groups ------------------------------------------------------------------------------------------------------------


def _in_threads(
    catalog: deltars.Catalog,
    uri: str,
    levels: Sequence[Isolation],
    sabotage: Callable[[], AbstractContextManager[object]] = unpublished,
) -> tuple[Histories, list[int]]:
    """Histories of threads on one table, and the sizes of the groups that their appends were committed in."""
    with gathering(1) as sizes:
        histories = run_workload(
            catalog,
            uri,
            levels,
            clients=6,
            count=scaled(12, soak=200),
            seed=seed(),
            tables=1,
            mix=ONE_TABLE,
            sabotage=sabotage,
            in_threads=True,
        )
    return histories, sizes


@pytest.mark.soak
@pytest.mark.promise("N1", "N2", "N3")
def test_groups_of_threads_show_no_anomaly_that_their_level_forbids(catalog: deltars.Catalog, catalog_uri: str) -> None:
    histories, sizes = _in_threads(catalog, catalog_uri, ["serializable", "write_serializable", "snapshot"])
    for history, errors in histories:
        assert find_anomalies(history) == [], f"seed {seed()}, {history.level}"
        assert set(errors) <= CONFLICTS
        assert len(history.committed) > len(history.txns) / 10
    assert max(sizes) > 1
    confirm(history for history, _ in histories)


@pytest.mark.backends("postgres")
@pytest.mark.control("N1")
def test_reader_that_joins_a_group_is_found(catalog: deltars.Catalog, catalog_uri: str) -> None:
    [(history, _)], _ = _in_threads(catalog, catalog_uri, ["serializable"], sabotage.everything_is_blind)
    assert kinds(find_anomalies(history)) & {anomalies.LOST_UPDATE, anomalies.SINGLE, anomalies.WRITE_SKEW}


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(36_000)
@pytest.mark.promise("N1", "N2", "N3")
def test_random_changes_of_rows_show_no_anomaly_that_their_level_forbids(
    catalog: deltars.Catalog, catalog_uri: str, backend: str
) -> None:
    clients, count = (8, 100) if is_soak() else (3, 8)

    def play(number: int) -> Histories:
        return run_row_workload(
            catalog,
            catalog_uri,
            ISOLATION_LEVELS,
            clients=clients,
            count=count,
            seed=seed() + number,
            first=number * len(ISOLATION_LEVELS),
        )

    _check_rounds(play, clients, backend).record(f"histories of rows checked, {backend}")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("bug", "mix", "kind"),
    [
        (sabotage.no_row_reads, INSERTS, anomalies.LOST_UPDATE),
        (sabotage.no_union, AMENDS, anomalies.REPEATED_VALUE),
        (sabotage.first_obstacle_only, INSERTS, anomalies.LOST_UPDATE),
        (sabotage.head_not_judged, INSERTS, anomalies.LOST_UPDATE),
        (unpublished, INSERTS, None),
        (unpublished, AMENDS, None),
    ],
)
@pytest.mark.control("N1", "N2")
def test_rule_of_rows_that_is_missing_is_found(
    catalog: deltars.Catalog,
    bug: Callable[[], AbstractContextManager[object]],
    mix: Mapping[str, int],
    kind: str | None,
) -> None:
    """Who commits after whom is fixed, so that it does not depend on the machine what is found."""
    history = run_rows_in_turn(catalog, "serializable", clients=4, count=8, seed=1, mix=mix, sabotage=bug)
    found = kinds(find_anomalies(history))
    assert kind in found if kind else not found
    assert len(history.committed) > 8
