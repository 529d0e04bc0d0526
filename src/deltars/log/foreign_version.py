"""A version that another writer committed, as read from its `_delta_log`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from deltars.log.validation import has_null_character
from deltars.protocol import CommitInfo

LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. Databases cannot store later times."""


@dataclass(frozen=True, slots=True)
class ForeignVersion:
    version: int
    timestamp_ms: int
    """The in-commit timestamp, else the timestamp in `commitInfo`, else the file's modification time."""
    txn_id: UUID
    operation: str = "UNKNOWN"
    operation_params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    committer: str | None = None
    read_version: int | None = None
    isolation: str | None = None
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    commit_ts: int | None = None
    """Set if a deltars catalog made the commit."""
    participants: Mapping[str, int] = field(default_factory=dict)
    digest: str | None = None
    """SHA-256 of the commit file, if it exists."""


def foreign_version(
    table_id: UUID, version: int, info: CommitInfo | None, *, modified_ms: int, digest: str | None
) -> ForeignVersion:
    """Return the version with the usable values of `commitInfo`, which is free-form JSON and may be missing."""
    known = info or CommitInfo()
    extra = {} if has_null_character(known.extra) else known.extra
    times = (known.in_commit_timestamp, known.timestamp, _whole(extra.get("timestamp")))
    timestamp = next((t for t in times if t is not None and 0 <= t <= LATEST_MS), modified_ms)
    commit_ts, participants = extra.get("commitTs"), extra.get("participants")
    return ForeignVersion(
        version=version,
        timestamp_ms=timestamp,
        txn_id=_txn_id(known.txn_id) or uuid5(table_id, str(version)),
        operation=_text(known.operation) or "UNKNOWN",
        operation_params=_document(known.operation_parameters),
        metrics=_document(known.operation_metrics),
        committer=_text(extra.get("userName")),
        read_version=known.read_version if 0 <= (known.read_version or 0) <= version else None,
        isolation=_text(known.isolation_level),
        is_blind_append=known.is_blind_append,
        user_metadata=_text(known.user_metadata),
        commit_ts=commit_ts if isinstance(commit_ts, int) and 0 < commit_ts <= LATEST_MS * 1000 else None,
        participants=_participants(participants) or {str(table_id): version},
        digest=digest,
    )


def _whole(value: Any) -> int | None:
    """Return the integer of a text or a float, as some writers write it, or None."""
    try:
        return int(value) if isinstance(value, str | float) else None
    except (ValueError, OverflowError):
        return None


def _txn_id(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and "\0" not in value else None


def _document(value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {} if value is None or has_null_character(value) else value


def _participants(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {key: version for key, version in value.items() if _txn_id(key) and isinstance(version, int)}
