"""Version that was committed just now, right after the last published one: its committer can publish it at once.

A publisher would read the same version back from the catalog. What it is made of is known here already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deltars.log.commit import Commit
from deltars.log.conflicts import is_blind_append
from deltars.protocol import Action, Metadata
from deltars.store.commit.plan import LockedTable, Plan, read_version
from deltars.store.commit.state_cache import KnownState
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
    before_ts: int
    """Time stamp of the version before, which distinguishes it from one of the same number in a restored database."""
    only_adds: bool
    """Whether it is certain that no live file was ended."""


def next_version(commit: Commit, plan: Plan, row: LockedTable, commit_ts: int) -> Callable[[], NextVersion] | None:
    """Return a function that makes the version; None if it is not the next one to publish, or cannot be alone.

    A transaction over several tables also publishes the map of its versions, and many files are read in parts.
    """
    is_alone = len(commit.tables) == 1 and not (commit.new_tables or commit.drops or plan.bulk)
    if not is_alone or not is_next(row):
        return None
    return lambda: made(commit, _actions(plan), plan.states[row.table_id], row, commit_ts)


def is_next(row: LockedTable) -> bool:
    """Return whether the version after that of the locked row is the next one to publish."""
    return row.mirror_state == ACTIVE and row.published_version == row.current_version


def in_commit_timestamp(row: LockedTable, commit_ts: int) -> int:
    """Return the in-commit timestamp of the version after that of the locked row."""
    return max(commit_ts // 1000, row.last_ict + 1)


def made(
    commit: Commit,
    actions: Sequence[Action],
    after: KnownState,
    row: LockedTable,
    commit_ts: int,
    *,
    only_adds: bool = False,
) -> NextVersion:
    """Return the version that a commit made of the only table that it wrote. `after` is the table's state since."""
    [table], metadata, version = commit.tables, after.state.metadata, row.current_version + 1
    assert metadata is not None
    made = CommittedVersion(
        table_id=row.table_id,
        version=version,
        commit_ts=commit_ts,
        in_commit_timestamp=in_commit_timestamp(row, commit_ts),
        txn_id=commit.txn_id,
        operation=table.operation,
        actions=tuple(actions),
        operation_params=table.operation_params,
        metrics=table.metrics,
        committer=commit.committer,
        read_version=read_version(table),
        isolation=commit.isolation,
        is_blind_append=is_blind_append(table, [read.reads for read in commit.read.values()]),
        user_metadata=commit.user_metadata,
        participants={str(row.table_id): version},
    )
    return NextVersion(made, row.name, row.location, metadata, row.last_commit_ts, only_adds)


def _actions(plan: Plan) -> list[Action]:
    """Return the actions as they are stored: with the row ids that they got."""
    found = (
        (values["ord"], from_row(name, values)) for name in TABLE_OF.values() for values in plan.rows.get(name, ())
    )
    return [action for _, action in sorted(found, key=lambda pair: pair[0])]
