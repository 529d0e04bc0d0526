"""Event about the end of a commit, for observers."""

from __future__ import annotations

from deltars.errors import VersionConflict
from deltars.log.commit import Commit, CommitOutcome, VersionTaken
from deltars.observe import CommitEnded, Outcome, Source, Stopwatch
from deltars.protocol import AddFile, RemoveFile


def commit_ended(
    source: Source, commit: Commit, answer: CommitOutcome | BaseException, watch: Stopwatch
) -> CommitEnded:
    duration_s = watch.stop()
    error = answer if isinstance(answer, BaseException) else None
    conflict = None
    if error is not None:
        outcome = Outcome.of(error, watch.stage)
    elif isinstance(answer, VersionTaken):
        outcome = Outcome.CONFLICT
        conflict = (answer.conflict.rule if answer.conflict else VersionConflict).__name__
    else:
        # A transaction that was committed before is found by the check, before anything is written.
        outcome = Outcome.COMMITTED if "commit" in watch.stages else Outcome.REPEATED
    added = removed = 0
    for table in commit.tables:
        added += 0 if table.adds is None else table.adds.num_rows
        for action in table.actions:
            added += isinstance(action, AddFile)
            removed += isinstance(action, RemoveFile)
    return CommitEnded(
        source,
        commit.txn_id,
        outcome,
        watch.began_ns,
        duration_s,
        watch.stages,
        [table.table_id for table in commit.tables],
        added,
        removed,
        conflict,
        error,
    )
