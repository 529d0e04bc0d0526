"""Commands that import and release tables, and rebuild a lost catalog."""

from __future__ import annotations

import os.path

import click

import deltars
from deltars.cli.options import table_argument, with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import bar, working


@click.command("import")
@click.argument("location")
@click.option("--name", metavar="NAME", help="Name of the table in the catalog.  [default: the directory's name]")
@click.option(
    "--read-only",
    is_flag=True,
    help="Leave the table to its writers; run the command again to import their new commits.",
)
@click.option("--take-over", is_flag=True, help="Import a table of another deltars catalog that is lost for good.")
@with_common_options
def import_table(
    location: str, name: str | None, read_only: bool, take_over: bool, catalog: str | None, output: Output
) -> None:
    """Import the Delta table at LOCATION with its history. No file is copied or moved.

    Other writers are refused from then on; readers continue as before. If the import is interrupted, run it again.

    \b
    Example:
      deltars import /data/lake/events --name events
      deltars import s3://bucket/events --read-only
    """
    with deltars.connect(catalog, migrate=False) as opened, bar() as report:
        table = opened.import_table(
            _directory(location),
            name,
            read_only=read_only,
            take_over=take_over,
            report=lambda step: report("import", step),
        )
        output.record({"table": table.name, "version": table.version, "location": table.location, "id": table.id})


@click.command
@table_argument
@with_common_options
def release(table: str, catalog: str | None, output: Output) -> None:
    """Release TABLE to other Delta writers. deltars cannot commit to it until you adopt it again.

    \b
    Example:
      deltars release events
    """
    with deltars.connect(catalog, migrate=False) as opened, working(f"Publishing and releasing {table}"):
        version = opened.release(table)
        output.record({"table": table, "released_at_version": version})


@click.command
@table_argument
@with_common_options
def adopt(table: str, catalog: str | None, output: Output) -> None:
    """Adopt TABLE, which was released or imported read-only, with the commits of other writers.

    \b
    Example:
      deltars adopt events
    """
    with deltars.connect(catalog, migrate=False) as opened, bar() as report:
        version = opened.adopt(table, report=lambda step: report("adopt", step))
        output.record({"table": table, "version": version})


@click.command
@click.argument("warehouse")
@with_common_options
def rebuild(warehouse: str, catalog: str | None, output: Output) -> None:
    """Rebuild a lost catalog from the logs that it published in WAREHOUSE.

    Names, versions, transactions with their times, tags and the default isolation level are restored. Commits that
    were never published, and statistics of row groups, are lost. If the command is interrupted, run it again.

    \b
    Example:
      deltars rebuild s3://bucket/lake --catalog deltasql://postgres/lake/public
    """
    with bar() as report:
        try:
            rebuilt = deltars.rebuild(_directory(warehouse), catalog, report=report)
        except deltars.ConfigError as error:
            if error.hint is not None and error.hint.startswith("Leave warehouse= out"):
                error.hint = "Give the warehouse of this catalog, or with --catalog a new one to rebuild into."
            raise
    output.records(
        [{"name": name, "version": version} for name, version in rebuilt.versions.items()],
        columns=("name", "version"),
        none="Every table had been dropped.",
    )
    if rebuilt.gone:
        click.echo(f"Not restored: dropped tables whose logs are gone: {', '.join(rebuilt.gone)}", err=True)
    for name, old in rebuilt.renamed.items():
        click.echo(f"Two tables were named {old}: the older one is now named {name}.", err=True)
    for file in rebuilt.stale:
        click.echo(f"Ignored, because it is out of date: {file}", err=True)
    if rebuilt.lost_tags:
        click.echo(f"Not restored: tags with versions that are lost: {', '.join(rebuilt.lost_tags)}", err=True)
    if rebuilt.isolation is not None:
        click.echo(f"Transactions that set no isolation level are {rebuilt.isolation}.", err=True)
    for txn_id in rebuilt.torn:
        click.echo(f"Transaction {txn_id} is incomplete: only some of its tables had been published.", err=True)


def _directory(location: str) -> str:
    """Return a directory as an absolute path, because the catalog stores it; a URL unchanged."""
    return os.path.abspath(location) if os.path.isdir(location) else location
