"""Commands that end old history, and dropped tables."""

from __future__ import annotations

from dataclasses import asdict

import click

import deltars
from deltars.cli.options import all_option, chosen, tables_argument, with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import working
from deltars.cli.tables import catalog_with

_COLUMNS = ("table", "first_version", "since", "num_expired_versions", "kept_versions", "num_log_files", "held_by")
_PURGED = ("table", "table_id", "dropped_at", "num_files", "is_purged", "held_by")
_DRY_RUN = "Nothing was changed: this was a dry run."


@click.command
@tables_argument
@all_option
@click.option("--older-than", metavar="SPAN|TIME", help='Such as "30 days".  [default: delta.logRetentionDuration]')
@click.option("--keep-versions", type=int, metavar="N", help="Also keep the newest N versions of each table.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would go.")
@click.option("--force", is_flag=True, help="Allow less than the tables' own retention.")
@with_common_options
def expire(
    tables: tuple[str, ...],
    every: bool,
    older_than: str | None,
    keep_versions: int | None,
    dry_run: bool,
    force: bool,
    catalog: str | None,
    output: Output,
) -> None:
    """Delete history that is older than its retention, of each TABLE, by default of all. Tags keep what they need.

    Versions before "first_version" can no longer be read, except "kept_versions", which tags need. "held_by" says why
    older versions stay, such as files that vacuum has not deleted yet.

    \b
    Example:
      deltars expire --dry-run
      deltars expire features labels --dry-run
      deltars expire features --older-than "90 days" --keep-versions 10
    """
    wanted = chosen(tables, every)
    opening = catalog_with(tables[0], catalog) if tables else deltars.connect(catalog, migrate=False)
    with opening as opened, working("Expiring old history"):
        done = opened.expire(older_than, keep_versions=keep_versions, tables=wanted, dry_run=dry_run, force=force)
    output.records([asdict(one) for one in done.tables], columns=_COLUMNS, none="There is no table.")
    if dry_run:
        click.echo(_DRY_RUN, err=True)


@click.command
@click.option("--older-than", metavar="SPAN|TIME", help='How long ago they were dropped.  [default: "30 days"]')
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would go.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_common_options
def purge_dropped(older_than: str | None, dry_run: bool, yes: bool, catalog: str | None, output: Output) -> None:
    """Remove dropped tables for good: their files and their history. Asks for confirmation.

    Files are deleted as by drop --purge. A table that a tag needs stays. If it is interrupted, run it again.

    \b
    Example:
      deltars purge-dropped --dry-run
      deltars purge-dropped --older-than "7 days" --yes
    """
    with deltars.connect(catalog, migrate=False) as opened:
        found = opened.purge_dropped(older_than, dry_run=True)
        if not dry_run and found:
            names = ", ".join(one.table for one in found if one.held_by is None) or "no table's files"
            click.echo(f"This deletes the files and the history of: {names}.", err=True)
            if not yes:
                click.confirm("Purge them?", abort=True, err=True)
            with working("Deleting dropped tables"):
                found = opened.purge_dropped(older_than)
        output.records([asdict(one) for one in found], columns=_PURGED, none="No dropped table is that old.")
    if dry_run:
        click.echo(_DRY_RUN, err=True)
