"""Strings of limited length. Delta's type is `string`; the limit is in the column's metadata, as in Spark.

v VARCHAR(3)            {"name": "v", "type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}
l ARRAY<CHAR(2)>        the same key holds the type of the whole column: "array<char(2)>"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"

_PARTS = ("elementType", "keyType", "valueType")
_LIMITED = re.compile(r"(char|varchar)\(\s*(\d+)\s*\)")

TypePath: TypeAlias = tuple[str, ...]
"""Position in a column's type: field names in lower case, `element`, `key`, `value`; empty for the column itself."""


@dataclass(frozen=True, slots=True)
class Limit:
    length: int
    """Characters, not bytes."""
    is_padded: bool
    """CHAR: shorter values are padded with spaces."""

    def __str__(self) -> str:
        return f"{'char' if self.is_padded else 'varchar'}({self.length})"


def without_limits(document: Any) -> Any:
    """Return Spark's schema JSON with char and varchar types replaced by strings and limits in the metadata."""
    match document:
        case {"type": "struct", "fields": list(fields)}:
            return {**document, "fields": [_without_limits(field) for field in fields]}
        case _:
            return document


def _without_limits(field: Any) -> Any:
    if not isinstance(field, Mapping) or not _has_limit(field.get("type")):
        return field
    metadata = {**(field.get("metadata") or {}), CHAR_VARCHAR: _catalog_string(field["type"])}
    return {**field, "type": _as_strings(field["type"]), "metadata": metadata}


def _has_limit(type_: Any) -> bool:
    match type_:
        case str():
            return _LIMITED.fullmatch(type_) is not None
        case {"fields": list(fields)}:
            return any(_has_limit(field.get("type")) for field in fields)
        case Mapping():
            return any(_has_limit(type_.get(part)) for part in _PARTS)
        case _:
            return False


def _as_strings(type_: Any) -> Any:
    match type_:
        case str():
            return "string" if _LIMITED.fullmatch(type_) else type_
        case {"fields": list(fields)}:
            return {**type_, "fields": [{**field, "type": _as_strings(field.get("type"))} for field in fields]}
        case Mapping():
            return {**type_, **{part: _as_strings(type_[part]) for part in _PARTS if part in type_}}
        case _:
            return type_


def _catalog_string(type_: Any) -> str:
    match type_:
        case {"type": "struct", "fields": list(fields)}:
            inside = ",".join(f"{_quoted(field['name'])}:{_catalog_string(field['type'])}" for field in fields)
            return f"struct<{inside}>"
        case {"type": "array", "elementType": element}:
            return f"array<{_catalog_string(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{_catalog_string(key)},{_catalog_string(value)}>"
        case _:
            return str(type_)


def _quoted(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
