"""Outside readers poll the log while processes commit to it and are killed: there is never a gap or a torn version."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import deltars
from deltars.storage.local import LocalStorage
from tests.catalog.test_undo_crashes import repaired
from tests.faults.audit import Auditor
from tests.faults.clients import TABLES, Client, create_tables
from tests.faults.crew import Crew
from tests.faults.pollers import Pollers
from tests.support.campaign import Rounds
from tests.support.soak import is_soak, record, scaled

pytestmark = [
    pytest.mark.xdist_group("races"),
    pytest.mark.backends(*(["postgres", "sqlite"] if is_soak() else ["sqlite"])),
]


@pytest.fixture
def auditor(catalog: deltars.Catalog, tmp_path: Path) -> Auditor:
    create_tables(catalog)
    (tmp_path / "journals").mkdir()
    return Auditor(tmp_path / "journals")


def _places(catalog: deltars.Catalog) -> dict[str, Path]:
    return {name: Path(catalog.table(name).location) for name in TABLES}


@pytest.mark.promise("N6")
@pytest.mark.campaign(rounds=1, weight=4)
def test_readers_of_the_log_see_whole_versions_in_order(
    catalog: deltars.Catalog, catalog_uri: str, backend: str, auditor: Auditor, rounds: Rounds
) -> None:
    places = _places(catalog)
    catalog.close()
    looks = committed = 0
    for _ in rounds:
        with (
            Pollers(places) as pollers,
            # A vacuum without retention deletes what a slow reader is reading.
            Crew(catalog_uri, auditor.directory, clients=2, lot=rounds.lot, maintains=False) as crew,
        ):
            for _ in range(scaled(1, soak=5)):
                crew.wait_for(scaled(4, soak=30))
                crew.kill(1)
        committed = crew.committed()
        looks += pollers.looks
        assert pollers.problems == []
        with deltars.connect(catalog_uri) as opened:
            for (name, version), seen in pollers.seen.items():
                ids = sorted(opened.table(name).to_arrow(version=version)["id"].to_pylist())
                assert seen == {tuple(ids)}, (name, version)
            repaired(opened)
            assert auditor.audit(opened) == []
            for name in TABLES:
                opened.table(name).optimize()
    record(f"outside readers, {backend}", looks=looks, commits=committed, torn=0, unreadable=0)


@pytest.mark.control("N6")
@pytest.mark.backends("sqlite")
def test_log_that_is_written_bit_by_bit_is_seen_torn(catalog: deltars.Catalog, auditor: Auditor) -> None:
    def put_slowly(self: LocalStorage, path: str, data: bytes, **_: Any) -> bool:
        file = Path(self.location.path) / path
        file.write_bytes(data[: len(data) // 2])
        time.sleep(0.2)
        file.write_bytes(data)
        return True

    client = Client(catalog, auditor.directory, 1, random.Random(1))
    with Pollers(_places(catalog)) as pollers, mock.patch.object(LocalStorage, "put_if_absent", put_slowly):
        for _ in range(3):
            client.step("pay")
    client.close()
    assert pollers.problems
