"""Delta's types and the schema JSON of `metaData.schemaString`.

    StructType ── fields ──> StructField ── type ──> PrimitiveType | ArrayType | MapType | StructType

`StructType.from_json(text).to_json()` returns the text as Spark writes it, with the same key order and metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from deltars.errors import ValidationError, brief

PHYSICAL_NAME = "delta.columnMapping.physicalName"
COLUMN_ID = "delta.columnMapping.id"
MAX_DECIMAL_PRECISION = 38

_PRIMITIVES = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary",
        "date", "timestamp", "timestamp_ntz", "void", "variant",
    }
)  # fmt: skip
_DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*,\s*(-?\d+)\s*\))?")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without nested types, by its name in Delta: `long`, `decimal(10,2)`, `timestamp_ntz` …"""

    name: str

    def __post_init__(self) -> None:
        if self.name in _PRIMITIVES:
            return
        decimal = _DECIMAL.fullmatch(self.name)
        if decimal is None:
            raise ValidationError(f"Delta has no type {self.name!r}")
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if not (1 <= precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
            raise ValidationError(
                f"{self.name} is out of bounds: its precision is at most {MAX_DECIMAL_PRECISION}, "
                "its scale at most its precision"
            )
        object.__setattr__(self, "name", f"decimal({precision},{scale})")

    @classmethod
    def decimal(cls, precision: int, scale: int) -> PrimitiveType:
        return cls(f"decimal({precision},{scale})")

    @property
    def is_decimal(self) -> bool:
        return self.name.startswith("decimal")

    @property
    def precision(self) -> int:
        return self._decimal_part(0)

    @property
    def scale(self) -> int:
        return self._decimal_part(1)

    def _decimal_part(self, index: int) -> int:
        return int(self.name[len("decimal(") : -1].split(",")[index])

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ArrayType:
    element_type: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element_type}>"


@dataclass(frozen=True, slots=True)
class MapType:
    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key_type},{self.value_type}>"


@dataclass(frozen=True, slots=True)
class StructField:
    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def physical_name(self) -> str:
        """Return the column's name in data files, statistics and partition values."""
        return str(self.metadata.get(PHYSICAL_NAME, self.name))

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{'' if self.nullable else ' not null'}"


@dataclass(frozen=True, slots=True)
class StructType:
    fields: tuple[StructField, ...] = ()

    @classmethod
    def from_json(cls, text: str | bytes) -> StructType:
        if not isinstance(text, str | bytes):
            raise ValidationError(f"a schema's JSON is a text, got {brief(text)}", field="schemaString")
        try:
            document = msgspec.json.decode(text)
        except (ValueError, RecursionError) as error:
            raise ValidationError(f"the schema is not JSON: {error}", field="schemaString") from error
        return cls.from_dict(document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> StructType:
        """Return the schema of parsed schema JSON, such as `jsonValue()` of a Spark type."""
        parsed = _parse(document, ())
        if not isinstance(parsed, StructType):
            raise ValidationError(f"a schema is a struct, not {parsed}", field="schemaString")
        return parsed

    def to_json(self) -> str:
        return msgspec.json.encode(_document(self)).decode()

    def leaves(self, *, physical: bool = False) -> Iterator[tuple[tuple[str, ...], LeafType]]:
        """Yield every column that is not a struct, depth first, as Delta counts them. An array or a map is one leaf."""
        for column in self.fields:
            name = column.physical_name if physical else column.name
            if isinstance(column.type, StructType):
                for path, leaf in column.type.leaves(physical=physical):
                    yield (name, *path), leaf
            else:
                yield (name,), column.type

    def walk(self) -> Iterator[tuple[tuple[str, ...], StructField]]:
        """Yield every field with its path, parents before children, also inside arrays and maps."""
        return _walk(self, ())

    def types(self) -> Iterator[DataType]:
        """Yield every type in the schema at any depth, also inside arrays and maps."""
        return _types(self)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.fields)

    def __getitem__(self, name: str) -> StructField:
        for column in self.fields:
            if column.name == name:
                return column
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"


@dataclass(frozen=True, slots=True, eq=False)
class SchemaKey:
    """A schema in the key of a cache, equal to the same object alone: its hash would take longer than most look-ups.

    A schema is parsed once for each text. The key keeps it alive, so no other schema gets its identity.
    """

    schema: StructType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaKey) and self.schema is other.schema

    def __hash__(self) -> int:
        return id(self.schema)


def physical_paths(schema: StructType) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return the path of each leaf in data files and statistics, by its path in the table."""
    return _physical_paths(SchemaKey(schema))


@lru_cache(maxsize=100)
def _physical_paths(key: SchemaKey) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    names = (path for path, _ in key.schema.leaves())
    physical = (path for path, _ in key.schema.leaves(physical=True))
    return MappingProxyType(dict(zip(names, physical, strict=True)))


LeafType: TypeAlias = PrimitiveType | ArrayType | MapType
DataType: TypeAlias = PrimitiveType | ArrayType | MapType | StructType


def _parse(document: Any, path: tuple[str, ...]) -> DataType:
    match document:
        case str():
            return _parse_primitive(document, path)
        case {"type": "struct", "fields": list(fields)}:
            return StructType(tuple(_parse_field(column, path) for column in fields))
        case {"type": "array", "elementType": element, "containsNull": bool(contains_null)}:
            return ArrayType(_parse(element, (*path, "element")), contains_null)
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": bool(contains_null)}:
            return MapType(_parse(key, (*path, "key")), _parse(value, (*path, "value")), contains_null)
        case {"type": "udt"}:
            raise _error("a user-defined type is not supported", path)
    raise _error(f"not a type of Delta: {brief(document, 200)}", path)


def _parse_primitive(name: str, path: tuple[str, ...]) -> PrimitiveType:
    try:
        return PrimitiveType("void" if name == "null" else name)
    except ValidationError as error:
        raise _error(error.message, path) from error


def _parse_field(document: Any, path: tuple[str, ...]) -> StructField:
    match document:
        case {"name": str(name), "type": type_}:
            nullable, metadata = document.get("nullable", True), document.get("metadata") or {}
            if isinstance(nullable, bool) and isinstance(metadata, dict):
                return StructField(name, _parse(type_, (*path, name)), nullable, metadata)
    raise _error(f"not a field of a struct: {brief(document, 200)}", path)


def _error(problem: str, path: tuple[str, ...]) -> ValidationError:
    where = f"column {'.'.join(path)} of the schema" if path else "the schema"
    return ValidationError(f"{where}: {problem}", field="schemaString")


def _document(type_: DataType) -> Any:
    match type_:
        case PrimitiveType():
            return type_.name
        case ArrayType():
            return {
                "type": "array",
                "elementType": _document(type_.element_type),
                "containsNull": type_.contains_null,
            }
        case MapType():
            return {
                "type": "map",
                "keyType": _document(type_.key_type),
                "valueType": _document(type_.value_type),
                "valueContainsNull": type_.value_contains_null,
            }
        case StructType():
            return {"type": "struct", "fields": [_field_document(column) for column in type_.fields]}


def _field_document(column: StructField) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": _document(column.type),
        "nullable": column.nullable,
        "metadata": dict(column.metadata),
    }


def _walk(type_: DataType, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], StructField]]:
    match type_:
        case StructType():
            for column in type_.fields:
                yield (*path, column.name), column
                yield from _walk(column.type, (*path, column.name))
        case ArrayType():
            yield from _walk(type_.element_type, (*path, "element"))
        case MapType():
            yield from _walk(type_.key_type, (*path, "key"))
            yield from _walk(type_.value_type, (*path, "value"))


def _types(type_: DataType) -> Iterator[DataType]:
    yield type_
    match type_:
        case StructType():
            for column in type_.fields:
                yield from _types(column.type)
        case ArrayType():
            yield from _types(type_.element_type)
        case MapType():
            yield from _types(type_.key_type)
            yield from _types(type_.value_type)
