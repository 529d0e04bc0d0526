"""DELETE and UPDATE of rows that match a condition.

delete    target ──where──> positions                                        one job
update    target ──where──> new values, once ──┬──> positions
                                               └──> rows that come
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.column_names import free_names
from deltars.data.row_change import Delete, Expression, RowChanges, Update
from deltars.data.row_ids import without_ids
from deltars.data.scan import Scan
from deltars.predicate import named_in
from deltars.protocol import StructType
from deltars.protocol.column_rules import generation_of
from deltars.spark.change.assignment import Assignments, Value
from deltars.spark.change.expressions import checked_condition, checked_values
from deltars.spark.change.materialize import materialized
from deltars.spark.change.positions import positions_of
from deltars.spark.change.target import target_rows, with_row_ids
from deltars.spark.read.columns import ScanColumns, quoted
from deltars.spark.write.checks import translate_task_errors


def delete_rows(spark: SparkSession, scan: Scan, statement: Delete) -> RowChanges:
    condition = checked_condition(_named(rows_like(spark, scan), statement), statement.where, "the condition", "where")
    target = target_rows(spark, scan, needed_columns(scan.table_schema, statement.where))
    rows = target.frame if statement.where is None else _named(target.frame, statement).where(condition)
    with translate_task_errors([]):
        positions = positions_of(rows, target, scan)
    return RowChanges(positions, deleted=sum(map(len, positions.values())))


def update_rows(spark: SparkSession, scan: Scan, statement: Update) -> RowChanges:
    like = _named(rows_like(spark, scan), statement)
    condition = checked_condition(like, statement.where, "the condition", "where")
    values = checked_values(like, statement.values, "SET")
    table = ScanColumns(without_ids(scan)).table
    typed = Assignments(table, _typed(like, values))
    kept = written_columns(scan.table_schema, typed.columns)
    for name in kept:
        typed.apply(name, F.col(quoted(name)))  # raises if a value has the wrong type
    target = target_rows(spark, scan)
    named = _named(target.frame, statement)
    rows = named if statement.where is None else named.where(condition)
    # Values are evaluated in a separate projection: a cast that is checked uses its value more than once.
    names = free_names([f"value{at}" for at in range(len(values))], {name.lower() for name in rows.columns})
    evaluated = rows.select("*", *(value.alias(name) for name, value in zip(names, values.values(), strict=True)))
    types = {field.name: field.dataType for field in evaluated.schema.fields}
    assignments = Assignments(
        table, {column: Value(F.col(name), types[name]) for column, name in zip(values, names, strict=True)}
    )
    columns = [assignments.apply(name, F.col(quoted(name))).alias(name) for name in kept]
    with translate_task_errors([]):
        changed = materialized(with_row_ids(evaluated.select(*columns, *target.kept), target, scan))
        positions = positions_of(changed, target, scan)
    updated = sum(map(len, positions.values()))
    ids = [] if target.row_id is None else [F.col(target.place.row_id).alias(target.row_id)]
    new = (changed.select(*map(quoted, kept), *ids),) if updated else ()
    return RowChanges(positions, new, updated=updated, replaced=positions)


def _named(frame: DataFrame, statement: Delete | Update) -> DataFrame:
    """Return the frame under the name that the statement's columns may give the table."""
    return frame if statement.alias is None else frame.alias(statement.alias)


def rows_like(spark: SparkSession, scan: Scan) -> DataFrame:
    """Return a frame with the table's columns and no rows, to analyse expressions."""
    return spark.createDataFrame([], ScanColumns(without_ids(scan)).table)


def needed_columns(schema: StructType, *expressions: Expression | None) -> Sequence[str] | None:
    """Return the columns that these expressions may name; None for all of them."""
    if any(expression is not None and not isinstance(expression, str) for expression in expressions):
        return None
    return named_in(" ".join(filter(None, expressions)), schema.names)


def written_columns(schema: StructType, assigned: frozenset[str]) -> list[str]:
    """Return the columns of an updated row. A generated column is left out, to be computed again, unless assigned."""
    return [field.name for field in schema.fields if generation_of(field) is None or field.name.lower() in assigned]


def _typed(like: DataFrame, values: Mapping[str, Column]) -> dict[str, Value]:
    if not values:
        return {}
    found = like.select(*(value.alias(f"v{at}") for at, value in enumerate(values.values()))).schema
    return {
        name: Value(value, field.dataType) for (name, value), field in zip(values.items(), found.fields, strict=True)
    }
