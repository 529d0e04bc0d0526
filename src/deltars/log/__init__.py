"""Commits as data, their validation and conflicts, and snapshots of a table. No I/O."""

from typing import TYPE_CHECKING

from deltars.late_names import late_names

if TYPE_CHECKING:
    from deltars.log.commit import Commit, CommitOutcome, Committed, VersionTaken
    from deltars.log.snapshot import HistoryEntry, Snapshot, as_whole
    from deltars.log.transaction_id import TxnId, as_txn_id
else:
    __getattr__ = late_names(
        __name__,
        {
            "commit": "Commit CommitOutcome Committed VersionTaken",
            "snapshot": "HistoryEntry Snapshot as_whole",
            "transaction_id": "TxnId as_txn_id",
        },
    )
