"""Conditions and values of a statement, as SQL text or as Spark columns, checked before a job runs.

Spark Connect analyses a frame only when its schema is asked for, so every check asks for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from deltars.data.row_change import Expression
from deltars.errors import PredicateError, ValidationError
from deltars.predicate.source import Source
from deltars.predicate.syntax import check_legal

_INTERNAL = re.compile(r"`?__deltars_\w+`?")
_KEEP_QUALIFIERS = ("Filter", "Sort", "Limit", "Offset", "Sample", "Deduplicate", "Repartition", "Hint", "Project")
"""Operators of Spark Connect whose result has the qualifiers of its input."""


def as_column(expression: Expression, what: str, field: str) -> Column:
    """Return the expression as a Spark column. `what` names it in errors."""
    if isinstance(expression, Column):
        return expression
    if not isinstance(expression, str):
        raise ValidationError(f"{what} must be SQL text or a Spark column, got {expression!r}", field=field)
    _refuse_illegal(expression)
    with analysis_errors(what, field):
        return F.expr(expression)


def checked_condition(frame: DataFrame, expression: Expression | None, what: str, field: str) -> Column:
    """Return a condition on the rows of a frame. None is always true."""
    if expression is None:
        return F.lit(True)
    condition = as_column(expression, what, field)
    with analysis_errors(what, field):
        analyse(frame.where(condition))
    return condition


def checked_values(frame: DataFrame, values: Mapping[str, Expression], what: str) -> dict[str, Column]:
    """Return the values as columns, by the names of the columns that get them."""
    columns = {name: as_column(value, _value_of(name, what), name) for name, value in values.items()}
    for name, column in columns.items():
        with analysis_errors(_value_of(name, what), name):
            # A condition may not have aggregates, window functions or generators, and neither may a value.
            analyse(frame.where(column.isNull()))
    return columns


def analyse(frame: DataFrame) -> None:
    """Raise if Spark cannot resolve the frame's plan. No job runs."""
    # Spark Connect gives a filtered frame the known schema of its parent, without a look at the condition.
    _ = frame.select(F.lit(1)).schema


@contextmanager
def analysis_errors(what: str, field: str) -> Iterator[None]:
    """Raise PredicateError where Spark refuses an expression."""
    try:
        yield
    except AnalysisException as error:
        raise PredicateError(f"{what} is not valid: {_reason(error)}", field=field) from error


def _value_of(name: str, what: str) -> str:
    return f"the value of column {name} in {what}"


def _refuse_illegal(text: str) -> None:
    source = Source(text, "expression")
    try:
        tree = source.condition()
    except PredicateError:
        return  # Spark may accept more syntax, and says best what is wrong
    check_legal(source, tree)


def _reason(error: PySparkException) -> str:
    """Return Spark's sentence, without its code, its plan and the names of our columns."""
    text = str(error).strip().partition(" SQLSTATE: ")[0].partition("\n\nJVM stacktrace")[0]
    text = re.sub(r"^\[[A-Z0-9_.]+\] ", "", text)
    # Spark suggests similar names, of which some may be ours.
    text = re.sub(r"(, )?(`\w+`\.)?" + _INTERNAL.pattern, "", text).replace("[, ", "[")
    return text.strip().rstrip(".")


def alias_of(frame: DataFrame) -> str | None:
    """Return the alias by which the columns of a frame can be named: that of `frame.alias(…)`; None without one."""
    jdf = getattr(frame, "_jdf", None)
    if jdf is None:
        return _connect_alias(getattr(frame, "_plan", None))
    output = jdf.queryExecution().analyzed().output()
    found = set()
    for place in range(output.size()):
        qualifier = output.apply(place).qualifier()
        found.add(qualifier.last() if qualifier.size() else None)
    [alias] = found if len(found) == 1 else [None]
    return None if alias is None else str(alias)


def _connect_alias(plan: Any) -> str | None:
    while plan is not None:
        kind = type(plan).__name__
        if kind == "SubqueryAlias":
            return str(plan._alias)
        plan = getattr(plan, "_child", None) if kind in _KEEP_QUALIFIERS else None
    return None
