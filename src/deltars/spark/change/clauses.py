"""Clauses of one kind of a merge: which applies to a row, and the row that it makes.

rows ──first clause whose condition is true──> its number ──values──> columns of the table
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from deltars.data.row_change import Clause
from deltars.data.row_ids import without_ids
from deltars.data.scan import Scan
from deltars.spark.change.assignment import Assignments, Value
from deltars.spark.change.expressions import checked_condition, checked_values
from deltars.spark.change.rows import written_columns
from deltars.spark.read.columns import ScanColumns, quoted

_NAMES = {
    "matched": "WHEN MATCHED",
    "not_matched": "WHEN NOT MATCHED",
    "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
}


@dataclass(frozen=True, slots=True)
class _Prepared:
    clause: Clause
    condition: Column
    values: dict[str, Column]
    types: dict[str, T.DataType]
    columns: tuple[str, ...]
    """Columns of the rows that the clause makes; none for a delete."""


class Clauses:
    """Clauses of one kind, checked against the columns that they may refer to.

    Rows that `applied` makes have the columns of the table under internal names, so that nothing can be confused.
    """

    def __init__(
        self, scan: Scan, clauses: Sequence[Clause], like: DataFrame, *, target: str | None, source: str | None
    ) -> None:
        """Check the clauses. `like` has the columns that they see. `target` and `source` are the sides' aliases."""
        self._table = ScanColumns(without_ids(scan)).table
        self._target = target
        taken = [name.lower() for name in (*like.columns, *self._table.names)]
        prefixes = (f"__deltars_{number}_" for number in count())
        self._prefix = next(prefix for prefix in prefixes if not any(name.startswith(prefix) for name in taken))
        self._prepared = [self._prepare(scan, clause, like, source) for clause in clauses]

    def __len__(self) -> int:
        return len(self._prepared)

    @property
    def has_conditions(self) -> bool:
        return any(one.clause.condition is not None for one in self._prepared)

    def counts(self, positions: Sequence[Mapping[int, BitMap64]]) -> tuple[int, int]:
        """Return how many rows are updated and deleted, from the rows that each clause applies to."""
        changed = {"update": 0, "delete": 0}
        for one, found in zip(self._prepared, positions, strict=False):
            changed[one.clause.action] += sum(map(len, found.values()))
        return changed["update"], changed["delete"]

    def replaced(self, positions: Sequence[Mapping[int, BitMap64]]) -> list[Mapping[int, BitMap64]]:
        """Return the rows that clauses update, from the rows that each clause applies to."""
        return [found for one, found in zip(self._prepared, positions, strict=False) if one.clause.action == "update"]

    def applied(self, rows: DataFrame, number: str, also: Sequence[str]) -> DataFrame:
        """Return each row as its clause makes it, with the clause's number, or null if none applies, and `also`."""
        if not self._prepared:
            return rows.select(*also, F.lit(None).cast("int").alias(number))
        first, *rest = (F.when(one.condition, F.lit(at)) for at, one in enumerate(self._prepared))
        # `coalesce` takes the first number that is not null: the first clause whose condition is true.
        chosen = rows.select("*", F.coalesce(first, *rest).alias(number))
        evaluated = chosen.select("*", *self._evaluated(F.col(number)))
        return evaluated.select(*also, number, *self._assigned(F.col(number)))

    def made(
        self, rows: DataFrame, number: str, also: Mapping[str, str] | None = None
    ) -> list[tuple[tuple[str, ...], DataFrame]]:
        """Return the rows that come, from those of `applied`, in frames by the columns that they have.

        `also` has columns of `rows` that they keep, and the new names of these.
        """
        renamed = [F.col(name).alias(new) for name, new in (also or {}).items()]
        by_columns: dict[tuple[str, ...], list[int]] = {}
        for at, one in enumerate(self._prepared):
            if one.columns:
                by_columns.setdefault(one.columns, []).append(at)
        return [
            (
                (*columns, *(also or {}).values()),
                rows.where(F.col(number).isin(numbers)).select(*map(self._restored, columns), *renamed),
            )
            for columns, numbers in by_columns.items()
        ]

    def _prepare(self, scan: Scan, clause: Clause, like: DataFrame, source: str | None) -> _Prepared:
        what = f"{_NAMES[clause.kind]} … {clause.action.upper()}"
        condition = checked_condition(like, clause.condition, f"the condition of {what}", "condition")
        if clause.action == "delete":
            return _Prepared(clause, condition, {}, {}, ())
        if clause.is_source and not clause.values:
            names = {field.name: f"{quoted(source or '')}.{quoted(field.name)}" for field in scan.table_schema.fields}
            clause = replace(clause, values=names)
        values = checked_values(like, clause.values, what)
        types = {}
        if values:
            found = like.select(*(value.alias(f"v{at}") for at, value in enumerate(values.values()))).schema
            types = {name: field.dataType for name, field in zip(values, found.fields, strict=True)}
        typed = {name: Value(value, types[name]) for name, value in values.items()}
        assignments = Assignments(self._table, typed)
        for name in self._table.names:
            assignments.apply(name, F.lit(None))  # raises if a value has the wrong type
        if clause.action == "insert":
            columns = [name for name in self._table.names if name.lower() in assignments.columns]
        else:
            columns = written_columns(scan.table_schema, assignments.columns)
        return _Prepared(clause, condition, values, types, tuple(columns))

    def _evaluated(self, number: Column) -> list[Column]:
        """Return the values of all clauses, each null where another clause applies.

        They are a separate projection: a cast that is checked uses its value more than once.
        """
        return [
            F.when(number == at, value).alias(self._raw(at, place))
            for at, one in enumerate(self._prepared)
            for place, value in enumerate(one.values.values())
        ]

    def _assigned(self, number: Column) -> list[Column]:
        columns = []
        for place, field in enumerate(self._table.fields):
            cases = []
            for at, one in enumerate(self._prepared):
                if field.name in one.columns:
                    cases.append(F.when(number == at, self._value(at, one, field)))
            if cases:
                columns.append(F.coalesce(*cases).alias(self._made(place)))
        return columns

    def _value(self, at: int, one: _Prepared, field: T.StructField) -> Column:
        values = {name: Value(F.col(self._raw(at, place)), one.types[name]) for place, name in enumerate(one.values)}
        is_update = one.clause.action == "update"
        name = quoted(field.name) if self._target is None else f"{quoted(self._target)}.{quoted(field.name)}"
        current = F.col(name) if is_update else F.lit(None).cast(field.dataType)
        return Assignments(self._table, values).apply(field.name, current)

    def _restored(self, name: str) -> Column:
        return F.col(self._made(self._table.names.index(name))).alias(name)

    def _raw(self, clause: int, place: int) -> str:
        return f"{self._prefix}raw_{clause}_{place}"

    def _made(self, place: int) -> str:
        return f"{self._prefix}made_{place}"
