"""What a committed transaction says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from deltars.mirror.outcome import MirrorOutcome


@dataclass(frozen=True, slots=True)
class SkippedWrite:
    """A write that was left out, because its application had written this version, or a later one, before."""

    table: str
    app_id: str
    app_version: int
    """The version that was asked for."""
    known_version: int
    """The application's last version for this table: committed, or staged earlier in the same transaction."""

    @property
    def is_late(self) -> bool:
        """Whether a later version is there: these rows may be in no version at all."""
        return self.known_version > self.app_version


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The versions that one transaction made, and how far each is published to `_delta_log`."""

    txn_id: UUID
    commit_ts: int | None
    """Microseconds since 1970, by the database's clock; None where there was nothing to commit."""
    versions: Mapping[str, int] = field(default_factory=dict)
    versions_by_id: Mapping[UUID, int] = field(default_factory=dict)
    mirror: Mapping[str, MirrorOutcome] = field(default_factory=dict)
    skipped: tuple[SkippedWrite, ...] = ()
    """The writes that were left out, by `app_id` and `app_version`."""

    def raise_for_mirror(self) -> None:
        """Raise the first `MirrorFailure`, for a program that needs `_delta_log` to be there before it goes on."""
        for outcome in self.mirror.values():
            if outcome.failure is not None:
                raise outcome.failure
