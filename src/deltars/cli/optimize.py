"""The command that writes small files again as larger ones."""

from __future__ import annotations

from dataclasses import asdict

import click

import deltars
from deltars.cli.options import tables_argument, with_common_options
from deltars.cli.output import Output
from deltars.cli.progress import working
from deltars.cli.tables import catalog_with

_COLUMNS = (
    "table",
    "version",
    "num_files_removed",
    "num_files_added",
    "bytes_removed",
    "bytes_added",
    "num_batches",
    "retried",
    "failure",
)


@click.command
@tables_argument
@click.option("--all", "every", is_flag=True, help="Optimize every table.")
@click.option("--where", metavar="CONDITION", help="Only files that may hold a matching row. Spark SQL.")
@click.option("--target-size", metavar="SIZE", help="Size of new files: bytes, or a text such as 128mb.")
@click.option("--zorder-by", metavar="A,B", help="Sort the rows by these columns, so that readers skip files.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print which files would be written again.")
@with_common_options
def optimize(
    tables: tuple[str, ...],
    every: bool,
    where: str | None,
    target_size: str | None,
    zorder_by: str | None,
    dry_run: bool,
    catalog: str | None,
    output: Output,
) -> None:
    """Write small files of each TABLE again as larger ones, and files with many deleted rows without those.

    No row changes, and no writer has to wait. It commits several times, each time a part. Run it again if it was
    interrupted.

    \b
    Example:
      deltars optimize features labels
      deltars optimize features --where "day >= '2026-01-01'" --zorder-by customer,day
      deltars optimize --all --dry-run
    """
    if every == bool(tables):
        raise click.UsageError("Give one TABLE or more, or --all.")
    if len(tables) != 1 and (where is not None or zorder_by is not None):
        raise click.UsageError("--where and --zorder-by need one TABLE.")
    columns = [name.strip() for name in (zorder_by or "").split(",") if name.strip()]
    if zorder_by is not None and not columns:
        raise click.UsageError("--zorder-by names no column.")
    opening = catalog_with(tables[0], catalog) if tables else deltars.connect(catalog, migrate=False)
    if len(tables) != 1:
        with opening as opened, working("Writing files again"):
            done = opened.optimize(tables or None, target_size=target_size, dry_run=dry_run)
    else:
        with opening as opened, working("Writing files again"):
            done = [
                opened.table(tables[0]).optimize(
                    where,
                    target_size=target_size,
                    zorder_by=columns,
                    dry_run=dry_run,
                )
            ]
    output.records([_record(one) for one in done], columns=_COLUMNS, none="The catalog has no tables.")
    for one in done:
        for skipped in one.skipped:
            click.echo(f"{one.table}: {skipped.num_files} files were skipped: {skipped.reason}", err=True)
    if dry_run:
        click.echo("Nothing was changed: this was a dry run.", err=True)
    if any(one.failure is not None for one in done):
        click.get_current_context().exit(1)


def _record(one: deltars.Optimized) -> dict[str, object]:
    return {
        **asdict(one),
        "failure": None if one.failure is None else str(one.failure),
        "num_files_removed": one.num_files_removed,
        "num_files_added": one.num_files_added,
        "bytes_removed": one.files_removed.total_size,
        "bytes_added": one.files_added.total_size,
        "metrics": one.metrics,
    }
