"""The command that prints the rows that versions of a table changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltars.cli.options import table_argument, with_common_options, with_format
from deltars.cli.output import Output, rows_of, rows_output
from deltars.cli.tables import catalog_with

if TYPE_CHECKING:
    from deltars.catalog import VersionOrMoment

_MOMENT = "VERSION|TIME|TAG|TXN"


@click.command
@table_argument
@click.option(
    "--start", "--since", "start", metavar=_MOMENT, help="First version, or a moment.  [default: the current version]"
)
@click.option("--end", metavar=_MOMENT, help="Last version, or a moment.  [default: the current version]")
@with_format
@with_common_options
def changes(
    table: str, start: str | None, end: str | None, form: str | None, catalog: str | None, output: Output
) -> None:
    """Print the rows of TABLE that versions changed, in the order of the versions. Needs no Spark.

    A version counts itself. A tag or a transaction is a state: what changed after it is printed.

    \b
    Example:
      deltars changes features
      deltars changes features --start 3 --end 7 --json
      deltars changes features --start q3-training --format csv
    """
    with catalog_with(table, catalog) as opened:
        found = opened.table(table)
        first = found.version if start is None else _moment(start)
        changed = found.changes(first, None if end is None else _moment(end))
        reader = changed.to_arrow_batch_reader()
        rows_output(output, form).records(
            rows_of(reader),
            columns=reader.schema.names,
            none=f"No row of {table} changed in the versions {changed.start} to {changed.end}."
            if changed.start <= changed.end
            else f"{table} has no version since then.",
        )


def _moment(text: str) -> VersionOrMoment:
    return int(text) if text.isdecimal() and text.isascii() else text
