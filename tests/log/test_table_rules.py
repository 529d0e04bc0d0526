"""What a table refuses because of its metadata and protocol."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from deltars.errors import ValidationError
from deltars.log.commit import TableCommit, TableState
from deltars.log.table_rules import check_state
from deltars.protocol import Action, CdcFile, DomainMetadata, Metadata, Protocol, StructField, StructType
from deltars.protocol import PrimitiveType as Primitive
from tests.support.log import FEATURES, added, creation, metadata, protocol, removed, stats, vector

TABLE_ID = UUID(int=7)
PARTITIONED = metadata("id BIGINT, day DATE, city STRING", partition_columns=["day", "city"])
LEGACY = Protocol(min_reader_version=1, min_writer_version=4)


ORDINARY = TableState(metadata(), protocol())


def judge(*actions: Action, adds: pa.Table | None = None, **state: Any) -> None:
    before = dataclasses.replace(ORDINARY, **state)
    check_state(TableCommit(TABLE_ID, 3, actions, "WRITE", adds=adds), before)


def refusal(*actions: Action, **state: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        judge(*actions, **state)
    assert caught.value.table_id == str(TABLE_ID)
    return caught.value


def test_version_0_needs_metadata_and_protocol() -> None:
    nothing: dict[str, Any] = {"metadata": None, "protocol": None}
    assert "must carry metaData" in refusal(protocol(), **nothing).message
    assert "must carry protocol" in refusal(metadata(), **nothing).message
    judge(*creation(), **nothing)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (LEGACY, Protocol(min_reader_version=1, min_writer_version=3), "writer version may not go down from 4 to 3"),
        (
            Protocol(min_reader_version=2, min_writer_version=5),
            Protocol(min_reader_version=1, min_writer_version=5),
            "reader version may not go down from 2 to 1",
        ),
        (protocol(), protocol(FEATURES[:-1]), "may not be dropped: rowTracking"),
        (LEGACY, protocol(["appendOnly", "invariants"]), "may not be dropped: changeDataFeed, checkConstraints"),
        (protocol(), protocol([*FEATURES, "madeUp"]), "madeUp is not supported for writing"),
        (protocol(), protocol([*FEATURES, "geospatial"]), "geospatial is not supported for writing"),
        (
            protocol(),
            Protocol(min_reader_version=3, min_writer_version=6, reader_features=[]),
            "needs writer version 7",
        ),
    ],
)
def test_incompatible_protocol_is_refused_with_the_reason(old: Protocol, new: Protocol, why: str) -> None:
    error = refusal(added("a"), new, protocol=old)
    assert (error.action, error.field) == (1, "protocol")
    assert why in error.message


def test_protocol_that_only_gains_features_is_accepted() -> None:
    judge(protocol([*FEATURES, "checkConstraints"]))
    judge(
        protocol(["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"]),
        protocol=LEGACY,
    )


def test_table_whose_protocol_asks_for_more_than_we_can_do_is_not_written_to() -> None:
    foreign = protocol([*FEATURES, "checkpointProtection"])
    assert "checkpointProtection is not supported for writing" in refusal(added("a"), protocol=foreign).message


def test_metadata_that_needs_a_feature_is_refused_where_the_protocol_does_not_list_it() -> None:
    error = refusal(metadata(configuration={"delta.enableTypeWidening": "true"}))
    assert error.field == "protocol"
    assert "needs the table feature typeWidening" in error.message
    judge(metadata(configuration={"delta.enableTypeWidening": "true"}), protocol([*FEATURES, "typeWidening"]))


@pytest.mark.parametrize(
    ("action", "feature"),
    [
        (added("a", deletion_vector=vector(), stats=stats()), "deletionVectors"),
        (removed("a", deletion_vector=vector()), "deletionVectors"),
        (CdcFile(path="c", partition_values={}, size=1), "changeDataFeed"),
        (DomainMetadata(domain="d", configuration="", removed=False), "domainMetadata"),
    ],
    ids=["add", "remove", "cdc", "domain"],
)
def test_action_whose_feature_is_not_listed_is_refused(action: Action, feature: str) -> None:
    without = protocol([name for name in FEATURES if name not in (feature, "rowTracking")])
    assert f"needs the table feature {feature}" in refusal(action, protocol=without).message
    judge(action)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"day": "2024-01-01"},
        {"day": "2024-01-01", "City": "Rome"},
        {"day": "2024-01-01", "city": "Rome", "id": "1"},
    ],
)
def test_partition_values_that_do_not_name_the_partition_columns_are_refused(values: dict[str, str | None]) -> None:
    for action in (added("a", partition_values=values), CdcFile(path="c", partition_values=values, size=1)):
        error = refusal(added("ok", partition_values={"day": None, "city": ""}), action, metadata=PARTITIONED)
        assert (error.action, error.field) == (1, "partition_values")
        assert "the table is partitioned by city, day" in error.message


def test_partition_values_of_a_table_without_partitions_are_refused() -> None:
    assert "partitioned by no column" in refusal(added("a", partition_values={"day": "1"})).message


def test_partition_values_are_judged_by_the_metadata_of_the_same_commit() -> None:
    judge(added("a", partition_values={"day": "1", "city": "x"}), PARTITIONED)
    assert refusal(PARTITIONED, added("a")).field == "partition_values"


def test_partition_values_go_by_physical_names() -> None:
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    schema = StructType((StructField("day", Primitive("date"), True, mapped), StructField("id", Primitive("long"))))
    table = Metadata(id="x", schema_string=schema.to_json(), partition_columns=["day"])
    judge(added("a", partition_values={"col-1": None}), metadata=table)
    assert refusal(added("a", partition_values={"day": None}), metadata=table).field == "partition_values"


def test_append_only_table_refuses_to_lose_data_but_not_to_rearrange_it() -> None:
    table = metadata(configuration={"delta.appendOnly": "true"})
    error = refusal(added("a"), removed("b"), metadata=table)
    assert (error.action, error.field) == (1, "data_change")
    assert "append-only" in error.message
    judge(removed("b", data_change=False), metadata=table)
    judge(removed("b"), metadata=metadata(configuration={"delta.appendOnly": "false"}))


def test_commit_that_turns_append_only_on_or_off_may_lose_data() -> None:
    table = metadata(configuration={"delta.appendOnly": "true"})
    judge(table, removed("b"))
    judge(metadata(), removed("b"), metadata=table)
    assert refusal(table, removed("b"), metadata=table).field == "data_change"


@pytest.mark.parametrize("text", [None, "{}", '{"numRecords":null}'])
def test_table_that_tracks_rows_needs_the_count_of_every_file(text: str | None) -> None:
    table = metadata(configuration={"delta.enableRowTracking": "true"})
    error = refusal(added("ok", stats=stats()), added("a", stats=text), metadata=table)
    assert (error.action, error.field) == (1, "stats")
    assert "row tracking" in error.message


def _columns(**changed: Any) -> pa.Table:
    values: dict[str, Any] = {
        "path": ["a", "b", "c"],
        "partition_values": ["{}", "{}", "{}"],
        "size": [1, 2, 3],
        "modification_time": [1, 2, 3],
        "data_change": [True, True, True],
        "stats": [stats(), stats(), stats()],
    }
    return pa.table({name: value for name, value in (values | changed).items() if value is not None})


def test_columns_are_judged_by_the_same_rules_and_refused_by_their_row() -> None:
    good, bad = '{"day":null,"city":"x"}', '{"day":null}'
    error = refusal(metadata=PARTITIONED, adds=_columns(partition_values=[good, good, bad]))
    assert error.field == "partition_values"
    assert "row 2: " in error.message
    maps = pa.array([[("day", None), ("city", "x")], [("day", "1")], []], pa.map_(pa.string(), pa.string()))
    assert "row 1: " in refusal(metadata=PARTITIONED, adds=_columns(partition_values=maps)).message


def test_column_of_deletion_vectors_needs_the_feature() -> None:
    vectors = [None, '{"storageType":"u","pathOrInlineDv":"x","sizeInBytes":1,"cardinality":1}', None]
    without = protocol([name for name in FEATURES if name != "deletionVectors"])
    error = refusal(adds=_columns(deletion_vector=vectors), protocol=without)
    assert "row 1: deletion_vector needs the table feature deletionVectors" in error.message
    judge(adds=_columns(deletion_vector=vectors))
    judge(adds=_columns(deletion_vector=pa.nulls(3, pa.string())), protocol=without)


def test_columns_of_a_table_that_tracks_rows_need_the_count_of_every_file() -> None:
    table = metadata(configuration={"delta.enableRowTracking": "true"})
    assert "row 1: stats: " in refusal(adds=_columns(stats=[stats(), None, stats()]), metadata=table).message
    assert "row 0: stats: " in refusal(adds=_columns(stats=None), metadata=table).message
    judge(adds=_columns(), metadata=table)


def test_high_water_mark_of_row_ids_is_not_the_caller_s_to_write() -> None:
    mark = DomainMetadata(domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":1}', removed=False)
    error = refusal(
        added("a", stats=stats()), mark, metadata=metadata(configuration={"delta.enableRowTracking": "true"})
    )
    assert (error.action, error.field) == (1, "domain")
    judge(mark)
