"""The command that brings older versions back."""

from __future__ import annotations

from dataclasses import asdict

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import working
from deltars.cli.tables import catalog_with

_COLUMNS = (
    "table",
    "version",
    "num_restored_files",
    "num_restored_rows",
    "num_removed_files",
    "num_removed_rows",
    "metadata_changed",
)


@click.command
@click.argument("table", required=False)
@click.option("--version", type=int, metavar="N", help="Restore TABLE to its version N.")
@click.option("--timestamp", metavar="TIME", help="Restore TABLE to its last version at this time.")
@click.option("--as-of", metavar="TAG|TRANSACTION|TIME", help="Restore to this moment of the whole catalog.")
@click.option("--all", "every", is_flag=True, help="Restore every table to --as-of, in one transaction.")
@click.option("--tables", metavar="A,B", help="With --all: restore only these tables.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would change.")
@with_common_options
def restore(
    table: str | None,
    version: int | None,
    timestamp: str | None,
    as_of: str | None,
    every: bool,
    tables: str | None,
    dry_run: bool,
    catalog: str | None,
    output: Output,
) -> None:
    """Restore TABLE to an older version, or all tables to one moment. The versions in between stay readable.

    Prints the files and rows that each table gets back and loses. "version" is the one that it was restored to.

    \b
    Example:
      deltars restore features --version 3 --dry-run
      deltars restore features --timestamp 2026-01-31T12:00:00Z
      deltars restore --all --as-of q3-training
      deltars restore --all --as-of 7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d11 --tables users,events
    """
    if every == (table is not None):
        raise click.UsageError("Give a TABLE, or --all with --as-of.")
    if every and (as_of is None or version is not None or timestamp is not None):
        raise click.UsageError("--all needs --as-of, and takes neither --version nor --timestamp.")
    if tables is not None and not every:
        raise click.UsageError("--tables needs --all.")
    if table is not None and [version, timestamp, as_of].count(None) != 2:
        raise click.UsageError("Give one of --version, --timestamp and --as-of.")
    if table is None:
        assert as_of is not None
        chosen = None if tables is None else [name.strip() for name in tables.split(",") if name.strip()]
        if chosen == []:
            raise click.UsageError("--tables names no table.")
        with deltars.connect(catalog, migrate=False) as opened, working("Looking for the files of the old versions"):
            restored = opened.restore(as_of, tables=chosen, dry_run=dry_run)
    else:
        with catalog_with(table, catalog) as opened, working("Looking for the files of the old version"):
            restored = opened.table(table).restore(version, timestamp=timestamp, as_of=as_of, dry_run=dry_run)
    output.records([asdict(one) for one in restored.tables], columns=_COLUMNS, none="Nothing was restored.")
    if dry_run:
        click.echo("Nothing was changed: this was a dry run.", err=True)
