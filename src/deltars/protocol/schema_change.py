"""Changes of a schema, column by column. Columns may be nested in structs, arrays and maps.

    find(schema, "Address.city") ──▶ ("address", "city")      as the schema spells it
    replaced, removed, moved, inserted                        return the changed schema
    widened                                                   a column with a wider type, as type widening allows

Whether a table may be changed so (column mapping, constraints that use the column) is up to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from deltars.errors import ValidationError
from deltars.protocol.column_path import ColumnPath, key_of, path_of, path_text
from deltars.protocol.evolution import TYPE_CHANGES, TypeChange, inside
from deltars.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Digits before the point that a decimal needs to replace integers of this type."""
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a column among its siblings: first, or after another one."""

    after: str | None = None

    def __str__(self) -> str:
        return "FIRST" if self.after is None else f"AFTER {path_text((self.after,))}"


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to add, at the end of a struct or at a place in it."""

    parent: ColumnPath
    """The struct; empty for the table's own columns."""
    field: StructField
    place: Place | None = None


def find(schema: StructType, column: str) -> ColumnPath:
    """Return a column's path as the schema spells it. Raise `ValidationError` if there is none."""
    path = path_of(column)
    known = {key_of(path): path for path, _ in schema.walk()}
    found = known.get(key_of(path)) or known.get((column.lower(),))
    if found is None:
        raise _no_column(schema, path, column)
    return found


def find_type(schema: StructType, column: str) -> tuple[ColumnPath, ColumnPath]:
    """Return the path of the nearest column, and from there the path of a type inside it: element, key, value."""
    path = path_of(column)
    known = {key_of(path): path for path, _ in schema.walk()}
    if (column.lower(),) in known and key_of(path) not in known:
        return (known[column.lower(),], ())
    for end in range(len(path), 0, -1):
        found = known.get(key_of(path[:end]))
        if found is None:
            continue
        rest, type_ = key_of(path[end:]), field_at(schema, found).type
        for part in rest:
            parts = _parts(type_)
            if part not in parts:
                raise _no_column(schema, path, column)
            type_ = parts[part]
        return found, rest
    raise _no_column(schema, path, column)


def field_at(schema: StructType, path: ColumnPath) -> StructField:
    return next(field for known, field in schema.walk() if known == path)


def is_in_collection(schema: StructType, path: ColumnPath) -> bool:
    """Return whether a column is inside an array or a map."""
    return path not in {known for known, _ in _in_structs(schema, ())}


def replaced(schema: StructType, path: ColumnPath, change: Callable[[StructField], StructField]) -> StructType:
    def at(struct: StructType) -> StructType:
        return StructType(tuple(change(field) if field.name == path[-1] else field for field in struct.fields))

    return _in_struct(schema, path[:-1], at)


def removed(schema: StructType, path: ColumnPath) -> StructType:
    """Return the schema without a column. Raise if it is the only one of the table or of its struct."""

    def at(struct: StructType) -> StructType:
        kept = tuple(field for field in struct.fields if field.name != path[-1])
        if not kept:
            where = f"the struct {path_text(path[:-1])}" if path[:-1] else "the table"
            raise ValidationError(
                f"the column {path_text(path)} cannot be dropped: it is the only one of {where}",
                field=path_text(path),
                hint="Drop the struct itself." if path[:-1] else "Drop the table, or add another column first.",
            )
        return StructType(kept)

    return _in_struct(schema, path[:-1], at)


def moved(schema: StructType, path: ColumnPath, place: Place) -> StructType:
    """Return the schema with a column at another place of the same struct."""
    field = field_at(schema, path)

    def at(struct: StructType) -> StructType:
        others = [other for other in struct.fields if other.name != path[-1]]
        return _placed(others, [field], place, path[:-1])

    return _in_struct(schema, path[:-1], at)


def inserted(schema: StructType, new: NewColumn) -> StructType:
    parent = _struct_path(schema, new.parent) if new.parent else ()

    def at(struct: StructType) -> StructType:
        if new.field.name.lower() in map(str.lower, struct.names):
            name = path_text((*parent, new.field.name))
            raise ValidationError(f"the column {name} exists already", field=name)
        return _placed(struct.fields, [new.field], new.place, parent)

    return _in_struct(schema, parent, at)


def widened(field: StructField, type_: DataType, column: str) -> StructField:
    """Return a column with a wider type, and with a note of each change. Raise if the change is no widening."""
    wider, changes = _wider(field.type, type_, column)
    if not changes:
        return field
    noted = [*field.metadata.get(TYPE_CHANGES, ()), *changes]
    return replace(field, type=wider, metadata={**field.metadata, TYPE_CHANGES: noted})


def with_type_at(type_: DataType, path: Sequence[str], new: DataType) -> DataType:
    """Return a type with another type at element, key or value."""
    if not path:
        return new
    part, rest = path[0], path[1:]
    match type_:
        case ArrayType():
            return replace(type_, element_type=with_type_at(type_.element_type, rest, new))
        case MapType() if part == "key":
            return replace(type_, key_type=with_type_at(type_.key_type, rest, new))
        case MapType():
            return replace(type_, value_type=with_type_at(type_.value_type, rest, new))
    raise AssertionError(f"{type_} has no {part}")


def can_widen(before: PrimitiveType, after: PrimitiveType) -> bool:
    """Return whether type widening allows the change."""
    if after.name in _WIDER.get(before.name, ()):
        return True
    if not after.is_decimal:
        return False
    digits = after.precision - after.scale
    if before.is_decimal:
        return digits >= before.precision - before.scale and after.scale >= before.scale
    return digits >= _DIGITS.get(before.name, digits + 1)


def _wider(before: DataType, after: DataType, column: str) -> tuple[DataType, list[TypeChange]]:
    """Return the changed type, which keeps what the new one does not say: nullability, metadata of nested fields."""
    match before, after:
        case ArrayType(), ArrayType():
            element, changes = _wider(before.element_type, after.element_type, column)
            return replace(before, element_type=element), inside("element", changes)
        case MapType(), MapType():
            key, of_key = _wider(before.key_type, after.key_type, column)
            value, of_value = _wider(before.value_type, after.value_type, column)
            return replace(before, key_type=key, value_type=value), inside("key", of_key) + inside("value", of_value)
        case PrimitiveType(), PrimitiveType() if before != after and can_widen(before, after):
            return after, [{"fromType": before.name, "toType": after.name}]
    if _as_nullable(before) == _as_nullable(after):
        return before, []
    if isinstance(before, StructType) and isinstance(after, StructType):
        raise ValidationError(
            f"the struct {column} cannot be changed as a whole",
            field=column,
            hint=f"Change its fields: change_type({column + '.' + before.names[0]!r}, …), add_columns, drop_column.",
        )
    raise ValidationError(
        f"the type of {column} cannot change from {before} to {after}: rows in existing files would not fit",
        field=column,
        hint="Write the rows again with the other type: tx.write(table, rows, mode='overwrite', overwrite_schema=True)"
        " (docs/guides/schema-changes.md#other-types).",
    )


def _as_nullable(type_: DataType) -> DataType:
    match type_:
        case ArrayType():
            return ArrayType(_as_nullable(type_.element_type))
        case MapType():
            return MapType(_as_nullable(type_.key_type), _as_nullable(type_.value_type))
        case StructType():
            return StructType(tuple(StructField(field.name, _as_nullable(field.type)) for field in type_.fields))
        case _:
            return type_


def _parts(type_: DataType) -> dict[str, DataType]:
    match type_:
        case ArrayType():
            return {"element": type_.element_type}
        case MapType():
            return {"key": type_.key_type, "value": type_.value_type}
        case _:
            return {}


def _struct_path(schema: StructType, path: ColumnPath) -> ColumnPath:
    """Return the path of a struct that gets a column, as the schema spells it."""
    column, rest = find_type(schema, path_text(path))
    type_ = field_at(schema, column).type
    for part in rest:
        type_ = _parts(type_)[part]
    if isinstance(type_, StructType):
        return (*column, *rest)
    parts = [
        f"{path_text((*column, *rest))}.{part}"
        for part, inner in _parts(type_).items()
        if isinstance(inner, StructType)
    ]
    raise ValidationError(
        f"{path_text(path)} is of type {type_}, which has no fields",
        field=path_text(path),
        hint=f"Write {' or '.join(parts)}." if parts else "Only a struct can get another field.",
    )


def _placed(
    others: Sequence[StructField], fields: Collection[StructField], place: Place | None, parent: ColumnPath
) -> StructType:
    if place is None:
        return StructType((*others, *fields))
    if place.after is None:
        return StructType((*fields, *others))
    for index, other in enumerate(others):
        if other.name.lower() == place.after.lower():
            return StructType((*others[: index + 1], *fields, *others[index + 1 :]))
    where = f" of {path_text(parent)}" if parent else ""
    raise ValidationError(
        f"there is no other column {place.after!r}{where} to follow",
        field="after",
        hint=f"Columns are: {', '.join(field.name for field in others) or 'none'}.",
    )


def _in_struct(schema: StructType, path: ColumnPath, change: Callable[[StructType], StructType]) -> StructType:
    changed = _inside(schema, path, change)
    assert isinstance(changed, StructType)
    return changed


def _inside(type_: DataType, path: ColumnPath, change: Callable[[StructType], StructType]) -> DataType:
    """Return the type with its struct at this path changed."""
    if not path:
        assert isinstance(type_, StructType)
        return change(type_)
    name, rest = path[0], path[1:]
    match type_:
        case StructType():
            return StructType(
                tuple(
                    replace(field, type=_inside(field.type, rest, change)) if field.name == name else field
                    for field in type_.fields
                )
            )
        case ArrayType():
            return replace(type_, element_type=_inside(type_.element_type, rest, change))
        case MapType() if name == "key":
            return replace(type_, key_type=_inside(type_.key_type, rest, change))
        case MapType():
            return replace(type_, value_type=_inside(type_.value_type, rest, change))
    raise AssertionError(f"{type_} has no {name}")


def _in_structs(struct: StructType, path: ColumnPath) -> Iterator[tuple[ColumnPath, StructField]]:
    """Yield every column that is in no array or map."""
    for field in struct.fields:
        yield (*path, field.name), field
        if isinstance(field.type, StructType):
            yield from _in_structs(field.type, (*path, field.name))


def _no_column(schema: StructType, path: ColumnPath, column: str) -> ValidationError:
    paths = [known for known, _ in schema.walk()]
    around = next(
        (path[:end] for end in range(len(path) - 1, -1, -1) if not end or key_of(path[:end]) in map(key_of, paths)), ()
    )
    known = [name for name in paths if key_of(name[:-1]) == key_of(around)] or [
        name for name in paths if key_of(name[: len(around)]) == key_of(around) and len(name) > len(around)
    ]
    names = ", ".join(map(path_text, known)) or "none"
    return ValidationError(f"there is no column {column!r}", field="column", hint=f"Columns are: {names}.")
