"""Version that was committed just now, right after the last published one: its committer can publish it at once.

A publisher would read the same version back from the catalog. What it is made of is known here already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from deltars.log.commit import Commit
from deltars.protocol import Metadata
from deltars.store.commit.plan import LockedTable, Plan
from deltars.store.commit.statements import TRANSACTION, VERSIONS
from deltars.store.mirror.statements import ACTIVE
from deltars.store.read.committed_versions import CommittedVersion
from deltars.store.rows import TABLE_OF, from_row


@dataclass(frozen=True, slots=True)
class NextVersion:
    """Committed version, and what its publication needs to know of the table."""

    commit: CommittedVersion
    table: str
    location: str
    metadata: Metadata


def next_version(commit: Commit, plan: Plan, row: LockedTable, commit_ts: int) -> Callable[[], NextVersion] | None:
    """Return a function that makes the version; None if it is not the next one to publish, or cannot be alone.

    A transaction over several tables also publishes the map of its versions, and many files are read in parts.
    """
    is_alone = len(commit.tables) == 1 and not (commit.new_tables or commit.drops or plan.bulk)
    if not is_alone or row.mirror_state != ACTIVE or row.published_version != row.current_version:
        return None
    return lambda: _made(plan, row, commit_ts)


def _made(plan: Plan, row: LockedTable, commit_ts: int) -> NextVersion:
    [version], [transaction] = plan.rows[VERSIONS], plan.rows[TRANSACTION]
    actions = sorted(
        ((values["ord"], from_row(name, values)) for name in TABLE_OF.values() for values in plan.rows.get(name, ())),
        key=lambda pair: pair[0],
    )
    metadata = plan.states[row.table_id].state.metadata
    assert metadata is not None
    made = CommittedVersion(
        table_id=row.table_id,
        version=plan.versions[row.table_id],
        commit_ts=commit_ts,
        in_commit_timestamp=max(commit_ts // 1000, row.last_ict + 1),
        txn_id=UUID(transaction["txn_id"]),
        operation=version["operation"],
        actions=tuple(action for _, action in actions),
        operation_params=version["operation_params"],
        metrics=version["metrics"],
        committer=version["committer"],
        read_version=version["read_version"],
        isolation=version["isolation"],
        is_blind_append=version["is_blind_append"],
        user_metadata=version["user_metadata"],
        participants=transaction["participants"],
    )
    return NextVersion(made, row.name, row.location, metadata)
