"""The command that serves pages about a catalog, and those that say the same in the terminal."""

from __future__ import annotations

import importlib.util
import webbrowser
from contextlib import suppress
from dataclasses import asdict

import click

import deltars
from deltars.cli.options import table_argument, tables_argument, with_common_options
from deltars.cli.output import Output
from deltars.errors import ConfigError

NEEDED = ("starlette", "uvicorn", "jinja2")

_CONFLICTS = ("recorded_at", "table", "rule", "committer", "winning_version", "winning_txn_id")
_LINEAGE = ("source", "target", "depth", "num_commits", "source_version", "target_version")


@click.command
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="By default, any free port.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@with_common_options
def console(port: int, no_browser: bool, catalog: str | None, output: Output) -> None:
    """Serve pages about the catalog to a browser of this machine, until Ctrl-C.

    The pages show transactions over tables, conflicts, cuts, the mirror, streams and maintenance. They only read. The
    address has a token: whoever has it can read what the catalog knows, but no rows.

    \b
    Example:
      deltars console
      deltars console --catalog deltasql://postgres/lake/public --port 8800 --no-browser
    """
    require_extra()
    serve(catalog, port, output, browser=not no_browser)


def require_extra() -> None:
    """Raise `ConfigError` if the packages of the console are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the console needs {', '.join(missing)}", hint="Install it: pip install 'deltars[console]'")


def serve(catalog: str | None, port: int, output: Output, *, browser: bool) -> None:
    """Serve the pages of a catalog until Ctrl-C."""
    from deltars.console.server import ConsoleServer, make_sessions_read_only  # an extra

    make_sessions_read_only()
    with deltars.connect(catalog, migrate=False) as opened:
        server = ConsoleServer(opened, port)

        def ready() -> None:
            output.record({"catalog": opened.uri, "address": server.address})
            if browser:
                webbrowser.open(server.address)

        # The server ends in order, then repeats the interrupt.
        with suppress(KeyboardInterrupt):
            server.run(ready)


@click.command
@tables_argument
@click.option("--since", metavar="TIME", help="Only conflicts from this time on.")
@click.option("--limit", type=click.IntRange(min=0), default=100, show_default=True, help="At most so many.")
@with_common_options
def conflicts(tables: tuple[str, ...], since: str | None, limit: int, catalog: str | None, output: Output) -> None:
    """List the transactions that lost a race for each TABLE, by default for any, newest first.

    \b
    Example:
      deltars conflicts
      deltars conflicts features --since 2026-01-31 --json
    """
    with deltars.connect(catalog, migrate=False) as opened:
        found = opened.conflicts(since=since, tables=tables or None, limit=limit)
    output.records([asdict(one) for one in found], _CONFLICTS, none="No transaction has lost a race.")


@click.command
@table_argument
@click.option("--downstream", is_flag=True, help="List what was made from TABLE instead.")
@click.option("--depth", type=click.IntRange(min=1), default=3, show_default=True, help="Steps away from TABLE.")
@with_common_options
def lineage(table: str, downstream: bool, depth: int, catalog: str | None, output: Output) -> None:
    """List the tables that TABLE was made from: those that transactions read when they wrote it.

    \b
    Example:
      deltars lineage features
      deltars lineage features --downstream --depth 1
    """
    with deltars.connect(catalog, migrate=False) as opened:
        found = opened.lineage(table, downstream=downstream, depth=depth)
    output.records([asdict(one) for one in found], _LINEAGE, none="No recorded transaction read another table.")
