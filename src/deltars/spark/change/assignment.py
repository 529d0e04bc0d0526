"""Assignment of values to columns, as Spark's ANSI store assignment does it, whatever the session's ANSI setting is.

numbers                  to numbers; a value that does not fit fails the job
any atomic type          to string
dates and timestamps     to each other
arrays, maps, structs    part by part; fields of structs by name, and a missing one is null
anything else            refused before a job runs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from deltars.data.new_rows import resolved
from deltars.errors import SchemaMismatch, ValidationError
from deltars.spark.schema import schema_from_spark
from deltars.spark.write.computed_columns import REFUSED

_WIDER: dict[type[T.DataType], tuple[type[T.DataType], ...]] = {
    T.ByteType: (T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    T.ShortType: (T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    T.IntegerType: (T.LongType, T.FloatType, T.DoubleType),
    T.LongType: (T.FloatType, T.DoubleType),
    T.FloatType: (T.DoubleType,),
    T.DoubleType: (T.FloatType,),
    T.DecimalType: (T.FloatType, T.DoubleType),
}
"""Casts between numbers that never fail."""
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_FAMILIES = (T.DayTimeIntervalType, T.YearMonthIntervalType)


@dataclass(frozen=True, slots=True)
class Value:
    """A value for a column or for a field of it."""

    column: Column
    type: T.DataType


@dataclass(slots=True)
class _Node:
    value: Value | None = None
    fields: dict[str, _Node] = field(default_factory=dict)
    """Assigned fields, by their names in lower case."""


class Assignments:
    """Values for columns of a table and for fields of its structs."""

    def __init__(self, table: T.StructType, values: Mapping[str, Value]) -> None:
        self._table = table
        self._root = _Node()
        schema = schema_from_spark(table)
        for name, value in values.items():
            self._add(name, resolved(name, schema).path, value)

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that are assigned, at least in part, in lower case."""
        return frozenset(self._root.fields)

    def apply(self, name: str, current: Column) -> Column:
        """Return the new value of a column."""
        node = self._root.fields.get(name.lower())
        return current if node is None else _built(current, self._table[name].dataType, node, name)

    def _add(self, name: str, path: Sequence[str], value: Value) -> None:
        node = self._root
        for part in path:
            node = node.fields.setdefault(part.lower(), _Node())
            if node.value is not None:
                raise ValidationError(f"column {name} is assigned twice", field=name)
        if node.fields:
            raise ValidationError(f"column {name} is assigned twice: as a whole and in part", field=name)
        node.value = value


def _built(current: Column, kind: T.DataType, node: _Node, name: str) -> Column:
    if node.value is not None:
        return assigned(node.value.column, node.value.type, kind, name)
    assert isinstance(kind, T.StructType)
    parts = []
    for inner in kind.fields:
        part = current.getField(inner.name)
        below = node.fields.get(inner.name.lower())
        built = part if below is None else _built(part, inner.dataType, below, f"{name}.{inner.name}")
        parts.append(built.alias(inner.name))
    # A field of a null struct can be assigned: the struct is then no longer null.
    return F.struct(*parts)


def assigned(value: Column, given: T.DataType, wanted: T.DataType, name: str) -> Column:
    """Return the value as the column's type. Raise SchemaMismatch if the type cannot be assigned."""
    if given.simpleString() == wanted.simpleString():
        return value
    match given, wanted:
        case T.ArrayType(), T.ArrayType():
            return F.transform(value, lambda item: assigned(item, given.elementType, wanted.elementType, name))
        case T.MapType(), T.MapType():
            keys = F.transform_keys(value, lambda key, _: assigned(key, given.keyType, wanted.keyType, name))
            return F.transform_values(keys, lambda _, item: assigned(item, given.valueType, wanted.valueType, name))
        case T.StructType(), T.StructType():
            return _struct(value, given, wanted, name)
    if not _can_assign(given, wanted):
        raise SchemaMismatch(
            f"column {name} is of type {wanted.simpleString()}, but its value is of type {given.simpleString()}",
            field=name,
            hint="Cast the value in the statement.",
        )
    return _checked_cast(value, wanted, name) if _can_overflow(given, wanted) else value.cast(wanted)


def _struct(value: Column, given: T.StructType, wanted: T.StructType, name: str) -> Column:
    by_name = {inner.name.lower(): inner for inner in given.fields}
    parts = []
    for inner in wanted.fields:
        found = by_name.pop(inner.name.lower(), None)
        if found is None:
            parts.append(F.lit(None).cast(inner.dataType).alias(inner.name))
        else:
            part = assigned(value.getField(found.name), found.dataType, inner.dataType, f"{name}.{inner.name}")
            parts.append(part.alias(inner.name))
    if by_name:
        extra = next(iter(by_name.values())).name
        raise SchemaMismatch(f"column {name} has no field {extra!r}, but its value has", field=f"{name}.{extra}")
    return F.when(value.isNotNull(), F.struct(*parts))


def _can_assign(given: T.DataType, wanted: T.DataType) -> bool:
    if isinstance(given, T.NullType):
        return True
    if isinstance(wanted, T.StringType):
        return isinstance(given, T.AtomicType) and not isinstance(given, T.VariantType)
    if isinstance(given, T.NumericType) and isinstance(wanted, T.NumericType):
        return True
    if isinstance(given, _TIMES) and isinstance(wanted, _TIMES):
        return True
    return any(isinstance(given, family) and isinstance(wanted, family) for family in _FAMILIES)


def _can_overflow(given: T.DataType, wanted: T.DataType) -> bool:
    return isinstance(given, T.NumericType) and not isinstance(wanted, (T.StringType, *_WIDER.get(type(given), ())))


def _checked_cast(value: Column, wanted: T.DataType, name: str) -> Column:
    # `try_cast` has ANSI rules in every session, and is null where ANSI raises.
    cast = value.try_cast(wanted)
    message = F.lit(f"{REFUSED}a value for column {name} does not fit {wanted.simpleString()}.")
    return F.when(value.isNotNull() & cast.isNull(), F.raise_error(message).cast(wanted)).otherwise(cast)
