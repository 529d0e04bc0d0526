"""What every row of a write must fulfil: CHECK constraints of the table, and the predicate of a replacement.

As Delta has it, a row must make the condition true: neither false nor null will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltars.data.filter import PredicateFilter
from deltars.errors import ValidationError
from deltars.predicate import parse
from deltars.protocol import StructType

CONSTRAINT = "delta.constraints."
"""The prefix of the properties that hold CHECK constraints, by name."""


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    """What it is called in an error."""
    sql: str

    def violated(self) -> ValidationError:
        return ValidationError(f"a row does not fulfil {self.name}: {self.sql}", field=self.name)


def constraints(properties: Mapping[str, str]) -> tuple[Condition, ...]:
    """The CHECK constraints of a table."""
    return tuple(
        Condition(f"the constraint {key.removeprefix(CONSTRAINT)}", sql)
        for key, sql in sorted(properties.items())
        if key.startswith(CONSTRAINT)
    )


def checked(
    batches: Iterable[pa.RecordBatch], conditions: Sequence[Condition], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The same batches; the first row that breaks a condition is an error."""
    filters = [(condition, PredicateFilter(parse(condition.sql, schema))) for condition in conditions]
    for batch in batches:
        for condition, rows in filters:
            if not pc.all(pc.fill_null(rows.mask(batch), False), min_count=0).as_py():
                raise condition.violated()
        yield batch
