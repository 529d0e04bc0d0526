"""Table features: what a table needs, and which protocol changes are allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from deltars.errors import ValidationError
from deltars.protocol import (
    FEATURES,
    FENCE,
    PrimitiveType,
    Protocol,
    StructField,
    StructType,
    check_protocol,
    check_protocol_change,
    is_true,
    needed_features,
    protocol_for_new_table,
    protocol_of,
    schema_from_ddl,
    supported_features,
)

PLAIN = schema_from_ddl("id BIGINT")
WRITABLE = {
    "appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "allowColumnDefaults",
    "changeDataFeed", "columnMapping", "deletionVectors", "timestampNtz", "rowTracking", "domainMetadata",
    "clustering", "inCommitTimestamp", "vacuumProtocolCheck", "v2Checkpoint", "typeWidening", "deltars.sqlManaged",
}  # fmt: skip

LEGACY_4 = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}


def versions(reader: int, writer: int, readers: list[str] | None = None, writers: list[str] | None = None) -> Protocol:
    return Protocol(
        min_reader_version=reader, min_writer_version=writer, reader_features=readers, writer_features=writers
    )


def with_metadata(metadata: Mapping[str, Any]) -> StructType:
    return StructType((StructField("s", StructType((StructField("a", PrimitiveType("long"), metadata=metadata),))),))


def test_these_features_are_supported_for_writing() -> None:
    assert {feature.name for feature in FEATURES.values() if feature.can_write} == WRITABLE


def test_required_features_require_no_others() -> None:
    for feature in FEATURES.values():
        for required in feature.requires:
            assert FEATURES[required].requires == ()


class TestNewTable:
    def test_plain_table_can_be_read_by_every_reader(self) -> None:
        assert protocol_for_new_table(PLAIN, {}) == versions(
            1, 7, None, ["appendOnly", "invariants", "inCommitTimestamp", FENCE]
        )

    def test_reader_feature_stands_in_both_lists(self) -> None:
        protocol = protocol_for_new_table(schema_from_ddl("a MAP<STRING, ARRAY<TIMESTAMP_NTZ>>"), {})
        assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
        assert protocol.reader_features == ["timestampNtz"]
        assert "timestampNtz" in (protocol.writer_features or [])

    @pytest.mark.parametrize(
        ("properties", "features"),
        [
            ({"delta.enableDeletionVectors": "true"}, {"deletionVectors"}),
            ({"delta.enableDeletionVectors": "TRUE"}, {"deletionVectors"}),
            ({"delta.enableDeletionVectors": "false"}, set()),
            ({"delta.columnMapping.mode": "name"}, {"columnMapping"}),
            ({"delta.columnMapping.mode": "id"}, {"columnMapping"}),
            ({"delta.columnMapping.mode": "none"}, set()),
            ({"delta.enableChangeDataFeed": "true"}, {"changeDataFeed"}),
            ({"delta.constraints.positive": "id > 0"}, {"checkConstraints"}),
            ({"delta.enableRowTracking": "true"}, {"rowTracking", "domainMetadata"}),
            ({"delta.enableTypeWidening": "true"}, {"typeWidening"}),
            ({"delta.checkpointPolicy": "v2"}, {"v2Checkpoint"}),
            ({"delta.checkpointPolicy": "classic"}, set()),
            ({"delta.appendOnly": "true"}, {"appendOnly"}),
            ({"delta.enableInCommitTimestamps": "true"}, {"inCommitTimestamp"}),
            ({"delta.feature.vacuumProtocolCheck": "supported"}, {"vacuumProtocolCheck"}),
            ({"delta.feature.rowTracking": "enabled"}, {"rowTracking", "domainMetadata"}),
            ({"delta.checkpointInterval": "10", "mine": "true"}, set()),
        ],
    )
    def test_properties_need_their_features(self, properties: dict[str, str], features: set[str]) -> None:
        assert needed_features(PLAIN, properties) == features
        assert features <= supported_features(protocol_for_new_table(PLAIN, properties))

    @pytest.mark.parametrize(
        ("metadata", "feature"),
        [
            ({"delta.generationExpression": "id + 1"}, "generatedColumns"),
            ({"delta.invariants": "{}"}, "invariants"),
            ({"CURRENT_DEFAULT": "1"}, "allowColumnDefaults"),
            ({"delta.typeChanges": []}, "typeWidening"),
        ],
    )
    def test_columns_need_their_features(self, metadata: dict[str, Any], feature: str) -> None:
        assert needed_features(with_metadata(metadata), {}) == {feature}

    @pytest.mark.parametrize(
        ("schema", "properties", "feature"),
        [
            (schema_from_ddl("v VARIANT"), {}, "variantType"),
            (PLAIN, {"delta.enableIcebergCompatV1": "true"}, "icebergCompatV1"),
            (PLAIN, {"delta.enableIcebergCompatV2": "true"}, "icebergCompatV2"),
            (PLAIN, {"delta.enableVariantShredding": "true"}, "variantShredding"),
            (PLAIN, {"delta.feature.catalogManaged": "supported"}, "catalogManaged"),
            (PLAIN, {"delta.feature.geospatial": "supported"}, "geospatial"),
            (PLAIN, {"delta.feature.timeTravelMachine": "supported"}, "timeTravelMachine"),
        ],
    )
    def test_feature_that_cannot_be_written_is_refused_by_name(
        self, schema: StructType, properties: dict[str, str], feature: str
    ) -> None:
        with pytest.raises(ValidationError, match=f"the table feature {feature} is not supported for writing"):
            protocol_for_new_table(schema, properties)

    def test_feature_property_has_one_value(self) -> None:
        with pytest.raises(ValidationError, match=r"delta\.feature\.columnMapping can only be 'supported'"):
            protocol_for_new_table(PLAIN, {"delta.feature.columnMapping": "yes"})


class TestSupportedFeatures:
    @pytest.mark.parametrize(
        ("protocol", "features"),
        [
            (versions(1, 1), set()),
            (versions(1, 2), {"appendOnly", "invariants"}),
            (versions(1, 3), {"appendOnly", "invariants", "checkConstraints"}),
            (versions(1, 4), LEGACY_4),
            (versions(1, 5), LEGACY_4),
            (versions(1, 7, None, []), set()),
            (versions(3, 7, ["a"], ["a", "b"]), {"a", "b"}),
        ],
    )
    def test_versions_stand_for_features(self, protocol: Protocol, features: set[str]) -> None:
        assert supported_features(protocol) == features

    def test_column_mapping_needs_both_versions(self) -> None:
        assert "columnMapping" in supported_features(versions(2, 5))
        assert "columnMapping" not in supported_features(versions(2, 4))

    def test_last_legacy_version_brings_identity_columns(self) -> None:
        assert "identityColumns" in supported_features(versions(1, 6))


@pytest.mark.parametrize(
    "protocol",
    [
        versions(1, 1),
        versions(1, 2),
        versions(2, 5),
        versions(1, 7, None, []),
        versions(1, 7, None, ["appendOnly", FENCE]),
        versions(2, 7, None, ["columnMapping"]),
        versions(3, 7, [], ["appendOnly"]),
        versions(3, 7, ["deletionVectors"], ["deletionVectors", "rowTracking", "domainMetadata"]),
        protocol_of(WRITABLE),
    ],
)
def test_well_formed_protocol_is_accepted(protocol: Protocol) -> None:
    assert check_protocol(protocol) is None
    assert check_protocol_change(None, protocol) is None
    assert check_protocol_change(protocol, protocol) is None


@pytest.mark.parametrize(
    ("protocol", "problem"),
    [
        (versions(0, 2), "reader version 0"),
        (versions(99, 7, None, []), "reader version 99"),
        (versions(1, 0), "writer version 0"),
        (versions(1, 8), "writer version 8"),
        (versions(3, 5, []), "reader version 3 needs writer version 7, not 5"),
        (versions(3, 7, None, []), "readerFeatures"),
        (versions(1, 7, [], []), "readerFeatures"),
        (versions(1, 7), "writerFeatures"),
        (versions(1, 2, None, []), "writerFeatures"),
        (versions(1, 7, None, ["clustering"]), "clustering needs domainMetadata"),
        (versions(1, 7, None, ["futureFeature"]), "futureFeature is not supported for writing"),
        (versions(3, 7, ["futureFeature"], ["appendOnly"]), "futureFeature is not supported for writing"),
        (versions(1, 7, None, ["rowTracking"]), "rowTracking needs domainMetadata"),
        (versions(3, 7, ["appendOnly"], ["appendOnly"]), "appendOnly is a feature for writers only"),
        (versions(3, 7, ["deletionVectors"], []), "deletionVectors .* must also be in writerFeatures"),
        (versions(3, 7, [], ["deletionVectors"]), "deletionVectors .* must also be in readerFeatures"),
        (versions(1, 7, None, ["deletionVectors"]), "deletionVectors .* must also be in readerFeatures"),
        (versions(2, 7, None, ["timestampNtz"]), "timestampNtz .* must also be in readerFeatures"),
        (versions(1, 7, None, ["columnMapping"]), "columnMapping .* must also be in readerFeatures"),
    ],
)
def test_ill_formed_or_unsupported_protocol_is_refused(protocol: Protocol, problem: str) -> None:
    for found in (check_protocol(protocol), check_protocol_change(None, protocol)):
        assert found is not None
        assert re.search(problem, found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (versions(1, 2), versions(1, 4)),
        (versions(1, 2), versions(1, 7, None, ["appendOnly", "invariants", "inCommitTimestamp", FENCE])),
        (
            versions(1, 7, None, ["appendOnly"]),
            versions(3, 7, ["deletionVectors"], ["appendOnly", "deletionVectors"]),
        ),
        (versions(2, 7, None, ["columnMapping"]), versions(3, 7, ["columnMapping"], ["columnMapping"])),
        (versions(1, 7, None, ["appendOnly", FENCE]), versions(1, 7, None, [FENCE, "appendOnly"])),
    ],
)
def test_upgrade_is_allowed(old: Protocol, new: Protocol) -> None:
    assert check_protocol_change(old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (versions(1, 4), versions(1, 2), "writer version may not go down from 4 to 2"),
        (versions(2, 5), versions(1, 5), "reader version may not go down from 2 to 1"),
        (versions(3, 7, [], []), versions(1, 7, None, []), "reader version may not go down from 3 to 1"),
        (versions(1, 7, None, ["appendOnly", FENCE]), versions(1, 7, None, ["appendOnly"]), FENCE),
        (versions(1, 2), versions(1, 7, None, ["appendOnly"]), "dropped: invariants"),
        (versions(1, 2), versions(1, 7, None, [FENCE]), "dropped: appendOnly, invariants"),
        (versions(2, 5), versions(3, 7, [], [*LEGACY_4]), "dropped: columnMapping"),
    ],
)
def test_downgrade_and_dropped_features_are_refused(old: Protocol, new: Protocol, problem: str) -> None:
    found = check_protocol_change(old, new)
    assert found is not None
    assert problem in found


def test_protocol_lists_features_once_and_in_a_fixed_order() -> None:
    assert protocol_of(["unknownB", FENCE, "appendOnly", "unknownA", "appendOnly"]).writer_features == [
        "appendOnly",
        FENCE,
        "unknownA",
        "unknownB",
    ]


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), (" True ", True), ("false", False), ("1", False), (None, False)]
)
def test_boolean_property(value: str | None, expected: bool) -> None:
    assert is_true(value) is expected
