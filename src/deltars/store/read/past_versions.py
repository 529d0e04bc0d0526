"""Version of every table as of a moment, and the tables whose version at that moment is expired.

    versions   …   5 (kept by a tag)   …   20 ── 21 ── 22 ──▶      first_version is 20: 6 to 19 are expired
    moment c             ▲                       ▲
                         │                       └ c is at or after version 20: the last one that is not later
                         └ the last one that is there is 5. It is the right one only if a tag shows that nothing was
                           committed between it and c, or if c is the moment of its own commit

Imported versions share one time stamp, so versions are compared too.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    ScalarSelect,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
)

from deltars.store.backends import Backend
from deltars.store.schema import dl_maintenance, dl_table_versions, dl_tables, dl_tags

_tables, _versions, _maintenance = dl_tables.c, dl_table_versions.c, dl_maintenance.c


def past_versions(
    connection: Connection, backend: Backend, commit_ts: int, *, only_kept: bool = False
) -> tuple[dict[str, tuple[str, str, int, None]], dict[str, str]]:
    """Return name, id and version of each table as of a moment, by id, and the names of tables whose version is gone.

    With `only_kept`, a version before the kept history counts as gone unless a tag keeps it: it may be deleted soon.
    """
    at = bindparam("at", commit_ts, BigInteger)
    was_living = or_(_tables.dropped_at.is_(None), _tables.dropped_at > backend.instant(literal(commit_ts)))
    first = func.coalesce(_maintenance.first_version, 0)
    # A tag at c or later whose last version is the same one: nothing was committed between that version and c.
    tagged = _last_version(select(func.min(dl_tags.c.commit_ts)).where(dl_tags.c.commit_ts >= at).scalar_subquery())
    query = (
        select(
            _tables.name,
            cast(_tables.table_id, Text),
            _last_version(at),
            first,
            case((first > 0, tagged), else_=null()),
            case((first > 0, _last_version(at, only_at=True)), else_=null()),
            # The time of its first version may be expired with it.
            _tables.created_at <= backend.instant(literal(commit_ts)),
        )
        .outerjoin_from(dl_tables, dl_maintenance, _maintenance.table_id == _tables.table_id)
        .where(was_living)
        # Names are the current ones. A reused name belongs to the table that has it now, which is sorted last.
        .order_by(_tables.dropped_at.is_(None), _tables.dropped_at)
    )
    rows: dict[str, tuple[str, str, int, None]] = {}
    expired: dict[str, str] = {}
    for name, table_id, version, kept_from, by_tag, exact, existed in connection.execute(query):
        if kept_from == 0 or (version is not None and version >= kept_from):
            if version is not None:
                rows[table_id] = (name, table_id, version, None)
        elif version is not None and (version == by_tag or (version == exact and not only_kept)):
            rows[table_id] = (name, table_id, version, None)
        elif existed:
            expired[table_id] = name
    return rows, expired


def _last_version(at: ColumnElement[Any], *, only_at: bool = False) -> ScalarSelect[Any]:
    """Return the query for a table's last version up to a moment: one look-up in an index."""
    is_then = _versions.commit_ts == at if only_at else _versions.commit_ts <= at
    query = select(_versions.version).where(and_(_versions.table_id == _tables.table_id, is_then))
    ordered = query.order_by(_versions.commit_ts.desc(), _versions.version.desc()).limit(1)
    return ordered.correlate(dl_tables).scalar_subquery()
