"""`verify` finds every kind of difference, and only differences; the clean-up leaves what readers need."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

import deltars
from deltars.cli import main
from deltars.mirror.orphans import find_orphans
from deltars.mirror.verify import Problem
from deltars.protocol import AddFile, DeletionVector
from deltars.storage import ObjectInfo
from deltars.storage.local import LocalStorage
from tests.mirror.ledger import version_names
from tests.mirror.steps import stepping
from tests.support.handmade_log import CHECKPOINT_HEAD, HandmadeLog, add, checkpointed, sidecar

# DuckDB has one process, and its statements are tried by the publisher's tests.
pytestmark = pytest.mark.backends("postgres", "sqlite")

ROWS = pa.table({"id": [1, 2], "p": ["a b", "c/d"]})


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    catalog.create_table("t", "id BIGINT, p STRING", partition_by=["p"])
    for _ in range(11):
        catalog.write("t", ROWS)
    catalog._session.publisher.close()
    return catalog.table("t")


def commit_file(table: deltars.Table, version: int) -> Path:
    return Path(table.location, "_delta_log", f"{version:020}.json")


def data_file(table: deltars.Table) -> Path:
    return min(Path(table.location).rglob("part-*.parquet"))


def leave(table: deltars.Table, name: str, *, age: timedelta) -> Path:
    """A file that no version names, as if it had been written some time ago."""
    file = Path(table.location, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"123")
    moment = time.time() - age.total_seconds()
    os.utime(file, (moment, moment))
    return file


def found(table: deltars.Table, **options: Any) -> list[tuple[Problem, str]]:
    return [(finding.problem, finding.file.rpartition("/")[2]) for finding in table.verify(**options).findings]


def test_table_as_it_was_written_has_no_difference(table: deltars.Table) -> None:
    checked = table.verify(deep=True, orphans=True, min_age=timedelta(0))
    assert checked.findings == ()
    assert checked.is_ok
    assert (checked.commits, checked.data_files, checked.published_version) == (12, 22, 11)


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_commits_and_checkpoints_meanwhile_are_no_difference(
    table: deltars.Table, catalog: deltars.Catalog, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = LocalStorage.list

    def commit() -> None:
        for _ in range(10):
            catalog.write("t", ROWS)
        catalog._session.publisher.close()

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
    leave(table, "left over.parquet", age=timedelta(days=3, hours=2))
    assert found(table) == []
    checked = table.verify(orphans=True)
    [orphan] = checked.findings
    assert (orphan.problem, orphan.detail) == (Problem.ORPHAN, "3 bytes that the log never named, 3 days old")
    assert orphan.size_bytes == 3
    assert orphan.age_s == pytest.approx(74 * 3600, abs=60)
    assert orphan.file.endswith("left%20over.parquet")
    assert checked.is_ok


@pytest.mark.backends("sqlite")
def test_files_of_a_transaction_in_flight_are_counted_and_not_listed(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    with catalog.begin() as tx:
        tx.write("t", ROWS)
        checked = table.verify(orphans=True)
        assert (checked.findings, checked.young_files) == ((), 2)
        assert checked.young_bytes > 0
        assert [problem for problem, _ in found(table, orphans=True, min_age=timedelta(0))] == [Problem.ORPHAN] * 2
    checked = table.verify(orphans=True, min_age=timedelta(0))
    assert (checked.findings, checked.young_files) == ((), 0)


@pytest.mark.parametrize(
    ("age", "min_age", "is_listed"),
    [
        (timedelta(hours=23), None, False),
        (timedelta(hours=25), None, True),
        (timedelta(hours=2), timedelta(hours=1), True),
        (timedelta(minutes=59), timedelta(hours=1), False),
        (timedelta(days=-400), None, False),
        (timedelta(days=-400), timedelta(0), True),
    ],
    ids=str,
)
@pytest.mark.backends("sqlite")
def test_orphan_is_listed_from_its_least_age_on_and_one_of_the_future_is_young(
    table: deltars.Table, age: timedelta, min_age: timedelta | None, is_listed: bool
) -> None:
    leave(table, "left.parquet", age=age)
    checked = table.verify(orphans=True) if min_age is None else table.verify(orphans=True, min_age=min_age)
    assert (len(checked.findings), checked.young_files) == ((1, 0) if is_listed else (0, 1))


@pytest.mark.backends("sqlite")
def test_the_clock_that_is_behind_tells_the_age(table: deltars.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(table, "left.parquet", age=timedelta(hours=1))

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(days=30)

    monkeypatch.setattr("deltars.mirror.orphans.datetime", Ahead)
    assert found(table, orphans=True) == []
    monkeypatch.undo()
    ahead_us = int((time.time() + 30 * 86_400) * 1_000_000)
    files = find_orphans([ObjectInfo("a", 1, datetime.now(UTC))], [], now_us=ahead_us, min_age=timedelta(days=1))
    assert (files.old, files.young_files) == ((), 1)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("min_age", [timedelta(seconds=-1), 5])
def test_least_age_that_is_none_is_refused(table: deltars.Table, min_age: Any) -> None:
    with pytest.raises(deltars.ValidationError, match="min_age must be a timedelta of 0 or more"):
        table.verify(orphans=True, min_age=min_age)


@pytest.mark.backends("sqlite")
def test_command_says_how_many_orphans_were_left_out_and_why(table: deltars.Table, catalog_uri: str) -> None:
    leave(table, "new.parquet", age=timedelta(minutes=5))
    leave(table, "old.parquet", age=timedelta(days=2))
    command = ["verify", "t", "--catalog", catalog_uri, "--orphans"]
    run = CliRunner().invoke(main, command)
    assert (run.exit_code, run.stdout.count("\n")) == (0, 1)
    assert "old.parquet\t3 bytes that the log never named, 2 days old" in run.stdout
    assert "Ignored 1 orphans (3 bytes) younger than 24 hours: a running job may still commit them." in run.stderr
    run = CliRunner().invoke(main, [*command, "--min-age", "0", "--json"])
    assert [(Path(finding["file"]).name, finding["size_bytes"]) for finding in json.loads(run.stdout)] == [
        ("new.parquet", 3),
        ("old.parquet", 3),
    ]
    assert run.stderr == ""


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
    assert found(table, deep=True, orphans=True, min_age=timedelta(0)) == []
    (log / "notes.txt").write_bytes(b"123")
    assert found(table) == [(Problem.EXTRA, "notes.txt")]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("name", ["checkpoint", f"checkpoint.{1:010}.{2:010}", f"checkpoint.{'a' * 36}"])
def test_checkpoint_of_a_version_that_was_never_committed_is_found(table: deltars.Table, name: str) -> None:
    file = commit_file(table, 99).with_name(f"{99:020}.{name}.parquet")
    file.write_bytes(b"123")
    assert found(table, deep=True) == [(Problem.EXTRA, file.name)]


HIDDEN = [
    ".s3-optimization-0",
    "_trino_meta/extended_stats.json",
    ".tmp/00000000000000000099.json",
    "_staged_commits/00000000000000000099.7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d11.json",
    "_commits/00000000000000000099.json",
    "_last_vacuum_info",
    ".00000000000000000003.json.swp",
    "00000000000000000003.json~",
    "#00000000000000000003.json#",
    "._00000000000000000003.json",
    ".DS_Store",
    "Thumbs.db",
    "_SUCCESS",
    "_committed_123",
    "_started_123",
    ".notes.txt.crc",
    "_sidecars_$folder$",
    "00000000000000000099.json.7d0f2c0e.tmp",
]


@pytest.mark.backends("sqlite")
def test_files_that_readers_pass_over_are_no_difference_and_no_orphans(table: deltars.Table) -> None:
    root = Path(table.location)
    for name in HIDDEN:
        for directory in (root / "_delta_log", root, root / "p=a b"):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(b"123")
    (root / "_delta_log_$folder$").write_bytes(b"")
    assert found(table, deep=True, orphans=True, min_age=timedelta(0)) == []
    names = ["_change_data/cdc-1.parquet", "_delta_index/x", "deletion_vector_1.bin"]
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"123")
    assert found(table) == []
    assert [file for _, file in found(table, orphans=True, min_age=timedelta(0))] == [
        name.rpartition("/")[2] for name in names
    ]


@pytest.mark.backends("sqlite")
def test_file_in_the_directory_of_a_hidden_looking_partition_is_an_orphan(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("u", "id BIGINT, _p STRING", partition_by=["_p"])
    catalog.write("u", pa.table({"id": [1], "_p": ["a"]}))
    Path(table.location, "_p=a", "stray.parquet").write_bytes(b"123")
    Path(table.location, "_q").write_bytes(b"123")
    assert found(table, orphans=True, min_age=timedelta(0)) == [(Problem.ORPHAN, "stray.parquet")]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("version", "content", "is_found"),
    [
        (1, '{"tableSizeBytes":SIZE,"numFiles":1}', False),
        (1, '{"txnId":null,"tableSizeBytes":SIZE,"numFiles":1,"allFiles":[]}', False),
        (1, '{"txnId":"mine","tableSizeBytes":SIZE,"numFiles":1}', False),
        (1, '{"histogram":{}}', False),
        (1, '{"tableSizeBytes":SIZE,"numFiles":2}', True),
        (1, '{"tableSizeBytes":1,"numFiles":1}', True),
        (3, '{"tableSizeBytes":SIZE,"numFiles":2}', True),
    ],
)
def test_checksum_of_other_writers_need_only_add_up(
    catalog: deltars.Catalog, tmp_path: Path, version: int, content: str, is_found: bool
) -> None:
    log = HandmadeLog(tmp_path / "plain")
    size = (log.root / "a.parquet").stat().st_size
    log.commit(1, add(size=size))
    table = catalog.import_table(str(log.root))
    catalog.write(table.name, pa.table({"id": [1]}))
    catalog._session.publisher.close()
    file = log.log / f"{version:020}.crc"
    file.write_text(content.replace("SIZE", str(size)))
    assert found(table, deep=True) == ([(Problem.DIFFERENT, file.name)] if is_found else [])


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("is_absolute", [False, True])
def test_v2_checkpoint_under_a_classic_name_is_read_with_its_sidecars(
    catalog: deltars.Catalog, tmp_path: Path, is_absolute: bool
) -> None:
    log = HandmadeLog(tmp_path / "plain")
    files = [checkpointed("a.parquet"), checkpointed("b.parquet")]
    os.link(log.root / "a.parquet", log.root / "b.parquet")
    for file in files:
        file["add"]["size"] = (log.root / "a.parquet").stat().st_size
    log.commit(1, *(add(file["add"]["path"], size=file["add"]["size"]) for file in files))
    listed = log.checkpoint("_sidecars/one.parquet", files)
    classic = log.checkpoint(
        f"{1:020}.checkpoint.parquet", [*CHECKPOINT_HEAD, sidecar(str(listed) if is_absolute else "one.parquet")]
    )
    table = catalog.import_table(str(log.root))
    assert found(table, deep=True) == []
    log.checkpoint("_sidecars/one.parquet", files[:1])
    [finding] = table.verify(deep=True).findings
    assert (Path(finding.file).name, finding.detail) == (classic.name, "has 0 files too many and 1 too few")
    listed.unlink()
    [finding] = table.verify(deep=True).findings
    assert (Path(finding.file).name, finding.detail.partition(":")[0]) == (classic.name, "cannot be read")
    log.checkpoint(classic.name, [*CHECKPOINT_HEAD, sidecar("../../../out.parquet")])
    [finding] = table.verify(deep=True).findings
    assert finding.detail.startswith("cannot be read")


@pytest.mark.backends("sqlite")
def test_table_of_others_may_be_ahead_of_the_catalog(catalog: deltars.Catalog, tmp_path: Path) -> None:
    place = str(tmp_path / "plain")
    write_deltalake(place, ROWS)
    table = catalog.import_table(place, "theirs", read_only=True)
    write_deltalake(place, ROWS, mode="append")
    DeltaTable(place).create_checkpoint()
    assert found(table, deep=True) == []
    Path(place, "_delta_log", "notes.txt").write_text("hello")
    assert found(table) == [(Problem.EXTRA, "notes.txt")]


@pytest.mark.backends("sqlite")
def test_hint_that_nobody_can_read_is_a_difference_where_it_was_ours(
    table: deltars.Table, catalog: deltars.Catalog, tmp_path: Path
) -> None:
    log = HandmadeLog(tmp_path / "plain")
    (log.log / HINT).write_text('{"version"')
    theirs = catalog.import_table(str(log.root), "theirs")
    assert found(theirs) == []
    commit_file(table, 3).with_name(HINT).write_text('{"version"')
    assert found(table) == [(Problem.DIFFERENT, HINT)]


@pytest.mark.backends("sqlite")
def test_command_says_what_differs_and_exits_with_one(table: deltars.Table, catalog_uri: str) -> None:
    run = CliRunner().invoke(main, ["verify", "t", "--catalog", catalog_uri, "--deep"])
    assert (run.exit_code, run.output) == (0, "")
    remove_commit(table)
    run = CliRunner().invoke(main, ["verify", "t", "--catalog", catalog_uri, "--json"])
    assert run.exit_code == 1
    [finding] = json.loads(run.output)
    assert (finding["problem"], finding["detail"]) == ("missing", "is missing; it was published")


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
    catalog._session.publish({table.id: 1})
    catalog._session.publisher.close()
    return table


def vector_file(table: deltars.Table) -> Path:
    return Path(table.location, "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")


@pytest.mark.backends("sqlite")
def test_file_of_a_deletion_vector_is_no_orphan(marked: deltars.Table) -> None:
    leave(marked, "ab/stray.bin", age=timedelta(days=2))
    assert found(marked, deep=True, orphans=True) == [(Problem.ORPHAN, "stray.bin")]


@pytest.mark.backends("sqlite")
def test_file_of_a_deletion_vector_that_is_too_short_or_gone_is_found(marked: deltars.Table) -> None:
    file = vector_file(marked)
    file.write_bytes(bytes(51))
    [finding] = marked.verify().findings
    assert (finding.problem, finding.detail) == (Problem.DIFFERENT, "has 51 bytes, but a deletion vector ends at 52")
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
    assert finding.detail == "has 1 files too many and 1 too few"


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
