"""Drop of table features: which can be dropped, and what a table without them looks like.

Files or metadata may still use a feature. Then they are written again first, and the protocol loses the feature in the
next version. Older versions keep it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import msgspec

from deltars.errors import FeatureNotDropped
from deltars.protocol.actions import Metadata, Protocol
from deltars.protocol.column_mapping import COLUMN_MAPPING, MAX_COLUMN_ID, column_mapping, each_field, unmapped
from deltars.protocol.evolution import TYPE_CHANGES
from deltars.protocol.features import FEATURE_PROPERTY, FEATURES, FENCE, TableFeature, needed_features, protocol_of
from deltars.protocol.features import supported_features as features_of
from deltars.protocol.properties import CONSTRAINT
from deltars.protocol.row_tracking import MATERIALIZED
from deltars.protocol.schema import StructField
from deltars.protocol.schema_rules import check_schema

DELETION_VECTORS, TYPE_WIDENING, MAPPING = "deletionVectors", "typeWidening", "columnMapping"

_DROPPABLE = (
    "checkConstraints",
    MAPPING,
    DELETION_VECTORS,
    "domainMetadata",
    "rowTracking",
    TYPE_WIDENING,
    "v2Checkpoint",
    "vacuumProtocolCheck",
)
"""Features that delta-spark drops too, except in-commit timestamps: the mirror needs them."""

_PROPERTIES = {
    MAPPING: (COLUMN_MAPPING, MAX_COLUMN_ID),
    "rowTracking": MATERIALIZED,
    "v2Checkpoint": ("delta.checkpointPolicy",),
}
"""Properties that go with a feature, besides the one that enables it."""


def feature_to_drop(
    name: str, protocol: Protocol, metadata: Metadata, domains: Collection[str], *, truncates: bool = False
) -> TableFeature:
    """Return the feature of this name, in any case. Raise `FeatureNotDropped` if the table cannot lose it.

    `domains` are those in force. `truncates` says whether the history is truncated too.
    """
    feature = next((one for known, one in FEATURES.items() if known.lower() == name.lower() and known != FENCE), None)
    if feature is None:
        raise FeatureNotDropped(
            f"Cannot drop {name} because it is not supported by this Delta version.\nConsider using Delta with a higher"
            " version.",
            condition="DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE",
            hint=f"The features that can be dropped are {', '.join(_DROPPABLE)}.",
        )
    supported = features_of(protocol)
    if feature.name not in supported:
        raise FeatureNotDropped(
            f"Cannot drop {feature.name} from this table because it is not currently present in the table's protocol.",
            condition="DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT",
        )
    if feature.name not in _DROPPABLE:
        raise _not_removable(feature.name, "Write the rows to a new table to be rid of it.")
    if truncates and not feature.is_reader:
        raise FeatureNotDropped(
            "The particular feature does not require history truncation.",
            condition="DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED",
            hint="Drop it without truncating the history.",
        )
    dependent = sorted(other for other in supported if other in FEATURES and feature.name in FEATURES[other].requires)
    if dependent:
        raise FeatureNotDropped(
            f"Cannot drop table feature `{feature.name}` because some other features ({', '.join(dependent)}) in this"
            f" table depends on `{feature.name}`.\nConsider dropping them first before dropping this feature.",
            condition="DELTA_FEATURE_DROP_DEPENDENT_FEATURE",
        )
    if feature.name == "domainMetadata" and domains:
        raise _not_removable(feature.name, f"The table has domain metadata: {', '.join(sorted(domains))}.")
    constraints = [key.removeprefix(CONSTRAINT) for key in metadata.configuration if key.startswith(CONSTRAINT)]
    if feature.name == "checkConstraints" and constraints:
        raise FeatureNotDropped(
            "Cannot drop the CHECK constraints table feature.\nThe following constraints must be dropped first:"
            f" {', '.join(f'`{name}`' for name in sorted(constraints))}.",
            condition="DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
        )
    return feature


def without_feature(metadata: Metadata, feature: TableFeature) -> Metadata:
    """Return the metadata without what needs the feature. Raise `FeatureNotDropped` if the columns need it."""
    gone = {feature.enabled_by, FEATURE_PROPERTY + feature.name, *_PROPERTIES.get(feature.name, ())}
    configuration = {key: value for key, value in metadata.configuration.items() if key not in gone}
    schema = metadata.schema
    if feature.name == MAPPING:
        schema = unmapped(schema)
        problem = check_schema(schema, metadata.partition_columns)
        if problem is not None:
            raise FeatureNotDropped(
                f"Cannot drop {feature.name}: {problem}",
                condition="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
                hint="Rename the column first: table.alter.rename_column.",
            )
    if feature.name == TYPE_WIDENING:
        schema = each_field(schema, _without_type_changes)
    after = msgspec.structs.replace(metadata, configuration=configuration)
    if schema != metadata.schema:
        after = msgspec.structs.replace(after, schema_string=schema.to_json())
    assert feature.name not in needed_features(after.schema, after.configuration)
    return after


def needs_new_files(metadata: Metadata, feature: TableFeature) -> bool:
    """Return whether data files depend on the feature by their columns. Deletion vectors belong to single files."""
    if feature.name == TYPE_WIDENING:
        return any(TYPE_CHANGES in field.metadata for _, field in metadata.schema.walk())
    if feature.name != MAPPING or column_mapping(metadata.configuration) == "none":
        return False
    fields = [field for _, field in metadata.schema.walk()]
    # A dropped column is still in the files. A new column of its name would show its values.
    has_dropped = int(metadata.configuration.get(MAX_COLUMN_ID, "0")) != len(fields)
    return has_dropped or any(field.physical_name != field.name for field in fields)


def protocol_without(protocol: Protocol, feature: TableFeature) -> Protocol:
    return protocol_of(features_of(protocol) - {feature.name})


def _without_type_changes(field: StructField) -> StructField:
    kept = {key: value for key, value in field.metadata.items() if key != TYPE_CHANGES}
    return replace(field, metadata=kept)


def _not_removable(name: str, hint: str) -> FeatureNotDropped:
    return FeatureNotDropped(
        f"Cannot drop {name} because dropping this feature is not supported.",
        condition="DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE",
        hint=hint,
    )
