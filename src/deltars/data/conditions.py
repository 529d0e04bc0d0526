"""What every row of a write must fulfil: CHECK constraints and column invariants of the table, what its generated
columns are made of, and the predicate of a replacement.

As Delta has it, a row must make the condition true: neither false nor null will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.evaluation import Computed, is_same
from deltars.data.filter import PredicateFilter
from deltars.errors import PredicateError, ValidationError
from deltars.predicate import parse
from deltars.protocol import Metadata, StructField, StructType
from deltars.protocol.column_rules import generation_of, row_rules


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    """What it is called in an error."""
    sql: str

    def violated(self) -> ValidationError:
        return ValidationError(f"a row does not fulfil {self.name}: {self.sql}", field=self.name)

    def judge(self, schema: StructType) -> Callable[[pa.RecordBatch], pa.Array]:
        """Which rows of a batch, in the table's types, fulfil it."""
        try:
            return PredicateFilter(parse(self.sql, schema)).mask
        except PredicateError as error:
            if error.position is None:
                error.hint = "Write the rows as a Spark DataFrame."
            raise


@dataclass(frozen=True, slots=True)
class GeneratedValue(Condition):
    """A generated column that the frame has is what would have been computed."""

    column: StructField

    @classmethod
    def of(cls, column: StructField, expression: str) -> GeneratedValue:
        name = "`" + column.name.replace("`", "``") + "`"
        value = expression if isinstance(column.type, StructType) else f"CAST({expression} AS {column.type})"
        return cls(f"the generated column {column.name}", f"{name} <=> {value}", column)

    def violated(self) -> ValidationError:
        return ValidationError(
            f"a row has another value in {self.name} than {generation_of(self.column)} gives", field=self.column.name
        )

    def judge(self, schema: StructType) -> Callable[[pa.RecordBatch], pa.Array]:
        computed = Computed(generation_of(self.column) or "", schema, self.column.type)
        return lambda batch: is_same(batch.column(self.column.name), computed.of(batch))


def conditions_of(metadata: Metadata, frame_columns: Iterable[str]) -> list[Condition]:
    """What the table asks of the rows of a frame with these columns."""
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
    """The same batches; the first row that breaks a condition is an error."""
    judges = [(condition, condition.judge(schema)) for condition in conditions]
    for batch in batches:
        for condition, judge in judges:
            if not pc.all(pc.fill_null(judge(batch), False), min_count=0).as_py():
                raise condition.violated()
        yield batch
