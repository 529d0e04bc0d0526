"""Changes of a table's protocol, with the words of delta-spark."""

from __future__ import annotations

from deltars.catalog import Table
from deltars.protocol import supported_features
from deltars.protocol.features import FEATURE_PROPERTY, FEATURES, FENCE, MAX_READER_VERSION, MAX_WRITER_VERSION
from deltars.tables.exceptions import DeltaIllegalArgumentException, DeltaTableFeatureException, spark_error

_LISTED = 7
"""Writer version from which on a table lists its features. It implies none."""


def upgrade(table: Table, reader_version: int, writer_version: int) -> None:
    """Support every feature that these versions imply. Versions that the table already has change nothing."""
    for name, value, most in (
        ("delta.minReaderVersion", reader_version, MAX_READER_VERSION),
        ("delta.minWriterVersion", writer_version, MAX_WRITER_VERSION),
    ):
        if not 1 <= value <= most:
            known = ", ".join(map(str, range(1, most + 1)))
            raise DeltaIllegalArgumentException(f"requirement failed: {name} needs to be one of {known}.", field=name)
    if writer_version >= _LISTED:
        return
    had = supported_features(table.snapshot().protocol)
    implied = [
        feature.name
        for feature in FEATURES.values()
        if feature.legacy is not None
        and feature.legacy[0] <= reader_version
        and feature.legacy[1] <= writer_version
        and feature.can_write
        and feature.name not in had
    ]
    if implied:
        table.alter.set_properties({f"{FEATURE_PROPERTY}{name}": "supported" for name in implied})


def add_feature(table: Table, name: str) -> None:
    feature = _known(name)
    if feature is None:
        raise spark_error(
            DeltaTableFeatureException,
            "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG",
            "Table features configured in the following Spark configs or Delta table properties are not recognized by"
            f" this version of Delta Lake: {FEATURE_PROPERTY}{name}.",
        )
    if feature not in supported_features(table.snapshot().protocol):
        table.alter.set_properties({f"{FEATURE_PROPERTY}{feature}": "supported"})


def _known(name: str) -> str | None:
    return next((known for known in FEATURES if known.lower() == name.lower() and known != FENCE), None)
