"""What became of a version that should be published: what a committer finds on its result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from deltars.errors import MirrorFailure
from deltars.store.mirror.status import MirrorState, MirrorStatus

SEE_WHAT_DIFFERS = (
    "Somebody else has written to the table's log, or an older backup of the database was restored. See what differs:"
    " deltars verify '{0}'. Take the log's word: deltars mirror accept-log '{0}'"
)


class Publication(StrEnum):
    """What became of a version that should be published."""

    PUBLISHED = "published"
    PENDING = "pending"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MirrorOutcome:
    table_id: UUID
    publication: Publication
    published_version: int | None = None
    """The last version known to be published; None where that was not learnt in time."""
    failure: MirrorFailure | None = None


def outcome_of(status: MirrorStatus, until: int | None) -> MirrorOutcome:
    """By a table's status: of the version `until`, or of all there are."""
    if status.published_version >= (status.current_version if until is None else until):
        return MirrorOutcome(status.table_id, Publication.PUBLISHED, status.published_version)
    if status.state is not MirrorState.DIVERGED:
        return MirrorOutcome(status.table_id, Publication.PENDING, status.published_version)
    failure = MirrorFailure(
        error=status.last_error or "the log diverged",
        table=status.name,
        table_id=status.table_id,
        version=status.published_version + 1,
        hint=SEE_WHAT_DIFFERS.format(status.name),
    )
    return MirrorOutcome(status.table_id, Publication.FAILED, status.published_version, failure)
