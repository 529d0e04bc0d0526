"""Whether a transaction committed, if its caller does not know.

A transaction that committed has a row in `dl_transactions`. A marker in place of that row keeps it from committing.
"""

from __future__ import annotations

import time
from uuid import UUID

from sqlalchemy import Connection, select

from deltars.backoff import Backoff
from deltars.errors import CommitUnknown, DatabaseError, DeltarsError, TimeoutError
from deltars.log.commit import Committed
from deltars.store.database import Database
from deltars.store.read.committed_versions import versions_of
from deltars.store.schema import dl_transactions


def find_committed(connection: Connection, txn_id: UUID) -> Committed | None:
    """Return the result of a transaction; None if it did not commit (so far)."""
    query = select(dl_transactions.c.commit_ts, dl_transactions.c.participants).where(
        dl_transactions.c.txn_id == txn_id, dl_transactions.c.outcome == "committed"
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return Committed(txn_id, row.commit_ts, versions_of(connection, txn_id, row.participants))


def resolve(database: Database, txn_id: UUID, *, timeout_s: float) -> Committed | None:
    """Return the result of a transaction; None if it did not commit. From then on it never can."""
    with database.write(timeout_s) as connection:
        marker = database.backend.insert_unless_present(dl_transactions)
        connection.execute(marker.values(txn_id=txn_id, outcome="aborted"))
        found = find_committed(connection, txn_id)
        if found is None:
            _refuse_unseen(connection, txn_id)
        return found


def settle(database: Database, txn_id: UUID, deadline: float, lost: DeltarsError) -> Committed:
    """Settle a COMMIT during which the connection was lost: mark the transaction aborted unless it committed.

    Reading once is not enough: the COMMIT may still run on the server and succeed a moment later. The marker uses the
    transaction's own primary key, so only one of the two rows can ever exist.
    """
    backoff = Backoff(0.05, longest_s=1.0, least_s=0.025)
    while True:
        remaining_s = deadline - time.monotonic()
        try:
            found = resolve(database, txn_id, timeout_s=max(remaining_s, 0.1))
        except DeltarsError as error:
            if remaining_s <= backoff.next_s or not error.retryable:
                raise CommitUnknown(txn_id=txn_id, stage="commit") from error
            backoff.sleep()
            continue
        if found is None and isinstance(lost, TimeoutError):
            raise lost.located(txn_id=txn_id, stage="commit")
        if found is None:
            raise DatabaseError(
                "the connection was lost during COMMIT; the transaction did not commit, and never will",
                retryable=True,
                txn_id=txn_id,
                stage="commit",
            ) from lost
        return found


def _refuse_unseen(connection: Connection, txn_id: UUID) -> None:
    """Raise DatabaseError if a transaction has a row that this role does not see (`row_policies`)."""
    query = select(dl_transactions.c.outcome).where(dl_transactions.c.txn_id == txn_id)
    if connection.execute(query).first() is None:
        raise DatabaseError(
            "the transaction wrote tables that this role has no rights on, so its outcome cannot be known",
            txn_id=txn_id,
            hint="Resolve it with a role that may read all of its tables.",
        )
