"""Row tracking: the columns of data files that hold ids of rows that came from other files."""

from __future__ import annotations

from collections.abc import Mapping

MATERIALIZED = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
"""Table properties that name the columns of row ids and of row commit versions."""


def materialized_names(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the two columns, or nothing if the table does not name both."""
    names = tuple(properties[name] for name in MATERIALIZED if name in properties)
    return names if len(names) == len(MATERIALIZED) else ()
