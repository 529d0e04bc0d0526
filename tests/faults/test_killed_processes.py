"""Processes that write, change rows and maintain are killed at any moment: every promise holds, also before repair."""

from __future__ import annotations

from pathlib import Path

import pytest

import deltars
from tests.catalog.test_undo_crashes import repaired
from tests.faults.audit import Auditor
from tests.faults.clients import create_tables
from tests.faults.crew import Crew
from tests.support.campaign import Rounds
from tests.support.soak import is_soak, record, scaled

pytestmark = [
    pytest.mark.xdist_group("races"),
    # `make test` kills a whole PostgreSQL server, and its clients with it, in test_killed_server.py.
    pytest.mark.backends(*(["postgres", "sqlite", "duckdb"] if is_soak() else ["sqlite"])),
]

CLIENTS = 3


@pytest.mark.promise("N1", "N2", "N3", "N4", "N5", "N6", "N7")
@pytest.mark.campaign(rounds=1, weight=2)
def test_killed_processes_lose_nothing_and_leave_no_half(
    catalog: deltars.Catalog, catalog_uri: str, backend: str, tmp_path: Path, rounds: Rounds
) -> None:
    directory = tmp_path / "journals"
    directory.mkdir()
    create_tables(catalog)
    catalog.close()
    auditor, kills, committed = Auditor(directory), 0, 0
    for _ in rounds:
        with Crew(catalog_uri, directory, clients=CLIENTS, lot=rounds.lot) as crew:
            crew.wait_for(scaled(5, soak=20))
            crew.kill(scaled(2, soak=6))
            crew.wait_for(scaled(5, soak=20))
        kills += scaled(2, soak=6) + (1 if backend == "duckdb" else CLIENTS + 1)
        committed = crew.committed()
        with deltars.connect(catalog_uri) as opened:
            assert auditor.audit(opened) == []
            repaired(opened)
            assert auditor.audit(opened) == []
            assert [finding for table in opened.tables() for finding in table.verify().findings] == []
    record(f"processes killed, {backend}", kills=kills, transactions=committed, lost=0)
