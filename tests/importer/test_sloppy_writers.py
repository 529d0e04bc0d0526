"""Logs of writers that do not keep to the letter: taken where nothing is lost by it, else refused before the fence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltars
from tests.support.handmade_log import (
    CHECKPOINT_HEAD,
    PROTOCOL,
    HandmadeLog,
    add,
    checkpointed,
    features,
    metadata_of,
    schema_of,
)

on_sqlite = pytest.mark.backends("sqlite")


@pytest.fixture
def log(tmp_path: Path) -> HandmadeLog:
    return HandmadeLog(tmp_path / "table")


def size_of(log: HandmadeLog, name: str = "a.parquet") -> int:
    return os.path.getsize(log.root / name)


# -- statistics --------------------------------------------------------------------------------------------------------

ODD_STATISTICS = [
    "null",
    "",
    " ",
    "no JSON",
    "7",
    "[]",
    '"text"',
    "true",
    '{"numRecords": "3"}',
    '{"numRecords": "many"}',
    '{"numRecords": -1}',
    '{"numRecords": 3.5}',
    '{"numRecords": true}',
    '{"numRecords": 1e400}',
    '{"numRecords": 99999999999999999999}',
    '{"numRecords": 3, "minValues": "none", "maxValues": [], "nullCount": 0}',
    '{"numRecords": 3, "minValues": null, "nullCount": {"id": "0"}, "tightBounds": "yes"}',
    '{"nullCount": {"id": 99999999999999999999}}',
    '{"numRecords": NaN}',
    r'{"minValues": {"id": "\udc00"}}',
]


def test_odd_statistics_are_as_good_as_none_and_are_published_as_they_are(
    catalog: deltars.Catalog, log: HandmadeLog
) -> None:
    properties = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpointInterval": "2"}
    for version, text in enumerate(ODD_STATISTICS, start=1):
        path = f"{version}.parquet"
        os.link(log.root / "a.parquet", log.root / path)
        log.commit(version, add(path, stats=text, size=size_of(log)))
    table = catalog.import_table(str(log.root))
    files = len(ODD_STATISTICS)
    assert table.to_arrow().num_rows == 3 * files
    assert table.to_arrow(where="id = 2").num_rows == files
    assert table.to_arrow(where="id IS NULL").num_rows == 0
    assert table.detail().num_records is None
    catalog.set_properties(table.name, properties)
    for _ in range(3):
        catalog.write(table.name, pa.table({"id": [4]}))
    catalog._session.publisher.close()
    assert list(log.log.glob("*.checkpoint.parquet"))
    assert table.verify(deep=True).findings == ()
    kept = table.snapshot().files
    texts = dict(zip(kept["path"].to_pylist(), kept["stats"].to_pylist(), strict=True))
    assert [texts[f"{version}.parquet"] for version in range(1, files + 1)] == ODD_STATISTICS


@on_sqlite
def test_odd_statistics_in_a_checkpoint_are_as_good_as_none(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    (log.log / f"{0:020}.json").unlink()
    actions: list[dict[str, Any]] = [
        {"checkpointMetadata": {"version": 4}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                      "configuration": {}, "schemaString": json.dumps(
                          {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True,
                                                         "metadata": {}}]})}},
        add(stats="null"),
    ]  # fmt: skip
    name = f"{4:020}.checkpoint.6374b053-df23-479b-b2cf-c9c550132b49.json"
    (log.log / name).write_text("\n".join(map(json.dumps, actions)))
    assert catalog.import_table(str(log.root)).to_arrow(where="id > 1").num_rows == 2


# -- everything that a later write needs is judged before the fence ----------------------------------------------------


def refused(catalog: deltars.Catalog, log: HandmadeLog, match: str) -> deltars.ImportRefused:
    """Neither the log nor the catalog shows that somebody tried."""
    before = sorted(os.listdir(log.log))
    with pytest.raises(deltars.ImportRefused, match=match) as caught:
        catalog.import_table(str(log.root))
    assert not catalog.tables()
    assert sorted(os.listdir(log.log)) == before
    return caught.value


ID = {"name": "id", "type": "long"}
INVARIANT = "delta.invariants"
MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


def mapped(name: str, number: Any, physical: Any) -> dict[str, Any]:
    known = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": "long", "metadata": known}


RULES: list[tuple[list[dict[str, Any]], dict[str, str], str]] = [
    ([ID | {"metadata": {INVARIANT: "id > 3"}}], {}, "invariant of column id"),
    ([ID | {"metadata": {INVARIANT: '{"expression": "id > 3"}'}}], {}, "invariant of column id"),
    ([ID | {"metadata": {INVARIANT: '{"expression":{"expression":"id >"}}'}}], {}, "invariant of column id"),
    ([ID | {"metadata": {INVARIANT: '{"expression":{"expression":"gone > 3"}}'}}], {}, "gone"),
    ([ID], {"delta.constraints.c": "id >> > 3"}, "constraint c"),
    ([ID], {"delta.constraints.c": "gone > 3"}, "gone"),
    ([ID], {"delta.constraints.c": ""}, "constraint c"),
    ([ID, {"name": "g", "type": "long", "metadata": {"delta.generationExpression": "id +"}}], {}, "expression"),
    ([ID, {"name": "g", "type": "long", "metadata": {"delta.generationExpression": "gone + 1"}}], {}, "gone"),
    ([ID, {"name": "g", "type": "long", "metadata": {"CURRENT_DEFAULT": "1 +"}}], {}, "expression"),
    ([ID, {"name": "g", "type": "long", "metadata": {"CURRENT_DEFAULT": "id"}}], {}, "id"),
    ([ID, {"name": "s", "type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar("}}], {}, "varchar"),
    ([ID], {"delta.columnMapping.mode": "both"}, "columnMapping.mode"),
    ([ID], MAPPED, "has no id and physical name"),
    ([mapped("id", 1, "a"), mapped("b", 1, "b")], MAPPED, "another column has one of them"),
    ([mapped("id", 1, "a"), mapped("b", 2, "a")], MAPPED, "another column has one of them"),
    ([mapped("id", "1", "a")], MAPPED, "has no id and physical name"),
    ([mapped("id", 1, "a")], MAPPED | {"delta.columnMapping.maxColumnId": "two"}, "maxColumnId"),
    ([ID], {"delta.feature.appendOnly": "maybe"}, "can only be"),
    ([ID], {"delta.dataSkippingNumIndexedCols": "all"}, "number of columns"),
    ([ID, {"name": "ID", "type": "long"}], {}, "duplicate column"),
]


# One catalog for all of them: making it takes longer than an import that is refused.
@on_sqlite
def test_table_that_nothing_could_be_written_to_is_refused_before_the_fence(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    names = ("invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults")
    for number, (columns, properties, reason) in enumerate(RULES):
        reader = ("columnMapping",) if "delta.columnMapping.mode" in properties else ()
        heads = features(*names, reader=reader), metadata_of(schema_of(*columns), properties)
        refused(catalog, HandmadeLog(tmp_path / f"table-{number}", *heads), reason)


@on_sqlite
def test_table_with_a_rule_that_nobody_understands_is_read_and_stays_others(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    rule = {"name": "id", "type": "long", "metadata": {INVARIANT: "id > 3"}}
    log = HandmadeLog(tmp_path / "table", features("invariants"), metadata_of(schema_of(rule)))
    log.commit(1, add())
    error = refused(catalog, log, "invariant of column id")
    assert error.hint is not None
    assert "read_only=True" in error.hint
    table = catalog.import_table(str(log.root), read_only=True)
    assert table.to_arrow().num_rows == 3
    with pytest.raises(deltars.ImportRefused, match="invariant of column id"):
        catalog.adopt(table.name)
    assert len(list(log.log.glob("*.json"))) == 2


@on_sqlite
def test_rule_that_only_spark_can_compute_is_no_reason_to_refuse(catalog: deltars.Catalog, tmp_path: Path) -> None:
    properties = {"delta.constraints.c": "length(hex(id)) < 9"}
    log = HandmadeLog(tmp_path / "table", features("checkConstraints"), metadata_of(schema_of(ID), properties))
    assert catalog.import_table(str(log.root)).version == 1


@on_sqlite
def test_row_ids_that_cannot_be_continued_are_refused_before_the_fence(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    properties = {"delta.enableRowTracking": "true"}
    log = HandmadeLog(
        tmp_path / "table", features("rowTracking", "domainMetadata"), metadata_of(schema_of(ID), properties)
    )
    log.commit(1, {"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}", "removed": False}})
    refused(catalog, log, "delta.rowTracking")


def test_partition_value_of_a_live_file_must_be_of_its_type(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = HandmadeLog(tmp_path / "table", PROTOCOL, partitioned_by("timestamp"))
    log.commit(1, add(partitionValues={"p": "+10000-01-01T00:00:00Z"}))
    refused(catalog, log, "the partition column p")
    # A file that is gone keeps nobody out.
    log.commit(2, {"remove": {"path": "a.parquet", "dataChange": True}}, add("b.parquet", partitionValues={"p": None}))
    assert catalog.import_table(str(log.root)).version == 3


VALUES = [
    ("timestamp", "+10000-01-01T00:00:00Z"),
    ("timestamp", "9999-12-31T23:59:59-14:00"),
    ("timestamp", "0000-12-31 00:00:00"),
    ("timestamp_ntz", "-0044-03-15 00:00:00"),
    ("date", "+12345-01-01"),
    ("date", "soon"),
    ("integer", "4294967296"),
    ("byte", "x"),
    ("boolean", "perhaps"),
    ("decimal(4,2)", "123.456"),
]


@on_sqlite
def test_partition_value_that_is_not_of_its_type_is_refused_before_the_fence(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    for number, (type_, value) in enumerate(VALUES):
        log = HandmadeLog(tmp_path / f"table-{number}", features(reader=("timestampNtz",)), partitioned_by(type_))
        log.commit(1, add(partitionValues={"p": value}))
        refused(catalog, log, "the partition column p")


@on_sqlite
@pytest.mark.parametrize("read_only", [True, False])
def test_file_without_a_value_for_a_partition_column_is_refused(
    catalog: deltars.Catalog, tmp_path: Path, read_only: bool
) -> None:
    log = HandmadeLog(tmp_path / "table", PROTOCOL, partitioned_by("long"))
    log.commit(1, add())
    with pytest.raises(deltars.DamagedLog, match="no value for the partition column p"):
        catalog.import_table(str(log.root), read_only=read_only)
    assert not catalog.tables()


def partitioned_by(type_: str) -> dict[str, Any]:
    document = metadata_of(schema_of(ID, {"name": "p", "type": type_}))
    return {"metaData": document["metaData"] | {"partitionColumns": ["p"]}}


# -- the protocol comes first ------------------------------------------------------------------------------------------

GEOMETRY = metadata_of(schema_of(ID, {"name": "where", "type": "geometry(OGC:CRS84)"}))


@on_sqlite
@pytest.mark.parametrize(
    ("feature", "read_only", "is_first", "is_large"),
    [
        ("geospatial", False, False, False),
        ("geospatial", True, True, False),
        ("fromTheFuture", False, False, True),
        ("fromTheFuture", True, False, False),
    ],
)
def test_type_of_a_feature_that_is_not_known_is_refused_by_the_features_name(
    catalog: deltars.Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    feature: str,
    read_only: bool,
    is_first: bool,
    is_large: bool,
) -> None:
    heads = [features(reader=(feature,)), GEOMETRY]
    files: list[dict[str, Any]] = []
    if is_large:
        monkeypatch.setattr("deltars.importer.commits.BATCH_ACTIONS", 2)
        monkeypatch.setattr("deltars.importer.commits.SMALL_BYTES", 0)
        files = [add(f"{number}.parquet") for number in range(5)]
    log = HandmadeLog(tmp_path / "table", heads[not is_first], *files, heads[is_first])
    with pytest.raises(deltars.UnsupportedFeature, match=feature) as caught:
        catalog.import_table(str(log.root), read_only=read_only)
    assert caught.value.features == (feature,)
    assert not catalog.tables()


@on_sqlite
def test_type_of_a_feature_of_writers_is_refused_by_the_features_name(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = HandmadeLog(tmp_path / "table", features("moreTypes"), GEOMETRY)
    with pytest.raises(deltars.UnsupportedFeature, match="moreTypes"):
        catalog.import_table(str(log.root), read_only=True)


@on_sqlite
def test_type_that_no_feature_explains_is_damage(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = HandmadeLog(tmp_path / "table", PROTOCOL, GEOMETRY)
    with pytest.raises(deltars.DamagedLog, match=r"00000000000000000000.json, line 2: column where") as caught:
        catalog.import_table(str(log.root))
    assert caught.value.field == "schemaString"


@on_sqlite
def test_data_files_of_another_format_are_refused(catalog: deltars.Catalog, tmp_path: Path) -> None:
    document = metadata_of(schema_of(ID))["metaData"] | {"format": {"provider": "orc", "options": {}}}
    log = HandmadeLog(tmp_path / "table", PROTOCOL, {"metaData": document})
    with pytest.raises(deltars.UnsupportedFeature, match="'orc'"):
        catalog.import_table(str(log.root), read_only=True)


# -- checkpoints that contradict the commits ---------------------------------------------------------------------------

OTHER_SCHEMA = schema_of(ID, {"name": "more", "type": "long"})


@on_sqlite
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schemaString": OTHER_SCHEMA}, "another schema"),
        ({"schemaString": schema_of(ID | {"type": "integer"})}, "another schema"),
        ({"schemaString": schema_of(mapped("id", 1, "x"))}, "another schema"),
        ({"partitionColumns": ["id"]}, "other partition columns"),
        ({"configuration": [("delta.columnMapping.mode", "name")]}, "another column mapping"),
    ],
    ids=["column", "type", "physical name", "partition", "mapping"],
)
def test_checkpoint_that_contradicts_the_commits_is_found(
    catalog: deltars.Catalog, log: HandmadeLog, change: dict[str, Any], reason: str
) -> None:
    log.commit(1, add(size=size_of(log)))
    rows = [CHECKPOINT_HEAD[0], {"metaData": CHECKPOINT_HEAD[1]["metaData"] | change}]
    file = log.checkpoint(f"{1:020}.checkpoint.parquet", [*rows, checkpointed("a.parquet")])
    error = refused(catalog, log, reason)
    assert isinstance(error, deltars.DamagedLog)
    assert error.path == f"_delta_log/{file.name}"
    same = schema_of(ID | {"nullable": False, "metadata": {"comment": "a key"}})
    rows = [CHECKPOINT_HEAD[0], {"metaData": CHECKPOINT_HEAD[1]["metaData"] | {"schemaString": same}}]
    log.checkpoint(file.name, [*rows, checkpointed("a.parquet")])
    assert catalog.import_table(str(log.root)).verify().is_ok


@on_sqlite
def test_checkpoint_that_others_wrote_while_they_had_the_table_is_compared_too(
    catalog: deltars.Catalog, log: HandmadeLog
) -> None:
    table = catalog.import_table(str(log.root))
    catalog.release(table.name)
    log.commit(3, add())
    rows = [CHECKPOINT_HEAD[0], {"metaData": CHECKPOINT_HEAD[1]["metaData"] | {"schemaString": OTHER_SCHEMA}}]
    log.checkpoint(f"{3:020}.checkpoint.parquet", rows)
    with pytest.raises(deltars.DamagedLog, match="another schema"):
        catalog.adopt(table.name)


# -- fields that are not of their type ---------------------------------------------------------------------------------


def added(**fields: Any) -> dict[str, Any]:
    """An add action; a field that is `...` is left out."""
    return {"add": {name: value for name, value in add(**fields)["add"].items() if value is not ...}}


METADATA = metadata_of(schema_of(ID))["metaData"]
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


ODD_BUT_CLEAR: list[dict[str, Any]] = [
    added(size="1"),
    added(size=1.0),
    added(modificationTime="1690000000000"),
    added(modificationTime=1.69e12),
    added(modificationTime=-1),
    added(modificationTime=...),
    added(modificationTime=None),
    added(dataChange="true"),
    added(dataChange=1),
    added(dataChange=...),
    added(partitionValues=None),
    added(partitionValues=...),
    added(stats={"numRecords": 3}),
    added(stats=7),
    added(stats=None),
    added(tags={"a": 1, "b": True, "c": None}),
    added(tags=None, clusteringProvider=None, baseRowId=None, defaultRowCommitVersion=None),
    added(baseRowId="0", defaultRowCommitVersion="0"),
    added(deletionVector=None),
    added(deletionVector={}),
    added(deletionVector={"storageType": None, "pathOrInlineDv": None}),
    {"remove": {"path": "gone.parquet", "deletionTimestamp": "1690000000000", "dataChange": "true"}},
    {"remove": {"path": "gone.parquet", "deletionTimestamp": -1.0, "extendedFileMetadata": "false"}},
    {"metaData": METADATA | {"configuration": None, "partitionColumns": None, "format": None, "name": None}},
    {"metaData": METADATA | {"configuration": {"delta.appendOnly": False, "n": 7, "gone": None}}},
    {"metaData": METADATA | {"format": {"provider": "parquet", "options": None}, "createdTime": "1690000000000"}},
    {"metaData": METADATA | {"id": 7, "createdTime": 1.69e12}},
    {"txn": {"appId": "a", "version": "5", "lastUpdated": "1690000000000"}},
    {"txn": {"appId": 7, "version": 5.0, "lastUpdated": None}},
    {"domainMetadata": {"domain": "d", "configuration": "", "removed": "false"}},
    {"commitInfo": None},
    {"commitInfo": {"timestamp": "soon", "operation": 7, "readVersion": "x", "isBlindAppend": "yes", "tags": []}},
]


@on_sqlite
def test_fields_that_can_only_mean_one_thing_are_taken(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    adds = 0
    for version, action in enumerate(ODD_BUT_CLEAR, start=1):
        if "add" in action:
            adds += 1
            os.link(log.root / "a.parquet", log.root / f"{version}.parquet")
            action = {"add": action["add"] | {"path": f"{version}.parquet"}}
        log.commit(version, action)
    table = catalog.import_table(str(log.root))
    assert table.version == len(ODD_BUT_CLEAR) + 1
    assert table.to_arrow().num_rows == 3 * adds
    catalog.write(table.name, pa.table({"id": [4]}))


ODD: list[tuple[dict[str, Any], str]] = [
    (added(size="large"), r"`int`.*add\.size"),
    (added(size=1.5), r"`int`.*add\.size"),
    (added(size=...), "`size`"),
    (added(size=None), "`size`"),
    (added(path=None), "`path`"),
    ({"add": {"Path": "a.parquet", "size": 1}}, "`path`"),
    (added(dataChange="perhaps"), r"add\.dataChange"),
    (added(partitionValues=["p"]), r"add\.partitionValues"),
    (added(partitionValues={"p": {"x": 1}}), r"add\.partitionValues"),
    (added(tags=[1]), r"add\.tags"),
    (added(deletionVector=VECTOR | {"storageType": None}), "storageType"),
    (added(deletionVector=VECTOR | {"cardinality": "some"}), "cardinality"),
    (added(deletionVector=VECTOR | {"offset": 2**31}), "32 bits"),
    ({"metaData": METADATA | {"schemaString": 7}}, "schemaString"),
    ({"metaData": METADATA | {"partitionColumns": "id"}}, "partitionColumns"),
    ({"metaData": METADATA | {"configuration": {"a": [1]}}}, "configuration"),
    ({"txn": {"appId": "a", "version": "five"}}, r"txn\.version"),
    ({"txn": {"version": 5}}, "appId"),
    ({"protocol": {"minReaderVersion": "1", "minWriterVersion": 2}}, "minReaderVersion"),
    ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2.0}}, "minWriterVersion"),
]


@on_sqlite
def test_field_that_could_mean_anything_is_refused_with_its_place(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    for action, reason in ODD:
        log.commit(1, {"commitInfo": {}}, action)
        error = refused(catalog, log, reason)
        assert isinstance(error, deltars.DamagedLog)
        assert f"_delta_log/{1:020}.json, line 2" in error.message


@on_sqlite
def test_odd_field_of_a_commit_does_not_hide_the_others(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    info = {"timestamp": "4090000000000", "operation": "MERGE", "readVersion": {}, "operationMetrics": {"n": "1"}}
    log.commit(1, {"commitInfo": info}, add())
    [_, entry, _] = catalog.import_table(str(log.root)).history()
    assert (entry.operation, entry.committed_at.year) == ("MERGE", 2099)


@on_sqlite
def test_odd_values_are_the_same_in_the_catalog_as_if_they_were_right(
    catalog: deltars.Catalog, log: HandmadeLog
) -> None:
    log.commit(1, added(size=str(size_of(log)), tags={"a": 1, "b": True}, stats={"numRecords": 3}, dataChange=1))
    table = catalog.import_table(str(log.root))
    [file] = table.snapshot().files.to_pylist()
    assert (file["size"], file["num_records"]) == (size_of(log), 3)
    assert table.verify(deep=True).is_ok
