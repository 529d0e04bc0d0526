"""Spark's refusal of a query in one sentence, without the text, the plan and the trace that Spark adds."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from deltars.errors import ValidationError

_PLACE = re.compile(r"(SQLSTATE: \w+)?( \(line \d+, pos \d+\)|; line \d+ pos \d+;?)?$")
"""What ends the first line of an error; the position is one in the text that Spark got, not in the user's."""


def query_refusal(error: PySparkException) -> ValidationError:
    """Return the error for a query that Spark refuses."""
    # The text of a syntax error begins with an empty line.
    said = _PLACE.sub("", str(error).strip().partition("\n")[0]).strip()
    return ValidationError(f"Spark cannot run the query: {said}", field="query")
