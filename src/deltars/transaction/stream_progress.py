"""Progress of a stream, recorded with a transaction: one application and one batch, in every table that it changes.

The batch is a `txn` action of each table, as Delta writes it, and part of the operation's parameters. Readers of
`_delta_log` and a rebuilt catalog find it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltars.errors import ValidationError
from deltars.transaction.transaction import Transaction


class AlreadyCommittedError(Exception):
    """The batch was committed before. It ends the transaction without a commit."""


def note_batch(tx: Transaction, app_id: str, batch_id: int, params: Mapping[str, Any]) -> None:
    """Record the batch in every table that the transaction changes.

    Raise `AlreadyCommittedError` if a table has this batch, and `ValidationError` if it has a later one.
    """
    view = tx._view
    for table in () if view is None else view.changed:
        assert view is not None
        known = view.progress(table, app_id)
        if known == batch_id:
            raise AlreadyCommittedError
        if known is not None and known > batch_id:
            raise ValidationError(
                f"batch {batch_id} of {app_id!r} is older than batch {known}, which the table has",
                table=table.name,
                txn_id=tx.id,
                field="app_id",
                hint="If the stream's checkpoint was deleted or replaced, give it a new app_id.",
            )
        with tx._lifetime.open():
            view.keep(view.latest(table).with_progress(app_id, batch_id, params))
