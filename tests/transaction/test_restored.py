"""A process that lives through a restore: version numbers that it knows now mean something else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pyarrow as pa
import pytest

import deltars
from deltars.data.scan import Scan
from deltars.errors import DatabaseError, ValidationError, VersionConflict, VersionNotFound
from deltars.protocol import Action
from deltars.protocol.log_files import checksum_path
from deltars.storage import open_storage
from deltars.store.mirror.checkpoint_state import CheckpointRows
from deltars.uri import parse_catalog_uri
from tests.support.backup import Backup, take_backup
from tests.support.clock import clock_of
from tests.support.log import added, metadata, removed
from tests.support.postgres import PostgresServer

BackUp: TypeAlias = Callable[[deltars.Catalog], Backup]

PQ, QP = "id BIGINT, p BIGINT, q BIGINT", "id BIGINT, q BIGINT, p BIGINT"


@pytest.fixture
def living(catalog_uri: str, tmp_path: Path) -> Iterator[deltars.Catalog]:
    """The catalog of this process. Its commits are not published: a mirror after a restore is another matter."""
    warehouse = str(tmp_path / "warehouse")
    with deltars.connect(catalog_uri, warehouse=warehouse, migrate=True, mirror="off") as opened:
        yield opened


@pytest.fixture
def back_up(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> BackUp:
    server: PostgresServer | None = request.getfixturevalue("postgres_server") if backend == "postgres" else None
    return lambda catalog: take_backup(catalog, tmp_path / f"backup-{uuid4()}", server)


def _rows(p: int, q: int) -> pa.Table:
    return pa.table({"id": [1], "p": [p], "q": [q]})


def _elsewhere(catalog: deltars.Catalog, act: Callable[[deltars.Catalog], object]) -> None:
    """By another process's catalog: nothing of it is known here."""
    with deltars.connect(catalog._session.uri.with_secrets(), mirror="off") as other:
        act(other)


def test_bounds_are_those_of_the_schema_that_the_version_has_now(living: deltars.Catalog, back_up: BackUp) -> None:
    living.create_table("t", "id BIGINT")
    saved = back_up(living)
    living.create_table("t", PQ, replace=True)
    living.write("t", _rows(p=1, q=100))
    saved.restore()
    _elsewhere(living, lambda other: other.create_table("t", QP, replace=True))
    # Version 1 again, and another schema.
    living.write("t", _rows(p=1, q=100))
    table = living.table("t")
    assert table.version == 2
    for where in ("q > 50", "p < 50", "q = 100 AND p = 1"):
        assert table.to_arrow(where=where).num_rows == 1, where
    assert table.to_arrow(where="q < 50 OR p > 50").num_rows == 0
    assert len(living.snapshot().files("t", "q < 50")) == 0


@pytest.mark.backends("postgres", "sqlite")
def test_direct_commit_believes_no_state_from_before_the_restore(living: deltars.Catalog, back_up: BackUp) -> None:
    """Other commits have the same version numbers since, and earlier times: the clock was set back, too."""
    table_id, writer = living.create_table("t", "id BIGINT, day STRING").id, deltars.SqlTxnLogWriter(living)

    def commit(catalog: deltars.Catalog, version: int, *actions: Action) -> deltars.CommitResult:
        return deltars.SqlTxnLogWriter(catalog).commit(table_id, version, actions, operation="WRITE")

    commit(living, 1, added("first"))
    saved = back_up(living)
    commit(living, 2, metadata("id BIGINT, day STRING, more STRING"))
    last = writer.commit(table_id, 3, [added("lost")], operation="WRITE")
    saved.restore()
    with clock_of(living) as clock:
        clock.set(-3_600)
        partitioned = metadata("id BIGINT, day STRING", partition_columns=["day"])
        _elsewhere(living, lambda other: commit(other, 2, removed("first"), partitioned))
        with pytest.raises(ValidationError, match="partitioned by day"):
            commit(living, 3, added("mine"))
        mine = commit(living, 3, added("mine", partition_values={"day": "1"}))
        direct = commit(living, 4, added("more", partition_values={"day": "2"}))
    assert mine.commit_ts < direct.commit_ts
    assert direct.version == 4
    assert sorted(living.snapshot().files("t")["path"].to_pylist()) == ["mine", "more"]
    assert living.resolve(last.txn_id) is None


def test_state_of_a_repeated_transaction_id_is_told_apart(living: deltars.Catalog, back_up: BackUp) -> None:
    """A job that chooses its transaction's id runs again after the restore, with another schema."""
    txn_id = uuid4()

    def begin_with(opened: deltars.Catalog, ddl: str) -> None:
        metadata = opened.create_table(f"like_{ddl[11]}", ddl)
        with opened.begin(txn_id=txn_id) as tx:
            tx.write("t", metadata.to_arrow(), "overwrite", overwrite_schema=True)

    living.create_table("t", "id BIGINT")
    saved = back_up(living)
    begin_with(living, PQ)
    living.write("t", _rows(p=1, q=100))
    saved.restore()
    _elsewhere(living, lambda other: begin_with(other, QP))
    living.write("t", _rows(p=1, q=100))
    assert living.table("t").to_arrow(where="q > 50").num_rows == 1
    assert living.table("t").to_arrow(where="p < 50").num_rows == 1


def test_transaction_that_began_before_the_restore_does_not_commit_onto_another_version(
    living: deltars.Catalog, back_up: BackUp
) -> None:
    for name in ("written", "read"):
        living.create_table(name, "id BIGINT")
    saved = back_up(living)
    for name in ("written", "read"):
        living.write(name, pa.table({"id": [1]}))
    writing, reading, behind = (living.begin(isolation="serializable") for _ in range(3))
    for tx in (writing, reading, behind):
        tx.files("read" if tx is reading else "written")
        tx.stage("written", [added(f"{tx.id}")])
    saved.restore()
    # As many versions as were lost, of other content.
    _elsewhere(living, lambda other: [other.write(name, pa.table({"id": [2]})) for name in ("written", "read")])
    for tx in (writing, reading):
        with pytest.raises(VersionConflict, match="version 1 of the table was replaced") as caught:
            tx.commit()
        assert caught.value.retryable
    _elsewhere(living, lambda other: other.write("written", pa.table({"id": [3]})))
    with pytest.raises(VersionConflict, match="version 1 of the table was replaced"):
        behind.commit()
    assert sorted(living.table("written").to_arrow()["id"].to_pylist()) == [2, 3]


def test_cut_that_was_taken_before_the_restore_is_refused_not_answered_from_another_version(
    living: deltars.Catalog, back_up: BackUp
) -> None:
    living.create_table("t", "id BIGINT")
    saved = back_up(living)
    living.write("t", pa.table({"id": [1]}))
    cut, tx = living.snapshot(), living.begin()
    saved.restore()
    _elsewhere(living, lambda other: other.write("t", pa.table({"id": [2]})))
    with pytest.raises(VersionNotFound, match="version 1 of the table was replaced"):
        cut.files("t")
    with pytest.raises(VersionNotFound, match="version 1 of the table was replaced"):
        tx.files("t")
    assert living.snapshot().table("t").version == 1


def test_checksum_follows_the_version_that_is_there_now(catalog: deltars.Catalog, back_up: BackUp) -> None:
    table = catalog.create_table("t", "id BIGINT")
    storage = open_storage(table.location)
    saved = back_up(catalog)
    for _ in range(2):
        catalog.write("t", pa.table({"id": [1]}))
    saved.restore()
    # The mirror is set back with the database, as one who restores both does it.
    storage.delete([file.path for file in storage.list("_delta_log") if "0000.json" not in file.path])

    def commit_otherwise(other: deltars.Catalog) -> None:
        for count in (3, 5):
            with other.begin() as tx:
                tx.stage("t", [added(f"{uuid4()}", size=10) for _ in range(count)])

    with deltars.connect(catalog._session.uri.with_secrets(), mirror="inline") as other:
        commit_otherwise(other)
    storage.delete([checksum_path(2)])
    catalog.write("t", pa.table({"id": [1]}))
    state = CheckpointRows(catalog._session.database).at(table.id, 3)
    content = storage.get(checksum_path(3))
    assert b'"numFiles":9' in content
    assert f'"tableSizeBytes":{state.sums().size_bytes}'.encode() in content


@pytest.mark.backends("sqlite")
def test_file_that_was_replaced_is_opened_anew(living: deltars.Catalog) -> None:
    living.create_table("t", "id BIGINT")
    living.close()
    path = Path(parse_catalog_uri(living.uri).database)
    shutil.copyfile(path, path.with_suffix(".bak"))
    living.write("t", pa.table({"id": [1]}))
    assert living.table("t").version == 1
    os.replace(path.with_suffix(".bak"), path)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    assert living.table("t").version == 0
    living.write("t", pa.table({"id": [2]}))
    with deltars.connect(living.uri) as other:
        assert other.table("t").to_arrow()["id"].to_pylist() == [2]


@pytest.mark.backends("sqlite")
def test_file_that_is_gone_is_named_and_not_made_anew(living: deltars.Catalog) -> None:
    living.create_table("t", "id BIGINT")
    path = Path(parse_catalog_uri(living.uri).database)
    path.rename(path.with_suffix(".moved"))
    with pytest.raises(DatabaseError, match="no longer exists"):
        living.write("t", pa.table({"id": [1]}))
    assert not path.exists()
    path.with_suffix(".moved").rename(path)
    assert living.table("t").version == 0


@pytest.mark.backends("sqlite")
def test_scan_is_not_taken_for_that_of_another_version_of_the_same_number_and_time(
    living: deltars.Catalog, back_up: BackUp
) -> None:
    """Frames over the files of a scan are kept by its identity."""
    scans, times = [], []
    living.create_table("t", "id BIGINT")
    saved = back_up(living)
    with clock_of(living) as clock:
        # Set back, so that version 1 gets the same time both times: one millisecond after version 0.
        clock.set(-3_600)
        for _ in range(2):
            living.write("t", pa.table({"id": [1]}))
            snapshot = living.snapshot().table("t")
            place = {"catalog": living.uri, "root": "/t", "table": "t", "storage_options": {}}
            scans.append(Scan.of_snapshot(snapshot, None, **place))  # type: ignore[arg-type]
            times.append(snapshot.timestamp)
            saved.restore()
    assert times[0] == times[1]
    assert scans[0].version == scans[1].version == 1
    assert scans[0].identity != scans[1].identity
