"""Vacuum: what it deletes, what it keeps and says so, and what it refuses."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import insert, update

import deltars
from deltars import SqlTxnLogWriter
from deltars.errors import FilesMissing, LogDiverged, TableHeld, TableNotFound, ValidationError
from deltars.mirror.vacuum_plan import KeptReason, VacuumReason
from deltars.protocol import AddFile, RemoveFile
from deltars.store.schema import dl_cdc_files, dl_mirror_log, dl_remove_files, dl_tables
from deltars.store.vacuum_marks import read_marks
from tests.support.clock import clock_of
from tests.vacuum.lake import NOW, VECTORS, age, files, ids, live, overwritten, publish_earlier, put, rows, spell

pytestmark = pytest.mark.backends("sqlite")


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_only_files_go_whose_removal_was_published_longer_ago_than_the_retention(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=4)
    publish_earlier(table, 8, up_to=3)
    planned = table.vacuum(dry_run=True)
    assert files(table) == live(table, 1) | live(table, 2) | live(table, 3) | live(table)
    done = table.vacuum()
    assert (planned.files, planned.dry_run, done.dry_run) == (done.files, True, False)
    assert {file.path for file in done.files} == live(table, 1) | live(table, 2)
    assert (done.version, done.retention) == (3, timedelta(days=7))
    assert {reason: amount.files for reason, amount in done.deleted.items()} == {VacuumReason.REMOVED: 2}
    assert {reason: amount.files for reason, amount in done.kept.items()} == {KeptReason.RETENTION: 1}
    assert done.size_bytes == sum(table.files(version)["size"][0].as_py() for version in (1, 2))
    assert files(table) == live(table, 3) | live(table, 4)
    assert (ids(table, 3), ids(table)) == ([3], [4])
    assert table.vacuum().files == ()
    assert table.verify(deep=True).is_ok


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_tag_keeps_its_files_until_it_is_removed(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    catalog.tag("two")
    table.write(rows(3), "overwrite")
    done = table.vacuum(**NOW)
    assert (done.num_files, done.tags, done.kept[KeptReason.TAG].files) == (1, ("two",), 1)
    table.write(rows(4), "overwrite")
    assert table.vacuum(**NOW).num_files == 1
    assert ids(table, as_of="two") == [2]
    catalog.untag("two")
    assert {file.path for file in table.vacuum(**NOW).files} == live(table, 2)
    assert files(table) == live(table)
    assert table.vacuum(**NOW).files == ()


def test_removed_file_that_is_added_again_is_kept(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    catalog.tag("one", as_of=table.history()[1].txn_id)
    table.restore(1)
    assert {file.path for file in table.vacuum(**NOW).files} == live(table, 2)
    assert ids(table) == [1]
    table.write(rows(3), "overwrite")
    assert table.vacuum(**NOW).kept[KeptReason.TAG].files == 1
    assert ids(table, as_of="one") == [1]
    catalog.untag("one")
    assert table.vacuum(**NOW).num_files == 1
    assert files(table) == live(table)


def test_file_of_vectors_goes_when_no_version_needs_one_of_them(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=VECTORS)
    many = 4_000
    with catalog.begin() as tx:
        tx.write("t", rows(*range(many)))
        tx.write("t", rows(*range(many, 2 * many)))
    # Not every other row: such a vector is short, and in the log itself.
    gone = "id % 7 = 0 or id % 11 = 0"
    table.delete(gone)
    [both] = files(table, "*.bin")
    table.delete(f"id < {many} and id % 13 = 0")
    assert len(files(table, "*.bin")) == 2
    kept = table.vacuum(**NOW)
    # The second data file still has its vector in the shared file.
    assert both in files(table, "*.bin")
    assert kept.files == ()
    catalog.tag("all")
    table.delete(f"id >= {many} and id % 13 = 0")
    left = ids(table)
    assert table.vacuum(**NOW).kept[KeptReason.TAG].files == 1
    catalog.untag("all")
    done = table.vacuum(**NOW)
    assert [(file.path, file.reason) for file in done.files] == [(both, VacuumReason.VECTOR)]
    assert ids(table) == left == [number for number in range(2 * many) if number % 7 and number % 11 and number % 13]
    assert table.verify(deep=True).is_ok


def test_change_data_goes_with_the_retention_of_its_version(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    path = "_change_data/cdc-1.parquet"
    put(table, path)
    with catalog._session.database.write(30) as connection:
        row = {"table_id": table.id, "version": 1, "ord": 9, "path": path, "size": 1, "partition_values": {}}
        connection.execute(insert(dl_cdc_files).values(**row, data_change=False))
    publish_earlier(table, 8, up_to=1)
    assert {(file.path, file.reason) for file in table.vacuum().files} == {(path, VacuumReason.CHANGES)}
    assert path not in files(table)
    assert not (Path(table.location) / "_change_data").exists()


def test_versions_that_are_not_published_keep_their_files(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    with catalog.begin(mirror="off") as tx:
        tx.write(table.id, rows(3), "overwrite")
    done = table.vacuum(**NOW)
    assert {file.path for file in done.files} == live(table, 1)
    assert done.kept[KeptReason.UNPUBLISHED].files == 1
    assert files(table) == live(table, 2) | live(table, 3)
    catalog.reconciler().once()
    assert {file.path for file in table.vacuum(**NOW).files} == live(table, 2)


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_clock_that_was_wrong_makes_no_version_older(catalog: deltars.Catalog) -> None:
    with clock_of(catalog) as clock:
        table = overwritten(catalog, times=2)
        # Published by a clock that was far behind.
        with catalog._session.database.write(30) as connection:
            mine = update(dl_mirror_log).where(dl_mirror_log.c.table_id == table.id)
            connection.execute(mine.values(published_at=0))
        assert table.vacuum().kept[KeptReason.RETENTION].files == 1
        clock.set(30 * 86_400.0)
        assert table.vacuum().files == ()
        clock.set(-30 * 86_400.0)
        assert table.vacuum().files == ()
        clock.set(0)
        assert files(table) == live(table, 1) | live(table, 2)


def test_short_retention_needs_force_unless_it_is_the_tables_own(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog)
    for short in ("6 days", timedelta(hours=1), "0 hours"):
        with pytest.raises(ValidationError, match="less than 7 days") as refused:
            table.vacuum(retention=short, full=True)
        assert refused.value.field == "retention"
    assert len(files(table)) == 3
    catalog.set_properties("t", {"delta.deletedFileRetentionDuration": "interval 1 day"})
    publish_earlier(table, 2)
    assert table.vacuum().retention == timedelta(days=1)
    with pytest.raises(ValidationError, match="less than 1 day"):
        table.vacuum(retention="1 hour")
    assert files(table) == live(table)


@pytest.mark.parametrize("retention", ["soon", "-1 days", timedelta(days=-1), 7, "1 month", ""])
def test_retention_that_is_none_is_refused(catalog: deltars.Catalog, retention: Any) -> None:
    table = overwritten(catalog)
    with pytest.raises(ValidationError, match="retention must be") as refused:
        table.vacuum(retention=retention, force=True)
    assert refused.value.field == "retention"
    with pytest.raises(ValidationError, match="retention must be"):
        catalog.vacuum(retention=retention)
    assert len(files(table)) == 3


def test_option_that_does_not_exist_is_refused(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog)
    for call in (table.vacuum, catalog.vacuum):
        with pytest.raises(TypeError, match="retention_hours"):
            call(retention_hours=0)  # type: ignore[call-arg]
    assert len(files(table)) == 3


@pytest.mark.parametrize("flag", ["dry_run", "full", "force"])
def test_flag_that_is_no_bool_is_refused(catalog: deltars.Catalog, flag: str) -> None:
    table = overwritten(catalog)
    with pytest.raises(ValidationError, match=flag):
        table.vacuum(**{flag: "false"})  # type: ignore[arg-type]


def test_restore_and_tag_of_a_version_that_was_vacuumed_are_refused(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog)
    second = table.history()[1].txn_id
    table.vacuum(**NOW)
    with pytest.raises(FilesMissing):
        table.restore(2)
    # Also where the storage does not show it yet: the files are condemned before they are deleted.
    for path in live(table, 2):
        put(table, path)
    with pytest.raises(FilesMissing, match="a vacuum has deleted, or is deleting, 1 files of version 2"):
        table.restore(2)
    with pytest.raises(FilesMissing, match="version 2"):
        catalog.tag("late", as_of=second)
    assert (catalog.tags(), table.version) == ([], 3)
    catalog.tag("now")
    table.restore(3)


def test_version_whose_vectors_are_in_the_log_can_be_restored_and_tagged_after_a_vacuum(
    catalog: deltars.Catalog,
) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=VECTORS)
    table.write(rows(*range(100)))
    table.delete("id = 5")
    table.delete("id = 6")
    then = table.history()[1].txn_id
    assert table.vacuum(**NOW).files == ()
    assert files(table, "*.bin") == set()
    catalog.tag("less", as_of=then)
    catalog.untag("less")
    table.restore(2)
    assert ids(table) == [number for number in range(100) if number != 5]
    assert table.verify(deep=True).is_ok


def test_tag_and_restore_of_old_versions_with_all_their_files_stay_possible(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=VECTORS)
    table.write(rows(1, 2, 3))
    table.write(rows(4))
    table.delete("id = 1")
    assert table.vacuum(**NOW).files == ()
    catalog.tag("before", as_of=table.history()[-2].txn_id)
    table.restore(2)
    assert ids(table) == [1, 2, 3, 4]


# -- nothing but the table's own files -----------------------------------------------------------------------------


def test_paths_that_lead_out_of_the_table_are_never_deleted(catalog: deltars.Catalog, tmp_path: Path) -> None:
    table = overwritten(catalog, times=1)
    root = Path(table.location)
    victim, sibling = tmp_path / "victim.parquet", Path(f"{root}-sibling") / "f.parquet"
    elsewhere = tmp_path / "elsewhere" / "linked.parquet"
    for file in (victim, sibling, elsewhere):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    os.symlink(elsewhere.parent, root / "link")
    log = next((root / "_delta_log").glob("*.json")).name
    hostile = [
        f"file://{victim}",
        str(victim),
        "../victim.parquet",
        "a/../../victim.parquet",
        "%2e%2e/victim.parquet",
        f"file://{sibling}",
        f"{sibling}",
        "link/linked.parquet",
        f"_delta_log/{log}",
    ]
    # A log of another writer may name anything.
    with catalog._session.database.write(30) as connection:
        for number, path in enumerate(hostile):
            row = {"table_id": table.id, "version": 1, "ord": 100 + number, "path": path, "size": 1}
            connection.execute(insert(dl_remove_files).values(**row, data_change=True))
    done = table.vacuum(**NOW, full=True)
    assert done.files == ()
    assert done.kept[KeptReason.OUTSIDE].files >= len(hostile) - 1
    for file in (victim, sibling, elsewhere, root / "_delta_log" / log):
        assert file.exists()
    assert (root / "link").is_symlink()
    assert table.verify().is_ok


def test_file_that_is_live_under_another_spelling_is_kept(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    writer = SqlTxnLogWriter(catalog)
    names = ["a b.parquet", "c.parquet", "d.parquet", "e.parquet", "f/g.parquet"]
    paths = ["a%20b.parquet", *names[1:]]
    for name in names:
        put(table, name)
    adds = [AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True) for path in paths]
    writer.commit(table.id, 1, adds, operation="WRITE")
    writer.commit(table.id, 2, [RemoveFile(path=path, data_change=True) for path in paths], operation="DELETE")
    writer.commit(table.id, 3, adds, operation="WRITE")
    catalog.reconciler().once()
    root = table.location
    spellings = ["%61%20b.parquet", f"{root}/c.parquet", f"file://{root}/d.parquet", "./e.parquet", "f//g.parquet"]
    for path, spelling in zip(paths, spellings, strict=True):
        spell(table, 3, path, spelling)
    assert table.vacuum(**NOW).files == ()
    assert files(table) == set(names)


def test_files_of_other_tables_and_of_the_catalog_are_never_deleted(tmp_path: Path) -> None:
    # The database of the catalog, and another table, are in the directory of the table.
    place = tmp_path / "lake"
    (place / "t").mkdir(parents=True)
    with deltars.connect(f"deltasql://sqlite/{place}/t/lake.db", warehouse=str(place), migrate=True) as catalog:
        table = overwritten(catalog)
        assert Path(table.location) == place / "t"
        foreign = put(table, "inner/_delta_log/00000000000000000000.json", days_old=9)
        data = put(table, "inner/part-1.parquet", days_old=9)
        other = catalog.create_table("other", "id BIGINT")
        named = put(table, "shared.parquet", days_old=9)
        other.write(rows(1))
        [path] = live(other)
        spell(other, 1, path, f"file://{named}")
        age(place / "t" / "lake.db", 9)
        done = table.vacuum(**NOW, full=True)
        assert not {file.path for file in done.files} - live(table, 1) - live(table, 2)
        assert all(file.exists() for file in (foreign, data, named, place / "t" / "lake.db"))
        assert [found.name for found in catalog.tables()] == ["other", "t"]


def test_file_that_another_tables_log_names_is_kept_though_this_one_removed_it(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    [shared] = live(table, 1)
    other = catalog.create_table("other", "id BIGINT")
    other.write(rows(1))
    [path] = live(other)
    spell(other, 1, path, f"file://{table.location}/{shared}")
    assert table.vacuum(**NOW).kept[KeptReason.OTHER_TABLE].files == 1
    assert shared in files(table)


# -- leftovers -----------------------------------------------------------------------------------------------------


def test_full_vacuum_deletes_old_leftovers_and_keeps_young_ones(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=1)
    old = {
        "part-orphan.parquet",
        "day=1/part-orphan.parquet",
        "part-1.parquet#123",
        "write-0/_temporary/0/part-2.parquet",
        "write-0/.part-3.parquet.crc",
        "deletion_vector_0.bin",
        "_change_data/cdc-orphan.parquet",
        "_delta_log/00000000000000000007.json#99",
    }
    for path in old:
        put(table, path, days_old=2)
    young = put(table, "part-young.parquet", days_old=0.5)
    future = put(table, "part-future.parquet", days_old=-3)
    hidden = put(table, "_checkpoints/offsets/0", days_old=9)
    (Path(table.location) / "write-1" / "_temporary" / "0").mkdir(parents=True)
    age(Path(table.location) / "write-1", 2)
    (Path(table.location) / "write-2").mkdir()
    assert table.vacuum(**NOW).files == ()
    planned = table.vacuum(full=True, dry_run=True)
    done = table.vacuum(full=True)
    assert {file.path for file in done.files} == {file.path for file in planned.files} == old
    assert {file.reason for file in done.files} == {VacuumReason.ORPHAN, VacuumReason.UNFINISHED}
    assert done.kept[KeptReason.YOUNG].files == 2
    assert files(table) == live(table) | {young.name, future.name, "_checkpoints/offsets/0"}
    assert hidden.exists()
    assert {path.name for path in Path(table.location).iterdir() if path.is_dir()} == {
        "_delta_log", "_checkpoints", "write-2",
    }  # fmt: skip


def test_checksums_of_hadoop_go_with_their_files(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    [gone], [stays] = live(table, 1), live(table, 2)
    for path in (gone, stays):
        put(table, f".{path}.crc")
    table.vacuum(**NOW)
    assert files(table) == {stays, f".{stays}.crc"}


def test_empty_partition_directories_go(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, p STRING", partition_by=["p"])
    table.write(pa.table({"id": [1, 2], "p": ["a", "b"]}))
    table.delete("p = 'a'")
    assert table.vacuum(**NOW).num_files == 1
    assert {path.name for path in Path(table.location).iterdir()} == {"p=b", "_delta_log"}
    table.write(pa.table({"id": [3], "p": ["a"]}))
    assert ids(table) == [2, 3]


@pytest.mark.backends("sqlite")
def test_forced_vacuum_deletes_young_files_that_no_writer_makes(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=1)
    for path in ("notes.txt", "folder/more.txt", "part-young.parquet", "deletion_vector_1.bin", "write-0/_temporary/x"):
        put(table, path)
    assert table.vacuum(full=True).files == ()
    done = table.vacuum(**NOW, full=True)
    assert [file.path for file in done.files] == ["folder/more.txt", "notes.txt"]
    assert done.kept[KeptReason.YOUNG].files == 3


def test_manifest_that_lists_other_files_goes(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    urls = [f"file://{table.location}/{path}\n".encode() for path in (*live(table, 1), *live(table))]
    stale = put(table, "_symlink_format_manifest/p=1/manifest", days_old=2, content=b"".join(urls))
    young = put(table, "_symlink_format_manifest/p=2/manifest", content=urls[0])
    good = put(table, "_symlink_format_manifest/p=3/manifest", days_old=2, content=urls[1])
    [found] = table.vacuum(full=True).files
    assert (found.path, found.reason) == ("_symlink_format_manifest/p=1/manifest", VacuumReason.MANIFEST)
    assert [file.exists() for file in (stale, young, good)] == [False, True, True]


# -- refused -------------------------------------------------------------------------------------------------------


def test_log_that_is_ahead_of_a_restored_catalog_is_refused(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog)
    ahead = put(table, "_delta_log/00000000000000000004.json", content=b'{"commitInfo":{}}\n')
    for full in (False, True):
        with pytest.raises(LogDiverged, match=r"no file is deleted.*older backup"):
            table.vacuum(**NOW, full=full)
    assert len(files(table)) == 3
    both = catalog.vacuum(**NOW)
    assert (both.tables, [skipped.table for skipped in both.skipped]) == ((), ["t"])
    assert isinstance(both.skipped[0].error, LogDiverged)
    ahead.unlink()
    assert table.vacuum(**NOW).num_files == 2


def test_tables_of_other_writers_and_dropped_tables_are_refused(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog)
    catalog.release("t")
    with pytest.raises(TableHeld, match="was released to other writers"):
        table.vacuum(**NOW)
    catalog.adopt("t")
    with catalog._session.database.write(30) as connection:
        held = update(dl_tables).where(dl_tables.c.table_id == table.id)
        before = connection.execute(dl_tables.select().where(dl_tables.c.table_id == table.id)).one().protocol_version
        connection.execute(held.values(protocol_version=-2))
    with pytest.raises(TableHeld, match="is being released or adopted"):
        table.vacuum(**NOW)
    with catalog._session.database.write(30) as connection:
        connection.execute(held.values(protocol_version=before))
    catalog.drop_table("t")
    with pytest.raises(TableNotFound, match="drop_table"):
        table.vacuum(**NOW)
    assert len(files(table)) == 3


def test_tag_of_a_dropped_table_keeps_its_files_when_they_are_imported_again(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    catalog.tag("before")
    catalog.release("t")
    catalog.drop_table("t")
    again = catalog.import_table(table.location, "again")
    again.write(rows(9), "overwrite")
    done = again.vacuum(**NOW)
    assert live(again, 2) <= files(again)
    assert done.kept[KeptReason.TAG].files == 1


def test_tag_of_a_dropped_table_keeps_its_vectors_when_its_files_are_imported_again(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=VECTORS)
    table.write(rows(*range(4_000)))
    table.delete("id % 7 = 0 or id % 11 = 0")
    left = ids(table)
    catalog.tag("before")
    catalog.release("t")
    catalog.drop_table("t")
    again = catalog.import_table(table.location, "again")
    again.purge()
    assert again.vacuum(**NOW).files == ()
    for file in files(again):
        age(Path(again.location) / file, 30)
    assert again.vacuum(full=True, **NOW).files == ()
    assert sorted(catalog.snapshot("before").to_arrow("t")["id"].to_pylist()) == left


def test_vacuum_of_an_imported_table_counts_from_the_import(catalog: deltars.Catalog, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    for number in range(3):
        write_deltalake(str(tmp_path / "foreign"), rows(number), mode="overwrite")
    table = catalog.import_table(str(tmp_path / "foreign"), "foreign")
    assert table.vacuum().files == ()
    publish_earlier(table, 8)
    assert table.vacuum().num_files == 2
    assert ids(table) == [2]


def test_vacuum_of_a_table_without_versions_does_nothing(catalog: deltars.Catalog, tmp_path: Path) -> None:
    table = catalog.register_table("empty", str(tmp_path / "empty"))
    assert table.vacuum(**NOW, full=True).files == ()
    table = catalog.create_table("new", "id BIGINT")
    assert table.vacuum(**NOW, full=True).files == ()


def test_catalog_vacuums_all_tables_or_the_named_ones(catalog: deltars.Catalog) -> None:
    tables = {name: overwritten(catalog, name) for name in "abc"}
    seen: list[tuple[str, int, int]] = []
    done = catalog.vacuum(["a", tables["b"].id], report=lambda *step: seen.append(step), **NOW)
    assert [(one.table, one.num_files) for one in done.tables] == [("a", 2), ("b", 2)]
    assert seen == [("a", 2, 2), ("b", 2, 2)]
    assert [len(files(table)) for table in tables.values()] == [1, 1, 3]
    assert [(one.table, one.num_files) for one in catalog.vacuum(**NOW).tables] == [("a", 0), ("b", 0), ("c", 2)]
    with pytest.raises(TableNotFound):
        catalog.vacuum(["d"])


def test_every_deletion_is_logged_first(catalog: deltars.Catalog, caplog: pytest.LogCaptureFixture) -> None:
    table = overwritten(catalog)
    with caplog.at_level(logging.DEBUG, "deltars.mirror.vacuum"):
        done = table.vacuum(**NOW)
    for file in done.files:
        assert f"{table.location}/{file.path} (removed)" in caplog.text


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_marks_say_how_far_a_table_is_vacuumed(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog, times=2)
    catalog.tag("two")
    table.write(rows(3), "overwrite")
    table.vacuum(**NOW)
    with catalog._session.database.read() as connection:
        marks = read_marks(connection, table.id)
    assert (marks.vacuumed_version, marks.condemned_version, marks.kept_versions) == (3, 3, (2,))


def test_vacuum_in_an_object_store_deletes_in_bulk(migrated_uri: str) -> None:
    with deltars.connect(migrated_uri, warehouse="memory://vacuum/lake") as catalog:
        table = catalog.create_table("t", "id BIGINT")
        for number in range(3):
            table.write(rows(number), "overwrite")
        assert table.vacuum(**NOW, full=True).num_files == 2
        assert ids(table) == [2]
        assert table.verify(deep=True, orphans=True, min_age=timedelta(0)).findings == ()
