"""`deltars tail`: commits as they happen."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice

import click

import deltars
from deltars.cli.options import with_common_options
from deltars.cli.output import Output

_COLUMNS = ("committed_at", "tables", "operations", "committer", "user_metadata", "txn_id")


@click.command
@click.argument("tables", metavar="[TABLE]…", nargs=-1)
@click.option("--last", type=click.IntRange(min=0), default=10, show_default=True, help="Commits to begin with.")
@click.option("--limit", type=click.IntRange(min=0), help="End after this many commits.")
@click.option("--poll", type=click.FloatRange(min=0.01), default=1.0, show_default=True, help="Seconds between looks.")
@with_common_options
def tail(
    tables: tuple[str, ...], last: int, limit: int | None, poll: float, catalog: str | None, output: Output
) -> None:
    """Follow the commits of tables, by default of all, until interrupted. A transaction is one line.

    \b
    Example:
      deltars tail
      deltars tail features labels --last 0
      deltars tail --json | jq -c .tables
    """
    from deltars.catalog.commits import follow_commits

    with deltars.connect(catalog, migrate=False) as opened:
        commits = follow_commits(opened._session, tables or None, last=last, poll_s=poll)
        try:
            for commit in islice(commits, limit):
                output.event(asdict(commit), _COLUMNS)
        except KeyboardInterrupt:
            # It is how the command is ended.
            return
