"""Tables of plain Delta writers come in, go out and come back: nothing is lost, and one at a time may write."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from sqlalchemy import delete

import deltars
from deltars.importer import Importer
from deltars.importer.fence import fence_commit
from deltars.log.new_table import NewTable
from deltars.protocol import FENCE
from deltars.session import CatalogSession
from deltars.storage.local import LocalStorage
from deltars.store.imports.appender import Appender
from deltars.store.imports.import_writer import ImportWriter
from deltars.store.schema import dl_tables
from tests.support.children import in_child
from tests.support.soak import scaled, seed


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [f"2026-01-{i % 28 + 1:02}" for i in ids]})


def _ids(table: deltars.Table, **options: Any) -> list[int]:
    ids: list[int] = sorted(table.to_arrow(**options)["id"].to_pylist())
    return ids


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A table of deltalake's: three versions, the last of which deletes."""
    place = str(tmp_path / "plain")
    write_deltalake(place, _rows(1, 2, 3), partition_by=["day"], configuration={"delta.enableChangeDataFeed": "false"})
    write_deltalake(place, _rows(4, 5), mode="append")
    DeltaTable(place).delete("id = 2")
    return place


def test_an_imported_table_has_its_history_and_goes_on_in_place(catalog: deltars.Catalog, plain: str) -> None:
    times = {entry["version"]: entry["timestamp"] for entry in DeltaTable(plain).history()}
    table = catalog.import_table(plain, "features")
    assert table.version == 3
    assert [_ids(table, version=version) for version in range(4)] == [
        [1, 2, 3], [1, 2, 3, 4, 5], [1, 3, 4, 5], [1, 3, 4, 5],
    ]  # fmt: skip
    history = {entry.version: entry for entry in table.history()}
    assert [history[version].operation for version in range(4)] == ["WRITE", "WRITE", "DELETE", "ADOPT TABLE"]
    assert {version: history[version].in_commit_timestamp for version in times} == times
    result = catalog.write("features", _rows(6))
    assert result.versions == {"features": 4}
    assert sorted(DeltaTable(plain).to_pyarrow_table()["id"].to_pylist()) == [1, 3, 4, 5, 6]
    assert sorted(DeltaTable(plain, version=1).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5]
    assert table.verify(deep=True).findings == ()


@pytest.mark.backends("sqlite")
def test_other_writers_are_fenced_off_and_readers_are_not(catalog: deltars.Catalog, plain: str) -> None:
    catalog.import_table(plain)
    assert FENCE in (DeltaTable(plain).protocol().writer_features or ())
    with pytest.raises((DeltaError, CommitFailedError)):
        write_deltalake(plain, _rows(9), mode="append")
    assert DeltaTable(plain).to_pyarrow_table().num_rows == 4


def test_cuts_before_the_import_do_not_see_the_table(catalog: deltars.Catalog, plain: str) -> None:
    before = catalog.write("other", _rows(1)).commit_ts
    table = catalog.import_table(plain)
    stamps = {entry.commit_ts for entry in table.history()}
    assert before is not None
    assert len(stamps) == 1
    assert min(stamps) > before


def test_a_cut_since_the_import_has_the_last_of_the_imported_versions(catalog: deltars.Catalog, plain: str) -> None:
    table = catalog.import_table(plain, name="events")
    imported = table.version
    assert imported > 1
    with catalog.begin() as tx:
        tx.write("other", _rows(1))
    assert catalog.snapshot(as_of=tx.id).versions == {"events": imported, "other": 0}


def test_a_table_is_imported_once(catalog: deltars.Catalog, plain: str) -> None:
    first = catalog.import_table(plain, "features")
    assert catalog.import_table(plain, "features") == first
    assert first.version == 3
    with pytest.raises(deltars.TableExists, match="that of the table 'features'"):
        catalog.import_table(plain, "again")
    with pytest.raises(deltars.TableExists, match="in this catalog already, as 'features'"):
        catalog.import_table(plain, "features", read_only=True)
    catalog.release("features")
    with pytest.raises(deltars.TableExists, match="in this catalog already, as 'features'"):
        catalog.import_table(plain, "features")


@pytest.mark.backends("sqlite")
def test_a_table_that_was_made_here_is_no_import(catalog: deltars.Catalog) -> None:
    place = catalog.create_table("features", "id BIGINT").location
    with pytest.raises(deltars.TableExists, match="in this catalog already, as 'features'"):
        catalog.import_table(place, "features")


@pytest.mark.backends("sqlite")
def test_an_import_goes_on_under_its_own_name_alone(catalog: deltars.Catalog, plain: str) -> None:
    catalog.import_table(plain, "features", read_only=True)
    with pytest.raises(deltars.TableExists, match="in this catalog already, as 'features'"):
        catalog.import_table(plain, "another", read_only=True)
    assert catalog.import_table(plain, read_only=True).name == "features"
    assert catalog.import_table(plain, "FEATURES", read_only=True).name == "features"


@pytest.mark.backends("sqlite")
def test_a_name_that_another_table_has_is_told_with_its_place(catalog: deltars.Catalog, plain: str) -> None:
    place = catalog.create_table("features", "id BIGINT").location
    with pytest.raises(deltars.TableExists, match=f"already a table named 'features', at {re.escape(place)}"):
        catalog.import_table(plain, "features")


def test_nothing_can_be_committed_while_the_import_is_under_way(
    catalog: deltars.Catalog, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[deltars.DeltarsError] = []

    def write(*_: object) -> None:
        if not refused:
            with pytest.raises(deltars.DeltarsError) as caught:
                catalog.write("features", _rows(9))
            refused.append(caught.value)

    catalog.import_table(plain, "features", report=write)
    assert refused
    assert _ids(catalog.table("features")) == [1, 3, 4, 5]


def _import_but_for_the_end(catalog: deltars.Catalog, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, suppress(_Interrupted):
        patch.setattr("deltars.store.imports.import_writer.ImportWriter.finish", _Steps(1).counted(ImportWriter.finish))
        catalog.import_table(plain, "features", read_only=True)
        pytest.fail("the import came to its end")


def test_versions_of_an_import_under_way_are_seen_by_nobody(
    catalog: deltars.Catalog, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _import_but_for_the_end(catalog, plain, monkeypatch)
    table, reader = catalog.table("features"), deltars.SqlTxnLogReader(catalog)
    assert (table.version, table.history(), table.history(since=0)) == (-1, [], [])
    asked: list[dict[str, Any]] = [{}, {"version": 1}, {"timestamp": "2999-01-01"}]
    for options in asked:
        with pytest.raises(deltars.VersionNotFound, match="nothing was committed to the table yet"):
            table.snapshot(**options)
    with pytest.raises(deltars.VersionNotFound, match="nothing was committed to the table yet"):
        reader.changes(table.id, 0)
    # The first three are there, and one more under way.
    catalog.import_table(plain, "features", read_only=True)
    write_deltalake(plain, _rows(7), mode="append")
    _import_but_for_the_end(catalog, plain, monkeypatch)
    assert [entry.version for entry in table.history()] == [2, 1, 0]
    with pytest.raises(deltars.VersionNotFound, match=r"there is no version 3 .*versions 0 to 2"):
        table.snapshot(3)
    assert catalog.import_table(plain, "features", read_only=True).history(1)[0].version == 3


def test_raw_commits_to_a_held_table_are_refused_by_reason(catalog: deltars.Catalog, plain: str) -> None:
    table = catalog.import_table(plain, "features", read_only=True)
    with pytest.raises(deltars.TableHeld, match="imported read-only"):
        catalog.write("features", _rows(9))
    assert _ids(table) == [1, 3, 4, 5]


@pytest.mark.backends("postgres", "sqlite")
def test_a_read_only_import_follows_its_owner_when_asked(catalog: deltars.Catalog, plain: str) -> None:
    catalog.import_table(plain, "features", read_only=True)
    write_deltalake(plain, _rows(7), mode="append")
    table = catalog.import_table(plain, "features", read_only=True)
    assert (table.version, _ids(table)) == (3, [1, 3, 4, 5, 7])
    assert catalog.adopt("features") == 4
    catalog.write("features", _rows(8))
    assert _ids(table) == [1, 3, 4, 5, 7, 8]


class _Interrupted(Exception):
    pass


class _Steps:
    """Stops an import before one of its steps: a transaction of the copy, the fence, the last transaction."""

    def __init__(self, stop_at: int) -> None:
        self.count = 0
        self._stop_at = stop_at

    def counted(self, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self._stop_at:
                raise _Interrupted
            return original(*args, **kwargs)

        return call


@pytest.mark.backends("postgres", "sqlite")
def test_an_import_interrupted_anywhere_is_finished_by_running_it_again(
    catalog: deltars.Catalog, plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stop_at in range(1, 100):
        steps, name = _Steps(stop_at), f"table-{stop_at}"
        place = str(tmp_path / name)
        shutil.copytree(plain, place)
        with monkeypatch.context() as patch, suppress(_Interrupted):
            patch.setattr("deltars.store.imports.appender.FLUSH_ROWS", 2)
            patch.setattr("deltars.store.imports.appender.Appender._write", steps.counted(Appender._write))
            patch.setattr("deltars.importer.importer.fence_commit", steps.counted(fence_commit))
            patch.setattr("deltars.store.imports.import_writer.ImportWriter.finish", steps.counted(ImportWriter.finish))
            catalog.import_table(place, name)
        was_stopped = steps.count == stop_at
        assert (catalog.table(name).version < 0) == was_stopped
        if was_stopped:
            catalog.import_table(place, name)
        table = catalog.table(name)
        assert [_ids(table, version=version) for version in range(table.version + 1)] == [
            [1, 2, 3], [1, 2, 3, 4, 5], [1, 3, 4, 5], [1, 3, 4, 5],
        ]  # fmt: skip
        if not was_stopped:
            break
    assert stop_at > 6


def test_an_import_killed_after_its_last_step_is_finished_by_running_it_again(
    catalog: deltars.Catalog, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        monkeypatch.setattr(CatalogSession, "publish_registration", die)
        catalog.import_table(plain, "features")

    catalog.close()
    assert in_child(run) == -signal.SIGKILL
    table = catalog.import_table(plain, "features")
    assert (table.version, _ids(table)) == (3, [1, 3, 4, 5])
    assert Path(str(catalog.warehouse), f"_deltars/tables/{table.id}.json").exists()


@pytest.mark.soak
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("read_only", [False, True], ids=["ours", "read-only"])
def test_an_import_killed_anywhere_is_finished_by_running_it_again(
    catalog: deltars.Catalog, plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    """After its last step too: nobody heard that it was finished."""
    kept = [[1, 2, 3], [1, 2, 3, 4, 5], [1, 3, 4, 5]]
    ended = -signal.SIGKILL
    for stop_at in range(1 + seed() % scaled(4, soak=1), 100, scaled(4, soak=1)):
        if ended != -signal.SIGKILL:
            break
        name, left = f"table-{stop_at}", [stop_at]
        place = str(tmp_path / name)
        shutil.copytree(plain, place)
        catalog.close()

        def killing(original: Any, left: list[int] = left) -> Any:
            """Dies before the step, and for the last ones after it."""

            def call(*args: Any, **kwargs: Any) -> Any:
                for act in (None, original):
                    answer = None if act is None else act(*args, **kwargs)
                    left[0] -= 1
                    if left[0] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                return answer

            return call

        def run(place: str = place, name: str = name, killing: Any = killing) -> None:
            monkeypatch.setattr(ImportWriter, "register", killing(ImportWriter.register))
            monkeypatch.setattr(Appender, "flush", killing(Appender.flush))
            monkeypatch.setattr(LocalStorage, "put_if_absent", killing(LocalStorage.put_if_absent))
            monkeypatch.setattr(ImportWriter, "finish", killing(ImportWriter.finish))
            monkeypatch.setattr(CatalogSession, "publish_registration", killing(CatalogSession.publish_registration))
            catalog.import_table(place, name, read_only=read_only)

        ended = in_child(run)
        table = catalog.import_table(place, name, read_only=read_only)
        assert catalog.import_table(place, name, read_only=read_only) == table
        expected = kept if read_only else [*kept, kept[-1]]
        assert [_ids(table, version=version) for version in range(table.version + 1)] == expected
        assert Path(str(catalog.warehouse), f"_deltars/tables/{table.id}.json").exists()
    assert ended == 0
    assert stop_at > 8


@pytest.mark.backends("sqlite")
def test_a_refused_import_killed_while_it_is_taken_back_is_in_nobodys_way(
    catalog: deltars.Catalog, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.close()

    def run() -> None:
        """Between the two transactions of `unregister`."""
        writer = ImportWriter(catalog._session.database)
        table_id = uuid4()
        writer.register(NewTable(table_id, "features", plain))
        monkeypatch.setattr("deltars.store.imports.import_writer.delete", killing_at_table)
        writer.unregister(table_id)

    def killing_at_table(table: Any) -> Any:
        return os.kill(os.getpid(), signal.SIGKILL) if table is dl_tables else delete(table)

    assert in_child(run) == -signal.SIGKILL
    assert _ids(catalog.import_table(plain, "features")) == [1, 3, 4, 5]


@pytest.mark.backends("sqlite")
@pytest.mark.soak
def test_a_writer_that_commits_during_the_import_loses_nothing(catalog: deltars.Catalog, tmp_path: Path) -> None:
    place = str(tmp_path / "busy")
    write_deltalake(place, _rows(0))
    committed = [0]
    stop = threading.Event()

    def append() -> None:
        for number in range(1, 100_000):
            if stop.is_set():
                return
            try:
                write_deltalake(place, _rows(number), mode="append")
            except (DeltaError, CommitFailedError):
                return  # fenced off
            committed.append(number)

    writers = threading.Thread(target=append)
    writers.start()
    try:
        while len(committed) < scaled(5, soak=200):
            stop.wait(0.01)
        table = catalog.import_table(place, "busy")
    finally:
        writers.join(timeout=20)
        stop.set()
    assert not writers.is_alive()
    assert _ids(table) == committed
    assert sorted(DeltaTable(place).to_pyarrow_table()["id"].to_pylist()) == committed


@pytest.mark.backends("sqlite")
def test_a_version_lost_to_a_foreign_commit_is_imported_and_the_fence_comes_after_it(
    catalog: deltars.Catalog, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    races: list[int] = []

    def slow_fence(*args: Any, **kwargs: Any) -> bytes:
        if len(races) < 3:
            races.append(len(races))
            write_deltalake(plain, _rows(100 + len(races)), mode="append")
        return fence_commit(*args, **kwargs)

    monkeypatch.setattr("deltars.importer.importer.fence_commit", slow_fence)
    table = catalog.import_table(plain)
    assert (table.version, _ids(table)) == (6, [1, 3, 4, 5, 101, 102, 103])


# -- out and back ------------------------------------------------------------------------------------------------------


def test_a_released_table_is_written_by_others_and_adopted_with_what_they_committed(
    catalog: deltars.Catalog,
) -> None:
    catalog.create_table("t", "id BIGINT, day STRING")
    catalog.write("t", _rows(1))
    table = catalog.table("t")
    assert catalog.release("t") == 2
    assert catalog.release("t") == 2
    with pytest.raises(deltars.TableHeld, match="released to other writers"):
        catalog.write("t", _rows(9))
    assert _ids(table) == [1]
    _append_plain(table.location, 2)
    _append_plain(table.location, 3)
    assert _ids(table) == [1]
    assert catalog.adopt("t") == 5
    assert catalog.adopt("t") == 5
    assert _ids(table) == [1, 2, 3]
    catalog.write("t", _rows(4))
    assert (table.version, _ids(table)) == (6, [1, 2, 3, 4])
    assert sorted(DeltaTable(table.location).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4]
    assert _ids(table, version=3) == [1, 2]
    assert table.verify(deep=True).findings == ()


def _append_plain(location: str, number: int) -> None:
    """By a writer that knows nothing of us."""
    write_deltalake(location, _rows(number), mode="append")


@pytest.mark.backends("sqlite")
def test_a_table_that_is_not_published_by_itself_is_published_before_it_is_released(
    catalog: deltars.Catalog,
) -> None:
    catalog.create_table("t", "id BIGINT, day STRING", properties={"deltars.mirror": "off"})
    catalog.write("t", _rows(1))
    assert catalog.release("t") == 2
    assert DeltaTable(catalog.table("t").location).to_pyarrow_table().num_rows == 1


@pytest.mark.backends("sqlite")
def test_a_release_that_cannot_publish_leaves_the_table_to_the_catalog(
    catalog: deltars.Catalog, catalog_uri: str
) -> None:
    catalog.create_table("t", "id BIGINT, day STRING", properties={"deltars.mirror": "off"})
    catalog.write("t", _rows(1))
    log = Path(catalog.table("t").location) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{1:020}.json").write_text('{"commitInfo":{"operation":"somebody else"}}\n')
    with pytest.raises(deltars.MirrorFailure):
        catalog.release("t")
    # Not held: its log diverged, and who allows that may go on.
    with pytest.raises(deltars.LogDiverged, match="nothing can be committed"):
        catalog.write("t", _rows(2))
    catalog.close()
    with deltars.connect(catalog_uri, allow_diverged=True) as allowing:
        allowing.write("t", _rows(2))
        assert _ids(allowing.table("t")) == [1, 2]


@pytest.mark.backends("sqlite")
def test_a_log_that_was_rewritten_while_released_is_not_adopted(catalog: deltars.Catalog) -> None:
    catalog.create_table("t", "id BIGINT, day STRING")
    version = catalog.release("t")
    location = catalog.table("t").location
    commit = Path(location) / "_delta_log" / f"{version:020}.json"
    commit.write_bytes(commit.read_bytes().replace(b"RELEASE TABLE", b"SOMETHING ELSE"))
    with pytest.raises(deltars.LogDiverged, match="differs from version"):
        catalog.adopt("t")
    with pytest.raises(deltars.TableHeld):
        catalog.write("t", _rows(1))


@pytest.mark.backends("sqlite")
def test_a_table_of_another_catalog_is_taken_only_when_told_to(catalog: deltars.Catalog, tmp_path: Path) -> None:
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/other.db", warehouse=str(tmp_path / "theirs")) as other:
        other.create_table("t", "id BIGINT, day STRING")
        other.write("t", _rows(1))
        location = other.table("t").location
    with pytest.raises(deltars.UnsupportedFeature, match="another deltars catalog"):
        catalog.import_table(location)
    assert not catalog.tables()
    table = catalog.import_table(location, take_over=True)
    catalog.write("t", _rows(2))
    assert _ids(table) == [1, 2]


@pytest.mark.backends("sqlite")
def test_a_table_moves_to_another_catalog_with_its_history(catalog: deltars.Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("t", "id BIGINT, day STRING")
    for number in range(3):
        catalog.write("t", _rows(number))
    released = catalog.release("t")
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/other.db", warehouse=str(tmp_path / "theirs")) as other:
        moved = other.import_table(table.location, name="t")
        catalog.drop_table("t")
        other.write("t", _rows(3))
        assert _ids(moved) == [0, 1, 2, 3]
        assert _ids(other.table("t"), version=2) == [0, 1]
        assert moved.location == table.location
        assert moved.version > released
        assert moved.verify(deep=True).findings == ()
    assert not catalog.tables()
    assert sorted(DeltaTable(table.location).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.backends("sqlite")
def test_importer_follows_only_held_tables(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    with pytest.raises(deltars.TableHeld, match="nothing to follow"):
        Importer(catalog._session.database).follow(table.id)
