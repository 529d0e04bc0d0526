"""Table features: their definitions, the features that a table needs, and the allowed protocol changes.

    schema + properties ──needed_features──> names ──protocol_of──> Protocol (1,7) or (3,7)
    old Protocol, new Protocol ──check_protocol_change──> the reason against it, or None

A feature is "supported for writing" if deltars may commit to a table that lists it. Rules of a feature for the rows
themselves are up to the code that writes the data files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from deltars.errors import ValidationError, brief
from deltars.protocol.actions import Protocol
from deltars.protocol.schema import PrimitiveType, StructType

FENCE = "deltars.sqlManaged"
"""Feature that marks a table as managed by deltars: every reader can read it, every other writer rejects it."""

MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7
FEATURE_PROPERTY = "delta.feature."


@dataclass(frozen=True, slots=True)
class TableFeature:
    name: str
    is_reader: bool = False
    """Whether readers must know it too. It is then in both feature lists."""
    legacy: tuple[int, int] | None = None
    """The reader and writer version that implied it before features had names."""
    can_write: bool = False
    requires: tuple[str, ...] = ()
    """Features that must be listed with it. They require no further ones."""
    enabled_by: str | None = None
    """The table property that needs it when true."""


FEATURES: Mapping[str, TableFeature] = {
    feature.name: feature
    for feature in (
        TableFeature("appendOnly", legacy=(1, 2), can_write=True, enabled_by="delta.appendOnly"),
        TableFeature("invariants", legacy=(1, 2), can_write=True),
        TableFeature("checkConstraints", legacy=(1, 3), can_write=True),
        TableFeature("changeDataFeed", legacy=(1, 4), can_write=True, enabled_by="delta.enableChangeDataFeed"),
        TableFeature("generatedColumns", legacy=(1, 4), can_write=True),
        TableFeature("columnMapping", is_reader=True, legacy=(2, 5), can_write=True),
        TableFeature("identityColumns", legacy=(1, 6), can_write=True),
        TableFeature("allowColumnDefaults", can_write=True),
        TableFeature("deletionVectors", is_reader=True, can_write=True, enabled_by="delta.enableDeletionVectors"),
        TableFeature("timestampNtz", is_reader=True, can_write=True),
        TableFeature("v2Checkpoint", is_reader=True, can_write=True),
        TableFeature("domainMetadata", can_write=True),
        TableFeature("rowTracking", can_write=True, requires=("domainMetadata",), enabled_by="delta.enableRowTracking"),
        TableFeature("inCommitTimestamp", can_write=True, enabled_by="delta.enableInCommitTimestamps"),
        TableFeature("vacuumProtocolCheck", is_reader=True, can_write=True),
        TableFeature("typeWidening", is_reader=True, can_write=True, enabled_by="delta.enableTypeWidening"),
        TableFeature(FENCE, can_write=True),
        TableFeature("clustering", can_write=True, requires=("domainMetadata",)),
        TableFeature("variantType", is_reader=True),
        TableFeature("variantShredding", is_reader=True, enabled_by="delta.enableVariantShredding"),
        TableFeature("icebergCompatV1", requires=("columnMapping",), enabled_by="delta.enableIcebergCompatV1"),
        TableFeature("icebergCompatV2", requires=("columnMapping",), enabled_by="delta.enableIcebergCompatV2"),
        TableFeature("icebergCompatV3", requires=("columnMapping",), enabled_by="delta.enableIcebergCompatV3"),
        TableFeature("catalogManaged", is_reader=True, requires=("inCommitTimestamp",)),
        TableFeature("checkpointProtection"),
        TableFeature("materializePartitionColumns"),
        TableFeature("geospatial", is_reader=True),
    )
}

NEW_TABLE_FEATURES = ("appendOnly", "invariants", "inCommitTimestamp", FENCE)


def protocol_for_new_table(schema: StructType, properties: Mapping[str, str], more: Iterable[str] = ()) -> Protocol:
    """Return the protocol of version 0, with the features `more` and what they require.

    Raise `ValidationError` for a feature that is not supported for writing.
    """
    required = {other for name in more for other in (name, *FEATURES[name].requires)}
    features = needed_features(schema, properties).union(NEW_TABLE_FEATURES, required)
    protocol = protocol_of(features)
    problem = check_protocol(protocol)
    if problem is not None:
        raise ValidationError(f"the table cannot be created: {problem}", field="protocol")
    return protocol


def protocol_of(features: Iterable[str]) -> Protocol:
    """Return the protocol that lists exactly these features: (3,7) if readers must know one of them, else (1,7)."""
    order = {name: position for position, name in enumerate(FEATURES)}
    listed = sorted(set(features), key=lambda name: (order.get(name, len(order)), name))
    for_readers = [name for name in listed if name in FEATURES and FEATURES[name].is_reader]
    return Protocol(
        min_reader_version=3 if for_readers else 1,
        min_writer_version=7,
        reader_features=for_readers or None,
        writer_features=listed,
    )


def needed_features(schema: StructType, properties: Mapping[str, str]) -> frozenset[str]:
    """Return the features that a table with this schema and these properties must list."""
    names = {
        feature.name
        for feature in FEATURES.values()
        if feature.enabled_by and is_true(properties.get(feature.enabled_by))
    }
    names.update(_named_by_property(properties))
    if properties.get("delta.columnMapping.mode", "none").lower() != "none":
        names.add("columnMapping")
    if properties.get("delta.checkpointPolicy", "classic").lower() == "v2":
        names.add("v2Checkpoint")
    if any(key.startswith("delta.constraints.") for key in properties):
        names.add("checkConstraints")
    for type_ in schema.types():
        if isinstance(type_, PrimitiveType) and type_.name in _BY_TYPE:
            names.add(_BY_TYPE[type_.name])
    for _, column in schema.walk():
        names.update(_BY_COLUMN_METADATA[key] for key in column.metadata if key in _BY_COLUMN_METADATA)
    required = {other for name in names if name in FEATURES for other in FEATURES[name].requires}
    return frozenset(names | required)


def supported_features(protocol: Protocol) -> frozenset[str]:
    """Return all features that the protocol lists or that its version implies."""
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return frozenset(listed | _legacy_features(protocol))


def legacy_versions(features: Collection[str]) -> tuple[int, int] | None:
    """Return the reader and writer versions that imply exactly these features without a list; None if none do."""
    for reader in range(1, MAX_READER_VERSION):
        for writer in range(1, MAX_WRITER_VERSION):
            if _legacy_features(Protocol(min_reader_version=reader, min_writer_version=writer)) == {*features}:
                return reader, writer
    return None


def check_protocol(protocol: Protocol) -> str | None:
    """Return why the protocol is malformed or not supported for writing, or None if it is neither."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if not 1 <= reader <= MAX_READER_VERSION:
        return f"reader version {reader} is not supported, only 1 to {MAX_READER_VERSION}"
    if not 1 <= writer <= MAX_WRITER_VERSION:
        return f"writer version {writer} is not supported, only 1 to {MAX_WRITER_VERSION}"
    if reader == MAX_READER_VERSION and writer != MAX_WRITER_VERSION:
        return f"reader version {reader} needs writer version {MAX_WRITER_VERSION}, not {writer}"
    if (protocol.reader_features is not None) != (reader == MAX_READER_VERSION):
        return f"reader version {reader} must {'' if reader == MAX_READER_VERSION else 'not '}have readerFeatures"
    if (protocol.writer_features is not None) != (writer == MAX_WRITER_VERSION):
        return f"writer version {writer} must {'' if writer == MAX_WRITER_VERSION else 'not '}have writerFeatures"
    return _check_features(protocol)


def check_protocol_change(old: Protocol | None, new: Protocol, drops: Collection[str] = ()) -> str | None:
    """Return why a table may not change from one protocol to the other, or None if it may.

    `drops` are features that the table no longer uses, and that the change may drop.
    """
    problem = check_protocol(new)
    if problem is not None or old is None:
        return problem
    for kind, before, after in (
        ("reader", old.min_reader_version, new.min_reader_version),
        ("writer", old.min_writer_version, new.min_writer_version),
    ):
        if after < before and not drops:
            return f"the {kind} version may not go down from {before} to {after}"
    dropped = supported_features(old) - supported_features(new) - {*drops}
    if dropped:
        return f"a table's features may not be dropped: {', '.join(sorted(dropped))}"
    return None


def is_true(value: str | None) -> bool:
    """Return whether a boolean table property is true, as Delta reads it."""
    return value is not None and value.strip().lower() == "true"


_BY_TYPE = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_BY_COLUMN_METADATA = {
    "delta.generationExpression": "generatedColumns",
    "delta.invariants": "invariants",
    "delta.typeChanges": "typeWidening",
    "delta.identity.start": "identityColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}


def _named_by_property(properties: Mapping[str, str]) -> set[str]:
    """Return the features that are enabled by `delta.feature.<name> = supported`."""
    names = set()
    for key, value in properties.items():
        if key.startswith(FEATURE_PROPERTY):
            if value not in ("supported", "enabled"):
                raise ValidationError(f"the property {key} can only be 'supported', not {brief(value)}", field=key)
            names.add(key.removeprefix(FEATURE_PROPERTY))
    return names


def _legacy_features(protocol: Protocol) -> set[str]:
    """Return the features that a version without feature lists implies."""
    return {
        feature.name
        for feature in FEATURES.values()
        if feature.legacy is not None
        and protocol.min_writer_version < MAX_WRITER_VERSION
        and feature.legacy[0] <= protocol.min_reader_version
        and feature.legacy[1] <= protocol.min_writer_version
    }


def _check_features(protocol: Protocol) -> str | None:
    names = supported_features(protocol)
    for name in sorted(names):
        feature = FEATURES.get(name)
        if feature is None or not feature.can_write:
            return f"the table feature {name} is not supported for writing"
        missing = [required for required in feature.requires if required not in names]
        if missing:
            return f"the table feature {name} needs {', '.join(missing)}"
    for name in sorted(protocol.reader_features or ()):
        if not FEATURES[name].is_reader:
            return f"{name} is a feature for writers only and must not be in readerFeatures"
        if name not in (protocol.writer_features or ()):
            return f"{name} is in readerFeatures and must also be in writerFeatures"
    for name in sorted(protocol.writer_features or ()):
        if FEATURES[name].is_reader and not _readers_know(protocol, FEATURES[name]):
            return f"{name} is in writerFeatures and must also be in readerFeatures (reader version 3)"
    return None


def _readers_know(protocol: Protocol, feature: TableFeature) -> bool:
    if protocol.reader_features is not None:
        return feature.name in protocol.reader_features
    return feature.legacy is not None and feature.legacy[0] <= protocol.min_reader_version
