"""A vacuum in one process, and a writer, a reader, a restore, a tag, an import or a lagging mirror in another."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.errors import FilesMissing, HistoryExpired
from deltars.mirror.vacuum import Vacuum
from deltars.mirror.vacuum_plan import KeptReason
from deltars.storage.local import LocalStorage
from deltars.store.vacuum_rows import VacuumRows
from tests.support.backup import take_backup
from tests.vacuum.lake import NOW, VECTORS, files, ids, live, overwritten, put, rows

pytestmark = pytest.mark.backends("sqlite")

_fork = multiprocessing.get_context("fork")


@contextmanager
def in_process(work: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """Run a function in another process, which must end well."""
    process = _fork.Process(target=work, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.join(60)
        alive = process.is_alive()
        if alive:
            process.kill()
    assert not alive
    assert process.exitcode == 0


def before(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, act: Callable[[], None]) -> None:
    """Act once, right before a call."""
    real = getattr(owner, name)
    has_acted = threading.Event()

    def call(*arguments: Any, **options: Any) -> Any:
        if not has_acted.is_set():
            has_acted.set()
            act()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


def _write_slowly(uri: str, written: Any, may_commit: Any) -> None:
    with deltars.connect(uri) as catalog, catalog.begin(isolation="serializable") as tx:
        tx.write("t", rows(7))
        written.set()
        assert may_commit.wait(60)


def test_slow_writer_keeps_its_files(catalog: deltars.Catalog, migrated_uri: str) -> None:
    table = overwritten(catalog)
    catalog.close()
    written, may_commit = _fork.Event(), _fork.Event()
    with in_process(_write_slowly, migrated_uri, written, may_commit):
        assert written.wait(60)
        done = table.vacuum(**NOW, full=True)
        assert (done.num_files, done.kept[KeptReason.YOUNG].files) == (2, 1)
        may_commit.set()
    assert ids(table) == [3, 7]
    assert table.verify(deep=True).is_ok


def _read_slowly(uri: str, opened: Any, may_read: Any, version: int) -> None:
    with deltars.connect(uri) as catalog:
        scan = catalog.table("t").snapshot(version)
        opened.set()
        assert may_read.wait(60)
        assert scan.files.num_rows == 1
        assert ids(catalog.table("t"), version) == [version]


def test_reader_of_a_version_within_the_retention_reads_it_after_the_vacuum(
    catalog: deltars.Catalog, migrated_uri: str
) -> None:
    table = overwritten(catalog)
    catalog.close()
    opened, may_read = _fork.Event(), _fork.Event()
    with in_process(_read_slowly, migrated_uri, opened, may_read, 2):
        assert opened.wait(60)
        assert table.vacuum(full=True).kept[KeptReason.RETENTION].files == 2
        may_read.set()


@pytest.mark.backends("sqlite", "postgres")
def test_restore_that_commits_before_the_files_are_condemned_keeps_them(
    catalog: deltars.Catalog, migrated_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = overwritten(catalog)

    def restore() -> None:
        with deltars.connect(migrated_uri) as other:
            other.table("t").restore(1)

    before(monkeypatch, VacuumRows, "condemn", restore)
    done = table.vacuum(**NOW)
    assert {file.path for file in done.files} == live(table, 2)
    assert ids(table) == [1]
    assert table.verify(deep=True).is_ok


@pytest.mark.backends("sqlite", "postgres")
def test_restore_that_looked_before_and_commits_after_the_files_are_condemned_is_refused(
    catalog: deltars.Catalog, migrated_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = overwritten(catalog)
    other = deltars.connect(migrated_uri)
    late = other.begin(isolation="serializable")
    late.restore("t", 1)
    before(monkeypatch, Vacuum, "_delete", lambda: late_commits.append(_refused(late)))
    late_commits: list[bool] = []
    assert table.vacuum(**NOW).num_files == 2
    assert late_commits == [True]
    assert ids(table) == [3]
    assert table.verify(deep=True).is_ok
    other.close()


def test_restore_that_looked_before_a_vacuum_and_an_expiry_is_refused(catalog: deltars.Catalog) -> None:
    table = overwritten(catalog)
    late = catalog.begin()
    late.restore("t", 1)
    table.vacuum(**NOW)
    assert table.expire(timedelta(0), force=True).tables[0].first_version == 3
    # The catalog has no row left that says which files the version had.
    with pytest.raises(HistoryExpired, match="version 1 is expired"):
        late.commit()
    assert ids(table) == [3]
    assert table.verify(deep=True).is_ok


def _refused(tx: deltars.Transaction) -> bool:
    with pytest.raises(FilesMissing, match="is deleting"):
        tx.commit()
    return True


@pytest.mark.backends("sqlite", "postgres")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_tag_that_is_made_during_a_vacuum_is_kept_or_refused(
    catalog: deltars.Catalog, migrated_uri: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    table = overwritten(catalog)
    second = table.history()[1].txn_id

    def tag() -> None:
        with deltars.connect(migrated_uri) as other, suppress(FilesMissing):
            other.tag("two", as_of=second)

    owner, name = (VacuumRows, "condemn") if moment == "before" else (Vacuum, "_delete")
    before(monkeypatch, owner, name, tag)
    done = table.vacuum(**NOW)
    if moment == "before":
        assert (done.num_files, done.tags) == (1, ("two",))
        assert ids(table, as_of="two") == [2]
    else:
        assert (done.num_files, catalog.tags()) == (2, [])


def test_commit_of_unknown_outcome_that_succeeded_keeps_its_files(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = overwritten(catalog, times=1)
    tx = catalog.begin(isolation="serializable")
    tx.write("t", rows(2))
    real = catalog._session.writer.commit

    def lose_the_answer(*arguments: Any, **options: Any) -> Any:
        real(*arguments, **options)
        raise deltars.errors.CommitUnknown(txn_id=tx.id, stage="commit")

    monkeypatch.setattr(catalog._session.writer, "commit", lose_the_answer)
    with pytest.raises(deltars.errors.CommitUnknown):
        tx.commit()
    for path in files(table):
        put(table, path, days_old=5, content=(Path(table.location) / path).read_bytes())
    assert table.vacuum(**NOW, full=True).files == ()
    assert catalog.resolve(tx.id) is not None
    assert ids(table) == [1, 2]


def test_mirror_that_lags_behind_keeps_what_unpublished_versions_removed(
    catalog: deltars.Catalog, migrated_uri: str
) -> None:
    table = overwritten(catalog)
    with deltars.connect(migrated_uri, mirror="async") as other:
        other.write("t", rows(8), "overwrite")
    done = table.vacuum(**NOW, full=True)
    assert done.kept[KeptReason.UNPUBLISHED].files == 1
    # The published log ends with version 3, whose file must be there for its readers.
    assert live(table, 3) <= files(table)
    assert ids(table) == [8]


def test_restored_database_is_refused_and_the_newer_files_stay(catalog: deltars.Catalog, tmp_path: Path) -> None:
    table = overwritten(catalog)
    backup = take_backup(catalog, tmp_path / "backup", None)
    table.restore(1)
    kept = files(table)
    catalog.close()
    backup.restore()
    with pytest.raises(deltars.errors.LogDiverged, match="no file is deleted"):
        table.vacuum(**NOW, full=True)
    assert files(table) == kept


def test_import_that_is_running_refuses_a_vacuum(catalog: deltars.Catalog, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    for number in range(3):
        write_deltalake(str(tmp_path / "foreign"), rows(number), mode="overwrite")
    refused: list[type[Exception]] = []

    def vacuum(_: object) -> None:
        if refused:
            return
        try:
            catalog.table("foreign").vacuum(**NOW, full=True)
        except deltars.DeltarsError as error:
            refused.append(type(error))

    table = catalog.import_table(str(tmp_path / "foreign"), "foreign", report=vacuum)
    assert refused[0] in (deltars.errors.TableHeld, deltars.errors.TableNotFound)
    assert len(files(table)) == 3
    assert table.verify(deep=True).is_ok


def _vacuum(uri: str, times: int) -> None:
    with deltars.connect(uri) as catalog:
        for _ in range(times):
            catalog.vacuum(**NOW, full=True)


def _overwrite(uri: str, times: int) -> None:
    with deltars.connect(uri) as catalog:
        for number in range(times):
            catalog.write("t", rows(number, number + 1), "overwrite")
            catalog.table("t").delete(f"id = {number}")


@pytest.mark.backends("sqlite", "postgres")
def test_vacuums_and_writers_in_many_processes_leave_a_whole_table(catalog: deltars.Catalog, migrated_uri: str) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=VECTORS)
    catalog.close()
    with (
        in_process(_vacuum, migrated_uri, 6),
        in_process(_vacuum, migrated_uri, 6),
        in_process(_overwrite, migrated_uri, 10),
    ):
        pass
    assert ids(table) == [10]
    table.vacuum(**NOW, full=True)
    assert files(table) == live(table)
    assert table.verify(deep=True).is_ok


def test_partition_directory_that_a_vacuum_removes_under_a_writer_is_made_again(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("t", "id BIGINT, p STRING", partition_by=["p"])
    table.write(pa.table({"id": [1], "p": ["a"]}))
    table.delete()
    from deltars.storage import local

    real = local.make_directory

    def made_and_gone(directory: str) -> None:
        real(directory)
        monkeypatch.setattr(local, "make_directory", real)
        table.vacuum(**NOW)

    monkeypatch.setattr(local, "make_directory", made_and_gone)
    table.write(pa.table({"id": [2], "p": ["a"]}))
    assert ids(table) == [2]


def test_table_that_is_released_during_a_vacuum_keeps_the_rest(
    catalog: deltars.Catalog, migrated_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = overwritten(catalog)

    def release() -> None:
        with deltars.connect(migrated_uri) as other:
            other.release("t")

    before(monkeypatch, Vacuum, "_delete", release)
    with pytest.raises(deltars.errors.TableHeld, match="the rest is kept"):
        table.vacuum(**NOW)
    assert len(files(table)) == 3


def test_storage_that_refuses_a_deletion_is_finished_by_the_next_vacuum(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = overwritten(catalog)
    real = LocalStorage.delete

    def fail(self: LocalStorage, paths: Iterable[str]) -> None:
        raise deltars.errors.StorageError("the disk is away", path="x")

    monkeypatch.setattr(LocalStorage, "delete", fail)
    with pytest.raises(deltars.errors.StorageError):
        table.vacuum(**NOW)
    monkeypatch.setattr(LocalStorage, "delete", real)
    assert table.vacuum(**NOW).num_files == 2
    assert files(table) == live(table)
