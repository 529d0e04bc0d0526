"""The command that deletes files which are no longer needed."""

from __future__ import annotations

import click

import deltars
from deltars.cli.hints import said
from deltars.cli.options import tables_argument, with_common_options
from deltars.cli.output import Output, Record
from deltars.cli.progress import counting

_FILES = ("table", "path", "size_bytes", "reason")
_SUMS = ("table", "outcome", "reason", "files", "size_bytes")


@click.command
@tables_argument
@click.option("--all", "every", is_flag=True, help="Vacuum every table.")
@click.option("--retention", metavar="'7 days'", help="Keep what was removed, and published, more recently than this.")
@click.option("--full", is_flag=True, help="Also list the directories, for files that no log names.")
@click.option("--force", is_flag=True, help="Allow a retention of less than 7 days.")
@click.option("--dry-run", is_flag=True, help="Delete nothing; print each file, and why it would be deleted.")
@with_common_options
def vacuum(
    tables: tuple[str, ...],
    every: bool,
    retention: str | None,
    full: bool,
    force: bool,
    dry_run: bool,
    catalog: str | None,
    output: Output,
) -> None:
    """Delete files that no version within the retention, no tag and no open transaction needs.

    Prints how many files and bytes were deleted and kept, and why. The default retention is the table's
    delta.deletedFileRetentionDuration, else 7 days. With --all, tables that cannot be vacuumed are skipped, and the
    exit code is 1.

    \b
    Example:
      deltars vacuum features --dry-run
      deltars vacuum features labels --retention '30 days'
      deltars vacuum --all --full
    """
    if every == bool(tables):
        raise click.UsageError("Give one TABLE or more, or --all.")
    with deltars.connect(catalog, migrate=False) as opened, counting("Vacuuming", "files deleted") as count:
        done = opened.vacuum(
            None if every else tables,
            retention=retention,
            full=full,
            force=force,
            dry_run=dry_run,
            report=lambda table, deleted, total: count(deleted),
        )
    if dry_run:
        planned = [_file(one, file) for one in done.tables for file in one.files]
        output.records(planned, columns=_FILES, none="Nothing would be deleted.")
        for one in done.tables:
            kept = ", ".join(f"{amount.files} {reason}" for reason, amount in one.kept.items())
            click.echo(f"{one.table}: {one.num_files} files, {one.size_bytes} bytes; kept: {kept or 'none'}", err=True)
        click.echo("Nothing was deleted: this was a dry run.", err=True)
    else:
        sums = [record for one in done.tables for record in _sums(one)]
        output.records(sums, columns=_SUMS, none="Nothing had to be deleted.")
    for location in done.unfinished_copies:
        click.echo(f"{'Would delete' if dry_run else 'Deleted'} the unfinished copy at {location}", err=True)
    for skipped in done.skipped:
        click.echo(f"Skipped {skipped.table}: {said(skipped.error)}", err=True)
    if done.skipped:
        raise SystemExit(1)


def _file(one: deltars.Vacuumed, file: deltars.VacuumFile) -> Record:
    return {"table": one.table, "path": file.path, "size_bytes": file.size_bytes, "reason": file.reason.value}


def _sums(one: deltars.Vacuumed) -> list[Record]:
    return [
        {
            "table": one.table,
            "outcome": outcome,
            "reason": reason.value,
            "files": amount.files,
            "size_bytes": amount.size_bytes,
            "version": one.version,
            "retention_s": one.retention.total_seconds(),
        }
        for outcome, found in (("deleted", one.deleted), ("kept", one.kept))
        for reason, amount in found.items()
    ]
