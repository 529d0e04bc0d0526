"""Expire and purge, interrupted before any call to the storage or the database: run them again."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from sqlalchemy import select

import deltars
from deltars.errors import HistoryExpired
from deltars.store import schema
from tests.catalog.test_undo_crashes import every_interruption, repaired
from tests.support.soak import scaled
from tests.support.vacuumed import vacuum

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.soak, pytest.mark.timeout(scaled(300, soak=3_600))]

KEPT = 2


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def load(catalog: deltars.Catalog, *, times: int = 3) -> None:
    """Version n of each table holds the row n alone."""
    for _ in range(times):
        with catalog.begin() as tx:
            for name in "ab":
                tx.write(name, rows(catalog.table(name).version + 1), "overwrite")
    for name in "ab":
        vacuum(catalog, name)


@pytest.fixture
def uri(migrated_uri: str, catalog: deltars.Catalog) -> str:
    """A catalog whose tables have some versions to expire, and a tag."""
    for name in "ab":
        catalog.create_table(name, "id BIGINT")
    load(catalog, times=2)
    catalog.tag("two")
    load(catalog)
    catalog.close()
    return migrated_uri


def check_history(catalog: deltars.Catalog, *, is_done: bool = False) -> None:
    """Every version that is there reads as it was written, and no retained one is missing."""
    for table in catalog.tables():
        there = {entry.version for entry in table.history()}
        current = table.version
        assert {2, *range(current - KEPT + 1, current + 1)} <= there
        if is_done:
            assert len(there) == KEPT + 1
        # Files of older versions are vacuumed: the log alone must be whole.
        for version in range(current + 1):
            if version in there:
                assert table.files(version).num_rows == min(version, 1)
            else:
                with pytest.raises(HistoryExpired):
                    table.files(version)
        assert table.to_arrow()["id"].to_pylist() == [current]
        assert table.to_arrow(as_of="two")["id"].to_pylist() == [2]
        assert DeltaTable(table.location).to_pyarrow_table()["id"].to_pylist() == [current]
        assert DeltaTable(table.location, version=2).to_pyarrow_table()["id"].to_pylist() == [2]


def test_interrupted_expiry_loses_nothing_that_is_kept_and_can_be_run_again(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(catalog: deltars.Catalog) -> None:
        check_history(catalog)
        repaired(catalog)
        assert [finding for table in catalog.tables() for finding in table.verify(deep=True).findings] == []
        catalog.expire(timedelta(0), keep_versions=KEPT, force=True)
        check_history(catalog, is_done=True)
        assert catalog.reconciler().once().repairs == []
        assert [finding for table in catalog.tables() for finding in table.verify(deep=True).findings] == []
        with catalog._session.database.read() as connection:
            left = connection.execute(select(schema.dl_transactions.c.txn_id, schema.dl_transactions.c.participants))
            several = {str(txn_id) for txn_id, participants in left if len(participants or ()) > 1}
        assert catalog.warehouse is not None
        assert {path.stem for path in (Path(catalog.warehouse) / "_deltars" / "txns").iterdir()} == several
        assert len(several) == KEPT + 1
        load(catalog)

    every_interruption(
        uri,
        monkeypatch,
        lambda catalog: catalog.expire(timedelta(0), keep_versions=KEPT, force=True),
        check,
        every=170,
    )


def test_interrupted_purge_leaves_the_table_or_can_be_run_again(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with deltars.connect(uri) as opened:
        opened.untag("two")

    def check(catalog: deltars.Catalog) -> None:
        if catalog.table_exists("b"):
            check_table = catalog.table("b")
            assert check_table.to_arrow()["id"].to_pylist() == [check_table.version]
        repaired(catalog)
        # Nothing is left of it if the purge had come to its end.
        with suppress(deltars.TableNotFound):
            catalog.drop_table("b", purge=True)
        assert not catalog.table_exists("b")
        assert catalog.purge_dropped(timedelta(0)) == []
        assert catalog.warehouse is not None
        assert not (Path(catalog.warehouse) / "b").exists()
        entries = {path.stem for path in (Path(catalog.warehouse) / "_deltars" / "tables").iterdir()}
        assert entries == {str(table.id) for table in catalog.tables()}
        catalog.create_table("b", "id BIGINT")
        for number in range(1, 3):
            catalog.write("b", rows(number), "overwrite")
        assert catalog.table("a").verify(deep=True).is_ok

    every_interruption(uri, monkeypatch, lambda catalog: catalog.drop_table("b", purge=True), check, every=120)
