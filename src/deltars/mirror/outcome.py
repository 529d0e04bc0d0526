"""The outcome of a publication, as a committer finds it on its transaction result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from deltars.errors import MirrorFailure
from deltars.store.mirror.status import MirrorState, MirrorStatus

SEE_WHAT_DIFFERS = (
    "Another program wrote to the table's log, or an older backup of the database was restored. To see what differs:"
    " deltars verify '{0}'. To accept the log's versions: deltars mirror accept-log '{0}'"
)


class Publication(StrEnum):
    """Whether a version was published."""

    PUBLISHED = "published"
    PENDING = "pending"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MirrorOutcome:
    table_id: UUID
    publication: Publication
    published_version: int | None = None
    """Last version known to be published; None if that was not known in time."""
    failure: MirrorFailure | None = None


def outcome_of(status: MirrorStatus, until: int | None) -> MirrorOutcome:
    """Return the outcome for version `until`, or for all versions if `until` is None, from a table's status."""
    if status.published_version >= (status.current_version if until is None else until):
        return MirrorOutcome(status.table_id, Publication.PUBLISHED, status.published_version)
    if status.state is not MirrorState.DIVERGED:
        return MirrorOutcome(status.table_id, Publication.PENDING, status.published_version)
    failure = MirrorFailure(
        error=status.last_error or "the log has diverged",
        table=status.name,
        table_id=status.table_id,
        version=status.published_version + 1,
        hint=SEE_WHAT_DIFFERS.format(status.name),
    )
    return MirrorOutcome(status.table_id, Publication.FAILED, status.published_version, failure)
