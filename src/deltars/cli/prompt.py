"""Prompt of `deltars sql`: reads statements from a terminal, and runs each when its semicolon is typed.

deltars> BEGIN;            opens a transaction; the prompt shows it by a star
deltars*> DELETE FROM t    goes on until the semicolon
      ->   WHERE id = 1;
deltars*> COMMIT;

A line that begins with a backslash is for the prompt itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

import deltars
from deltars.cli.hints import in_commands
from deltars.cli.output import Output
from deltars.predicate.statements.parser import is_complete, parse_statements

if TYPE_CHECKING:
    from deltars.catalog import Catalog
    from deltars.transaction import Engine

HISTORY = Path.home() / ".deltars_history"
HISTORY_LINES = 1_000
_HELP = r"""Type a statement in Spark's SQL, and a semicolon.
  \d           list the tables
  \d TABLE     show the columns of a table
  \h TABLE     show the history of a table
  \timing      show how long statements take, or stop it
  \q           leave (Ctrl-D); an open transaction is rolled back
  Tab completes the names of tables, and words of SQL."""
_WORDS = (
    "ALTER TABLE", "AS OF", "BEGIN", "BY NAME", "CLUSTER BY", "COMMIT", "CREATE TABLE", "DELETE FROM", "DESCRIBE",
    "DESCRIBE DETAIL", "DESCRIBE HISTORY", "DROP TABLE", "FROM", "GROUP BY", "INSERT INTO", "INSERT OVERWRITE", "JOIN",
    "LIMIT", "MERGE INTO", "OPTIMIZE", "ORDER BY", "PARTITIONED BY", "REPLACE WHERE", "RESTORE TABLE", "ROLLBACK",
    "SELECT", "SET", "SHOW COLUMNS IN", "SHOW TABLES", "SHOW TBLPROPERTIES", "TBLPROPERTIES", "TIMESTAMP AS OF",
    "TRUNCATE TABLE", "UPDATE", "USING", "VACUUM", "VALUES", "VERSION AS OF", "WHEN MATCHED THEN",
    "WHEN NOT MATCHED THEN", "WHERE",
)  # fmt: skip


class Prompt:
    """Reads and runs statements until the end of the input."""

    def __init__(self, catalog: Catalog, engine: Engine, output: Output, read: Callable[[str], str] = input) -> None:
        from deltars.catalog.statements import StatementRun

        self._catalog = catalog
        self._output = output
        self._read = read
        self._is_timing = True
        self._run = StatementRun(catalog, "", None, engine)

    def run(self) -> None:
        """Read statements until the end of the input, or \\q."""
        save_history = _with_readline(self.completions)
        click.echo(f"{self._catalog.uri}. \\? shows help.", err=True)
        try:
            self._loop()
        finally:
            if self._run.transaction is not None:
                self._run.close()
                click.echo("The transaction was rolled back.", err=True)
            save_history()

    def _loop(self) -> None:
        text = ""
        while True:
            star = "*" if self._run.transaction is not None else ""
            try:
                line = self._read(f"deltars{star}> " if not text else " " * len(star) + "     -> ")
            except EOFError:
                click.echo("", err=True)
                return
            except KeyboardInterrupt:
                click.echo("", err=True)
                text = ""
                continue
            if not text and line.strip().startswith("\\"):
                if not self._command(line.strip()):
                    return
                continue
            if not text and line.strip().rstrip(";").lower() in ("exit", "quit"):
                return
            text = f"{text}\n{line}" if text else line
            if not text.strip():
                text = ""
            elif is_complete(text):
                self._execute(text)
                text = ""

    def _command(self, line: str) -> bool:
        """Carry out a command of the prompt. Return whether to go on."""
        word, _, name = line[1:].partition(" ")
        quoted = "`" + name.strip().replace("`", "``") + "`"
        match word, bool(name.strip()):
            case "q", _:
                return False
            case "d", False:
                self._execute("SHOW TABLES")
            case "d", True:
                self._execute(f"DESCRIBE {quoted}")
            case "h", True:
                self._execute(f"DESCRIBE HISTORY {quoted}")
            case "timing", _:
                self._is_timing = not self._is_timing
                click.echo(f"Timing is {'on' if self._is_timing else 'off'}.", err=True)
            case _:
                click.echo(_HELP, err=True)
        return True

    def _execute(self, text: str) -> None:
        """Run the statements of a text. An error is printed, and ends an open transaction."""
        from deltars.cli.sql import SCREEN_ROWS, print_rows

        was_open = self._run.transaction is not None
        began = time.perf_counter()
        try:
            statements = parse_statements(text)
        except deltars.DeltarsError as error:
            click.echo(f"Error: {in_commands(str(error))}", err=True)
            return
        self._run.again(text)
        try:
            for statement in statements:
                print_rows(self._output, self._run.run(statement).to_arrow(SCREEN_ROWS + 1))
        except (deltars.DeltarsError, KeyboardInterrupt) as error:
            what = "interrupted" if isinstance(error, KeyboardInterrupt) else in_commands(str(error))
            click.echo(f"Error: {what}", err=True)
            if was_open:
                self._run.close()
                click.echo("The transaction was rolled back.", err=True)
        if self._is_timing:
            click.echo(f"Time: {(time.perf_counter() - began) * 1000:,.0f} ms", err=True)

    def completions(self, typed: str) -> list[str]:
        """Return names of tables and words that begin with what was typed."""
        names: list[str] = []
        with suppress(deltars.DeltarsError):
            names = [table.name for table in self._catalog.tables()]
        return [word for word in (*names, *_WORDS) if word.lower().startswith(typed.lower())] if typed else names


def _with_readline(completions: Callable[[str], list[str]]) -> Callable[[], None]:
    """Turn on completion and history, where Python has readline. Return what saves the history."""
    try:
        import readline
    except ImportError:
        return lambda: None
    found: list[str] = []

    def complete(typed: str, number: int) -> str | None:
        if number == 0:
            found[:] = completions(typed)
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,;()=<>")
    # macOS has libedit in readline's place, which has another language.
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    with suppress(OSError):
        readline.read_history_file(HISTORY)

    def save() -> None:
        readline.set_history_length(HISTORY_LINES)
        with suppress(OSError):
            readline.write_history_file(HISTORY)

    return save
