"""Delta's change data feed: its property, and the columns that its rows have besides those of the table."""

from __future__ import annotations

from collections.abc import Mapping

from deltars.protocol.features import is_true
from deltars.protocol.schema import PHYSICAL_NAME, PrimitiveType, StructField, StructType

CHANGE_FEED = "delta.enableChangeDataFeed"
CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_DATA = "_change_data"
"""Directory of the files that hold changed rows."""

INSERT, DELETE = "insert", "delete"
PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"

# Delta maps the columns of the feed by their own names, whatever the table's column mapping is.
FEED_FIELDS = tuple(
    StructField(name, PrimitiveType(kind), True, {PHYSICAL_NAME: name})
    for name, kind in ((CHANGE_TYPE, "string"), (COMMIT_VERSION, "long"), (COMMIT_TIMESTAMP, "timestamp"))
)
FEED_COLUMNS = tuple(field.name for field in FEED_FIELDS)


def has_feed(configuration: Mapping[str, str]) -> bool:
    """Return whether commits of a table with these properties write its change data feed."""
    return is_true(configuration.get(CHANGE_FEED))


def reserved_column(schema: StructType) -> str | None:
    """Return a column of the table that has a name of the feed, or None."""
    return next((name for name in schema.names if name.lower() in FEED_COLUMNS), None)
