"""Output on a terminal: headings and aligned columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deltars.cli.output import Record, for_people, heading

AS_WIDE_AS_NEEDED = 10_000


class Screen:
    is_for_people = True

    def __init__(self, console: Console | None = None, *, heading: Callable[[str], str] = heading) -> None:
        # Wider than the terminal: an id or a path that is folded into its column cannot be copied.
        self._console = console or Console(highlight=False, width=AS_WIDE_AS_NEEDED)
        self._heading = heading

    def records(self, records: Iterable[Record], columns: Sequence[str], *, none: str) -> None:
        records = list(records)  # a column is as wide as its widest value
        if not records:
            self._console.print(Text(none))
            return
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
        for name in columns:
            is_number = isinstance(records[0][name], int) and not isinstance(records[0][name], bool)
            table.add_column(Text(self._heading(name)), justify="right" if is_number else "left")
        for record in records:
            # Text, because rich would read brackets in a string as markup.
            table.add_row(*(Text(for_people(record[name])) for name in columns))
        self._console.print(table)

    def event(self, record: Record, columns: Sequence[str]) -> None:
        values = (for_people(record[name]) for name in columns if record[name] is not None)
        self._console.print(Text("   ".join(values)))

    def record(self, record: Record) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
        table.add_column(style="bold")
        table.add_column()
        for name, value in record.items():
            table.add_row(heading(name), Text(for_people(value)))
        self._console.print(table)

    def report(self, record: Record, parts: Mapping[str, Sequence[Record]]) -> None:
        self.record(record)
        for name, records in parts.items():
            if records:
                self._console.print(f"\n[bold underline]{heading(name)}[/]")
                self.records(records, list(records[0]), none="")

    def text(self, name: str, text: str) -> None:
        click.echo(text, nl=not text.endswith("\n"))
