"""Record of lost races, for people: who lost to whom, by which rule.

It is written after the refusal, in its own small transaction, so that it delays no other writer. It is best effort: a
record that cannot be written is left out.
"""

from __future__ import annotations

import logging
from uuid import uuid4

from sqlalchemy import insert

from deltars.errors import VersionConflict
from deltars.log.commit import Commit, VersionTaken
from deltars.store.commit.winner import LostRace
from deltars.store.database import Database
from deltars.store.schema import dl_conflicts

TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


def record_conflict(database: Database, commit: Commit, taken: VersionTaken, race: LostRace) -> None:
    """Record a race that a commit lost. Never raise an Exception: the caller is about to raise the conflict."""
    mine = next((table for table in commit.tables if table.table_id == taken.table_id), None)
    conflict = taken.conflict
    row = {
        "conflict_id": uuid4(),
        "txn_id": commit.txn_id,
        "committer": commit.committer,
        "isolation": commit.isolation,
        "operation": None if mine is None else mine.operation,
        "table_id": taken.table_id,
        "rule": (VersionConflict if conflict is None else conflict.rule).__name__,
        "reason": None if conflict is None else conflict.reason,
        "expected_version": taken.expected,
        "actual_version": taken.actual,
        "winning_version": None if race.winner is None else race.winner.version,
        "winning_txn_id": None if race.winner is None else race.winner.txn_id,
    }
    try:
        with database.write(TIMEOUT_S) as connection:
            if row["committer"] is None:
                row["committer"] = database.backend.user(connection)
            connection.execute(insert(dl_conflicts).values(**row, recorded_at=database.backend.clock_us()))
    except Exception as error:
        # Whatever it is: a version that no database has is no DeltarsError.
        _log.debug("the conflict of transaction %s could not be recorded: %s", commit.txn_id, error)
