"""Dropped tables are removed for good: at once, or after a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import select

import deltars
from deltars.errors import TableHeld, TableNotFound, ValidationError
from deltars.mirror.deletion import Deletion
from deltars.store import schema

pytestmark = pytest.mark.backends("sqlite")

EVERY_BACKEND = pytest.mark.backends("sqlite", "postgres", "duckdb")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def tables(catalog: deltars.Catalog) -> deltars.Catalog:
    """A catalog with the tables `a` and `b`, which one transaction wrote."""
    for name in "ab":
        catalog.create_table(name, "id BIGINT")
    with catalog.begin(txn_id="both") as tx:
        for name in "ab":
            tx.write(name, rows(1))
    return catalog


def directory(catalog: deltars.Catalog, name: str) -> Path:
    return Path(catalog.table(name).location.removeprefix("file://"))


def entries(catalog: deltars.Catalog) -> set[str]:
    assert catalog.warehouse is not None
    return {path.stem for path in (Path(catalog.warehouse.removeprefix("file://")) / "_deltars" / "tables").iterdir()}


def rows_of(catalog: deltars.Catalog, table: deltars.Table) -> set[str]:
    """Return the names of the database's tables that still have rows of a table."""
    named = [found for found in schema.metadata.tables.values() if "table_id" in found.c]
    with catalog._session.database.read() as connection:
        return {
            found.name
            for found in named
            if connection.execute(select(found.c.table_id).where(found.c.table_id == table.id)).first()
        }


@EVERY_BACKEND
def test_purge_leaves_nothing_of_a_table_and_its_directory_is_free(tables: deltars.Catalog) -> None:
    table, place = tables.table("a"), directory(tables, "a")
    table.write(rows(2), "overwrite")
    assert str(table.id) in entries(tables)
    tables.drop_table("a", purge=True)
    assert not place.exists()
    assert rows_of(tables, table) == set()
    assert entries(tables) == {str(tables.table("b").id)}
    assert tables.reconciler().once().errors == []
    assert entries(tables) == {str(tables.table("b").id)}
    assert tables.transaction("both").expired == {str(table.id): 1}
    assert tables.snapshot("both").versions == {"b": 1}
    with pytest.raises(TableNotFound):
        tables.drop_table("a", purge=True)
    again = tables.create_table("a", "id BIGINT", location=table.location)
    again.write(rows(5))
    assert again.to_arrow()["id"].to_pylist() == [5]
    assert again.verify(deep=True).is_ok


def test_repeated_purge_does_not_take_an_older_table_of_the_same_name(tables: deltars.Catalog) -> None:
    older = tables.table("a")
    tables.drop_table("a")
    newer = tables.create_table("a", "id BIGINT", location=f"{older.location}-2")
    newer.write(rows(2))
    tables.drop_table("a", purge=True)
    with pytest.raises(TableNotFound, match=str(older.id)):
        tables.drop_table("a", purge=True)
    assert tables.snapshot("both").to_arrow("a").num_rows == 1
    tables.drop_table(older.id, purge=True)
    assert rows_of(tables, older) == rows_of(tables, newer) == set()


def test_purge_that_was_interrupted_is_finished_by_the_name(
    tables: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.table("a")
    with monkeypatch.context() as broken:
        broken.setattr(Deletion, "delete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tables.drop_table("a", purge=True)
    assert not tables.table_exists("a")
    tables.drop_table("a", purge=True)
    assert rows_of(tables, table) == set()


def test_purge_of_dropped_tables_takes_the_old_ones_only(tables: deltars.Catalog) -> None:
    table, place = tables.table("a"), directory(tables, "a")
    tables.drop_table("a")
    assert tables.purge_dropped() == tables.purge_dropped("1 hour") == []
    [planned] = tables.purge_dropped(timedelta(0), dry_run=True)
    assert (planned.table, planned.is_purged, planned.held_by) == ("a", False, None)
    assert place.exists()
    [done] = tables.purge_dropped(datetime.now(UTC))
    assert (done.table_id, done.is_purged, done.num_files > 0) == (table.id, True, True)
    assert not place.exists()
    assert rows_of(tables, table) == set()
    assert tables.purge_dropped(timedelta(0)) == []


def test_table_that_a_tag_needs_is_not_purged(tables: deltars.Catalog) -> None:
    tables.tag("keep")
    with pytest.raises(ValidationError, match="tag keep"):
        tables.drop_table("a", purge=True)
    assert tables.table_exists("a")
    tables.drop_table("a")
    [held] = tables.purge_dropped(timedelta(0))
    assert (held.is_purged, held.held_by) == (False, "needed by the tag keep")
    assert tables.snapshot("keep").to_arrow("a").num_rows == 1
    tables.untag("keep")
    assert tables.purge_dropped(timedelta(0))[0].is_purged


def test_files_of_others_stay_and_only_the_rows_go(tables: deltars.Catalog) -> None:
    table, place = tables.table("a"), directory(tables, "a")
    tables.release("a")
    with pytest.raises(TableHeld):
        tables.drop_table("a", purge=True)
    tables.drop_table("a")
    [done] = tables.purge_dropped(timedelta(0))
    assert (done.is_purged, done.num_files, done.held_by) == (True, 0, "its files belong to other writers")
    assert rows_of(tables, table) == set()
    assert (place / "_delta_log" / f"{0:020}.json").exists()
    imported = tables.import_table(str(place), "back")
    assert imported.to_arrow().num_rows == 1
    # The directory has another table by now, so it is not the dropped table's to delete.
    tables.drop_table("back")
    assert tables.import_table(str(place), "third", take_over=True).to_arrow().num_rows == 1
    [done] = tables.purge_dropped(timedelta(0))
    assert (done.table, done.is_purged, done.held_by) == ("back", True, "its directory belongs to another table by now")
    assert tables.table("third").to_arrow().num_rows == 1
    assert tables.table("third").verify(deep=True).is_ok


def test_log_that_another_program_changed_keeps_the_table(tables: deltars.Catalog) -> None:
    place = directory(tables, "a")
    tables.drop_table("a")
    (place / "_delta_log" / f"{2:020}.json").write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    [held] = tables.purge_dropped(timedelta(0))
    assert (held.is_purged, held.held_by) == (False, "another program wrote to its log")
    assert list(place.glob("**/*.parquet"))
