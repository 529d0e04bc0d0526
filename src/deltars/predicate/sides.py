"""Names of columns in the SQL of a merge: of the target or of the source, with an alias or without.

    t.id, s.id, amount ──qualified──▶ (t, id), (s, id), (s, amount)      ▶ columns of one schema, `Sides.schema`

The two sides are structs of one schema, named by their aliases, so that all other code sees one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot import exp

from deltars.errors import ValidationError
from deltars.predicate.source import Source
from deltars.protocol import StructField, StructType


@dataclass(frozen=True, slots=True)
class Sides:
    """The tables whose columns an expression may name, each with its alias."""

    tables: tuple[tuple[str, StructType], ...]

    def __post_init__(self) -> None:
        aliases = [alias.lower() for alias, _ in self.tables]
        if len(set(aliases)) < len(aliases):
            raise ValidationError(
                f"target and source have the same alias {self.tables[0][0]!r}", field="alias", hint="Choose another."
            )

    @property
    def schema(self) -> StructType:
        return StructType(tuple(StructField(alias, schema) for alias, schema in self.tables))

    def qualified(self, source: Source, names: list[exp.Identifier]) -> list[exp.Identifier]:
        """Return the names of a column with its alias in front, as Spark resolves them: an alias before a column."""
        first, *rest = names
        side = next((schema for alias, schema in self.tables if alias.lower() == first.name.lower()), None)
        if rest and side is not None and _has(side, rest[0]):
            return names
        is_alias = bool(rest) and side is not None
        owners = [alias for alias, schema in self.tables if _has(schema, first, *rest[:is_alias])]
        if len(owners) == 1:
            return [exp.to_identifier(owners[0]), *names]
        if len(owners) > 1:
            either = " or ".join(f"{alias}.{first.name}" for alias in owners)
            raise source.error(f"{first.name} is ambiguous", first, hint=f"Write {either}.")
        if is_alias:
            return names
        raise source.error(f"there is no column {first.name}", first, hint=self._hint(first.name, rest))

    def _hint(self, name: str, rest: Sequence[exp.Identifier]) -> str:
        if rest:
            return f"The aliases are {' and '.join(alias for alias, _ in self.tables)}."
        known = {
            field.name.lower(): f"{alias}.{field.name}" for alias, schema in self.tables for field in schema.fields
        }
        near = get_close_matches(name.lower(), known, n=1)
        return f"Did you mean {known[near[0]]}?" if near else f"Columns: {', '.join(list(known.values())[:20])}."


def _has(schema: StructType, name: exp.Identifier, *inside: exp.Identifier) -> bool:
    """Return whether the schema has the column, and the column this field, if one is given."""
    fields = [field for field in schema.fields if field.name.lower() == name.name.lower()]
    if not inside:
        return bool(fields)
    return any(isinstance(field.type, StructType) and _has(field.type, *inside) for field in fields)
