"""Directories have one owner: what is deleted with a table, and which catalog a warehouse belongs to."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import deltars
from deltars.mirror import Publisher, Reconciler
from deltars.mirror.deletion import Deletion
from deltars.storage import ObjectInfo, Places, Relation
from deltars.storage.local import LocalStorage
from deltars.store.mirror.status import MirrorStatusStore
from tests.support.children import in_child
from tests.support.handmade_log import HandmadeLog, add
from tests.support.soak import scaled

ROWS = pa.table({"id": [1, 2, 3]})
EVERYTHING = timedelta(0)


def files_below(place: str | Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in Path(place).rglob("*") if path.is_file())


def marker_of(place: str | Path) -> Path:
    return Path(place, "_deltars/catalog.json")


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    catalog.create_table("t", "id BIGINT")
    for _ in range(3):
        catalog.write("t", ROWS)
    return catalog.table("t")


# -- whose files are deleted ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["imported read-only", "released to other writers"])
def test_files_of_a_table_whose_log_is_others_are_not_deleted(
    catalog: deltars.Catalog, tmp_path: Path, held: str
) -> None:
    place = str(tmp_path / "plain")
    write_deltalake(place, ROWS)
    if held == "imported read-only":
        catalog.import_table(place, "t", read_only=True)
    else:
        catalog.import_table(place, "t")
        catalog.release("t")
    before = files_below(place)
    with pytest.raises(deltars.TableHeld) as raised:
        catalog.drop_table("t", delete_data=True)
    assert f"the table was {held}: this catalog does not own its files and cannot delete them" in str(raised.value)
    assert "without delete_data removes the table from the catalog" in str(raised.value)
    assert (files_below(place), catalog.table_exists("t")) == (before, True)
    catalog.drop_table("t")
    with pytest.raises(deltars.TableHeld):
        catalog.drop_table("t", delete_data=True)
    assert files_below(place) == before
    assert DeltaTable(place).to_pyarrow_table().num_rows == 3


@pytest.mark.backends("sqlite")
def test_files_of_an_import_under_way_are_not_deleted(catalog: deltars.Catalog, tmp_path: Path) -> None:
    place = str(tmp_path / "plain")
    write_deltalake(place, ROWS)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.import_table(place, "t", report=interrupt)
    before = files_below(place)
    with pytest.raises(deltars.TableHeld, match="is being imported"):
        catalog.drop_table("t", delete_data=True)
    assert files_below(place) == before


@pytest.mark.backends("sqlite")
def test_table_that_was_adopted_again_is_deleted(catalog: deltars.Catalog, table: deltars.Table) -> None:
    catalog.release("t")
    catalog.adopt("t")
    catalog.drop_table("t", delete_data=True)
    assert not Path(table.location).exists()


@pytest.mark.backends("sqlite")
def test_release_that_begins_before_the_drop_keeps_the_files(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is checked again when the table's row can no longer change."""
    check = Deletion.check

    def check_and_release(deletion: Deletion, table_id: Any) -> None:
        monkeypatch.undo()
        check(deletion, table_id)
        catalog.release("t")

    monkeypatch.setattr(Deletion, "check", check_and_release)
    with pytest.raises(deltars.TableHeld, match="released"):
        catalog.drop_table("t", delete_data=True)
    assert DeltaTable(table.location).to_pyarrow_table().num_rows == 9


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("version", [2, 4], ids=["instead of ours", "after ours"])
def test_log_that_somebody_else_wrote_to_is_not_deleted(
    catalog: deltars.Catalog, table: deltars.Table, version: int
) -> None:
    for file in Path(table.location, "_delta_log").glob("*"):
        if file.name > f"{version:020}":
            file.unlink()
    Path(table.location, f"_delta_log/{version:020}.json").write_text('{"commitInfo":{"operation":"theirs"}}\n')
    before = files_below(table.location)
    with pytest.raises(deltars.LogDiverged, match="commits that are not this catalog's"):
        catalog.drop_table("t", delete_data=True)
    assert (files_below(table.location), catalog.table_exists("t")) == (before, True)


def test_deletion_leaves_nothing_and_can_be_repeated(catalog: deltars.Catalog, table: deltars.Table) -> None:
    staged = Path(table.location, "day=1", "part-0.parquet#123")
    staged.parent.mkdir()
    staged.write_bytes(b"half")
    Path(table.location, "_delta_log", f"{9:020}.json#77").write_bytes(b"half")
    Path(table.location, "write-1/_temporary/0").mkdir(parents=True)
    Path(table.location, "write-1/_temporary/.part-1.crc").write_bytes(b"crc")
    catalog.drop_table("t", delete_data=True)
    assert not Path(table.location).exists()
    catalog.drop_table("t", delete_data=True)
    catalog.drop_table(table.id, delete_data=True)
    with pytest.raises(deltars.TableNotFound):
        catalog.drop_table("never", delete_data=True)
    assert len(table.history()) == 4


def test_table_that_was_dropped_can_be_deleted_later(catalog: deltars.Catalog, table: deltars.Table) -> None:
    catalog.drop_table("t")
    successor = catalog.create_table("t", "id BIGINT")
    catalog.write("t", ROWS)
    catalog.drop_table(table.id, delete_data=True)
    assert not Path(table.location).exists()
    assert DeltaTable(successor.location).to_pyarrow_table().num_rows == 3
    # By name it is the one there is.
    catalog.drop_table("t", delete_data=True)
    assert not Path(successor.location).exists()


@pytest.mark.soak
@pytest.mark.backends("sqlite")
def test_deletion_killed_anywhere_goes_on_and_the_log_goes_last(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, killed_at = os.unlink, scaled(3, soak=1)
    ended, turn = -signal.SIGKILL, 0
    while ended == -signal.SIGKILL:
        turn += killed_at
        name = f"t{turn}"
        catalog.create_table(name, "id BIGINT")
        for _ in range(3):
            catalog.write(name, ROWS)
        place = Path(catalog.table(name).location)
        catalog.close()

        def delete(name: str = name, place: Path = place, left: int = turn) -> None:
            def dying(path: str) -> None:
                nonlocal left
                left -= str(path).startswith(str(place))
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                unlink(path)

            monkeypatch.setattr(os, "unlink", dying)
            catalog.drop_table(name, delete_data=True)

        ended = in_child(delete)
        if ended:
            data = [file for file in files_below(place) if not file.startswith("_delta_log")]
            log = [file for file in files_below(place) if file.endswith(".json")]
            assert files_below(place)
            assert not data or len(log) == 4
            assert not catalog.table_exists(name)
            catalog.drop_table(name, delete_data=True)
        assert not place.exists()
    assert (ended, turn > 6) == (0, True)


def test_table_of_others_below_stays_and_is_no_orphan(catalog: deltars.Catalog, table: deltars.Table) -> None:
    nested = str(Path(table.location, "theirs"))
    write_deltalake(nested, ROWS)
    assert table.verify(orphans=True, min_age=EVERYTHING).findings == ()
    catalog.drop_table("t", delete_data=True)
    assert DeltaTable(nested).to_pyarrow_table().num_rows == 3
    assert all(path.startswith("theirs/") for path in files_below(table.location))


def clone(catalog: deltars.Catalog, source: deltars.Table, place: Path) -> tuple[deltars.Table, str]:
    """A table whose log names a file of another one, as a shallow clone's does; and that file."""
    [file] = source.snapshot(1).files["path"].to_pylist()
    log = HandmadeLog(place)
    log.commit(1, add(Path(source.location, file).as_uri()))
    return catalog.import_table(str(place)), file


def test_file_that_another_tables_log_names_stays_and_is_no_orphan(
    catalog: deltars.Catalog, table: deltars.Table, tmp_path: Path
) -> None:
    _, file = clone(catalog, table, tmp_path / "clone")
    catalog.drop_table("t", delete_data=True)
    assert files_below(table.location) == [file]


@pytest.mark.backends("sqlite")
def test_file_that_the_log_names_by_its_whole_uri_is_no_orphan(catalog: deltars.Catalog, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    log = HandmadeLog(tmp_path / "link/t")
    log.commit(1, add((tmp_path / "link/t/a.parquet").as_uri()))
    for name in ("b c.parquet", "d.parquet", "stray.parquet"):
        pq.write_table(ROWS, log.root / name)
    log.commit(2, add(f"file:{tmp_path}/link/t/b%20c.parquet"), add(f"file://{tmp_path}/real/t/d.parquet"))
    table = catalog.import_table(str(log.root))
    assert [orphan.file.rpartition("/")[2] for orphan in orphans(table)] == ["stray.parquet"]


# -- what killed writers leave -------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
def test_what_a_killed_writer_and_a_killed_publisher_leave_is_listed_and_deleted(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.close()

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def write() -> None:
        # A small file is staged at the end of its write, just before it gets its name.
        monkeypatch.setattr(os, "replace", die)
        catalog.write("t", ROWS)

    def publish() -> None:
        monkeypatch.setattr(os, "link", die)
        catalog.write("t", ROWS)

    assert in_child(write) == -signal.SIGKILL
    assert in_child(publish) == -signal.SIGKILL
    found = {finding.file.rpartition("/")[2]: finding for finding in orphans(table)}
    assert sorted(name.partition(".")[0][:5] for name in found) == ["00000", "part-"]
    assert all("%23" in name and "that a writer left unfinished" in found[name].detail for name in found)
    assert table.verify(orphans=True).young_files == 2
    catalog.drop_table("t", delete_data=True)
    assert not Path(table.location).exists()


def orphans(table: deltars.Table) -> list[Any]:
    return [f for f in table.verify(orphans=True, min_age=EVERYTHING).findings if f.problem == "orphan"]


# -- no directory twice --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mirror", ["inline", "off"])
def test_directory_of_a_dropped_table_is_given_to_no_other(
    catalog: deltars.Catalog, catalog_uri: str, mirror: deltars.MirrorChoice
) -> None:
    catalog.close()
    with deltars.connect(catalog_uri, mirror=mirror) as opened:
        first = opened.create_table("t", "id BIGINT")
        opened.drop_table("t", delete_data=True)
        second = opened.create_table("t", "id BIGINT")
        assert second.location == f"{opened.warehouse}/t-{second.id.hex[:8]}"
        for location in (first.location, f"{first.location}/deeper"):
            with pytest.raises(deltars.TableExists, match=r"the dropped table 't'.*keeps its directory"):
                opened.create_table("u", "id BIGINT", location=location)
            with pytest.raises(deltars.TableExists, match="that of the dropped table 't'"):
                opened.register_table("u", location)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("form", ["{0}/", "{0}/x/..", "file://{0}", "FILE://localhost{0}", "{link}", "{link}/x"])
@pytest.mark.parametrize("dropped", [False, True], ids=["living", "dropped"])
def test_directory_is_known_in_every_spelling(
    catalog: deltars.Catalog, tmp_path: Path, form: str, dropped: bool
) -> None:
    place = tmp_path / "a b%20c"
    catalog.register_table("t", str(place))
    place.mkdir()
    (tmp_path / "link").symlink_to(place)
    if dropped:
        catalog.drop_table("t")
    path = str(place).replace("%", "%25").replace(" ", "%20") if "://" in form else str(place)
    with pytest.raises(deltars.TableExists, match="that of the"):
        catalog.create_table("u", "id BIGINT", location=form.format(path, link=tmp_path / "link"))


def test_places_are_compared_as_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places()
    assert places.relation("s3a://b/x", "s3://b/x/") is Relation.SAME
    assert places.relation("abfs://c@h/x/y", "abfss://c@h/x") is Relation.INSIDE
    assert places.relation("s3://b/x", "s3://b/xy") is None
    assert places.relation("/", "/a") is Relation.AROUND
    assert places.relation("/a/B/c", "/a/b") is None
    # As on a file system that does not tell upper from lower case.
    monkeypatch.setattr(os.path, "samefile", lambda one, other: one.lower() == other.lower())
    assert places.relation("/a/B/c", "/a/b") is Relation.INSIDE
    assert places.relation("/a/B", "/A/b/c/d") is Relation.AROUND
    assert places.below("/A/b/c/d", "/a/B") == "c/d"
    assert places.relation("s3://b/X", "s3://b/x") is None


@pytest.mark.backends("sqlite")
def test_catalogs_own_directory_is_for_no_table(catalog: deltars.Catalog) -> None:
    warehouse = str(catalog.warehouse)
    for location in (warehouse, os.path.dirname(warehouse), f"{warehouse}/_deltars", f"{warehouse}/_deltars/tables/t"):
        with pytest.raises(deltars.ValidationError, match="which is the catalog's own"):
            catalog.create_table("t", "id BIGINT", location=location)
        with pytest.raises(deltars.ValidationError, match="which is the catalog's own"):
            catalog.import_table(location, "t")
    assert catalog.tables() == []


def test_table_of_others_can_be_imported_again_after_it_was_dropped(catalog: deltars.Catalog, tmp_path: Path) -> None:
    place = str(tmp_path / "plain")
    write_deltalake(place, ROWS)
    for name in ("one", "two"):
        catalog.import_table(place, name, read_only=True)
        catalog.drop_table(name)
    first = catalog.import_table(place, "three")
    catalog.drop_table("three")
    # It is fenced by the one before.
    with pytest.raises(deltars.UnsupportedFeature, match="take_over=True"):
        catalog.import_table(place, "four")
    second = catalog.import_table(place, "four", take_over=True)
    with pytest.raises(deltars.TableExists, match="now belongs to the table 'four'"):
        catalog.drop_table(first.id, delete_data=True)
    assert second.to_arrow().num_rows == 3
    catalog.drop_table("four", delete_data=True)
    assert not Path(place).exists()


@pytest.mark.backends("sqlite")
def test_table_whose_last_publication_may_be_under_way_is_not_imported_again(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    status = MirrorStatusStore(catalog._session.database)
    assert status.claim(table.id, "somebody", even_if_idle=True)[0]
    catalog.drop_table("t")
    with pytest.raises(deltars.TableExists, match="that of the dropped table 't'"):
        catalog.import_table(table.location, "u", take_over=True)
    status.release(table.id, "somebody")
    assert catalog.import_table(table.location, "u", take_over=True).to_arrow().num_rows == 9


# -- the mirror of a dropped table ---------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
def test_publication_that_began_before_the_drop_touches_no_successor(
    catalog: deltars.Catalog, catalog_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.close()
    with deltars.connect(catalog_uri, mirror="async") as opened:
        first = opened.create_table("t", "id BIGINT")
        for _ in range(3):
            opened.write("t", ROWS)
        put = LocalStorage.put_if_absent
        successors: list[deltars.Table] = []

        def put_late(storage: LocalStorage, path: str, data: bytes, **options: Any) -> bool:
            if path.endswith(f"{0:020}.json") and not successors:
                successors.append(first)
                opened.drop_table("t", delete_data=True)
                successors.append(opened.create_table("t", "id BIGINT"))
            return put(storage, path, data, **options)

        monkeypatch.setattr(LocalStorage, "put_if_absent", put_late)
        publisher = Publisher(opened._session.database, checkpoint_interval=1)
        publisher.publish_pending(first.id)
        assert not publisher.status.read(first.id).is_pending
        assert not any("checkpoint" in file for file in files_below(first.location))
        [_, second] = successors
        assert second.location != first.location
        opened.reconciler().once()
        assert second.verify(deep=True).is_ok
        opened.drop_table(first.id, delete_data=True)
        assert not Path(first.location).exists()


@pytest.mark.backends("sqlite")
def test_dropped_table_gets_no_checkpoint_and_nothing_is_mended(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(catalog._session.database)
    storage = publisher.storage_at(table.location)
    listing = LocalStorage.list

    def list_meanwhile(storage: LocalStorage, prefix: str = "") -> Iterator[ObjectInfo]:
        monkeypatch.undo()
        found = list(listing(storage, prefix))
        catalog.drop_table("t", delete_data=True)
        return iter(found[:1])

    monkeypatch.setattr(LocalStorage, "list", list_meanwhile)
    began = time.monotonic()
    assert Reconciler(catalog._session.database, publisher).once().repairs == []
    assert publisher.checkpointer.write(storage, table.id, 3, "somebody") is False
    assert time.monotonic() - began < 10
    assert not Path(table.location).exists()


# -- one catalog a warehouse ---------------------------------------------------------------------------------------


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[Callable[..., deltars.Catalog]]:
    """Catalogs of their own ids, each in a file of its own."""
    opened: list[deltars.Catalog] = []

    def lake(name: str, warehouse: str | Path | None = None, **options: Any) -> deltars.Catalog:
        place = None if warehouse is None else str(warehouse)
        opened.append(deltars.connect(f"deltasql://sqlite/{tmp_path}/{name}.db", warehouse=place, **options))
        return opened[-1]

    yield lake
    for catalog in opened:
        catalog.close()


def test_warehouse_of_another_catalog_is_refused_before_it_is_set(
    lakes: Callable[..., deltars.Catalog], tmp_path: Path
) -> None:
    first = lakes("first", tmp_path / "shared")
    [catalog_id] = json.loads(marker_of(tmp_path / "shared").read_text()).values()
    with pytest.raises(deltars.WarehouseTaken) as raised:
        lakes("second", tmp_path / "shared")
    assert f"the warehouse {tmp_path}/shared belongs to another catalog, {catalog_id}" in str(raised.value)
    assert "deltars rebuild" in str(raised.value)
    assert "_deltars/catalog.json" in str(raised.value)
    assert lakes("second", tmp_path / "own").warehouse == str(tmp_path / "own")
    assert lakes("first", tmp_path / "shared").create_table("t", "id BIGINT").location == f"{first.warehouse}/t"


def test_warehouse_without_a_mark_belongs_to_the_catalog_that_writes_next(
    lakes: Callable[..., deltars.Catalog], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lakes("first", tmp_path / "shared").create_table("old", "id BIGINT")
    marker_of(tmp_path / "shared").unlink()
    lakes("second", tmp_path / "shared").create_table("t", "id BIGINT")
    # In this process it is known; another one looks.
    first = lakes("first")
    with pytest.raises(deltars.WarehouseTaken, match="belongs to another catalog"):
        first.create_table("t2", "id BIGINT")
    with pytest.raises(deltars.WarehouseTaken, match="belongs to another catalog"):
        first.create_table("t2", "id BIGINT", location=f"{tmp_path}/shared/elsewhere")
    # Its tables go on, and one elsewhere can be made; it has no entry in the other's registry.
    first.write("old", ROWS).raise_for_mirror()
    with caplog.at_level(logging.WARNING):
        table = first.create_table("t2", "id BIGINT", location=str(tmp_path / "elsewhere"))
    assert "belongs to another catalog" in caplog.text
    assert not Path(f"{tmp_path}/shared/_deltars/tables/{table.id}.json").exists()
    assert any("belongs to another catalog" in error for error in first.reconciler().once().errors)


def test_of_many_catalogs_that_want_one_warehouse_one_gets_it(
    lakes: Callable[..., deltars.Catalog], tmp_path: Path
) -> None:
    def want(number: int) -> bool:
        try:
            lakes(f"c{number}", tmp_path / "shared").create_table("t", "id BIGINT")
        except deltars.WarehouseTaken:
            return False
        return True

    with ThreadPoolExecutor(5) as pool:
        won = list(pool.map(want, range(5)))
    assert sorted(won) == [False] * 4 + [True]
    assert [path.name for path in (tmp_path / "shared").iterdir() if path.name != "_deltars"] == ["t"]


def test_rebuild_takes_the_warehouse_over_and_a_restored_database_keeps_it(
    lakes: Callable[..., deltars.Catalog], tmp_path: Path
) -> None:
    first = lakes("first", tmp_path / "shared")
    first.create_table("t", "id BIGINT")
    first.close()
    shutil.copyfile(tmp_path / "first.db", tmp_path / "restored.db")
    lakes("restored").create_table("u", "id BIGINT")
    assert deltars.rebuild(str(tmp_path / "shared"), f"deltasql://sqlite/{tmp_path}/new.db").versions == {
        "t": 0, "u": 0,
    }  # fmt: skip
    lakes("new").create_table("v", "id BIGINT")
    with pytest.raises(deltars.WarehouseTaken, match="belongs to another catalog"):
        lakes("first").create_table("w", "id BIGINT")


def test_embedded_catalogs_side_by_side_have_warehouses_of_their_own(tmp_path: Path) -> None:
    places = []
    for backend, suffix in (("sqlite", "db"), ("duckdb", "duckdb")):
        with deltars.connect(f"deltasql://{backend}/{tmp_path}/lake.{suffix}") as catalog:
            places.append(catalog.create_table("t", "id BIGINT").location)
    assert places == [f"{tmp_path}/lake.warehouse/t", f"{tmp_path}/lake.duckdb.warehouse/t"]


def test_mark_that_names_no_catalog_is_told(lakes: Callable[..., deltars.Catalog], tmp_path: Path) -> None:
    marker_of(tmp_path / "shared").parent.mkdir(parents=True)
    marker_of(tmp_path / "shared").write_text("hello")
    lake = lakes("first", tmp_path / "shared")
    with pytest.raises(deltars.StorageError, match="does not name a catalog"):
        lake.create_table("t", "id BIGINT")


def test_warehouse_out_of_reach_is_set_and_marked_later(
    lakes: Callable[..., deltars.Catalog], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "shared").write_text("not mounted")
    lake = lakes("first", tmp_path / "shared")
    assert "could not be marked as this catalog's" in caplog.text
    (tmp_path / "shared").unlink()
    lake.create_table("t", "id BIGINT")
    assert marker_of(tmp_path / "shared").exists()


def test_mark_is_looked_at_once_a_process(
    lakes: Callable[..., deltars.Catalog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes("first", tmp_path / "shared").close()
    lake = lakes("first")
    paths: list[str] = []
    for name in ("get_or_none", "put_if_absent", "put", "head"):
        original = getattr(LocalStorage, name)

        def noted(storage: LocalStorage, path: str, *args: Any, _do: Any = original, **options: Any) -> Any:
            paths.append(path)
            return _do(storage, path, *args, **options)

        monkeypatch.setattr(LocalStorage, name, noted)
    lake.create_table("a", "id BIGINT")
    first = paths.count("_deltars/catalog.json")
    assert 0 < first <= 2
    lake.create_table("b", "id BIGINT")
    for _ in range(3):
        with lake.begin() as tx:
            tx.write("a", ROWS)
            tx.write("b", ROWS)
    assert paths.count("_deltars/catalog.json") == first
