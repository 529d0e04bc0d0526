"""`deltars demo`: runs `deltars.demo` and prints its steps on the terminal."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from shutil import which

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import deltars
from deltars.cli.console import require_extra, serve
from deltars.cli.options import with_common_options
from deltars.cli.output import Json, Output

PAPER_WIDTH = 120
EXAMPLE = Path("examples/feature_store.py")
"""Program of the project's directory, where `make demo` runs."""


@click.command
@click.option("--embedded-postgres", is_flag=True, help="Run on a temporary PostgreSQL, which is deleted afterwards.")
@click.option("--console", "opens_console", is_flag=True, help="Show its transactions in a browser afterwards.")
@with_common_options
def demo(embedded_postgres: bool, opens_console: bool, catalog: str | None, output: Output) -> None:
    """Show a feature store on real tables: atomic writes, a killed process, a race, time travel, other readers.

    Needs Java and pyspark, no network, and less than two minutes. Without --catalog it runs on SQLite, in ./.deltars.
    It replaces its own tables features and labels, and refuses a catalog that has other tables of these names.

    \b
    Example:
      deltars demo
      deltars demo --catalog 'deltasql://postgres/lake/demo?host=db'
      deltars demo --embedded-postgres
      deltars demo --console
    """
    if embedded_postgres and catalog:
        raise click.UsageError("--embedded-postgres creates a catalog: do not give --catalog.")
    if opens_console and embedded_postgres:
        raise click.UsageError("--embedded-postgres leaves nothing to show: leave --console out.")
    if opens_console:
        require_extra()
    try:
        # Imported late: --help must stay fast, and pyspark is an extra.
        from deltars import demo as play
        from deltars.doctor import require_java
        from deltars.spark.local_session import local_spark
    except ModuleNotFoundError as error:
        raise deltars.ConfigError(
            f"the demo needs {error.name}, which is not installed", hint="pip install 'deltars[spark]'"
        ) from error
    console = Console(highlight=False, quiet=isinstance(output, Json))
    if not console.is_terminal:
        console.width = PAPER_WIDTH
    require_java()
    tell, started = ConsoleNarrator(console), time.monotonic()
    tell.say("Starting Spark…")
    with (
        play.embedded_postgres() if embedded_postgres else nullcontext(catalog or play.DEFAULT_CATALOG) as uri,
        local_spark("deltars demo") as spark,
    ):
        outcome = play.play(uri, spark, tell)
    if isinstance(output, Json):
        output.record(asdict(outcome))
        return
    tell.chapter(f"Done in {time.monotonic() - started:.0f} seconds. What to try next")
    tell.code(_next_steps(outcome, is_gone=embedded_postgres))
    if opens_console:
        serve(uri, 0, output, browser=True)


def _next_steps(outcome: deltars.demo.DemoResult, *, is_gone: bool) -> str:
    if is_gone:
        return "deltars demo            # the same on SQLite; its tables are kept\ndeltars doctor"
    there = f"--catalog '{outcome.catalog}'"
    steps = [
        f"deltars history features {there}",
        f"deltars txn {outcome.winner} {there}",
        f"deltars diff features 0 3 {there}",
        f"deltars cut {outcome.first} {there}",
        f"deltars console {there}",
    ]
    activate = Path(sys.prefix, "bin", "activate")
    if which("deltars") is None and activate.exists():
        steps.insert(0, f". {shlex.quote(os.path.relpath(activate))}")
    if EXAMPLE.exists():
        steps.append(f"python {EXAMPLE}    # the same as a program of thirty lines, for you to change")
    return "\n".join(steps)


class ConsoleNarrator:
    """Narrator that prints to a console: with colours on a terminal, plain text in a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def chapter(self, title: str) -> None:
        self._console.print(Text(f"\n{title}", style="bold"))

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=not self._console.is_terminal)

    def code(self, text: str) -> None:
        self._console.print(Text("\n".join(f"    {line}" for line in text.splitlines()), style="cyan"), soft_wrap=True)

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
        for position, heading in enumerate(headings):
            is_number = all(isinstance(row[position], int | float) for row in rows)
            table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(str(value)) for value in row))
        self._console.print(Padding(table, (0, 0, 0, 2), expand=False))
