"""Conditions on every row of a write: CHECK constraints and column invariants of the table, the expressions of its
generated columns, and the predicate of `replace_where`.

As in Delta, a condition must be true for a row. False and null both violate it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.filter import PredicateFilter
from deltars.errors import PredicateError, ValidationError
from deltars.predicate import parse
from deltars.protocol import Metadata, StructField, StructType
from deltars.protocol.column_rules import generation_of, row_rules


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    """Name for error messages."""
    sql: str

    def violated(self) -> ValidationError:
        hint = "Write only rows that match it, or replace other rows." if self.name == "replace_where" else None
        return ValidationError(f"a row violates {self.name}: {self.sql}", field=self.name, hint=hint)

    def mask_for(self, schema: StructType) -> Callable[[pa.RecordBatch], pa.Array]:
        """Return a function that says which rows of a batch, in the table's types, fulfil the condition."""
        try:
            return PredicateFilter(parse(self.sql, schema, field="constraint")).mask
        except PredicateError as error:
            if error.position is None:
                error.hint = "Write the rows as a Spark DataFrame."
            raise


@dataclass(frozen=True, slots=True)
class GeneratedValue(Condition):
    """Condition that a generated column in the frame has the values that would have been computed."""

    column: StructField

    @classmethod
    def of(cls, column: StructField, expression: str) -> GeneratedValue:
        name = "`" + column.name.replace("`", "``") + "`"
        value = expression if isinstance(column.type, StructType) else f"CAST({expression} AS {column.type})"
        return cls(f"the generated column {column.name}", f"{name} <=> {value}", column)

    def violated(self) -> ValidationError:
        return ValidationError(
            f"a row's value in {self.name} differs from {generation_of(self.column)}", field=self.column.name
        )

    def mask_for(self, schema: StructType) -> Callable[[pa.RecordBatch], pa.Array]:
        # Imported late: few tables have generated columns, and sqlglot is slow to load.
        from deltars.data.evaluation import ColumnExpression, is_same

        expression = ColumnExpression(generation_of(self.column) or "", schema, self.column.type)
        return lambda batch: is_same(batch.column(self.column.name), expression.evaluate(batch))


def conditions_of(metadata: Metadata, frame_columns: Iterable[str]) -> list[Condition]:
    """Return the table's conditions on the rows of a frame with these columns."""
    found = [Condition(name, sql) for name, sql in row_rules(metadata)]
    present = {name.lower() for name in frame_columns}
    for field in metadata.schema.fields:
        expression = generation_of(field)
        if expression is not None and field.name.lower() in present:
            found.append(GeneratedValue.of(field, expression))
    return found


def checked(
    batches: Iterable[pa.RecordBatch], conditions: Sequence[Condition], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the batches unchanged. Raise ValidationError at the first row that violates a condition."""
    masks = [(condition, condition.mask_for(schema)) for condition in conditions]
    for batch in batches:
        for condition, mask in masks:
            if not pc.all(pc.fill_null(mask(batch), False), min_count=0).as_py():
                raise condition.violated()
        yield batch
