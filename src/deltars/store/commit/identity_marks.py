"""Commits that only counted an identity column, which do not conflict with each other.

Each writer reserved its own values (`store.identities`), so two commits that raise the same high-water mark are both
right. The second one is committed with the larger mark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import msgspec
from sqlalchemy import Connection, select

from deltars.errors import MetadataChanged
from deltars.log.commit import Commit, Conflict, TableCommit
from deltars.log.conflicts import Winner
from deltars.protocol import Metadata
from deltars.protocol.identity import identities, latest_marks, without_marks
from deltars.store.rows import from_row
from deltars.store.schema import dl_metadata_updates


def without_counting(
    connection: Connection, table_id: UUID, after: int, winners: Sequence[Winner], conflict: Conflict | None
) -> list[Winner] | None:
    """Return the winners as if they had not changed the metadata, if all that they changed are marks; else None."""
    if conflict is None or conflict.rule is not MetadataChanged:
        return None
    updates = dl_metadata_updates.c
    newest = select(dl_metadata_updates).where(updates.table_id == table_id).order_by(updates.version.desc()).limit(1)
    then, now = (
        None if row is None else from_row(dl_metadata_updates.name, row)
        for row in (
            connection.execute(query).mappings().first() for query in (newest.where(updates.version <= after), newest)
        )
    )
    if not isinstance(then, Metadata) or not isinstance(now, Metadata) or not identities(now.schema):
        return None
    return (
        [replace(winner, metadata_changed=False) for winner in winners] if _unmarked(then) == _unmarked(now) else None
    )


def with_latest_marks(commit: Commit, current: Callable[[UUID], Metadata | None]) -> Commit:
    """Return the commit with the larger of its own marks and those of the table now; mostly the same object."""
    tables = [_with_latest_marks(table, current) for table in commit.tables]
    is_same = all(one is other for one, other in zip(tables, commit.tables, strict=True))
    return commit if is_same else replace(commit, tables=tuple(tables))


def _with_latest_marks(table: TableCommit, current: Callable[[UUID], Metadata | None]) -> TableCommit:
    mine = next((action for action in table.actions if isinstance(action, Metadata)), None)
    if mine is None or not identities(mine.schema):
        return table
    now = current(table.table_id)
    if now is None:
        return table
    schema = latest_marks(mine.schema, now.schema)
    newest = msgspec.structs.replace(mine, schema_string=schema.to_json())
    return replace(table, actions=[newest if action is mine else action for action in table.actions])


def _unmarked(metadata: Metadata) -> Metadata:
    return msgspec.structs.replace(metadata, schema_string=without_marks(metadata.schema).to_json())
