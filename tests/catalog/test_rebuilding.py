"""A database is lost; the warehouse is not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltars
from deltars.catalog import migrate
from tests.support.soak import record, scaled, seed

TABLES = tuple(f"t{number}" for number in range(6))


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _work(catalog: deltars.Catalog, count: int) -> list[deltars.TransactionResult]:
    """Transactions over one to four tables each."""
    choose = random.Random(seed())
    for name in TABLES:
        catalog.create_table(name, "id BIGINT")
    results = []
    for number in range(count):
        with catalog.begin(committer=f"job {number % 3}", user_metadata=f"run {number}") as tx:
            for name in choose.sample(TABLES, choose.randint(1, 4)):
                tx.write(name, _rows(number))
        tx.result.raise_for_mirror()
        results.append(tx.result)
    return results


def _told(catalog: deltars.Catalog) -> dict[str, Any]:
    """Everything that a rebuilt catalog must tell again."""
    return {
        table.name: (
            table.id,
            table.location,
            table._record.created_at,
            [
                (e.version, e.txn_id, e.commit_ts, e.in_commit_timestamp, e.operation, e.committer, e.user_metadata)
                for e in table.history()
            ],
            sorted(table.snapshot().files["path"].to_pylist()),
            table.properties,
        )
        for table in catalog.tables()
    }


@pytest.fixture
def lose(catalog_uri: str, catalog: deltars.Catalog) -> Callable[[], None]:
    def drop() -> None:
        catalog.close()
        migrate.down(catalog_uri)

    return drop


@pytest.mark.soak
def test_a_lost_catalog_is_rebuilt_with_every_cut_and_goes_on(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    results = _work(catalog, scaled(12, soak=1_000))
    catalog.rename_table("t0", "renamed")
    catalog.drop_table("t1")
    catalog.create_table("t1", "name STRING", location=str(tmp_path / "another-t1"))
    told = _told(catalog)
    cuts = {result.txn_id: catalog.snapshot(result.txn_id).versions for result in results}
    lose()
    rebuilt = deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
    assert (rebuilt.gone, rebuilt.torn) == ((), ())
    with deltars.connect(catalog_uri) as again:
        assert _told(again) == told
        assert rebuilt.versions == {name: again.table(name).version for name in told}
        for table in again.tables():
            assert table.verify(deep=True).findings == ()
        for txn_id, versions in cuts.items():
            assert again.snapshot(txn_id).versions == versions
            assert again.resolve(txn_id) is not None
        with again.begin() as tx:
            tx.write("renamed", _rows(-1))
            tx.write("t2", _rows(-1))
        tx.result.raise_for_mirror()
        # A checkpoint that is due now is written meanwhile.
        assert [finding for table in again.tables() for finding in table.verify(deep=True).findings] == []
        assert -1 in again.table("t2").to_arrow()["id"].to_pylist()
        assert tx.result.commit_ts is not None
        assert tx.result.commit_ts > max(result.commit_ts or 0 for result in results)
    record("rebuild of a lost catalog", transactions=len(results), cuts_compared=len(cuts))


@pytest.mark.backends("sqlite")
def test_a_rebuild_that_was_interrupted_goes_on(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    _work(catalog, 5)
    told = _told(catalog)
    lose()

    def interrupt(name: str, progress: Any) -> None:
        if progress.version > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri, report=interrupt)
    deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
    with deltars.connect(catalog_uri) as again:
        assert _told(again) == told


@pytest.mark.backends("sqlite")
def test_a_transaction_that_was_published_by_halves_is_told(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    txn_id = _published_by_halves(catalog)
    lose()
    rebuilt = deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
    assert (rebuilt.versions, rebuilt.torn) == ({"a": 1, "b": 0}, (txn_id,))


def test_a_transaction_that_was_published_by_halves_has_done_what_is_there(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    txn_id = _published_by_halves(catalog)
    lose()
    deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
    with deltars.connect(catalog_uri) as again:
        for _ in range(2):
            resolved = again.resolve(txn_id)
            assert resolved is not None
            assert resolved.versions == {"a": 1}
            assert [(part.table, part.version) for part in again.transaction(txn_id).tables] == [("a", 1)]
            with pytest.raises(deltars.ValidationError, match="committed before, to other tables"):
                _write_both(again, txn_id)
            # Somebody else's, where the lost one was.
            again.write("b", _rows(2))
        assert again.table("a").version == 1


def _published_by_halves(catalog: deltars.Catalog) -> UUID:
    """A transaction over two tables, of which one is published."""
    for name in ("a", "b"):
        catalog.create_table(name, "id BIGINT")
    with catalog.begin() as tx:
        tx.write("a", _rows(1))
        tx.write("b", _rows(1))
    (Path(catalog.table("b").location) / "_delta_log" / f"{1:020}.json").unlink()
    return tx.id


def _write_both(catalog: deltars.Catalog, txn_id: UUID) -> None:
    with catalog.begin(txn_id=txn_id) as tx:
        tx.write("a", _rows(1))
        tx.write("b", _rows(1))


@pytest.mark.backends("sqlite")
def test_imported_released_and_empty_tables_come_back_as_what_they_were(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    place = str(tmp_path / "plain")
    write_deltalake(place, _rows(1))
    catalog.import_table(place, "imported")
    catalog.write("imported", _rows(2))
    catalog.create_table("released", "id BIGINT")
    catalog.release("released")
    catalog.register_table("empty", str(tmp_path / "empty"))
    imported: UUID = catalog.table("imported").id
    lose()
    deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
    with deltars.connect(catalog_uri) as again:
        table = again.table("imported")
        assert (table.id, table.version, sorted(table.to_arrow()["id"].to_pylist())) == (imported, 2, [1, 2])
        stamps = [entry.commit_ts for entry in table.history()]
        assert stamps == sorted(stamps, reverse=True)
        again.write("imported", _rows(3))
        with pytest.raises(deltars.TableHeld, match="released"):
            again.write("released", _rows(1))
        assert again.table("empty").version == -1
        assert again.adopt("released") == 2


def _entry(warehouse: Path, table: deltars.Table, **changes: Any) -> None:
    """Write a table's entry as it was before something changed."""
    file = warehouse / f"_deltars/tables/{table.id}.json"
    entry = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in (entry | changes).items() if value is not None}))


def test_an_entry_whose_table_is_gone_does_not_keep_its_name(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    """The drop, or the renaming, was never published; the directory went."""
    first = catalog.create_table("t", "id BIGINT")
    catalog.drop_table("t", delete_data=True)
    second = catalog.create_table("t", "id BIGINT")
    catalog.write("t", _rows(1))
    warehouse = tmp_path / "warehouse"
    _entry(warehouse, first, droppedAt=None)
    lose()
    for _ in range(2):
        rebuilt = deltars.rebuild(str(warehouse), catalog_uri)
        assert rebuilt.versions == {"t": 1}
        assert (rebuilt.renamed, rebuilt.stale) == ({}, (f"_deltars/tables/{first.id}.json",))
    with deltars.connect(catalog_uri) as again:
        assert again.table("t").id == second.id
        assert again.table("t").verify(deep=True).is_ok
        again.write("t", _rows(2))


@pytest.mark.backends("sqlite")
def test_of_two_tables_of_one_name_the_newer_keeps_it_and_both_come_back(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    older, newer = (catalog.create_table(name, "id BIGINT") for name in ("t", "u"))
    catalog.write("t", _rows(1))
    catalog.write("u", _rows(2))
    _entry(tmp_path / "warehouse", newer, name="T")
    lose()
    name = f"t-{older.id.hex[:8]}"
    for _ in range(2):
        rebuilt = deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
        assert (rebuilt.versions, rebuilt.renamed, rebuilt.stale) == ({"T": 1, name: 1}, {name: "t"}, ())
    with deltars.connect(catalog_uri) as again:
        assert (again.table("T").id, again.table(name).id) == (newer.id, older.id)
        assert again.table(name).to_arrow()["id"].to_pylist() == [1]


@pytest.mark.backends("sqlite")
def test_a_name_that_a_dropped_table_had_is_no_obstacle_to_a_second_run(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    kept = catalog.create_table("t", "id BIGINT")
    catalog.drop_table("t")
    gone = catalog.create_table("t", "id BIGINT")
    catalog.drop_table("t", delete_data=True)
    catalog.create_table("t", "id BIGINT")
    lose()
    for _ in range(3):
        rebuilt = deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
        assert (rebuilt.versions, rebuilt.gone) == ({"t": 0}, ("t",))
    with deltars.connect(catalog_uri) as again:
        found = again._session.registry.find_dropped(kept.id)
        assert found is not None
        assert (found.name, found.current_version) == ("t", 0)
        assert again._session.registry.find_dropped(gone.id) is None


@pytest.mark.backends("sqlite")
def test_a_dropped_table_whose_directory_another_one_got_is_gone(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    """As older releases gave it."""
    first = catalog.create_table("t", "id BIGINT")
    catalog.drop_table("t", delete_data=True)
    second = catalog.create_table("t", "id BIGINT")
    catalog.write("t", _rows(1))
    _entry(tmp_path / "warehouse", first, location=second.location)
    lose()
    rebuilt = deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
    assert (rebuilt.versions, rebuilt.gone) == ({"t": 1}, ("t",))
    with deltars.connect(catalog_uri) as again:
        assert again.table("t").id == second.id


@pytest.mark.backends("sqlite")
def test_an_entry_that_is_out_of_date_may_lie_around_a_table(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    around = catalog.register_table("a", str(tmp_path / "lake-before"))
    catalog.create_table("b", "id BIGINT", location=str(tmp_path / "lake/b"))
    _entry(tmp_path / "warehouse", around, location=str(tmp_path / "lake"))
    lose()
    for _ in range(2):
        assert deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri).versions == {"a": -1, "b": 0}


@pytest.mark.backends("sqlite")
def test_a_deletion_that_was_interrupted_does_not_stop_a_rebuild(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None], tmp_path: Path
) -> None:
    table = catalog.create_table("t", "id BIGINT")
    catalog.write("t", _rows(1))
    catalog.create_table("u", "id BIGINT")
    catalog.drop_table("t")
    Path(table.location, f"_delta_log/{0:020}.json").unlink()
    lose()
    rebuilt = deltars.rebuild(str(tmp_path / "warehouse"), catalog_uri)
    assert (rebuilt.versions, rebuilt.gone) == ({"u": 0}, ("t",))


@pytest.mark.backends("sqlite")
def test_a_warehouse_that_remembers_nothing_is_refused(catalog_uri: str, tmp_path: Path) -> None:
    with pytest.raises(deltars.ValidationError, match="has no registry entries"):
        deltars.rebuild(str(tmp_path / "nothing"), catalog_uri)
    with deltars.connect(catalog_uri, warehouse=str(tmp_path / "meant")) as catalog:  # the mistake was not stored
        assert catalog.warehouse == str(tmp_path / "meant")


@pytest.mark.backends("sqlite")
def test_of_names_that_differ_in_case_alone_one_gets_a_suffix(
    catalog: deltars.Catalog, catalog_uri: str, lose: Callable[[], None]
) -> None:
    """As a warehouse of an older release may have them."""
    first, second = (catalog.create_table(name, "id BIGINT") for name in ("t", "second"))
    warehouse = catalog.warehouse
    assert warehouse is not None
    file = Path(warehouse) / "_deltars" / "tables" / f"{second.id}.json"
    file.write_text(file.read_text().replace('"second"', '"T"'))
    lose()
    rebuilt = deltars.rebuild(warehouse, catalog_uri)
    renamed = f"t-{first.id.hex[:8]}"
    assert rebuilt.versions == {"T": 0, renamed: 0}
    assert rebuilt.renamed == {renamed: "t"}
