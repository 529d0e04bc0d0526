"""`as_of` as users write it: resolved to a cut, once for every call that takes one.

    None                        now
    UUID, its text, a result    as of a transaction
    datetime, date              as of a time
    Tag                         its cut
    any other text              a tag, else the text that a transaction was begun with, else a time in ISO 8601

A tag's name is never a UUID or a time. Text that is both a time and a transaction's id is refused.
"""

from __future__ import annotations

from datetime import date
from typing import Protocol, TypeAlias, runtime_checkable
from uuid import UUID

from deltars.errors import TransactionNotFound, ValidationError, brief
from deltars.log.moments import Moment, parse_moment, to_microseconds
from deltars.log.transaction_id import as_txn_id, is_uuid
from deltars.store.database import Database
from deltars.store.read.cuts import Cut, Cuts
from deltars.store.tags import Tag, Tags


@runtime_checkable
class Outcome(Protocol):
    """Result of a transaction."""

    @property
    def txn_id(self) -> UUID: ...
    @property
    def commit_ts(self) -> int | None: ...


AsOf: TypeAlias = UUID | str | date | Tag | Outcome
"""A moment of the catalog: a tag or its name, a transaction (its id, its text or its result), or a time: a `datetime`,
a date (its first moment) or ISO 8601."""


class CutFinder:
    """Finds the cut that an `as_of` means."""

    def __init__(self, database: Database) -> None:
        self._cuts = Cuts(database)
        self._tags = Tags(database)

    def find(self, as_of: AsOf | None, *, timeout_s: float) -> Cut:
        """Return the cut. One of the past is waited for, at most `timeout_s`."""
        match self.resolve(as_of):
            case None:
                return self._cuts.now()
            case Tag() as tag:
                return self._cuts.sealed(tag.commit_ts)
            case UUID() as txn_id:
                return self._of_transaction(txn_id, as_of, timeout_s)
            case moment:
                return self._cuts.at(_commit_ts(moment), timeout_s=timeout_s)

    def resolve(self, as_of: AsOf | None) -> Tag | UUID | Moment | None:
        """Return what an `as_of` means: a tag, a transaction or a time. The last two need not exist."""
        if as_of is None or isinstance(as_of, Tag | UUID | date):
            return as_of
        if not isinstance(as_of, str):
            # Other libraries have times of their own, such as numpy.datetime64.
            return parse_moment(as_of, zone=None) or _id_of(as_of)
        if not as_of.strip():
            return as_of
        if is_uuid(as_of):
            return UUID(as_of)
        is_time = parse_moment(as_of) is not None
        tag = None if is_time else self._tags.find(as_of)
        if tag is not None:
            return tag
        txn_id = as_txn_id(as_of)
        if not is_time:
            return txn_id
        if self._cuts.is_committed(txn_id):
            raise ValidationError(
                f"{as_of!r} is a time, and a transaction was committed with this text as its id",
                field="as_of",
                hint=f"Give the time as a datetime, or the transaction's id: {txn_id}.",
            )
        return as_of

    def _of_transaction(self, txn_id: UUID, as_of: AsOf | None, timeout_s: float) -> Cut:
        try:
            return self._cuts.of(txn_id, timeout_s=timeout_s)
        except TransactionNotFound:
            if not isinstance(as_of, str) or is_uuid(as_of):
                raise
            raise _unknown(as_of) from None


def _id_of(outcome: object) -> UUID:
    if not isinstance(outcome, Outcome):
        raise _unknown(outcome)
    if outcome.commit_ts is None:
        raise ValidationError(
            "the transaction had nothing to commit, so there is no snapshot as of it",
            txn_id=outcome.txn_id,
            field="as_of",
            hint="Leave as_of out to get the present snapshot.",
        )
    return outcome.txn_id


def _commit_ts(moment: Moment) -> int:
    if parse_moment(moment) is None:
        raise _unknown(moment)
    return to_microseconds(moment)


def _unknown(as_of: object) -> ValidationError:
    return ValidationError(
        f"{brief(as_of)} is neither a tag, nor a transaction's id, nor a time",
        field="as_of",
        hint="Write 2026-01-31T12:00:00Z, a tag's name, or the id or the text of a committed transaction.",
    )
