"""`verify` finds every kind of difference, and only differences; the clean-up leaves what readers need."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

import deltars
from deltars.cli import main
from deltars.mirror.verify import Problem
from deltars.protocol import AddFile, DeletionVector
from deltars.storage import ObjectInfo
from deltars.storage.local import LocalStorage
from tests.mirror.ledger import version_names
from tests.mirror.steps import stepping
from tests.support.handmade_log import CHECKPOINT_HEAD, HandmadeLog, checkpointed

ROWS = pa.table({"id": [1, 2], "p": ["a b", "c/d"]})


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    catalog.create_table("t", "id BIGINT, p STRING", partition_by=["p"])
    for _ in range(11):
        catalog.write("t", ROWS)
    catalog.engine.publisher.close()
    return catalog.table("t")


def commit_file(table: deltars.Table, version: int) -> Path:
    return Path(table.location, "_delta_log", f"{version:020}.json")


def data_file(table: deltars.Table) -> Path:
    return min(Path(table.location).rglob("part-*.parquet"))


def found(table: deltars.Table, **options: Any) -> list[tuple[Problem, str]]:
    return [(finding.problem, finding.file.rpartition("/")[2]) for finding in table.verify(**options).findings]


def test_table_as_it_was_written_has_no_difference(table: deltars.Table) -> None:
    checked = table.verify(deep=True, orphans=True)
    assert checked.findings == ()
    assert checked.is_ok
    assert (checked.commits, checked.data_files, checked.published_version) == (12, 22, 11)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_commits_and_checkpoints_meanwhile_are_no_difference(
    table: deltars.Table, catalog: deltars.Catalog, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = LocalStorage.list

    def commit() -> None:
        for _ in range(10):
            catalog.write("t", ROWS)
        catalog.engine.publisher.close()

    def list_meanwhile(storage: LocalStorage, prefix: str = "") -> Iterator[ObjectInfo]:
        # Once: what publishing lists by itself is not meant.
        monkeypatch.undo()
        if moment == "before":
            commit()
        found = list(listing(storage, prefix))
        if moment == "after":
            commit()
        return iter(found)

    monkeypatch.setattr(LocalStorage, "list", list_meanwhile)
    assert found(table, deep=True) == []
    assert table.verify().published_version == 21
    assert commit_file(table, 20).with_suffix(".checkpoint.parquet").exists()


def remove_commit(table: deltars.Table) -> None:
    commit_file(table, 3).unlink()


def add_commit(table: deltars.Table) -> None:
    commit_file(table, 12).write_bytes(commit_file(table, 3).read_bytes())


def change_commit(table: deltars.Table) -> None:
    content = commit_file(table, 3).read_text()
    commit_file(table, 3).write_text(content.replace('"size":', '"size":1'))


def add_stranger(table: deltars.Table) -> None:
    commit_file(table, 3).with_name("notes.txt").write_text("hello")


def take_the_hint(table: deltars.Table) -> None:
    commit_file(table, 3).with_name("_last_checkpoint").write_text('{"version":10,"size":3}')


def remove_checkpoint(table: deltars.Table) -> None:
    commit_file(table, 10).with_suffix(".checkpoint.parquet").unlink()


def remove_data(table: deltars.Table) -> None:
    data_file(table).unlink()


def grow_data(table: deltars.Table) -> None:
    with data_file(table).open("ab") as file:
        file.write(b"x")


HINT, CHECKPOINT = "_last_checkpoint", f"{10:020}.checkpoint.parquet"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("damage", "problem", "name"),
    [
        (remove_commit, Problem.MISSING, f"{3:020}.json"),
        (add_commit, Problem.DIVERGED, f"{12:020}.json"),
        (change_commit, Problem.DIFFERENT, f"{3:020}.json"),
        (add_stranger, Problem.EXTRA, "notes.txt"),
        (take_the_hint, Problem.DIFFERENT, HINT),
        (remove_checkpoint, Problem.MISSING, CHECKPOINT),
        (remove_data, Problem.MISSING, None),
        (grow_data, Problem.DIFFERENT, None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_damage_is_found_and_named(
    table: deltars.Table, damage: Callable[[deltars.Table], None], problem: Problem, name: str | None
) -> None:
    expected = (problem, name or data_file(table).name)
    damage(table)
    assert found(table) == [expected]
    assert not table.verify().is_ok


@pytest.mark.backends("sqlite")
def test_deep_look_finds_what_only_the_content_tells(table: deltars.Table) -> None:
    checksum = commit_file(table, 5).with_suffix(".crc")
    checksum.write_text(checksum.read_text().replace('"numFiles":10', '"numFiles":11'))
    checkpoint = commit_file(table, 10).with_suffix(".checkpoint.parquet")
    content = pq.read_table(checkpoint)
    pq.write_table(content.slice(0, len(content) - 1), checkpoint)
    file = data_file(table)
    pq.write_table(pa.table({"id": [1, 2, 3]}), file)
    size = file.stat().st_size
    assert found(table) == [(Problem.DIFFERENT, file.name)]
    findings = {finding.file.rpartition("/")[2]: finding.detail for finding in table.verify(deep=True).findings}
    assert set(findings) == {checksum.name, checkpoint.name, file.name}
    assert "1 too few" in findings[checkpoint.name]
    assert str(size) in findings[file.name] or "3 rows" in findings[file.name]


@pytest.mark.backends("sqlite")
def test_files_that_nobody_tracks_are_listed_when_asked_for_and_are_no_difference(table: deltars.Table) -> None:
    Path(table.location, "left over.parquet").write_bytes(b"123")
    assert found(table) == []
    checked = table.verify(orphans=True)
    [orphan] = checked.findings
    assert (orphan.problem, orphan.detail) == (Problem.ORPHAN, "3 bytes that the log never named")
    assert orphan.file.endswith("left%20over.parquet")
    assert checked.is_ok


@pytest.mark.backends("sqlite")
def test_what_other_writers_leave_beside_a_log_is_no_difference(table: deltars.Table) -> None:
    log = commit_file(table, 0).parent
    names = [
        f"{3:020}.checkpoint.{1:010}.{2:010}.parquet",
        f"_sidecars/{table.id}.parquet",
        f"{1:020}.{2:020}.compacted.json",
    ]
    data_file(table).with_name(f".{data_file(table).name}.crc").write_bytes(b"123")
    for name in [*names, f".{3:020}.json.crc", "._last_checkpoint.crc"]:
        (log / name).parent.mkdir(exist_ok=True)
        (log / name).write_bytes(b"123")
    assert found(table, deep=True, orphans=True) == []
    (log / ".notes.txt.crc").write_bytes(b"123")
    assert found(table) == [(Problem.EXTRA, ".notes.txt.crc")]


@pytest.mark.backends("sqlite")
def test_command_says_what_differs_and_exits_with_one(table: deltars.Table, catalog_uri: str) -> None:
    run = CliRunner().invoke(main, ["verify", "t", "--catalog", catalog_uri, "--deep"])
    assert (run.exit_code, run.output) == (0, "")
    remove_commit(table)
    run = CliRunner().invoke(main, ["verify", "t", "--catalog", catalog_uri, "--json"])
    assert run.exit_code == 1
    [finding] = json.loads(run.output)
    assert (finding["problem"], finding["detail"]) == ("missing", "was published and is gone")


@pytest.fixture
def marked(catalog: deltars.Catalog) -> deltars.Table:
    """A table of one file, some of whose rows are deleted, with a checkpoint."""
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "1"}
    table = catalog.create_table("v", "id BIGINT", properties=properties)
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
    )
    pq.write_table(pa.table({"id": range(9)}), Path(table.location, "1.parquet"))
    file = AddFile(
        path="1.parquet",
        partition_values={},
        size=Path(table.location, "1.parquet").stat().st_size,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":9}',
        deletion_vector=vector,
    )
    vector_file(table).parent.mkdir()
    vector_file(table).write_bytes(bytes(4 + 4 + 40 + 4))
    deltars.SqlTxnLogWriter(catalog).commit(table.id, 1, [file], operation="WRITE")
    catalog.engine.publish({table.id: 1})
    catalog.engine.publisher.close()
    return table


def vector_file(table: deltars.Table) -> Path:
    return Path(table.location, "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")


@pytest.mark.backends("sqlite")
def test_file_of_a_deletion_vector_is_no_orphan(marked: deltars.Table) -> None:
    vector_file(marked).with_name("stray.bin").write_bytes(b"123")
    assert found(marked, deep=True, orphans=True) == [(Problem.ORPHAN, "stray.bin")]


@pytest.mark.backends("sqlite")
def test_file_of_a_deletion_vector_that_is_too_short_or_gone_is_found(marked: deltars.Table) -> None:
    file = vector_file(marked)
    file.write_bytes(bytes(51))
    [finding] = marked.verify().findings
    assert (finding.problem, finding.detail) == (Problem.DIFFERENT, "has 51 bytes, and a deletion vector ends at 52")
    file.unlink()
    assert found(marked) == [(Problem.MISSING, file.name)]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("offset", [1, None], ids=["another vector", "no vector"])
def test_checkpoint_with_other_deleted_rows_is_found_by_a_deep_look(marked: deltars.Table, offset: int | None) -> None:
    file = commit_file(marked, 1).with_suffix(".checkpoint.parquet")
    content = pq.read_table(file)
    rows = content.to_pylist()
    for row in rows:
        if row["add"] is not None:
            row["add"]["deletionVector"] = row["add"]["deletionVector"] | {"offset": 1} if offset else None
    pq.write_table(pa.Table.from_pylist(rows, content.schema), file)
    assert found(marked) == []
    [finding] = marked.verify(deep=True).findings
    assert (finding.problem, Path(finding.file).name) == (Problem.DIFFERENT, file.name)
    assert finding.detail == "holds 1 files too many and 1 too few"


def test_checkpoint_that_came_with_an_imported_table_is_no_difference_and_a_later_one_is(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    place = str(tmp_path / "plain")
    for _ in range(3):
        write_deltalake(place, ROWS, mode="append")
    DeltaTable(place).create_checkpoint()
    table = catalog.import_table(place, "imported")
    assert found(table, deep=True) == []
    catalog.write("imported", ROWS)
    assert found(table, deep=True) == []
    DeltaTable(place).create_checkpoint()
    assert found(table) == [(Problem.DIFFERENT, HINT)]
    commit_file(table, 2).with_name(HINT).write_text('{"version":1,"size":3}')
    assert found(table) == [(Problem.MISSING, f"{1:020}.checkpoint.parquet")]


@pytest.mark.backends("sqlite")
def test_what_is_left_of_versions_before_an_import_began_is_no_difference(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    log = HandmadeLog(tmp_path / "plain")
    (log.log / f"{0:020}.json").unlink()
    file = checkpointed("a.parquet")
    file["add"]["size"] = (log.root / "a.parquet").stat().st_size
    log.checkpoint(f"{2:020}.checkpoint.parquet", CHECKPOINT_HEAD)
    log.checkpoint(f"{4:020}.checkpoint.parquet", [*CHECKPOINT_HEAD, file])
    (log.log / f"{2:020}.crc").write_text('{"tableSizeBytes":0,"numFiles":0}')
    log.commit(5, {"txn": {"appId": "a", "version": 1}})
    table = catalog.import_table(str(log.root))
    assert [entry.version for entry in table.history()] == [6, 5, 4]
    assert found(table, deep=True) == []


@pytest.mark.backends("sqlite")
def test_deep_look_fetches_each_commit_once(table: deltars.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    with stepping(monkeypatch, lambda what, path: fetched.append(path) if what == "get" else None):
        assert found(table, deep=True) == []
    commits = [path.rpartition("/")[2] for path in fetched if path.endswith(".json")]
    assert sorted(commits) == version_names(12)


@pytest.mark.backends("postgres", "sqlite")
def test_clean_up_keeps_a_checkpoint_and_all_after_it_and_nobody_mends_it(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    assert table.clean_up_log() == []
    catalog.set_properties("t", {"delta.logRetentionDuration": "interval 0 seconds"})
    for _ in range(2):
        catalog.write("t", ROWS)
    log = commit_file(table, 0).parent
    of_others = {f".{3:020}.json.crc", f"{4:020}.checkpoint.{1:010}.{1:010}.parquet"}
    for name in of_others:
        (log / name).write_bytes(b"")
    gone = {name.rpartition("/")[2] for name in table.clean_up_log()}
    assert gone == {f"{version:020}.{kind}" for version in range(10) for kind in ("json", "crc")} | of_others
    assert sorted(path.name for path in log.glob("*.json")) == version_names(15)[10:]
    assert catalog.reconciler().once().repairs == []
    assert table.verify(deep=True).is_ok
    assert DeltaTable(table.location).version() == 14
    assert DeltaTable(table.location, version=10).version() == 10
    assert table.snapshot(3).version == 3
    assert os.path.exists(log / CHECKPOINT)
