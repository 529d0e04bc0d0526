"""Errors as programs written for delta-spark expect them: types of Spark and Delta, Delta's conditions and words.

    error of deltars ──deltas_errors──▶ one that `except AnalysisException` and `except ValidationError` both catch

Each derives from the error of deltars that it stands for, so it has its fields: table, version, hint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    UnsupportedOperationException,
)

from deltars.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentTransaction,
    DeltarsError,
    FeatureNotDropped,
    MetadataChanged,
    ProtocolChanged,
    TableNotFound,
    ValidationError,
    VersionConflict,
)
from deltars.spark.verbs.errors import deltas_words


class SparkError(DeltarsError, PySparkException):
    """An error of deltars with the methods of Spark's errors."""

    condition: str | None = None

    def getCondition(self) -> str | None:  # noqa: N802
        return self.condition

    getErrorClass = getCondition  # noqa: N815

    def getMessage(self) -> str:  # noqa: N802
        return self.message

    def getMessageParameters(self) -> dict[str, str] | None:  # noqa: N802
        return None

    def getSqlState(self) -> str | None:  # noqa: N802
        return None

    def getQueryContext(self) -> list[Any]:  # noqa: N802
        return []


class DeltaAnalysisException(SparkError, ValidationError, AnalysisException):
    """The request is not valid; nothing was changed."""


class DeltaIllegalArgumentException(SparkError, ValidationError, IllegalArgumentException):
    """An argument is not valid; nothing was changed."""


class DeltaUnsupportedOperationException(SparkError, ValidationError, UnsupportedOperationException):
    """The operation is not supported; nothing was changed."""


class DeltaTableFeatureException(SparkError, FeatureNotDropped, Py4JJavaError):  # type: ignore[misc]
    """A table feature cannot be added or dropped; nothing was changed."""


class DeltaConcurrentModificationException(SparkError, VersionConflict):
    """Another transaction committed to this table first; nothing was changed."""


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Another transaction has written the table since this one read it; nothing was changed."""


class MetadataChangedException(DeltaConcurrentModificationException, MetadataChanged):
    """A concurrent commit changed the table's metadata; this transaction changed nothing."""


class ProtocolChangedException(DeltaConcurrentModificationException, ProtocolChanged):
    """A concurrent commit changed the table's protocol; this transaction changed nothing."""


class ConcurrentAppendException(DeltaConcurrentModificationException, ConcurrentAppend):
    """A concurrent commit added files that this transaction would have read; nothing was changed."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException, ConcurrentDeleteRead):
    """A concurrent commit removed a file that this transaction read; nothing was changed."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException, ConcurrentDeleteDelete):
    """A concurrent commit removed a file that this transaction removes; nothing was changed."""


class ConcurrentTransactionException(DeltaConcurrentModificationException, ConcurrentTransaction):
    """A concurrent transaction of the same application committed first; nothing was changed."""


_CONFLICTS: dict[type[VersionConflict], type[SparkError]] = {
    VersionConflict: ConcurrentWriteException,
    MetadataChanged: MetadataChangedException,
    ProtocolChanged: ProtocolChangedException,
    ConcurrentAppend: ConcurrentAppendException,
    ConcurrentDeleteRead: ConcurrentDeleteReadException,
    ConcurrentDeleteDelete: ConcurrentDeleteDeleteException,
    ConcurrentTransaction: ConcurrentTransactionException,
}

_REFUSALS: dict[type[PySparkException], type[SparkError]] = {
    AnalysisException: DeltaAnalysisException,
    IllegalArgumentException: DeltaIllegalArgumentException,
    UnsupportedOperationException: DeltaUnsupportedOperationException,
    PySparkException: DeltaTableFeatureException,
}

Error = TypeVar("Error", bound=SparkError)


def spark_error(kind: type[Error], condition: str | None, words: str, **where: Any) -> Error:
    """Return an error with Delta's condition and words."""
    error = kind(f"[{condition}] {words}", **where)
    error.condition = condition
    return error


def refuse(condition: str, words: str, **where: Any) -> DeltaAnalysisException:
    """Return the error that most refusals of Delta are."""
    return spark_error(DeltaAnalysisException, condition, words, **where)


@contextmanager
def deltas_errors() -> Iterator[None]:
    """Raise errors of deltars that have a counterpart in delta-spark as errors that are both.

    What Spark itself refused is raised as Spark said it.
    """
    try:
        yield
    except PySparkException:
        raise
    except VersionConflict as error:
        raise _as(_CONFLICTS.get(type(error), ConcurrentWriteException), error) from error
    except (ValidationError, TableNotFound) as error:
        if isinstance(error.__cause__, AnalysisException):
            raise error.__cause__ from error
        raise translated(error) from error


def translated(error: DeltarsError) -> SparkError:
    """Return a refusal as Spark's error; one that Delta has words for, with these."""
    deltas = deltas_words(error)
    if deltas is not None:
        where = {"table": error.table, "table_id": error.table_id, "hint": error.hint}
        return spark_error(_REFUSALS[deltas.kind], deltas.condition, deltas.words, **where)
    return _as(DeltaAnalysisException, error)


def _as(kind: type[SparkError], error: DeltarsError) -> SparkError:
    # The fields are copied, not given again: each kind of error has its own.
    made: SparkError = kind.__new__(kind)
    made.__dict__.update(error.__dict__)
    made.__dict__.setdefault("action", None)
    made.__dict__.setdefault("field", None)
    made.args = error.args
    return made
