"""Hold on a table: it refuses commits while its log, and not this catalog, is authoritative.

    hold ──▶ dl_tables.protocol_version = HELD ──▶ every commit needs the protocol, finds none, and is refused
    let go ◀── `ImportWriter.finish`, when the catalog has caught up with a log that is fenced

The mark is in the row that a commit locks and compares anyway, so it costs a commit nothing. `dl_mirror_status.state`
tells why a table is held.
"""

from __future__ import annotations

from typing import Any, NoReturn
from uuid import UUID

from sqlalchemy import Connection, select, update

from deltars.errors import LogDiverged, TableHeld, TableNotFound
from deltars.store.database import Database
from deltars.store.schema import dl_mirror_status, dl_tables

HELD = -2
"""Protocol version that marks a held table; no such version exists."""

_REASONS = {
    "importing": ("is being imported", "Wait for the import to finish; run it again if it was interrupted."),
    "read_only": ("was imported read-only", "Only the owner of its log can write to it."),
    "diverged": (
        "is being taken over from its log, which contradicted the catalog",
        "Run deltars mirror accept-log again if it was interrupted.",
    ),
    "released": ("was released to other writers", "Take it back with catalog.adopt(), then write."),
}
_UNFINISHED = ("is being released or adopted", "Run the release or the adoption again if it was interrupted.")


def lock_row(connection: Connection, database: Database, table_id: UUID) -> Any:
    """Lock the row of a table that is not dropped until the transaction ends, and return it."""
    query = select(dl_tables).where(dl_tables.c.table_id == table_id, dl_tables.c.dropped_at.is_(None))
    row = connection.execute(query.with_for_update() if database.backend.locks_rows else query).one_or_none()
    if row is None:
        raise TableNotFound(table_id=table_id)
    return row


def hold(database: Database, table_id: UUID, *, timeout_s: float) -> None:
    """Hold a table: running commits finish first, and every later commit is refused."""
    with database.write(timeout_s) as connection:
        lock_row(connection, database, table_id)
        connection.execute(update(dl_tables).where(dl_tables.c.table_id == table_id).values(protocol_version=HELD))


def why_held(database: Database, table_id: UUID) -> str | None:
    """Return why this catalog may not write the log of a table, live or dropped; None if it may."""
    query = (
        select(dl_tables.c.protocol_version, dl_mirror_status.c.state)
        .outerjoin(dl_mirror_status, dl_mirror_status.c.table_id == dl_tables.c.table_id)
        .where(dl_tables.c.table_id == table_id)
    )
    with database.read() as connection:
        row = connection.execute(query).one()
    if row.protocol_version != HELD and row.state not in _REASONS:
        return None
    return _REASONS.get(row.state, _UNFINISHED)[0]


def refuse_held(connection: Connection, table_id: UUID) -> None:
    """Raise TableHeld with the reason why the table refuses commits."""
    query = (
        select(dl_tables.c.name, dl_mirror_status.c.state)
        .join(dl_mirror_status, dl_mirror_status.c.table_id == dl_tables.c.table_id)
        .where(dl_tables.c.table_id == table_id)
    )
    row = connection.execute(query).one()
    reason, hint = _REASONS.get(row.state, _UNFINISHED)
    raise TableHeld(
        f"the table {reason}: nothing can be committed to it here", table=row.name, table_id=table_id, hint=hint
    )


def check_writable(database: Database, table_id: UUID, *, allow_diverged: bool) -> None:
    """Raise what a commit to the table would raise: it is held, or its log contradicts the catalog."""
    query = (
        select(dl_tables.c.name, dl_tables.c.protocol_version, dl_mirror_status.c.state)
        .outerjoin(dl_mirror_status, dl_mirror_status.c.table_id == dl_tables.c.table_id)
        .where(dl_tables.c.table_id == table_id)
    )
    with database.read() as connection:
        row = connection.execute(query).one_or_none()
        if row is not None and row.protocol_version == HELD:
            refuse_held(connection, table_id)
    if row is not None and row.state == "diverged" and not allow_diverged:
        refuse_diverged(row.name, table_id)


def refuse_diverged(name: str, table_id: UUID) -> NoReturn:
    raise LogDiverged(
        "the table's _delta_log contradicts the catalog: nothing can be committed to it",
        table=name,
        table_id=table_id,
        hint=f"Show the differences: deltars verify '{name}'. Accept the log: deltars mirror accept-log '{name}'. To"
        " commit nevertheless, connect with allow_diverged=True.",
    )
