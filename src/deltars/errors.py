"""All errors that deltars raises.

Every error derives from `DeltarsError`. It says what happened, where (table, version, transaction, stage) and what to
do. Its fields are attributes, so a program never parses a message. Errors pickle, because Spark sends them between
processes. Credentials in URLs are redacted from every message, also from messages of other libraries.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from deltars.redaction import redacted

TableId: TypeAlias = UUID | str

MAX_MESSAGE = 6_000
"""Most characters of a message. No one reads more, and every log line carries it."""
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def brief(value: object, length: int = 100) -> str:
    """Return the beginning of a value's repr. It works for every value: Python has none for huge or endless ones."""
    try:
        return repr(value)[:length]
    except Exception:
        return f"a value of the type {type(value).__qualname__}"


def _readable(text: str) -> str:
    """Return a text of an error as a terminal and a log can show it: without credentials, short, without controls."""
    text = redacted(text)
    if len(text) > MAX_MESSAGE:
        half = MAX_MESSAGE // 2
        text = f"{text[:half]} […] {text[-half:]}"
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


class DeltarsError(Exception):
    """Something went wrong in deltars."""

    retryable = False

    def __init__(
        self,
        message: str | None = None,
        *,
        table: str | None = None,
        table_id: TableId | None = None,
        version: int | None = None,
        txn_id: UUID | None = None,
        stage: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = _readable(message or (type(self).__doc__ or "").partition("\n")[0])
        self.table = None if table is None else _readable(table)
        self.table_id = str(table_id) if table_id is not None else None
        self.version = version
        self.txn_id = txn_id
        self.stage = stage
        self.hint = None if hint is None else _readable(hint)
        super().__init__(self.message)

    @property
    def what_and_where(self) -> str:
        """Return the message and the location, without the hint."""
        where = [
            f"{label} {value}"
            for label, value in (
                ("table", self.table or self.table_id),
                ("version", self.version),
                ("transaction", self.txn_id),
                ("stage", self.stage),
            )
            if value is not None
        ]
        return self.message + (f" [{', '.join(where)}]" if where else "")

    def __str__(self) -> str:
        text = self.what_and_where
        if not self.hint:
            return text
        if "\n" in self.message:
            # It ends with the line of a pointer into a text.
            return f"{text}\n{self.hint}"
        return f"{text} {self.hint}" if text.endswith((".", "…")) else f"{text}. {self.hint}"

    def located(self, **fields: Any) -> DeltarsError:
        """Set the fields that are still None, and return this error. A caller uses it to add what only it knows."""
        for name, value in fields.items():
            if getattr(self, name) is None:
                setattr(self, name, _readable(value) if isinstance(value, str) else value)
        return self

    def __reduce__(self) -> tuple[Callable[..., DeltarsError], tuple[type[DeltarsError], Mapping[str, Any]]]:
        return _rebuild, (type(self), dict(self.__dict__))


def _rebuild(cls: type[DeltarsError], state: Mapping[str, Any]) -> DeltarsError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    error.args = (state["message"],)
    return error


@contextmanager
def located(**fields: Any) -> Iterator[None]:
    """Add these fields (`table`, `version`, …) to a `DeltarsError` that leaves the block, where it lacks them."""
    try:
        yield
    except DeltarsError as error:
        error.located(**fields)
        raise


class ConfigError(DeltarsError):
    """A setting is wrong or missing."""


class UriError(ConfigError):
    """A deltasql:// URI is malformed."""


class WarehouseTaken(ConfigError):
    """The warehouse belongs to another catalog."""


class ValidationError(DeltarsError):
    """The request is not valid; nothing was changed."""

    def __init__(self, message: str, *, action: int | None = None, field: str | None = None, **where: Any) -> None:
        self.action = action
        self.field = field
        super().__init__(message, **where)


class SchemaMismatch(ValidationError):
    """The data does not fit the table's schema; nothing was changed."""


class SourceConsumed(ValidationError):
    """The source of the rows can be read only once and was read before; nothing was changed."""


class FeatureNotDropped(ValidationError):
    """A table feature cannot be dropped, or not yet."""

    def __init__(self, message: str, *, condition: str | None = None, **where: Any) -> None:
        self.condition = condition
        """Delta's name for the reason, such as DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT."""
        super().__init__(message, **where)


class PredicateError(ValidationError):
    """A `where` condition cannot be parsed; nothing was read or changed."""

    def __init__(
        self,
        message: str,
        *,
        position: int | None = None,
        problem: str | None = None,
        text: str | None = None,
        **where: Any,
    ) -> None:
        self.position = position
        self.problem = problem
        """What is wrong, without the text that the message shows."""
        self.text = text
        """The whole condition, query or statement."""
        super().__init__(message, **where)


class TableNotFound(DeltarsError):
    """There is no such table in this catalog."""


class VersionNotFound(ValidationError):
    """The table has no such version."""

    def __init__(self, message: str, *, earliest: int | None = None, latest: int | None = None, **where: Any) -> None:
        self.earliest = earliest
        self.latest = latest
        super().__init__(message, **where)


class HistoryExpired(VersionNotFound):
    """The table's history was expired: its older versions can no longer be read."""

    def __init__(self, message: str, *, since: datetime | None = None, **where: Any) -> None:
        self.since = since
        """Time of `earliest`, the first version of the history that is kept."""
        super().__init__(message, **where)


class TimestampTooEarly(ValidationError):
    """The table had no version yet at that time."""

    def __init__(self, message: str, *, earliest: datetime | None = None, **where: Any) -> None:
        self.earliest = earliest
        super().__init__(message, **where)


class TableExists(ValidationError):
    """A table with this name or at this location already exists."""


class FilesMissing(ValidationError):
    """Files that an old version needs do not exist any more; nothing was changed."""

    def __init__(self, message: str, *, paths: tuple[str, ...], count: int, **where: Any) -> None:
        self.paths = paths
        """Some of the missing files, relative to the table."""
        self.count = count
        super().__init__(message, **where)


class TagExists(ValidationError):
    """A tag with this name already exists."""


class TagNotFound(DeltarsError):
    """There is no such tag in this catalog."""


class TransactionClosed(DeltarsError):
    """This transaction is finished: begin a new one."""


class TransactionNotFound(DeltarsError):
    """No transaction with this id is in this catalog: it was never committed, or its history is expired."""


class TransactionTooLarge(ValidationError):
    """The transaction is larger than its limits allow; nothing was changed."""

    def __init__(self, message: str, *, limit: int, asked: int, **where: Any) -> None:
        self.limit = limit
        self.asked = asked
        super().__init__(message, **where)


class WinningCommit(Protocol):
    """What is said of the commit that won a race."""

    @property
    def version(self) -> int: ...
    @property
    def txn_id(self) -> UUID: ...
    @property
    def committer(self) -> str | None: ...
    @property
    def committed_at(self) -> datetime: ...
    @property
    def operation(self) -> str: ...


_RETRY = "Read the table again and retry, or let catalog.run() do it."
_OTHER_LEVEL = ' They do not depend on each other: isolation="serializable" would have let both commit.'


class VersionConflict(DeltarsError):
    """Another transaction committed to this table first; nothing was changed."""

    retryable = True

    def __init__(
        self,
        message: str | None = None,
        *,
        expected: int,
        actual: int,
        winning_version: int | None = None,
        winner: WinningCommit | None = None,
        is_serializable: bool = False,
        **where: Any,
    ) -> None:
        self.expected = expected
        self.actual = actual
        self.winning_version = winning_version if winner is None else winner.version
        """The version that this transaction conflicts with, at `strict` the first newer one; None if it is unknown."""
        self.winner_txn_id = None if winner is None else winner.txn_id
        """Transaction that committed the winning version; None, as all that is said of the winner, if it is unknown."""
        self.winner_committer = None if winner is None or winner.committer is None else redacted(winner.committer)
        self.winner_committed_at = None if winner is None else winner.committed_at
        self.winner_operation = None if winner is None else redacted(winner.operation)
        self.is_serializable = is_serializable
        """Whether `isolation="serializable"` would have let both commit. False also if that was not evaluated."""
        where.setdefault("hint", _RETRY + (_OTHER_LEVEL if is_serializable else ""))
        if message is None and type(self) is VersionConflict:
            message = f"the table is at version {actual}, the commit expected version {expected}"
        super().__init__(message, **where)
        if winner is not None:
            self.message += f"; {self._winner()}"
            self.args = (self.message,)

    def _winner(self) -> str:
        assert self.winner_committed_at is not None
        by = f" by {self.winner_committer}" if self.winner_committer else ""
        at = self.winner_committed_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return (
            f"version {self.winning_version} ({self.winner_operation}) was committed{by} at {at}"
            f" in transaction {self.winner_txn_id}"
        )


class ConcurrentAppend(VersionConflict):
    """A concurrent commit added files that this transaction would have read; nothing was changed."""


class ConcurrentDeleteRead(VersionConflict):
    """A concurrent commit removed a file that this transaction read; nothing was changed."""


class ConcurrentDeleteDelete(VersionConflict):
    """A concurrent commit removed a file that this transaction removes; nothing was changed."""


class MetadataChanged(VersionConflict):
    """A concurrent commit changed the table's metadata; this transaction changed nothing."""


class ProtocolChanged(VersionConflict):
    """A concurrent commit changed the table's protocol; this transaction changed nothing."""


class ConcurrentTransaction(VersionConflict):
    """A concurrent transaction of the same application committed first; nothing was changed."""


class DatabaseError(DeltarsError):
    """The catalog's database refused the request or failed."""

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        sqlstate: str | None = None,
        constraint: str | None = None,
        **where: Any,
    ) -> None:
        self.retryable = retryable
        self.sqlstate = sqlstate
        self.constraint = constraint
        super().__init__(message, **where)


class SchemaVersionError(DatabaseError):
    """The catalog's schema version does not match this release."""


class TimeoutError(DeltarsError, builtins.TimeoutError):
    """The operation took longer than its time-out; nothing was changed."""

    retryable = True


class CommitUnknown(DeltarsError):
    """The connection was lost during COMMIT, and the outcome could not be determined in time."""

    def __init__(self, message: str | None = None, *, txn_id: UUID, **where: Any) -> None:
        where.setdefault("hint", "Call catalog.resolve(txn_id) to learn whether it committed, before you write again.")
        super().__init__(message, txn_id=txn_id, **where)


class StorageError(DeltarsError):
    """The object storage refused the request or failed."""

    def __init__(self, message: str, *, path: str | None = None, retryable: bool = False, **where: Any) -> None:
        self.path = None if path is None else redacted(path)
        self.retryable = retryable
        super().__init__(message, **where)


class MirrorFailure(DeltarsError):
    """The commit succeeded; publishing it to `_delta_log` failed and will be retried."""

    def __init__(self, message: str | None = None, *, error: str, **where: Any) -> None:
        self.error = redacted(error)
        super().__init__(message or f"the commit succeeded, publishing it failed: {error}", **where)


class TableHeld(ValidationError):
    """The table was handed over: its `_delta_log` is the authority, and this catalog cannot commit to it."""


class ImportRefused(ValidationError):
    """The table cannot be imported; nothing was changed."""


class NotADeltaTable(ImportRefused):
    """There is no Delta table at this location."""


class DamagedLog(ImportRefused):
    """The table's log is incomplete or cannot be read."""

    def __init__(self, message: str, *, path: str | None = None, **where: Any) -> None:
        self.path = None if path is None else redacted(path)
        super().__init__(message, **where)


class UnsupportedFeature(ImportRefused):
    """The table needs features that deltars does not support."""

    def __init__(self, message: str, *, features: tuple[str, ...] = (), **where: Any) -> None:
        self.features = features
        super().__init__(message, **where)


class NotSupportedYet(DeltarsError, AttributeError):
    """deltars cannot do this yet; the hint says what works today."""


class NotImportable(DeltarsError, ImportError):
    """deltars has no such name; the hint says what to write instead."""


class LogDiverged(DeltarsError):
    """The table's `_delta_log` contradicts the catalog; nothing was changed."""
