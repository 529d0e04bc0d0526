"""Conditions and values as programs give them to delta-spark: checked by type, and analysed by Spark.

Spark analyses each expression on frames without rows, so that a wrong one raises Spark's own error before anything is
read. A string is an expression in SQL, also as a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from deltars.predicate.statements.tokens import path_of
from deltars.protocol import StructType
from deltars.protocol.column_rules import is_computed
from deltars.spark.change.expressions import analyse
from deltars.spark.schema import schema_to_spark
from deltars.tables.exceptions import refuse


def check_condition(condition: Any, argname: str = "'condition'") -> None:
    """Raise TypeError unless it is a Spark Column, a string or None."""
    if condition is not None and not isinstance(condition, (str, Column)):
        raise TypeError(
            f"{argname} must be a Spark SQL Column or a string (expression in SQL syntax), found to be of type"
            f" {type(condition)}"
        )


def check_values(values: Any, argname: str) -> None:
    """Raise ValueError or TypeError unless it maps columns to Spark Columns or strings."""
    if values is None:
        raise ValueError(f"{argname} cannot be None")
    if type(values) is not dict:
        raise TypeError(f"{argname} must be a dict, found to be {type(values)}")
    for name, value in values.items():
        if type(name) is not str:
            raise TypeError(
                f"Keys of dict in {argname} must contain only strings with column names, found '{name}' of type"
                f" '{type(name)}"
            )
        if not isinstance(value, (str, Column)):
            raise TypeError(
                f"Values of dict in {argname} must contain only Spark SQL Columns or strings (expressions in SQL"
                f" syntax) as values, found '{value}' of type '{type(value)}'"
            )


def rows_like(spark: SparkSession, schema: StructType, alias: str | None) -> DataFrame:
    """Return a frame with the table's columns and no rows."""
    frame = spark.createDataFrame([], schema_to_spark(schema))
    return frame if alias is None else frame.alias(alias)


def check_on(frame: DataFrame, expression: str | Column | None) -> None:
    """Raise Spark's error for a condition or value that it cannot resolve on the rows of a frame."""
    if expression is not None:
        analyse(frame.select(F.expr(expression) if isinstance(expression, str) else expression))


def check_assignments(frame: DataFrame, target: DataFrame, values: Mapping[str, str | Column]) -> None:
    """Raise Spark's error for a column that the target lacks, or a value that cannot be resolved on the frame."""
    for name, value in values.items():
        analyse(target.select(F.col(name)))
        check_on(frame, value)


def as_they_are(schema: StructType) -> dict[str, Column]:
    """Return an assignment that changes no value: delta-spark carries an update without assignments out."""
    name = next((column.name for column in schema.fields if not is_computed(column)), schema.names[0])
    return {path_of([name]): F.col(path_of([name]))}


def check_in_merge(frame: DataFrame, expression: str | Column | None, where: str) -> None:
    """Raise Delta's error for an expression of a merge that names a column which is not there."""
    try:
        check_on(frame, expression)
    except AnalysisException as error:
        if not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
            raise
        name = (error.getMessageParameters() or {}).get("objectName", str(expression)).replace("`", "")
        raise unresolved(name, where, frame) from error


def unresolved(name: str, where: str, frame: DataFrame, alias: str | None = None) -> Exception:
    """Return Delta's error for a column of a merge that is not there."""
    prefix = "" if alias is None else f"{alias}."
    return refuse(
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        f"Cannot resolve {name} in {where} given columns {', '.join(prefix + column for column in frame.columns)}.",
    )
