"""Restore: a table, or many tables at once, as they were; schema, properties and row ids included."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltars
from deltars.errors import (
    FilesMissing,
    TableNotFound,
    TimestampTooEarly,
    ValidationError,
    VersionConflict,
    VersionNotFound,
)
from deltars.protocol import DomainMetadata
from tests.support.log import added, removed, vector

pytestmark = pytest.mark.backends("sqlite")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: deltars.Table, **which: Any) -> list[int]:
    found: list[int] = sorted(table.to_arrow(**which)["id"].to_pylist())
    return found


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    """Version 1 has 1 and 2, version 2 also 3, version 3 only 9."""
    made = catalog.create_table("t", "id BIGINT")
    made.write(rows(1, 2))
    made.write(rows(3))
    made.write(rows(9), "overwrite")
    return made


# -- one table ---------------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_table_is_as_it_was_and_says_what_changed(catalog: deltars.Catalog, table: deltars.Table) -> None:
    before = table.snapshot(1).files
    restored = table.restore(1, committer="ada")
    [one] = restored.tables
    assert (one.table, one.table_id, one.version) == ("t", table.id, 1)
    assert (one.num_restored_files, one.num_restored_rows) == (1, 2)
    assert (one.num_removed_files, one.num_removed_rows) == (1, 1)
    assert one.restored_bytes == before["size"][0].as_py()
    assert not one.metadata_changed
    assert restored.result is not None
    assert restored.result.versions == {"t": 4}
    assert ids(table) == [1, 2]
    assert ids(table, version=3) == [9]
    files = table.files()
    for column in ("path", "stats", "size", "modification_time", "partition_values"):
        assert files[column].to_pylist() == before[column].to_pylist()
    assert files["data_change"].to_pylist() == [True]
    [entry] = table.history(1)
    assert (entry.operation, entry.committer, entry.is_blind_append) == ("RESTORE", "ada", False)
    assert entry.operation_params == {"version": 1, "timestamp": None}
    assert {name: int(value) for name, value in entry.metrics.items()} == {
        "tableSizeAfterRestore": one.restored_bytes,
        "numOfFilesAfterRestore": 1,
        "numRemovedFiles": 1,
        "numRestoredFiles": 1,
        "removedFilesSize": one.removed_bytes,
        "restoredFilesSize": one.restored_bytes,
    }
    assert table.snapshot().row_groups().num_rows == 1
    assert table.verify(deep=True).is_ok
    assert sorted(DeltaTable(table.location).to_pyarrow_table()["id"].to_pylist()) == [1, 2]


def test_table_is_restored_by_time_and_as_of_a_transaction(catalog: deltars.Catalog, table: deltars.Table) -> None:
    moment = table.snapshot(2).timestamp
    table.restore(timestamp=moment)
    assert ids(table) == [1, 2, 3]
    assert table.history(1)[0].operation_params == {"version": None, "timestamp": str(moment)}
    txn_id = table.history(since=1)[-1].txn_id
    table.restore(as_of=txn_id)
    assert ids(table) == [1, 2]
    assert table.history(1)[0].operation_params == {"version": 1, "timestamp": None}


def test_restore_is_undone_by_a_restore(table: deltars.Table) -> None:
    table.restore(0)
    assert ids(table) == []
    table.restore(3)
    assert ids(table) == [9]
    table.restore(2)
    assert (ids(table), table.version) == ([1, 2, 3], 6)


def test_table_that_is_as_it_was_gets_no_version(table: deltars.Table) -> None:
    for version in (3, 3):
        restored = table.restore(version)
        assert restored.result is not None
        assert (restored.result.versions, restored.tables[0].is_changed) == ({}, False)
    table.restore(1)
    assert not table.restore(1).tables[0].is_changed
    assert table.version == 4


def test_dry_run_says_what_would_change_and_changes_nothing(catalog: deltars.Catalog, table: deltars.Table) -> None:
    planned = table.restore(1, dry_run=True)
    assert planned.result is None
    assert table.version == 3
    assert planned.tables == table.restore(1).tables
    assert catalog.restore(table.history(since=3)[-1].txn_id, dry_run=True).tables[0].num_removed_files == 1
    assert table.version == 4


@pytest.mark.parametrize(
    ("which", "error"),
    [
        ({}, ValidationError),
        ({"version": 1, "timestamp": "2026-01-01"}, ValidationError),
        ({"version": 1, "as_of": "2026-01-01"}, ValidationError),
        ({"version": 4}, VersionNotFound),
        ({"version": -1}, VersionNotFound),
        ({"version": True}, ValidationError),
        ({"timestamp": "2001-01-01"}, TimestampTooEarly),
        ({"as_of": "2001-01-01"}, VersionNotFound),
        ({"as_of": "yesterday"}, ValidationError),
    ],
)
def test_version_that_is_not_there_is_refused(
    table: deltars.Table, which: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        table.restore(**which)
    assert table.version == 3


def test_missing_files_are_counted_and_some_named_before_anything_changes(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    for number in range(12):
        table.write(rows(number))
    paths = table.files()["path"].to_pylist()
    table.write(rows(99), "overwrite")
    for path in paths[:11]:
        (Path(table.location) / path).unlink()
    with pytest.raises(FilesMissing, match=r"11 of its files do not exist any more: .* and 1 more") as caught:
        table.restore(12)
    assert (caught.value.count, len(caught.value.paths), caught.value.table) == (11, 10, "t")
    assert set(caught.value.paths) <= set(paths[:11])
    assert table.version == 13
    table.restore(0)  # needs none of them


# -- metadata ----------------------------------------------------------------------------------------------------------


def test_schema_properties_and_description_come_back(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT NOT NULL", properties={"team": "ml"}, description="old")
    table.write(rows(1))
    table.alter.add_columns("note STRING")
    table.alter.add_constraint("positive", "id > 0")
    catalog.set_properties("t", {"owner": "ada"}, unset=["team"])
    table.write(pa.table({"id": [2], "note": ["x"]}))
    metadata_id = table.snapshot().metadata.id
    [one] = table.restore(1).tables
    assert one.metadata_changed
    snapshot = table.snapshot()
    assert snapshot.schema.names == ("id",)
    assert snapshot.metadata == table.snapshot(1).metadata
    assert snapshot.metadata.id == metadata_id
    assert snapshot.metadata.configuration["team"] == "ml"
    # Constraints need a feature, and features stay.
    assert "checkConstraints" in (snapshot.protocol.writer_features or ())
    table.write(rows(-1))
    assert ids(table) == [-1, 1]
    table.restore(5)
    with pytest.raises(ValidationError, match="positive"):
        table.write(pa.table({"id": [-1], "note": ["x"]}))
    assert table.verify(deep=True).is_ok


def test_partitioning_and_replaced_schema_come_back(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, day STRING", partition_by="day")
    table.write(pa.table({"id": [1, 2], "day": ["a", "b"]}))
    catalog.create_table("t", "other STRING", replace=True)
    table.write(pa.table({"other": ["x"]}))
    table.restore(1)
    assert table.detail().partition_columns == ("day",)
    assert ids(table, where="day = 'b'") == [2]
    assert table.verify(deep=True).is_ok
    assert DeltaTable(table.location).to_pyarrow_table().num_rows == 2


def test_ids_of_mapped_columns_are_never_used_again(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.columnMapping.mode": "name"})
    table.write(rows(1))
    table.alter.add_columns("a STRING")
    table.alter.add_columns("b STRING")
    table.restore(1)
    assert table.snapshot().metadata.configuration["delta.columnMapping.maxColumnId"] == "3"
    table.alter.add_columns("c STRING")
    [_, column] = table.schema.fields
    assert column.metadata["delta.columnMapping.id"] == 4
    assert ids(table) == [1]


def test_version_from_before_column_mapping_is_restored_as_a_mapped_table(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, day STRING", partition_by="day")
    table.write(pa.table({"id": [1], "day": ["a"]}))
    catalog.set_properties("t", {"delta.columnMapping.mode": "name"})
    table.alter.add_columns("note STRING")
    table.write(pa.table({"id": [2], "day": ["b"], "note": ["x"]}))
    table.restore(1)
    configuration = table.snapshot().metadata.configuration
    assert configuration["delta.columnMapping.mode"] == "name"
    assert int(configuration["delta.columnMapping.maxColumnId"]) >= 3
    assert [field.physical_name for field in table.schema.fields] == ["id", "day"]
    assert ids(table, where="day = 'a'") == [1]
    assert not table.restore(1).tables[0].is_changed
    table.restore(4)
    assert ids(table) == [1, 2]
    assert table.verify(deep=True).is_ok


def test_row_ids_come_back_with_their_files_and_tracking_stays_on(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableRowTracking": "true"})
    table.write(rows(1, 2))
    table.write(rows(3))
    before = table.files()
    table.write(rows(9), "overwrite")
    table.restore(2)
    columns = ["path", "base_row_id", "default_row_commit_version"]
    assert table.files().select(columns).sort_by("path") == before.select(columns).sort_by("path")
    table.write(rows(4))
    assert max(table.files()["base_row_id"].to_pylist()) == 4
    assert table.verify(deep=True).is_ok


def test_in_commit_timestamps_of_an_imported_table_stay(catalog: deltars.Catalog, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    place = str(tmp_path / "foreign")
    write_deltalake(place, rows(1))
    write_deltalake(place, rows(2), mode="append")
    table = catalog.import_table(place, "t")
    now = table.snapshot().metadata.configuration
    assert now["delta.inCommitTimestampEnablementVersion"]
    table.restore(0)
    assert table.snapshot().metadata.configuration == now
    assert "deltars.sqlManaged" in (table.snapshot().protocol.writer_features or ())
    assert ids(table) == [1]
    assert table.verify(deep=True).is_ok


def test_append_only_table_is_refused_until_the_property_is_off(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.appendOnly": "true"})
    table.write(rows(1))
    table.write(rows(2))
    with pytest.raises(ValidationError, match="append-only"):
        table.restore(1)
    catalog.set_properties("t", {"delta.appendOnly": "false"})
    table.restore(1)
    assert (ids(table), table.snapshot().metadata.configuration["delta.appendOnly"]) == ([1], "true")


def test_vectors_come_back_and_go_with_their_files(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableDeletionVectors": "true"})
    whole = added("a.parquet", stats='{"numRecords":5}')
    (Path(table.location) / "a.parquet").write_bytes(b"x")
    some = added("a.parquet", stats='{"numRecords":5}', deletion_vector=vector(cardinality=2))
    with catalog.begin() as tx:
        tx.stage("t", [whole])
    with catalog.begin() as tx:
        tx.stage("t", [removed("a.parquet"), some])
    [one] = table.restore(1).tables
    assert (one.num_restored_rows, one.num_removed_rows) == (5, 5 - 2)
    assert table.files()["deletion_vector"].to_pylist() == [None]
    with pytest.raises(FilesMissing) as caught:
        table.restore(2)
    [path] = caught.value.paths
    assert path.startswith("ab/deletion_vector_")
    (Path(table.location) / "ab").mkdir()
    (Path(table.location) / path).write_bytes(b"x")
    table.restore(2)
    assert table.files()["deletion_vector"].null_count == 0


def test_progress_of_applications_stays(catalog: deltars.Catalog, table: deltars.Table) -> None:
    table.write(rows(5), app_id="job", app_version=7)
    table.restore(1)
    assert table.write(rows(5), app_id="job", app_version=7).skipped
    assert ids(table) == [1, 2]


def test_domains_of_applications_stay(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.feature.domainMetadata": "supported"})
    with catalog.begin() as tx:
        tx.stage("t", [DomainMetadata(domain="mine", configuration="{}", removed=False)])
    table.write(rows(1))
    table.restore(0)
    assert list(table.snapshot().domains) == ["mine"]


# -- as part of a transaction ------------------------------------------------------------------------------------------


def test_restore_is_a_step_of_a_transaction(catalog: deltars.Catalog, table: deltars.Table) -> None:
    other = catalog.create_table("u", "id BIGINT")
    with catalog.begin() as tx:
        tx.write("t", rows(77))
        restored = tx.restore("t", 1)
        assert restored.num_removed_files == 2
        assert sorted(tx.to_arrow("t")["id"].to_pylist()) == [1, 2]
        tx.write("t", rows(4))
        tx.write("u", rows(1))
    assert tx.result.versions == {"t": 4, "u": 1}
    assert (ids(table), ids(other)) == ([1, 2, 4], [1])
    tx = catalog.begin()
    tx.restore("t", 0)
    tx.rollback()
    assert ids(table) == [1, 2, 4]


def test_new_table_has_no_version_to_restore(catalog: deltars.Catalog) -> None:
    with catalog.begin() as tx:
        tx.create_table("new", "id BIGINT")
        with pytest.raises(VersionNotFound, match="no committed version"):
            tx.restore("new", 0)
        tx.rollback()


def test_repeated_transaction_restores_once(catalog: deltars.Catalog, table: deltars.Table) -> None:
    for _ in range(2):
        with catalog.begin(txn_id="undo") as tx:
            tx.restore("t", 1)
        assert tx.result.versions == {"t": 4}
    assert table.version == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.write(rows(4)),
        lambda table: table.write(rows(4), "overwrite"),
        lambda table: table.alter.add_columns("x STRING"),
        lambda table: table.restore(2),
    ],
)
def test_concurrent_change_of_the_table_wins(
    catalog: deltars.Catalog, table: deltars.Table, change: Callable[[deltars.Table], object]
) -> None:
    tx = catalog.begin(isolation="serializable")
    tx.restore("t", 1)
    change(table)
    with pytest.raises(VersionConflict):
        tx.commit()
    assert table.version == 4


def test_threads_of_one_transaction_restore_what_the_others_staged(
    catalog: deltars.Catalog, table: deltars.Table
) -> None:
    with catalog.begin() as tx, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: tx.write("t", rows(number)), range(50, 54)))
        list(pool.map(lambda version: tx.restore("t", version), [1, 1, 1, 1]))
    assert ids(table) == [1, 2]


# -- many tables -------------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(catalog: deltars.Catalog) -> UUID:
    """Tables `a`, `b`, `c`, each with row 1 in one transaction, which is returned; then `a` and `b` got more."""
    for name in "abc":
        catalog.create_table(name, "id BIGINT")
    with catalog.begin() as tx:
        for name in "abc":
            tx.write(name, rows(1))
    with catalog.begin() as bad:
        bad.write("a", rows(2))
        bad.write("b", rows(2), "overwrite")
    return tx.id


def contents(catalog: deltars.Catalog) -> dict[str, list[int]]:
    return {table.name: ids(table) for table in catalog.tables()}


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_all_tables_go_back_to_one_cut_in_one_transaction(catalog: deltars.Catalog, lake: UUID) -> None:
    catalog.create_table("later", "id BIGINT").write(rows(8))
    restored = catalog.restore(lake)
    assert [one.table for one in restored.tables] == ["a", "b", "c"]
    assert [one.is_changed for one in restored.tables] == [True, True, False]
    assert restored.result is not None
    assert restored.result.versions == {"a": 3, "b": 3}
    assert contents(catalog) == {"a": [1], "b": [1], "c": [1], "later": [8]}
    assert {catalog.table(name).history(1)[0].txn_id for name in "ab"} == {restored.result.txn_id}
    assert not any(one.is_changed for one in catalog.restore(lake).tables)


def test_only_the_named_tables_go_back(catalog: deltars.Catalog, lake: UUID) -> None:
    catalog.restore(lake, tables=["B", catalog.table("c").id])
    assert contents(catalog) == {"a": [1, 2], "b": [1], "c": [1]}


def test_more_tables_than_a_transaction_may_write_go_back_together(catalog: deltars.Catalog) -> None:
    names = [f"t{number}" for number in range(12)]
    for name in names:
        catalog.create_table(name, "id BIGINT")
    moment = catalog.tag("empty")
    for name in names:
        catalog.write(name, rows(1))
    restored = catalog.restore("empty")
    assert restored.result is not None
    assert len(restored.result.versions) == 12
    assert moment.name == "empty"


def test_table_created_later_is_an_error_if_it_is_named(catalog: deltars.Catalog, lake: UUID) -> None:
    catalog.create_table("later", "id BIGINT")
    with pytest.raises(ValidationError, match="'later' had no version yet at that moment"):
        catalog.restore(lake, tables=["a", "later"])
    with pytest.raises(TableNotFound, match="there is no table 'nowhere'"):
        catalog.restore(lake, tables=["a", "nowhere"])
    assert contents(catalog)["a"] == [1, 2]


def test_table_dropped_since_is_an_error_that_names_it(catalog: deltars.Catalog, lake: UUID) -> None:
    catalog.drop_table("b")
    with pytest.raises(TableNotFound, match="dropped since: 'b'"):
        catalog.restore(lake)
    with pytest.raises(TableNotFound, match="dropped since: 'b'"):
        catalog.restore(lake, tables=["b"])
    catalog.create_table("b", "id BIGINT")
    with pytest.raises(TableNotFound, match="dropped since: 'b'"):
        catalog.restore(lake, tables=["b"])
    catalog.restore(lake, tables=["a"])
    assert contents(catalog) == {"a": [1], "b": [], "c": [1]}


def test_missing_file_of_one_table_restores_none(catalog: deltars.Catalog, lake: UUID) -> None:
    table = catalog.table("b")
    [path] = table.files(1)["path"].to_pylist()
    (Path(table.location) / path).unlink()
    with pytest.raises(FilesMissing) as caught:
        catalog.restore(lake)
    assert caught.value.table == "b"
    assert contents(catalog)["a"] == [1, 2]


def test_append_to_an_unchanged_table_while_restoring_is_a_conflict(
    catalog: deltars.Catalog, lake: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = deltars.Transaction.restore
    done: list[str] = []

    def restoring(tx: deltars.Transaction, table: UUID, version: int) -> object:
        result = original(tx, table, version)
        if result.table == "c" and not done:
            done.append("c")
            catalog.write("c", rows(5))
        return result

    monkeypatch.setattr(deltars.Transaction, "restore", restoring)
    with pytest.raises(VersionConflict):
        catalog.restore(lake)
    assert contents(catalog) == {"a": [1, 2], "b": [2], "c": [1, 5]}
    catalog.restore(lake)
    assert contents(catalog) == {"a": [1], "b": [1], "c": [1]}


def test_restored_table_reads_back_within_a_second_of_the_past(catalog: deltars.Catalog, table: deltars.Table) -> None:
    time.sleep(0.01)
    moment = catalog.tag("now").as_of
    table.write(rows(4))
    catalog.restore(moment)
    assert ids(table) == ids(table, as_of="now") == [9]
