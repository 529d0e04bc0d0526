"""Restore tables to one cut, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deltars.arguments import check_flags
from deltars.errors import TableNotFound, ValidationError, VersionNotFound
from deltars.log.moments import Moment
from deltars.log.new_table import NO_VERSION
from deltars.session import CatalogSession, TableLike, as_tables
from deltars.store.read.as_of import AsOf
from deltars.store.read.cuts import Cut, CutTable
from deltars.transaction import Transaction, TransactionResult
from deltars.transaction.restoration import RestoredTable

ANY_NUMBER = 2**31 - 1
"""Limit of files for transactions whose size the tables decide, not the caller."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did, or with `dry_run` would do."""

    tables: tuple[RestoredTable, ...]
    """Every table that was to be restored, by name; unchanged ones too."""
    result: TransactionResult | None
    """Result of the one transaction; None of a dry run."""


def restore_table(
    session: CatalogSession,
    table: UUID,
    version: int | None,
    *,
    timestamp: Moment | None,
    as_of: AsOf | None,
    dry_run: bool,
    committer: str | None,
) -> Restored:
    check_flags(dry_run=dry_run)
    tx = Transaction(session, isolation="serializable", committer=committer)
    with tx:
        restored = tx.restore(table, version, timestamp=timestamp, as_of=as_of)
        if dry_run:
            tx.rollback()
    return Restored((restored,), None if dry_run else tx.result)


def restore_tables(
    session: CatalogSession,
    as_of: AsOf,
    tables: TableLike | Sequence[TableLike] | None,
    *,
    dry_run: bool,
    committer: str | None,
) -> Restored:
    """Restore these tables, by default every table of the cut that is not as it was."""
    check_flags(dry_run=dry_run)
    if as_of is None:
        raise ValidationError("restore needs as_of: a tag, a transaction or a time", field="as_of")
    cut, now = session.cut(as_of), session.cut(None)
    for key in cut.expired if tables is None else ():
        session.refuse_expired(cut, UUID(key))
    chosen = cut.tables if tables is None else [_chosen(session, cut, now, table) for table in as_tables(tables)]
    if tables is None and not chosen:
        raise VersionNotFound(
            f"no table had a version as of {as_of}",
            field="as_of",
            hint="They were created later. history() of a table lists its versions.",
        )
    dropped = sorted({table.name for table in chosen if now.find(table.table_id) is None})
    if dropped:
        raise TableNotFound(
            f"these tables were dropped since: {', '.join(map(repr, dropped))}",
            table=dropped[0] if len(dropped) == 1 else None,
            hint="A restore does not bring dropped tables back: name the other tables with tables=.",
        )
    tx = Transaction(
        session,
        isolation="serializable",
        committer=committer,
        max_tables=max(len(chosen), 1),
        max_files_per_table=ANY_NUMBER,
    )
    with tx:
        restored = [tx.restore(table.table_id, table.version) for table in sorted(chosen, key=lambda one: one.name)]
        if dry_run:
            tx.rollback()
    return Restored(tuple(restored), None if dry_run else tx.result)


def _chosen(session: CatalogSession, cut: Cut, now: Cut, table: TableLike) -> CutTable:
    key = session.name_or_id(table)
    session.refuse_expired(cut, key)
    found, today = cut.find(key), now.find(key)
    if found is not None and found.version != NO_VERSION:
        return found
    if today is None:
        raise TableNotFound(f"there is no table {str(table)!r} in {session.uri}", table=str(table))
    raise ValidationError(
        f"the table {today.name!r} had no version yet at that moment: it was created later",
        table=today.name,
        field="tables",
        hint="Leave it out: it stays as it is. To remove it, use catalog.drop_table.",
    )
