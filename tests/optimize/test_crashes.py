"""OPTIMIZE killed, or failing, before any call to the storage or the database: rows stay, and the next run goes on."""

from __future__ import annotations

import signal

import pyarrow as pa
import pytest
from sqlalchemy import update

import deltars
from deltars.data import reader as reader_module
from deltars.data import writer as writer_module
from deltars.storage import parse_location
from deltars.store.schema import dl_mirror_status
from deltars.transaction import optimize as optimize_module
from tests.mirror.steps import DyingAt, FailingAt, Step, SteppingStorage, stepping, stepping_statements
from tests.support.children import in_child
from tests.support.soak import record, scaled, seed

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.soak, pytest.mark.timeout(scaled(300, soak=3_600))]


def fill(catalog: deltars.Catalog, first: int) -> None:
    for number in range(3):
        ids = [first + 2 * number, first + 2 * number + 1]
        catalog.write("t", pa.table({"id": ids, "p": ["a", "b"]}))


def counted(root: str, step: Step) -> SteppingStorage:
    storage = SteppingStorage(parse_location(root))
    storage.step, storage.after = step, lambda what, path: None
    return storage


def work(uri: str, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimize in several steps, by files whose every byte is written through a counting storage."""
    with (
        stepping(monkeypatch, step),
        stepping_statements(monkeypatch, step),
        monkeypatch.context() as patch,
        deltars.connect(uri) as catalog,
    ):
        for module in (writer_module, reader_module):
            patch.setattr(module, "open_storage", lambda root, _: counted(root, step))
        patch.setattr(optimize_module, "STEP_BYTES", 1)
        catalog.table("t").optimize()


@pytest.mark.promise("N5")
def test_interrupted_optimize_loses_no_row_and_the_next_run_finishes(
    migrated_uri: str, catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("t", "id BIGINT, p STRING", partition_by="p")
    rows = 0

    def refill(opened: deltars.Catalog) -> None:
        nonlocal rows
        fill(opened, rows)
        rows += 6

    def check() -> None:
        with deltars.connect(migrated_uri) as opened:
            table = opened.table("t")
            assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(rows))
            with opened._session.database.write(30) as connection:
                connection.execute(update(dl_mirror_status).values(lease_until=1, next_attempt_at=None))
            assert opened.reconciler().once().errors == []
            assert table.verify().is_ok
            table.optimize()
            assert table.files().num_rows == 2
            assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(rows))
            refill(opened)

    refill(catalog)
    catalog.close()
    stride = scaled(20, soak=1)
    turn, kills, ended = seed() % stride, 0, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        turn += stride
        kills += 1
        ended = in_child(lambda turn=turn: work(migrated_uri, DyingAt(turn), monkeypatch))  # type: ignore[misc]
        check()
    assert ended == 0
    assert kills > 1
    turn, failing = seed() % stride, FailingAt(0)
    while failing.has_failed:
        turn += stride
        failing = FailingAt(turn)
        try:
            work(migrated_uri, failing, monkeypatch)
        except deltars.DeltarsError:
            assert failing.has_failed
        check()
    with deltars.connect(migrated_uri) as opened:
        assert opened.table("t").verify(deep=True).is_ok
    record("optimize, interrupted", kills=kills - 1, lost=0)
