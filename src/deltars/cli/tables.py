"""Commands on one table."""

from __future__ import annotations

from dataclasses import asdict

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output
from deltars.uri import is_uri, parse_table_uri


@click.command
@click.argument("table")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The newest N commits only.")
@with_common_options
def history(table: str, limit: int | None, catalog: str | None, output: Output) -> None:
    """List the commits of TABLE, newest first. TABLE is a name, an id or a whole deltasql:// URI.

    \b
    Example:
      deltars history features --limit 10
      deltars history deltasql://postgres/lake/public/features
    """
    with deltars.connect(catalog or _catalog_of(table), migrate=False) as opened:
        output.records(
            [asdict(entry) for entry in opened.table(table).history(limit)],
            columns=("version", "committed_at", "operation", "committer", "txn_id"),
            none=f"Nothing was committed to {table} yet.",
        )


@click.command
@click.argument("table")
@click.option("--deep", is_flag=True, help="Also read every commit, checksum, checkpoint and data file's footer.")
@click.option("--orphans", is_flag=True, help="Also list the files that the log never named.")
@with_common_options
@click.pass_context
def verify(context: click.Context, table: str, deep: bool, orphans: bool, catalog: str | None, output: Output) -> None:
    """Compare the catalog of TABLE with its _delta_log and its data files, both ways. Changes nothing.

    Exits with 1 if there is a difference. Files that nobody tracks are none.

    \b
    Example:
      deltars verify features
      deltars verify features --deep --orphans --json
    """
    with deltars.connect(catalog or _catalog_of(table), migrate=False) as opened:
        found = opened.table(table).verify(deep=deep, orphans=orphans)
    compared = f"{found.commits} commits and {found.data_files} data files of {found.table}"
    output.records(
        [asdict(finding) for finding in found.findings],
        columns=("problem", "file", "detail"),
        none=f"No difference: {compared} were compared.",
    )
    context.exit(0 if found.is_ok else 1)


def _catalog_of(table: str) -> str | None:
    """The catalog that a table's URI names."""
    return parse_table_uri(table)[0].with_secrets() if is_uri(table) else None
