"""Transaction ids as users write them: a UUID or any text.

UUID(…)                                    itself
"4c0f…-…" (any form that `uuid.UUID` reads)  that UUID
"daily-2026-01-30"                         uuid5(NAMESPACE, text): the same id for the same text, everywhere
"""

from __future__ import annotations

import re
from typing import TypeAlias
from uuid import UUID, uuid5

from deltars.errors import ValidationError, brief

TxnId: TypeAlias = UUID | str
"""A UUID, or any non-empty text."""

NAMESPACE = UUID("5d2f1c64-6d0e-4b0a-9f0b-3a1c6f4e7b52")
"""It must never change: a text would get another id, and its transaction could be committed twice."""

_NEARLY_A_UUID = re.compile(
    r"[{(]?[0-9a-f]{6,10}(-[0-9a-f]{2,6}){3}-[0-9a-f]{8,16}[)}]?|[0-9a-f]{31}|[0-9a-f]{33}", re.I
)


def as_txn_id(given: object) -> UUID:
    """Return the id for a UUID or a text."""
    if isinstance(given, UUID):
        return given
    if not isinstance(given, str) or not given.strip():
        raise ValidationError(
            f"a transaction's id is a UUID or a text that is not empty, not {brief(given)}",
            field="txn_id",
            hint="Give tx.id, result.txn_id, or the text that the transaction was begun with.",
        )
    if is_uuid(given):
        return UUID(given)
    # Treated as a text, a mistyped UUID would be reported as "not committed", and the user would write again.
    if _NEARLY_A_UUID.fullmatch(given.strip()):
        raise ValidationError(
            f"{given!r} looks like a UUID and is not one: it has too many or too few digits",
            field="txn_id",
            hint="Copy the whole id, or use a text that does not look like one.",
        )
    try:
        return uuid5(NAMESPACE, given)
    except UnicodeEncodeError:
        raise ValidationError(f"{brief(given)} has half a surrogate pair and cannot be an id", field="txn_id") from None


def is_uuid(text: str) -> bool:
    """Return whether `uuid.UUID` accepts the text."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True
