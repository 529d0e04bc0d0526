"""Vacuum of the tables of a catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict, Unpack
from uuid import UUID

from deltars.arguments import check_flags, check_keywords, check_reports
from deltars.catalog.unfinished_copies import delete_unfinished_copies
from deltars.errors import DeltarsError
from deltars.mirror.vacuum import Vacuum, Vacuumed, as_retention
from deltars.session import CatalogSession, TableLike

_log = logging.getLogger(__name__)


class VacuumOptions(TypedDict, total=False):
    """Options of `Table.vacuum` and `Catalog.vacuum`."""

    retention: timedelta | str | None
    """How long ago a removal must have been published. Default: the table's own retention, else 7 days."""
    dry_run: bool
    """Delete nothing, and return what would be deleted."""
    full: bool
    """Also list the directory, for files that no log names."""
    force: bool
    """Allow a retention of less than 7 days. With `full`, it is then also the age of files that no writer makes."""


@dataclass(frozen=True, slots=True)
class SkippedVacuum:
    """A table that could not be vacuumed, and why."""

    table: str
    table_id: UUID
    error: DeltarsError


@dataclass(frozen=True, slots=True)
class CatalogVacuumed:
    """What a vacuum of several tables did."""

    tables: tuple[Vacuumed, ...]
    skipped: tuple[SkippedVacuum, ...] = ()
    unfinished_copies: tuple[str, ...] = ()
    """Directories of killed `copy_table` calls, which a full vacuum of all tables deletes."""


def check_options(options: VacuumOptions) -> None:
    check_keywords("vacuum", options, VacuumOptions)
    check_flags(
        dry_run=options.get("dry_run", False), full=options.get("full", False), force=options.get("force", False)
    )
    as_retention(options.get("retention"))


def vacuum_table(
    session: CatalogSession,
    table_id: UUID,
    report: Callable[[int, int], None] | None,
    **options: Unpack[VacuumOptions],
) -> Vacuumed:
    check_reports(report=report)
    check_options(options)
    return Vacuum(session.database, session.publisher, session.registry).run(table_id, report=report, **options)


def vacuum_tables(
    session: CatalogSession,
    tables: Sequence[TableLike] | None,
    report: Callable[[str, int, int], None] | None,
    **options: Unpack[VacuumOptions],
) -> CatalogVacuumed:
    """Vacuum the named tables, or all. Of all, those that refuse it are skipped; a named one raises."""
    check_reports(report=report)
    check_options(options)
    done, skipped = [], []
    for record in session.find_all(tables):
        name = record.name

        def progress(files: int, total: int, name: str = name) -> None:
            if report is not None:
                report(name, files, total)

        try:
            done.append(vacuum_table(session, record.table_id, progress, **options))
        except DeltarsError as error:
            if tables is not None:
                raise
            _log.warning("table %s was not vacuumed: %s", name, error.message)
            skipped.append(SkippedVacuum(name, record.table_id, error))
    dry_run, copies = options.get("dry_run", False), list[str]()
    if options.get("full"):
        if not dry_run:
            session.heartbeat.writers.withdraw_strays()
        if tables is None:
            copies = delete_unfinished_copies(session, dry_run=dry_run)
    return CatalogVacuumed(tuple(done), tuple(skipped), tuple(copies))
