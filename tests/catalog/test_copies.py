"""Copies of tables: files and vectors of one cut under new names, in one transaction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import deltars
from deltars.catalog import copies
from deltars.errors import StorageError, TableExists, TableNotFound, ValidationError, VersionNotFound
from deltars.storage import open_storage
from deltars.storage.local import LocalStorage
from deltars.storage.storage import Storage
from tests.support.log import added, vector

pytestmark = pytest.mark.backends("sqlite")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: deltars.Table) -> list[int]:
    found: list[int] = sorted(table.to_arrow()["id"].to_pylist())
    return found


def files_below(catalog: deltars.Catalog) -> set[str]:
    """Every file that is no part of a log, the catalog's own files left out."""
    assert catalog.warehouse is not None
    root = Path(catalog.warehouse)
    found = {path.relative_to(root) for path in root.rglob("*") if path.is_file()}
    return {str(path) for path in found if "_delta_log" not in path.parts and path.parts[0] != "_deltars"}


@pytest.fixture
def source(catalog: deltars.Catalog) -> deltars.Table:
    """Version 1 has 1 and 2, version 2 only 3."""
    made = catalog.create_table(
        "src", "id BIGINT NOT NULL", properties={"team": "ml", "delta.enableRowTracking": "true"}, description="numbers"
    )
    made.write(rows(1, 2))
    made.write(rows(3), "overwrite")
    return made


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_copy_has_the_files_and_the_metadata_of_its_source(catalog: deltars.Catalog, source: deltars.Table) -> None:
    copy = catalog.copy_table("src", "dst", version=1, committer="ada")
    assert (copy.name, copy.version, ids(copy)) == ("dst", 0, [1, 2])
    assert copy.location != source.location
    old, new = source.snapshot(1), copy.snapshot()
    assert new.metadata.id == str(copy.id) != old.metadata.id
    assert (new.schema, new.metadata.description) == (old.schema, "numbers")
    assert new.metadata.configuration["team"] == "ml"
    columns = ["path", "size", "stats", "base_row_id", "num_records"]
    assert new.files.select(columns) == old.files.select(columns)
    assert new.row_groups().num_rows == 1
    [entry] = copy.history()
    assert (entry.operation, entry.committer) == ("CLONE", "ada")
    assert entry.operation_params == {"source": source.location, "sourceVersion": 1, "isShallow": False}
    assert entry.metrics["numCopiedFiles"] == entry.metrics["sourceNumOfFiles"] == "1"
    assert copy.verify(deep=True, orphans=True).is_ok
    assert DeltaTable(copy.location).to_pyarrow_table().num_rows == 2


def test_copy_and_source_live_apart(catalog: deltars.Catalog, source: deltars.Table) -> None:
    copy = catalog.copy_table("src", "dst")
    copy.write(rows(4))
    assert (ids(copy), ids(source)) == ([3, 4], [3])
    assert max(copy.files()["base_row_id"].to_pylist()) > max(source.files()["base_row_id"].to_pylist())
    catalog.drop_table("src", delete_data=True)
    assert ids(copy) == [3, 4]
    assert copy.verify(deep=True).is_ok


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_many_tables_are_copied_from_one_cut_in_one_transaction(
    catalog: deltars.Catalog, source: deltars.Table
) -> None:
    names = [f"t{number}" for number in range(11)]
    for name in names:
        catalog.create_table(name, "id BIGINT").write(rows(1))
    catalog.tag("q3")
    catalog.write("t0", rows(2))
    copies = catalog.copy_tables({name: f"{name}_copy" for name in names}, as_of="q3")
    assert [copy.name for copy in copies] == [f"{name}_copy" for name in names]
    assert all(ids(copy) == [1] for copy in copies)
    assert len({copy.history()[0].txn_id for copy in copies}) == 1


def test_nothing_to_copy_makes_nothing(catalog: deltars.Catalog) -> None:
    assert catalog.copy_tables({}) == []
    catalog.create_table("empty", "id BIGINT")
    assert ids(catalog.copy_table("empty", "other")) == []


def test_partitions_and_mapped_columns_are_kept(catalog: deltars.Catalog) -> None:
    source = catalog.create_table(
        "src", "id BIGINT, day STRING", partition_by="day", properties={"delta.columnMapping.mode": "name"}
    )
    source.write(pa.table({"id": [1, 2], "day": ["a b", None]}))
    copy = catalog.copy_table("src", "dst")
    assert copy.to_arrow(where="day IS NULL")["id"].to_pylist() == [2]
    copy.alter.add_columns("note STRING")
    assert copy.schema.fields[-1].metadata["delta.columnMapping.id"] == 3


def test_vectors_are_copied_with_their_files(catalog: deltars.Catalog) -> None:
    source = catalog.create_table("src", "id BIGINT", properties={"delta.enableDeletionVectors": "true"})
    root = Path(source.location)
    pq.write_table(rows(1), root / "a.parquet")
    size = (root / "a.parquet").stat().st_size
    with catalog.begin() as tx:
        tx.stage("src", [added("a.parquet", size=size, stats='{"numRecords":9}', deletion_vector=vector())])
    with pytest.raises(StorageError, match="No such file"):
        catalog.copy_table("src", "dst")
    assert files_below(catalog) == {"src/a.parquet"}
    (root / "ab").mkdir()
    name = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    (root / name).write_bytes(b"bits")
    copy = catalog.copy_table("src", "dst")
    assert (Path(copy.location) / name).read_bytes() == b"bits"
    assert copy.files()["deletion_vector"].to_pylist() == source.files()["deletion_vector"].to_pylist()
    absolute = vector(storage_type="p", path_or_inline_dv=f"file://{root / name}")
    with catalog.begin() as tx:
        tx.stage("src", [added("b.parquet", stats='{"numRecords":9}', deletion_vector=absolute)])
    with pytest.raises(ValidationError, match="absolute path"):
        catalog.copy_table("src", "third")


def test_imported_table_is_copied_as_one_of_ours(catalog: deltars.Catalog, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "foreign"), rows(1))
    catalog.import_table(str(tmp_path / "foreign"), "src", read_only=True)
    copy = catalog.copy_table("src", "dst")
    copy.write(rows(2))
    assert ids(copy) == [1, 2]
    assert "deltars.sqlManaged" in (copy.snapshot().protocol.writer_features or ())
    assert copy.verify(deep=True).is_ok


def test_what_cannot_be_copied_is_refused_before_anything_is(
    catalog: deltars.Catalog, source: deltars.Table, tmp_path: Path
) -> None:
    catalog.create_table("taken", "id BIGINT")
    before = files_below(catalog)
    with pytest.raises(TableExists, match="'taken'"):
        catalog.copy_tables({"src": "new", "taken": "TAKEN"})
    with pytest.raises(ValidationError, match="two tables would be named"):
        catalog.copy_tables({"src": "new", "taken": "NEW"})
    with pytest.raises(TableNotFound):
        catalog.copy_tables({"src": "new", "nowhere": "other"})
    with pytest.raises(VersionNotFound):
        catalog.copy_table("src", "new", version=7)
    with pytest.raises(ValidationError, match="exclude each other"):
        catalog.copy_table("src", "new", version=1, as_of="2026-01-01")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ValidationError, match="not empty"):
        catalog.copy_table("src", "new", location=str(tmp_path / "full"))
    assert files_below(catalog) == before
    assert [table.name for table in catalog.tables()] == ["src", "taken"]
    assert catalog.copy_table("src", "new", location=str(tmp_path / "place")).location == str(tmp_path / "place")


def test_file_of_another_size_than_the_log_says_stops_the_copy(catalog: deltars.Catalog, source: deltars.Table) -> None:
    [path] = source.files()["path"].to_pylist()
    with (Path(source.location) / path).open("ab") as file:
        file.write(b"more")
    before = files_below(catalog)
    with pytest.raises(StorageError, match="bytes, but"):
        catalog.copy_table("src", "dst")
    assert files_below(catalog) == before
    assert not catalog.table_exists("dst")


def test_interrupted_copy_leaves_no_table_and_no_files(
    catalog: deltars.Catalog, source: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        source.write(rows(number))
    before, done = files_below(catalog), []

    def copy_from(target: Storage, other: Storage, path: str) -> int:
        done.append(path)
        if len(done) == 3:
            raise KeyboardInterrupt
        return Storage.copy_from(target, other, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "copy_from", copy_from)
        with pytest.raises(KeyboardInterrupt):
            catalog.copy_table("src", "dst")
    assert files_below(catalog) == before
    assert not catalog.table_exists("dst")
    assert ids(catalog.copy_table("src", "dst")) == ids(source)


def test_one_of_two_copies_to_one_name_wins_and_the_other_leaves_nothing(
    catalog: deltars.Catalog, source: deltars.Table
) -> None:
    def attempt(_: int) -> bool:
        try:
            catalog.copy_table("src", "dst")
        except TableExists:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, range(4))) == 1
    copy = catalog.table("dst")
    assert copy.verify(deep=True).is_ok
    assert {Path(path).parts[0] for path in files_below(catalog)} == {"src", Path(copy.location).name}


def test_object_store_copies_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = open_storage("memory://copies/a"), open_storage("memory://copies/b")
    source.put("x/y.parquet", b"content")
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "copy_from", None)
        assert target.copy_from(source, "x/y.parquet") == 7
    assert target.get("x/y.parquet") == b"content"
    elsewhere = open_storage("memory://elsewhere/b")
    assert elsewhere.copy_from(source, "x/y.parquet") == 7
    assert elsewhere.get("x/y.parquet") == b"content"
    with pytest.raises(StorageError, match="there is no file"):
        target.copy_from(source, "gone")


KILLED = """
import os, signal, sys
import deltars
from deltars.storage.local import LocalStorage
from deltars.storage.storage import Storage

done = []

def copy_from(target, source, path):
    size = Storage.copy_from(target, source, path)
    done.append(path)
    if len(done) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return size

LocalStorage.copy_from = copy_from
deltars.connect(sys.argv[1]).copy_table("src", "dst")
"""


def killed_copy(catalog: deltars.Catalog, *, after: int, days_ago: float) -> Path:
    """Copy in another process, which is killed after so many files. Return the directory that it leaves."""
    assert catalog.warehouse is not None
    before = set(Path(catalog.warehouse).iterdir())
    done = subprocess.run([sys.executable, "-c", KILLED, str(catalog.uri), str(after)], check=False)
    assert done.returncode == -signal.SIGKILL
    [note] = Path(catalog.warehouse, "_deltars/copies").iterdir()
    then = time.time() - days_ago * 86_400
    os.utime(note, (then, then))
    [left] = set(Path(catalog.warehouse).iterdir()) - before
    return left


def test_full_vacuum_deletes_what_a_killed_copy_left(catalog: deltars.Catalog, source: deltars.Table) -> None:
    for number in range(4):
        source.write(rows(number))
    left = killed_copy(catalog, after=3, days_ago=0.9)
    assert any(left.iterdir())
    assert catalog.vacuum(full=True).unfinished_copies == (), "it may be running"
    [note] = Path(str(catalog.warehouse), "_deltars/copies").iterdir()
    os.utime(note, (0, 0))
    # A file that someone else put there since is not the copy's.
    (left / "notes.txt").write_text("mine")
    assert catalog.vacuum().unfinished_copies == ()
    assert catalog.vacuum(full=True, dry_run=True).unfinished_copies == (str(left),)
    assert note.exists()
    assert catalog.vacuum(full=True).unfinished_copies == (str(left),)
    assert [path.name for path in left.rglob("*")] == ["notes.txt"]
    assert not note.exists()
    assert ids(catalog.copy_table("src", "dst")) == ids(source)
    assert source.verify(deep=True).is_ok


def test_copy_that_is_alive_or_was_committed_loses_nothing(
    catalog: deltars.Catalog, source: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name in ("_delete", "delete_notes"):
            patch.setattr(copies, name, lambda *_: None)
        patch.setattr(copies, "copied_table", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            catalog.copy_table("src", "dst")
    [note] = Path(str(catalog.warehouse), "_deltars/copies").iterdir()
    os.utime(note, (0, 0))
    left = json.loads(note.read_text())["location"]
    writers = catalog._session.heartbeat.writers
    writers.announce(uuid4(), {UUID(note.stem): 0})
    assert catalog.vacuum(full=True).unfinished_copies == (), "its heartbeat is in the catalog"
    for writer in writers.all():
        writers.withdraw(writer.txn_id)
    # Killed after the commit: the note stays, and the table has the directory.
    with monkeypatch.context() as patch:
        patch.setattr(copies, "delete_notes", lambda *_: None)
        copy = catalog.copy_table("src", "dst")
    for path in note.parent.iterdir():
        os.utime(path, (0, 0))
    assert catalog.vacuum(full=True).unfinished_copies == (left,)
    assert not list(note.parent.iterdir())
    assert ids(copy) == ids(source)
    assert copy.verify(deep=True).is_ok


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_copy_replaces_a_table_as_its_next_version(catalog: deltars.Catalog, source: deltars.Table) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    other = catalog.create_table("other", "id BIGINT, day STRING", partition_by="day", properties=properties)
    other.write(pa.table({"id": list(range(500)), "day": ["a"] * 500}))
    other.delete("id % 7 <> 0")
    old = catalog.copy_table("src", "dst", version=1)
    for again in range(2):
        new = catalog.copy_table("other", "dst", replace=True)
        assert (new.id, new.location, new.version) == (old.id, old.location, again + 1)
        assert ids(new) == [number for number in range(500) if number % 7 == 0]
    assert new.snapshot().metadata.id == str(old.id)
    assert new.detail().partition_columns == ("day",)
    assert ids(catalog.table("other")) == ids(new)
    assert (new.history(1)[0].operation, new.history(1)[0].metrics["numRemovedFiles"]) == ("CLONE", "1")
    assert new.to_arrow(version=0)["id"].to_pylist() == [1, 2]
    assert new.verify(deep=True, orphans=True).is_ok
    # Ids of rows are not given twice, although the source's files have some.
    back = catalog.copy_table("src", "dst", version=1, replace=True)
    assert min(back.files()["base_row_id"].to_pylist()) >= 2
    back.write(rows(5), "append")
    assert ids(back) == [1, 2, 5]
    new.restore(2)
    assert ids(new)[:2] == [0, 7]


def test_copy_does_not_replace_its_source_nor_another_place(
    catalog: deltars.Catalog, source: deltars.Table, tmp_path: Path
) -> None:
    catalog.write("dst", rows(1))
    with pytest.raises(ValidationError, match="a copy of itself"):
        catalog.copy_table("src", "SRC", replace=True)
    with pytest.raises(ValidationError, match="stays there"):
        catalog.copy_table("src", "dst", location=str(tmp_path / "other"), replace=True)
    catalog.table("dst").alter.set_properties({"delta.appendOnly": "true"})
    before = files_below(catalog)
    with pytest.raises(ValidationError, match="append-only"):
        catalog.copy_table("src", "dst", replace=True)
    assert files_below(catalog) == before
    assert ids(catalog.copy_table("src", "new", replace=True)) == [3]


def test_replaced_table_that_changes_meanwhile_stays(
    catalog: deltars.Catalog, source: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.write("dst", rows(1))
    dst = catalog.table("dst")
    before = files_below(catalog)
    copy_files = copies._copy_files

    def while_another_appends(planned: copies._Planned) -> None:
        copy_files(planned)
        catalog.write("dst", rows(2))

    monkeypatch.setattr(copies, "_copy_files", while_another_appends)
    with pytest.raises(deltars.VersionConflict):
        catalog.copy_table("src", "dst", replace=True)
    assert ids(dst) == [1, 2]
    assert len(files_below(catalog) - before) == 1
