"""Result of a committed transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from deltars.mirror.outcome import MirrorOutcome
from deltars.transaction.html import html_bars, html_table
from deltars.verbs_to_come import RefusesVerbs


@dataclass(frozen=True, slots=True)
class SkippedWrite:
    """A write that was skipped because its application had already written this version or a later one."""

    table: str
    app_id: str
    app_version: int
    """Version that the write was given."""
    known_version: int
    """Application's last version for this table: committed, or staged earlier in the same transaction."""

    @property
    def is_late(self) -> bool:
        """Whether the known version is later than the given one. Then these rows may never have been written."""
        return self.known_version > self.app_version


@dataclass(frozen=True, slots=True)
class TransactionResult(RefusesVerbs):
    """The versions that one transaction committed, and how far each is published to `_delta_log`."""

    txn_id: UUID
    commit_ts: int | None
    """Microseconds since 1970, by the database's clock; None if there was nothing to commit."""
    versions: Mapping[str, int] = field(default_factory=dict)
    versions_by_id: Mapping[UUID, int] = field(default_factory=dict)
    mirror: Mapping[str, MirrorOutcome] = field(default_factory=dict)
    skipped: tuple[SkippedWrite, ...] = ()
    """Writes that were skipped because of their `app_id` and `app_version`."""
    stages: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    """Seconds of each stage, from `open` to `publish`, in their order."""

    def _repr_html_(self) -> str:
        caption = f"transaction {self.txn_id}" + ("" if self.commit_ts is not None else ": nothing to commit")
        published = {name: self.mirror[name].publication if name in self.mirror else None for name in self.versions}
        rows = [(name, version, published[name]) for name, version in self.versions.items()]
        bars = [(name, took, f"{took * 1000:,.1f} ms") for name, took in self.stages.items()]
        return html_table(caption, ("table", "version", "publication"), rows) + (
            html_bars(f"{sum(self.stages.values()) * 1000:,.0f} ms", bars) if bars else ""
        )

    def raise_for_mirror(self) -> None:
        """Raise the first `MirrorFailure`, for a program that needs `_delta_log` to be complete before it continues."""
        for outcome in self.mirror.values():
            if outcome.failure is not None:
                raise outcome.failure
