"""Rules of a schema for the values of its columns, beyond their types.

delta.generationExpression    expression of the value: computed if the column is missing, else checked
CURRENT_DEFAULT               the value if a frame lacks the column
delta.identity.start          the table counts the values (`identity`)
delta.invariants              a condition on every row, the predecessor of CHECK constraints
__CHAR_VARCHAR_TYPE_STRING    the length of strings
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from deltars.errors import ValidationError
from deltars.protocol.actions import Metadata
from deltars.protocol.char_varchar import CHAR_VARCHAR, Limit, TypePath
from deltars.protocol.ddl import limits_of_type
from deltars.protocol.identity import START
from deltars.protocol.properties import CONSTRAINT
from deltars.protocol.schema import StructField, StructType

GENERATION = "delta.generationExpression"
DEFAULT = "CURRENT_DEFAULT"
INVARIANTS = "delta.invariants"


def generation_of(field: StructField) -> str | None:
    found = field.metadata.get(GENERATION)
    return None if found is None else str(found)


def default_of(field: StructField) -> str | None:
    found = field.metadata.get(DEFAULT)
    return None if found is None else str(found)


def is_computed(field: StructField) -> bool:
    """Return whether the column gets a value if a frame lacks it."""
    return generation_of(field) is not None or default_of(field) is not None or START in field.metadata


def invariant_of(field: StructField) -> str | None:
    """Return the SQL condition of a column, which is nested two levels deep in the JSON of its metadata."""
    text = field.metadata.get(INVARIANTS)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, str]])["expression"]["expression"]
    except (KeyError, TypeError, msgspec.MsgspecError):
        raise ValidationError(
            f"the invariant of column {field.name} cannot be read: {text}", field=field.name
        ) from None


def row_rules(metadata: Metadata) -> Iterator[tuple[str, str]]:
    """Yield the conditions that every row must fulfil, each as a name for errors and its SQL."""
    for key, sql in sorted(metadata.configuration.items()):
        if key.startswith(CONSTRAINT):
            yield f"the constraint {key.removeprefix(CONSTRAINT)}", sql
    for _, field in metadata.schema.walk():
        invariant = invariant_of(field)
        if invariant is not None:
            yield f"the invariant of column {field.name}", invariant


def limits_of(field: StructField) -> Mapping[TypePath, Limit]:
    """Return the length limits of a column's strings, by their position in its type."""
    text = field.metadata.get(CHAR_VARCHAR)
    return {} if text is None else limits_of_type(str(text))


def has_rules(schema: StructType) -> bool:
    """Return whether writing a frame takes more than casting its columns to the table's types."""
    return any(key in field.metadata for field in schema.fields for key in (GENERATION, DEFAULT, CHAR_VARCHAR, START))
