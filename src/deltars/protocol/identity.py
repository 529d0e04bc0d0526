"""Identity columns: columns whose values the table counts, `GENERATED … AS IDENTITY (START WITH 1 INCREMENT BY 1)`.

    delta.identity.start, .step              the first value, and the distance to the next
    delta.identity.highWaterMark             the last value that was given, by the schema's newest version
    delta.identity.allowExplicitInsert       BY DEFAULT: rows may bring their own values; ALWAYS: they may not

A writer reserves values before it writes rows (`store.identities`), so that no value is given twice. Its commit raises
the high-water mark, and does not conflict with another one that does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltars.errors import ValidationError
from deltars.protocol.schema import PrimitiveType, StructField, StructType
from deltars.protocol.stats import indexed_leaves

START = "delta.identity.start"
STEP = "delta.identity.step"
HIGH_WATER_MARK = "delta.identity.highWaterMark"
EXPLICIT = "delta.identity.allowExplicitInsert"

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Identity:
    start: int = 1
    step: int = 1
    high_water_mark: int | None = None
    allows_explicit: bool = False

    @property
    def first_free(self) -> int:
        """Return the value of the next row."""
        return self.start if self.high_water_mark is None else self.high_water_mark + self.step

    def last_of(self, values: Iterable[int]) -> int:
        """Return the value that was given last."""
        return max(values) if self.step > 0 else min(values)

    def to_metadata(self) -> dict[str, Any]:
        return {START: self.start, STEP: self.step, EXPLICIT: self.allows_explicit}


def identity_of(field: StructField) -> Identity | None:
    """Return the identity of a column; None if it is an ordinary one."""
    found = field.metadata
    if START not in found:
        return None
    try:
        mark = found.get(HIGH_WATER_MARK)
        return Identity(
            int(found[START]), int(found[STEP]), None if mark is None else int(mark), bool(found.get(EXPLICIT, False))
        )
    except (KeyError, TypeError, ValueError):
        raise ValidationError(f"the identity of column {field.name} cannot be read", field=field.name) from None


def identities(schema: StructType) -> dict[str, Identity]:
    """Return the identity columns by name."""
    return {field.name: found for field in schema.fields if (found := identity_of(field)) is not None}


def counted(schema: StructType, names: Iterable[str]) -> dict[str, Identity]:
    """Return the identity columns that rows with these columns lack, so that the table counts them."""
    present = {name.lower() for name in names}
    return {name: found for name, found in identities(schema).items() if name.lower() not in present}


def check_identities(schema: StructType, partition_columns: Sequence[str], properties: Mapping[str, str]) -> None:
    """Raise `ValidationError` for an identity column that Delta does not allow, or that cannot be counted here."""
    indexed = {path for path, _ in indexed_leaves(schema, partition_columns, properties)}
    for path, field in schema.walk():
        found = identity_of(field)
        if found is None:
            continue
        name = ".".join(path)
        if len(path) > 1:
            raise ValidationError(f"{name} cannot be an identity column: only top-level columns can", field=name)
        if field.type != PrimitiveType("long"):
            raise ValidationError(
                f"the identity column {name} is of type {field.type}", field=name, hint="Write BIGINT."
            )
        if found.step == 0:
            raise ValidationError(f"the identity column {name} cannot have the increment 0", field=name)
        if not all(_SMALLEST <= number <= _LARGEST for number in (found.start, found.step)):
            raise ValidationError(f"the identity column {name} has a start or an increment beyond BIGINT", field=name)
        if name in partition_columns:
            raise ValidationError(f"a table cannot be partitioned by the identity column {name}", field=name)
        if path not in indexed:
            raise ValidationError(
                f"the identity column {name} needs statistics, which say the last value of each file",
                field=name,
                hint="Raise delta.dataSkippingNumIndexedCols, or name it in delta.dataSkippingStatsColumns.",
            )


def refuse_given(schema: StructType, names: Iterable[str]) -> None:
    """Raise `ValidationError` if rows bring values of a column that the table always counts itself."""
    given = {name.lower() for name in names}
    for name, found in identities(schema).items():
        if name.lower() in given and not found.allows_explicit:
            raise ValidationError(
                f"the column {name} is GENERATED ALWAYS AS IDENTITY, so rows cannot bring values of it",
                field=name,
                hint="Leave the column out.",
            )


def refuse_updated(schema: StructType, names: Iterable[str]) -> None:
    """Raise `ValidationError` if an update assigns an identity column, as Delta does."""
    given = {name.lower() for name in names}
    for name in identities(schema):
        if name.lower() in given:
            raise ValidationError(
                f"the identity column {name} cannot be updated",
                field=name,
                hint=f"Leave it out: of all columns of a source by except_columns=[{name!r}].",
            )


def exhausted(name: str) -> ValidationError:
    return ValidationError(f"the identity column {name} has no more values: BIGINT ends there", field=name)


def is_in_range(number: int) -> bool:
    return _SMALLEST <= number <= _LARGEST


def latest_marks(then: StructType, now: StructType) -> StructType:
    """Return an older schema with the newest marks, so that no value is given again."""
    newest = identities(now)
    marks = {
        name: old.last_of([mark for mark in (old.high_water_mark, newest[name].high_water_mark) if mark is not None])
        for name, old in identities(then).items()
        if name in newest and newest[name].high_water_mark is not None
    }
    return with_marks(then, marks) if marks else then


def without_marks(schema: StructType) -> StructType:
    """Return the schema of a table that has given no values yet."""
    return StructType(
        tuple(
            replace(field, metadata={key: value for key, value in field.metadata.items() if key != HIGH_WATER_MARK})
            for field in schema.fields
        )
    )


def with_marks(schema: StructType, marks: Mapping[str, int]) -> StructType:
    """Return the schema with other high-water marks of its identity columns."""
    return StructType(
        tuple(
            replace(field, metadata={**field.metadata, HIGH_WATER_MARK: marks[field.name]})
            if field.name in marks
            else field
            for field in schema.fields
        )
    )
