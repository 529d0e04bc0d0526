"""Dropped table features: the rows stay, no live file uses the feature, and other readers can open the table."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError

import deltars
from deltars.errors import FeatureNotDropped, HistoryExpired, PredicateError, ValidationError, VersionConflict
from deltars.protocol.features import FENCE, protocol_of

pytestmark = pytest.mark.backends("sqlite")

EVERY = {
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableTypeWidening": "true",
    "delta.enableRowTracking": "true",
    "delta.checkpointPolicy": "v2",
    "delta.enableChangeDataFeed": "true",
}


def _rows(table: deltars.Table, **options: Any) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(**options).to_pylist(), key=str)


def _features(table: deltars.Table) -> set[str]:
    return set(table.detail().table_features)


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    """A table that uses every feature which can be dropped."""
    made = catalog.create_table("t", "id BIGINT, day STRING, `a b` INT, gone INT", partition_by="day", properties=EVERY)
    columns = {"id": [1, 2, 3], "day": ["x", "x", None], "a b": pa.array([1, 2, 3], pa.int32())}
    made.write(pa.table({**columns, "gone": pa.array([7, 7, 7], pa.int32())}))
    made.delete("id = 2")
    made.alter.change_type("a b", "BIGINT")
    made.alter.rename_column("id", "key")
    made.alter.drop_column("gone")
    return made


@pytest.mark.backends("sqlite", "postgres", "duckdb")
def test_dropped_features_leave_a_table_that_every_reader_opens(catalog: deltars.Catalog, table: deltars.Table) -> None:
    before = _rows(table)
    with pytest.raises(DeltaProtocolError):
        DeltaTable(table.location).to_pyarrow_table()
    with pytest.raises(FeatureNotDropped, match="'a b' has a character that needs column mapping") as caught:
        table.drop_feature("columnMapping")
    assert caught.value.condition == "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING"
    table.alter.rename_column("a b", "ab")
    before = [{("ab" if name == "a b" else name): value for name, value in row.items()} for row in before]
    for feature in ("deletionVectors", "typewidening", "columnMapping", "v2Checkpoint", "rowTracking"):
        table.drop_feature(feature)
        assert feature.lower() not in {name.lower() for name in _features(table)}
        assert _rows(table) == before, feature
        assert table.history(1)[0].operation == "DROP FEATURE"
    assert table.detail().min_reader_version == 1
    assert all(row["deletion_vector"] is None for row in table.files().to_pylist())
    assert {row["path"] for row in table.files().to_pylist()}.isdisjoint(table.files(4)["path"].to_pylist())
    outside = DeltaTable(table.location).to_pyarrow_table()
    assert sorted(outside.select(["key", "day", "ab"]).to_pylist(), key=str) == _sorted(before)
    assert table.verify(deep=True).is_ok
    assert table.changes(4).to_arrow().num_rows == 0  # rows moved, and none changed
    table.write(pa.table({"key": [9], "day": ["y"], "ab": [9]}))
    table.alter.set_properties({"delta.enableRowTracking": "true"})
    assert table.files(where="key = 9")["base_row_id"][0].as_py() >= 3  # no id is given twice


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({name: row[name] for name in ("key", "day", "ab")} for row in rows), key=str)


def test_older_versions_keep_the_features_and_can_be_restored(table: deltars.Table) -> None:
    table.alter.rename_column("a b", "ab")
    then, version = _rows(table), table.version
    for feature in ("deletionVectors", "columnMapping", "typeWidening", "rowTracking"):
        table.drop_feature(feature)
    assert _rows(table, version=version) == then
    table.restore(version)
    assert _rows(table) == then
    assert {"deletionVectors", "columnMapping", "typeWidening", "rowTracking"} <= _features(table)
    table.alter.set_properties({"delta.enableDeletionVectors": "false"})
    version = table.version
    table.drop_feature("deletionVectors")
    # Files of that version have vectors, though its properties do not ask for them.
    table.restore(version)
    assert _rows(table) == then
    assert table.verify(deep=True).is_ok


def test_mapping_without_other_names_is_dropped_without_new_files(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, s STRUCT<x: INT>")
    inner = pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))
    table.write(pa.table({"id": [1], "s": inner}))
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    files = table.files()["path"].to_pylist()
    table.drop_feature("columnMapping")
    assert table.files()["path"].to_pylist() == files
    assert table.version == 3
    assert "physicalName" not in table.snapshot().metadata.schema_string
    assert _rows(table) == [{"id": 1, "s": {"x": 1}}]


def test_clustering_columns_survive_the_drop_of_mapping(catalog: deltars.Catalog) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    table = catalog.create_table("t", "id BIGINT, s STRING", cluster_by="id", properties=properties)
    table.write(pa.table({"id": [2, 1], "s": ["b", "a"]}))
    table.drop_feature("columnMapping")
    table.write(pa.table({"id": [3], "s": ["c"]}))
    assert table.optimize().num_files_added == 1
    assert catalog.sql_to_arrow("DESCRIBE DETAIL t")["clusteringColumns"][0].as_py() == ["id"]


@pytest.mark.parametrize(
    ("feature", "condition", "said"),
    [
        ("nope", "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE", "Cannot drop nope because it is not supported"),
        (FENCE, "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE", "not supported by this Delta version"),
        ("appendOnly", "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE", "dropping this feature is not supported"),
        ("inCommitTimestamp", "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE", "dropping this feature is not supported"),
        ("vacuumProtocolCheck", "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT", "not currently present"),
        ("domainMetadata", "DELTA_FEATURE_DROP_DEPENDENT_FEATURE", r"other features \(rowTracking\)"),
        ("checkConstraints", "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE", "dropped first: `positive`"),
    ],
)
def test_feature_that_stays_is_refused_by_name(
    catalog: deltars.Catalog, feature: str, condition: str, said: str
) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableRowTracking": "true"})
    table.write(pa.table({"id": [1]}))
    table.alter.add_constraint("positive", "id > 0")
    version = table.version
    with pytest.raises(FeatureNotDropped, match=said) as caught:
        table.drop_feature(feature)
    assert (caught.value.condition, caught.value.table, table.version) == (condition, "t", version)


def test_features_of_writers_are_dropped_once_nothing_uses_them(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties={"delta.enableRowTracking": "true"})
    table.write(pa.table({"id": [1]}))
    table.alter.add_constraint("positive", "id > 0")
    with pytest.raises(FeatureNotDropped, match="does not require history truncation"):
        table.drop_feature("rowTracking", truncate_history=True)
    table.alter.drop_constraint("positive")
    table.drop_feature("checkConstraints")
    table.drop_feature("rowTracking")
    assert not {"checkConstraints", "rowTracking"} & _features(table)
    with pytest.raises(FeatureNotDropped, match=r"domain metadata: delta\.rowTracking"):
        table.drop_feature("domainMetadata")
    # Raw actions cannot drop what was not checked.
    protocol = table.snapshot().protocol
    fewer = protocol_of(set(protocol.writer_features or ()) - {"domainMetadata"})
    with pytest.raises(ValidationError, match="may not be dropped: domainMetadata"):
        catalog.run(lambda tx: tx.stage("t", [fewer]))


def test_feature_is_not_dropped_under_a_concurrent_change(
    catalog: deltars.Catalog, table: deltars.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append during the rewrite has physical names, which nothing would explain afterwards."""
    from deltars.transaction import feature_drop

    table.alter.rename_column("a b", "ab")
    search = feature_drop.files_that_need

    def while_another_appends(*given: Any) -> pa.Table:
        found = search(*given)
        writer = threading.Thread(target=catalog.write, args=("t", pa.table({"key": [5], "day": ["z"], "ab": [5]})))
        writer.start()
        writer.join()
        return found

    monkeypatch.setattr(feature_drop, "files_that_need", while_another_appends)
    before = _features(table)
    with pytest.raises(VersionConflict):
        table.drop_feature("columnMapping")
    monkeypatch.undo()
    assert _features(table) == before
    table.drop_feature("columnMapping")
    assert [row["key"] for row in _rows(table)] == [1, 3, 5]


def test_history_is_truncated_only_after_its_retention(table: deltars.Table) -> None:
    with pytest.raises(FeatureNotDropped, match="partially successful") as caught:
        table.drop_feature("deletionVectors", truncate_history=True)
    assert caught.value.condition == "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"
    assert "deletionVectors" in _features(table)
    with pytest.raises(FeatureNotDropped, match="contains historical versions that use the feature") as caught:
        table.drop_feature("deletionVectors", truncate_history=True)
    assert caught.value.condition == "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"
    rows = _rows(table)
    table.alter.set_properties({"delta.dropFeatureTruncateHistory.retentionDuration": "interval 0 hours"})
    table.vacuum(retention=timedelta(0), force=True)
    table.drop_feature("deletionVectors", truncate_history=True)
    assert "deletionVectors" not in _features(table)
    assert _rows(table) == rows
    with pytest.raises(HistoryExpired):
        table.to_arrow(version=1)


def test_statement_drops_a_feature_by_itself(catalog: deltars.Catalog, table: deltars.Table) -> None:
    catalog.sql_script("ALTER TABLE t DROP FEATURE deletionVectors; ALTER TABLE t DROP FEATURE 'v2Checkpoint'")
    assert not {"deletionVectors", "v2Checkpoint"} & _features(table)
    with pytest.raises(FeatureNotDropped, match="not currently present"):
        catalog.sql_to_arrow("ALTER TABLE t DROP FEATURE deletionVectors TRUNCATE HISTORY")
    with pytest.raises(PredicateError, match="commits by itself"):
        catalog.sql_script("BEGIN ATOMIC ALTER TABLE t DROP FEATURE columnMapping; END")
