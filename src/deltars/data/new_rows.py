"""New rows of a row-level change: old rows with new values, or rows made of values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.evaluation import AssignedValue
from deltars.data.read_schema import arrow_schema, arrow_type
from deltars.data.store_assignment import assigned
from deltars.errors import ValidationError
from deltars.predicate import Column, Sides
from deltars.protocol import StructField, StructType
from deltars.protocol.column_rules import generation_of


class NewRows:
    """The values of an UPDATE, or of a clause of a MERGE."""

    def __init__(self, values: Mapping[str, Any], table: StructType, names: StructType | Sides) -> None:
        """Take SQL for the columns of the table, or for fields of its structs. The SQL refers to `names`."""
        self._table = table
        self._values: dict[str, list[tuple[tuple[str, ...], AssignedValue]]] = {}
        for name, sql in values.items():
            column = resolved(name, table)
            value = AssignedValue(sql, names, column.type, name)
            self._values.setdefault(column.path[0], []).append((column.path[1:], value))

    def updated(self, old: pa.RecordBatch, given: pa.RecordBatch) -> pa.RecordBatch:
        """Return the old rows with the new values. `given` has the columns that the values refer to.

        Generated columns that get no value are left out, because the table computes them again.
        """
        kept = [field for field in self._table.fields if field.name in self._values or generation_of(field) is None]
        arrays = [self._assigned(field, given, old.column(field.name)) for field in kept]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(StructType(tuple(kept))))

    def inserted(self, given: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns that get a value."""
        fields = [field for field in self._table.fields if field.name in self._values]
        arrays = [self._assigned(field, given, pa.nulls(given.num_rows, arrow_type(field.type))) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(StructType(tuple(fields))))

    def _assigned(self, field: StructField, given: pa.RecordBatch, old: pa.Array) -> pa.Array:
        for path, value in self._values.get(field.name, ()):
            old = _with_field(old, path, value.evaluate(given))
        return old


class SourceRows:
    """The values of a clause that takes every column from the source's column of the same name."""

    def __init__(self, table: StructType, source: StructType) -> None:
        self._table = table
        names = {field.name.lower(): field.name for field in source.fields}
        missing = [name for name in table.names if name.lower() not in names]
        if missing:
            raise ValidationError(f"the source has no column {missing[0]}", field=missing[0])
        self._names = [names[name.lower()] for name in table.names]

    def of(self, source: pa.RecordBatch) -> pa.RecordBatch:
        schema = arrow_schema(self._table)
        pairs = zip(self._names, schema, strict=True)
        arrays = [assigned(source.column(name), field.type, field.name) for name, field in pairs]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def resolved(name: str, table: StructType) -> Column:
    """Return the column with this name; `a.b` is the field b of the struct a, unless there is a column `a.b`."""
    found = _resolved(name.lower(), table)
    if found is None:
        raise ValidationError(f"there is no column {name!r}; the columns are {', '.join(table.names)}", field=name)
    return found


def _resolved(name: str, struct: StructType) -> Column | None:
    for field in struct.fields:
        if field.name.lower() == name:
            return Column((field.name,), field.type)
    for field in struct.fields:
        if isinstance(field.type, StructType) and name.startswith(f"{field.name.lower()}."):
            inner = _resolved(name[len(field.name) + 1 :], field.type)
            if inner is not None:
                return Column((field.name, *inner.path), inner.type)
    return None


def _with_field(struct: pa.Array, path: Sequence[str], values: pa.Array) -> pa.Array:
    """Replace a field. A null struct becomes one in which the other fields are null, as in Spark."""
    if not path:
        return values
    name, *rest = path
    old = [pc.struct_field(struct, [place]) for place in range(struct.type.num_fields)]
    children = [
        _with_field(child, rest, values) if field.name == name else child
        for child, field in zip(old, struct.type, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(struct.type))
