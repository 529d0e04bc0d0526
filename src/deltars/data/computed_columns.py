"""Columns that the table computes for a frame: defaults, generated columns, CHAR and VARCHAR lengths.

missing, with a default            the default
missing, an identity               the next numbers (`protocol.identity`)
missing, generated                 computed from the other columns
present, generated                 a condition: it must equal the computed value (`conditions`)
CHAR(n), VARCHAR(n)                CHAR is padded with blanks; blanks beyond n are cut off; longer strings are refused
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from deltars.data.evaluation import ColumnExpression, default_value
from deltars.data.nested import with_values
from deltars.data.write_schema import file_schema, fit
from deltars.errors import ValidationError
from deltars.protocol import StructField, StructType, schema_to_arrow
from deltars.protocol.char_varchar import Limit, TypePath
from deltars.protocol.column_rules import default_of, generation_of, limits_of
from deltars.protocol.identity import Identity, counted, exhausted, is_in_range


class ComputedColumns:
    """The computed columns of a table, for frames that have certain columns already."""

    def __init__(self, names: Iterable[str], table: StructType) -> None:
        """`names` are the frame's columns."""
        names = list(names)
        present = {name.lower() for name in names}
        missing = [field for field in table.fields if field.name.lower() not in present]
        self._generated = [field for field in missing if generation_of(field) is not None]
        self._defaults = {
            field.name: default_value(sql, field.type)
            for field in missing
            if (sql := default_of(field)) is not None and generation_of(field) is None
        }
        self._counters = {name: _Counter(name, found) for name, found in counted(table, names).items()}
        self._base = StructType(tuple(field for field in table.fields if field not in self._generated))
        self._arrow = schema_to_arrow(self._base)
        self._expressions = {
            field.name: ColumnExpression(generation_of(field) or "", self._base, field.type)
            for field in self._generated
        }
        self._limits = {field.name: limits_of(field) for field in table.fields if limits_of(field)}
        self._names = list(table.names)
        self.schema = file_schema(schema_to_arrow(table))

    def add_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with all columns of the table."""
        for name, value in self._defaults.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        for name, counter in self._counters.items():
            batch = batch.append_column(name, counter.take(batch.num_rows))
        rows = fit(batch, self._arrow)
        columns = {
            name: self._limited(name, array) for name, array in zip(rows.schema.names, rows.columns, strict=True)
        }
        base = pa.RecordBatch.from_arrays(list(columns.values()), schema=file_schema(self._arrow))
        columns |= {
            name: self._limited(name, expression.evaluate(base)) for name, expression in self._expressions.items()
        }
        for field in self._generated:
            _refuse_nulls(columns[field.name], field)
        return pa.RecordBatch.from_arrays([columns[name] for name in self._names], schema=self.schema)

    def _limited(self, name: str, array: pa.Array) -> pa.Array:
        return limited(array, self._limits[name], (), name) if name in self._limits else array


class _Counter:
    """Values of an identity column, batch after batch."""

    def __init__(self, name: str, identity: Identity) -> None:
        self._name, self._step = name, identity.step
        self._next = identity.first_free

    def take(self, count: int) -> pa.Array:
        first, self._next = self._next, self._next + count * self._step
        if count and not (is_in_range(first) and is_in_range(self._next - self._step)):
            raise exhausted(self._name)
        return pa.array(first + self._step * np.arange(count, dtype=np.int64) if count else [], pa.int64())


def limited(array: pa.Array, limits: Mapping[TypePath, Limit], path: TypePath, column: str) -> pa.Array:
    """Return the array with its strings fitted to their length limits, inside structs, lists and maps too."""
    if path in limits:
        return _limited_text(array, limits[path], column)
    if not any(place[: len(path)] == path for place in limits):
        return array

    def inside(child: pa.Array, part: str) -> pa.Array:
        return limited(child, limits, (*path, part.lower()), column)

    if types.is_struct(array.type):
        children = [inside(array.field(index), field.name) for index, field in enumerate(array.type)]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=array.is_null())
    return with_values(array, array.type, inside)


def _limited_text(text: pa.Array, limit: Limit, column: str) -> pa.Array:
    is_longer = pc.greater(pc.utf8_length(pc.utf8_rtrim(text, " ")), limit.length)
    if pc.any(is_longer).as_py():
        raise ValidationError(f"column {column} has a string that is longer than {limit}", field=column)
    cut = pc.utf8_slice_codeunits(text, 0, limit.length)
    return pc.utf8_rpad(cut, limit.length) if limit.is_padded else cut


def _refuse_nulls(values: pa.Array, field: StructField) -> None:
    if not field.nullable and values.null_count:
        raise ValidationError(
            f"the generated column {field.name} is NOT NULL, and {generation_of(field)} gave a null", field=field.name
        )
