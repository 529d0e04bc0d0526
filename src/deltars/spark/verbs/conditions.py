"""Conditions that Spark's verbs take as columns."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812


def as_condition(condition: Column | str) -> Column:
    """Return the condition of `overwrite`: a column, or the name of one."""
    return F.col(condition) if isinstance(condition, str) else condition


def has_unmatched(frame: DataFrame, condition: Column) -> bool:
    """Return whether a condition is false or null for a row of the frame."""
    return not frame.where(~F.coalesce(condition, F.lit(False))).isEmpty()
