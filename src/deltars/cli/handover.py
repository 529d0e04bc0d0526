"""Commands that take tables in, give them back, and make a lost catalog again."""

from __future__ import annotations

import os.path

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import bar, working


@click.command("import")
@click.argument("location")
@click.option("--name", metavar="NAME", help="The table's name here.  [default: its directory's]")
@click.option("--read-only", is_flag=True, help="Leave the table to its writers; run it again to follow them.")
@click.option("--take-over", is_flag=True, help="Take it from another deltars catalog, which is gone for good.")
@with_common_options
def import_table(
    location: str, name: str | None, read_only: bool, take_over: bool, catalog: str | None, output: Output
) -> None:
    """Take in the Delta table at LOCATION, where it lies, with its history.

    Other writers are fenced off; readers go on as before. If it is interrupted, run it again.

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
@click.argument("table")
@with_common_options
def release(table: str, catalog: str | None, output: Output) -> None:
    """Give TABLE back to plain Delta writers. Nothing can be committed to it here until it is adopted.

    \b
    Example:
      deltars release events
    """
    with deltars.connect(catalog, migrate=False) as opened, working(f"Publishing and releasing {table}"):
        version = opened.release(table)
        output.record({"table": table, "released_at_version": version})


@click.command
@click.argument("table")
@with_common_options
def adopt(table: str, catalog: str | None, output: Output) -> None:
    """Take back TABLE, which was released or imported read-only, with what others have committed to it.

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
    """Make a lost catalog again from the logs that it published below WAREHOUSE.

    Names, versions, transactions and their times come back; commits that were never published and row groups do
    not. If it is interrupted, run it again.

    \b
    Example:
      deltars rebuild s3://bucket/lake --catalog deltasql://postgres/lake/public
    """
    with bar() as report:
        rebuilt = deltars.rebuild(_directory(warehouse), catalog, report=report)
    output.records(
        [{"name": name, "version": version} for name, version in rebuilt.versions.items()],
        columns=("name", "version"),
        none="Every table had been dropped.",
    )
    if rebuilt.gone:
        click.echo(f"Dropped long ago, their logs are gone: {', '.join(rebuilt.gone)}", err=True)
    for name, old in rebuilt.renamed.items():
        click.echo(f"Two tables were named {old}: the older one is {name} now.", err=True)
    for file in rebuilt.stale:
        click.echo(f"Left out, because it describes no table any more: {file}", err=True)
    for txn_id in rebuilt.torn:
        click.echo(f"Only a part of transaction {txn_id} had been published.", err=True)


def _directory(location: str) -> str:
    """A directory may be named as a shell names it; the catalog remembers where it is."""
    return os.path.abspath(location) if os.path.isdir(location) else location
