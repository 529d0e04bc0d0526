"""Errors of deltars as a program written for Spark expects them.

Such a program catches Spark's `AnalysisException`. An error that leaves a verb of an enabled session is both: the error
of deltars that it was, and Spark's. Its message begins with the condition that Delta or Spark has for it.
"""

from __future__ import annotations

from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    UnsupportedOperationException,
)

from deltars.data.row_change import several_matches
from deltars.errors import (
    DeltarsError,
    FeatureNotDropped,
    ImportRefused,
    NotADeltaTable,
    PredicateError,
    SchemaMismatch,
    TableExists,
    TableNotFound,
    TimestampTooEarly,
    ValidationError,
    VersionNotFound,
)


class InvalidInSpark(ValidationError, AnalysisException):
    """The request is not valid; nothing was changed."""


class IllegalInSpark(ValidationError, IllegalArgumentException):
    """An argument is not valid; nothing was changed."""


class UnsupportedInSpark(ValidationError, UnsupportedOperationException):
    """The operation is not supported; nothing was changed."""


class FeatureNotDroppedInSpark(FeatureNotDropped, PySparkException, Py4JJavaError):  # type: ignore[misc]
    """A table feature cannot be dropped, or not yet. In delta-spark, Python gets the error of the JVM as it is."""


class SchemaMismatchInSpark(SchemaMismatch, AnalysisException):
    """The data does not fit the table's schema; nothing was changed."""


class UnparsableInSpark(PredicateError, ParseException):
    """A text cannot be parsed; nothing was read or changed."""


class TableNotFoundInSpark(TableNotFound, AnalysisException):
    """There is no such table in this catalog."""


class TableExistsInSpark(TableExists, AnalysisException):
    """A table with this name or at this location already exists."""


class NotADeltaTableInSpark(NotADeltaTable, AnalysisException):
    """There is no Delta table at this location."""


class ImportRefusedInSpark(ImportRefused, AnalysisException):
    """The table cannot be imported; nothing was changed."""


class VersionNotFoundInSpark(VersionNotFound, AnalysisException):
    """The table has no such version."""


class TimestampTooEarlyInSpark(TimestampTooEarly, AnalysisException):
    """The table had no version yet at that time."""


_OTHER = "DELTA_INVALID_REQUEST"
"""Condition of errors that neither Spark nor Delta has a name for."""

_KINDS: dict[type[DeltarsError], tuple[type[DeltarsError], str]] = {
    ValidationError: (InvalidInSpark, _OTHER),
    SchemaMismatch: (SchemaMismatchInSpark, "DELTA_METADATA_MISMATCH"),
    PredicateError: (UnparsableInSpark, "PARSE_SYNTAX_ERROR"),
    TableNotFound: (TableNotFoundInSpark, "TABLE_OR_VIEW_NOT_FOUND"),
    TableExists: (TableExistsInSpark, "TABLE_OR_VIEW_ALREADY_EXISTS"),
    NotADeltaTable: (NotADeltaTableInSpark, "DELTA_TABLE_NOT_FOUND"),
    ImportRefused: (ImportRefusedInSpark, "DELTA_TABLE_NOT_FOUND"),
    VersionNotFound: (VersionNotFoundInSpark, "DELTA_VERSION_NOT_FOUND"),
    TimestampTooEarly: (TimestampTooEarlyInSpark, "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"),
}
"""By the error's class: the same error that is also Spark's, and Spark's name of its condition."""


class DeltasWords(NamedTuple):
    """What delta-spark says in place of an error."""

    kind: type[PySparkException]
    condition: str
    words: str


def deltas_words(error: DeltarsError) -> DeltasWords | None:
    """Return what delta-spark says in place of an error; None if it has no words for this one."""
    if not isinstance(error, ValidationError):
        return None
    if error.message == several_matches().message:
        return DeltasWords(
            UnsupportedOperationException,
            "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
            "Cannot perform Merge as multiple source rows matched and attempted to modify the same\ntarget row in the"
            " Delta table in possibly conflicting ways.",
        )
    if error.field == "retention" and "is less than" in error.message:
        return DeltasWords(
            IllegalArgumentException,
            "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
            "The specified VACUUM retention period is too low and may corrupt this Delta table if any writes are in"
            " progress.\n\nIf no operations (insert, upsert, delete, optimize) are running, you can disable this safety"
            " check by setting:\ndelta.retentionDurationCheck.enabled = false\n\nOtherwise, use a retention period of"
            " at least 168 hours.",
        )
    if error.message.startswith("the table is append-only"):
        return DeltasWords(
            UnsupportedOperationException,
            "DELTA_CANNOT_MODIFY_APPEND_ONLY",
            "This table is configured to only allow appends. If you would like to permit updates or deletes, use 'ALTER"
            f" TABLE {error.table} SET TBLPROPERTIES (delta.appendOnly=false)'.",
        )
    if error.field == "timestampAsOf" and "is after the table's last commit" in error.message:
        return DeltasWords(AnalysisException, "DELTA_TIMESTAMP_GREATER_THAN_COMMIT", error.message)
    if isinstance(error, PredicateError) and (error.problem or "").startswith("there is no column"):
        return DeltasWords(AnalysisException, "UNRESOLVED_COLUMN.WITH_SUGGESTION", error.message)
    if isinstance(error, FeatureNotDropped) and error.condition is not None:
        is_analysis = error.condition == "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE"
        return DeltasWords(AnalysisException if is_analysis else PySparkException, error.condition, error.message)
    return None


_BY_KIND: dict[type[PySparkException], type[DeltarsError]] = {
    AnalysisException: InvalidInSpark,
    IllegalArgumentException: IllegalInSpark,
    UnsupportedOperationException: UnsupportedInSpark,
    PySparkException: FeatureNotDroppedInSpark,
}


def make_sparks(error: DeltarsError) -> None:
    """Make an error Spark's as well, if Spark or delta-spark would raise one of theirs in its place."""
    deltas = deltas_words(error)
    found = _KINDS.get(type(error)) if deltas is None else (_BY_KIND[deltas.kind], deltas.condition)
    if found is None:
        return
    # The same object, so that its fields, its notes and its traceback stay.
    error.__class__, condition = found
    if condition != _OTHER:
        error.message = f"[{condition}] {error.message if deltas is None else deltas.words}"
        error.args = (error.message,)
    fields: dict[str, object] = {
        "_message": str(error),
        "_errorClass": condition,
        "_messageParameters": None,
        "_contexts": [],
    }
    for name, value in fields.items():
        setattr(error, name, value)
