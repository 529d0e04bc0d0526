"""Errors of deltars as a program written for Spark expects them.

Such a program catches Spark's `AnalysisException`. An error that leaves a verb of an enabled session is both: the error
of deltars that it was, and Spark's.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException

from deltars.errors import (
    DeltarsError,
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


_KINDS: dict[type[DeltarsError], tuple[type[DeltarsError], str]] = {
    ValidationError: (InvalidInSpark, "DELTA_INVALID_REQUEST"),
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


def make_sparks(error: DeltarsError) -> None:
    """Make an error Spark's as well, if Spark would raise an `AnalysisException` in its place."""
    found = _KINDS.get(type(error))
    if found is None:
        return
    # The same object, so that its fields, its notes and its traceback stay.
    error.__class__, condition = found
    fields: dict[str, object] = {
        "_message": str(error),
        "_errorClass": condition,
        "_messageParameters": None,
        "_contexts": [],
    }
    for name, value in fields.items():
        setattr(error, name, value)
