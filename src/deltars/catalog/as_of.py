"""`as_of`: the moment of a snapshot, as users give it."""

from __future__ import annotations

from datetime import date
from typing import TypeAlias
from uuid import UUID

from deltars.errors import TransactionNotFound, ValidationError
from deltars.log.moments import parse_moment, to_microseconds
from deltars.log.transaction_id import TxnId, as_txn_id, is_uuid
from deltars.session import CatalogSession
from deltars.store.read.cuts import Cut
from deltars.transaction import TransactionResult

AsOf: TypeAlias = TxnId | date | TransactionResult
"""A transaction (its id, its text or its result), or a time: a `datetime`, a date (its first moment) or ISO 8601."""

_HINT = "Write 2026-01-31T12:00:00Z, or the id or the text of a committed transaction."


def as_moment(session: CatalogSession, as_of: AsOf | None) -> UUID | date | str | None:
    """Return the transaction or the time. Text is an id if it is a UUID, a time if it is a time, else a `txn_id`."""
    if isinstance(as_of, TransactionResult):
        if as_of.commit_ts is None:
            raise ValidationError(
                "the transaction had nothing to commit, so there is no snapshot as of it",
                txn_id=as_of.txn_id,
                field="as_of",
                hint="Leave as_of out to get the present snapshot.",
            )
        return as_of.txn_id
    if not isinstance(as_of, str) or not as_of.strip():
        return as_of
    key = as_txn_id(as_of)
    if parse_moment(as_of) is None:
        return key
    if session.writer.find_committed(key) is not None:
        raise ValidationError(
            f"{as_of!r} is a time, and a transaction was committed with this text as its id",
            field="as_of",
            hint=f"Give the time as a datetime, or the transaction's id: {key}.",
        )
    return as_of


def cut_as_of(session: CatalogSession, as_of: AsOf | None, timeout_s: float) -> Cut:
    """Return the cut now, as of a transaction, or as of a time."""
    moment = as_moment(session, as_of)
    if moment is None:
        return session.cuts.now()
    if isinstance(moment, UUID):
        return _cut_of(session, moment, as_of, timeout_s)
    if parse_moment(moment) is None:
        raise ValidationError(f"{moment!r:.100} is neither a transaction's id nor a time", field="as_of", hint=_HINT)
    return session.cuts.at(to_microseconds(moment), timeout_s=timeout_s)


def _cut_of(session: CatalogSession, txn_id: UUID, as_of: AsOf | None, timeout_s: float) -> Cut:
    try:
        return session.cuts.of(txn_id, timeout_s=timeout_s)
    except TransactionNotFound:
        if not isinstance(as_of, str) or is_uuid(as_of):
            raise
        raise ValidationError(
            f"{as_of!r} is neither a transaction's id nor a time", field="as_of", hint=_HINT
        ) from None
