"""Whatever is done, the storage or the database fails at any call of it, or the process dies or hangs there.

After each fault every promise holds, before and after repair. The same work, done again, gets to its end. The points go
on to one call more than the work makes: there it must get through.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import deltars
from tests.catalog.test_undo_crashes import repaired
from tests.faults.audit import Auditor
from tests.faults.failpoints import Point, count, fail_at, points
from tests.faults.operations import OPERATIONS, Lake
from tests.support.campaign import Rounds
from tests.support.soak import is_soak, record

pytestmark = pytest.mark.xdist_group("races")


@pytest.mark.promise("N1", "N2", "N3", "N4", "N5", "N6", "N7")
@pytest.mark.campaign(rounds=1, weight=0.5)
@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("name", OPERATIONS)
def test_fault_at_any_call_breaks_no_promise_and_the_work_can_be_done_again(
    name: str, migrated_uri: str, backend: str, tmp_path: Path, rounds: Rounds
) -> None:
    lake, operation = Lake(migrated_uri, tmp_path / "lake", rounds.lot), OPERATIONS[name]
    lake.create()
    auditor = Auditor(lake.journals)

    def settle() -> None:
        """Audit what a fault has left, do the work again, and make the next piece of work."""
        with deltars.connect(lake.uri) as catalog:
            assert auditor.audit(catalog) == [], point
            operation.recover(lake, catalog)
            repaired(catalog)
            operation.work(lake, catalog)
            assert auditor.audit(catalog) == [], point
            operation.check(lake, catalog)
            operation.prepare(lake, catalog)

    def meanwhile() -> None:
        """While one process hangs, another reads, and writes or is told why it cannot."""
        if backend != "duckdb":
            with deltars.connect(lake.uri, timeout=1) as catalog:
                catalog.table("left").to_arrow()
                lake.pay(catalog, "pay")

    with deltars.connect(lake.uri) as catalog:
        operation.prepare(lake, catalog)
    calls = count(lake.uri, lambda catalog: operation.work(lake, catalog))
    point: Point | None = None
    settle()
    # Others wait for one that hangs, until their time is up: that takes seconds. DuckDB has no other process.
    waiting = [one for one in points(calls) if one.fault != "hang" or (is_soak() and backend != "duckdb")]
    tried, total = 0, len(waiting)
    rounds.lot.shuffle(waiting)
    for _ in rounds:
        if not waiting:
            break
        point = waiting.pop()
        fail_at(point, lake.uri, lambda catalog: operation.work(lake, catalog), meanwhile)
        settle()
        tried += 1
    record(f"failpoints of {name}, {backend}", calls=sum(calls.values()), points=total, tried=tried, broken=0)
