"""Spark's refusal of a query in one sentence, without the text, the plan and the trace that Spark adds."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from deltars.errors import ValidationError
from deltars.spark.write.computed_columns import value_error

_PLACE = re.compile(r"(SQLSTATE: \w+)?( \(line \d+, pos \d+\)|; line \d+ pos \d+;?)?$")
"""What ends the first line of an error; the position is one in the text that Spark got, not in the user's."""


def query_refusal(error: PySparkException) -> ValidationError:
    """Return the error for a query that Spark refuses."""
    # The text of a syntax error begins with an empty line.
    said = _PLACE.sub("", str(error).strip().partition("\n")[0]).strip()
    return ValidationError(f"Spark cannot run the query: {said}", field="query")


def statement_refusal(error: Exception) -> ValidationError | None:
    """Return the error for a statement that Spark refuses; None for an error of another kind."""
    if not isinstance(error, PySparkException):
        return None
    return value_error(error) or ValidationError(query_refusal(error).message.replace("query", "statement", 1))
