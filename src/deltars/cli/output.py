"""Output formats. Commands pass records and do not know which format prints them.

Output ─┬─ Screen   a terminal: headings and aligned columns, the important columns only (`screen`)
        ├─ Lines    a pipe: the same columns, one record per line, tab-separated, no heading, nothing truncated
        ├─ Csv      rows of a table in a pipe: a header, then a line for each row
        └─ Json     --json: every field

Lines, Csv and Json write record by record, so that many records need no more memory than one.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from textwrap import indent
from typing import TYPE_CHECKING, Protocol, TypeAlias

import click

from deltars import cli

if TYPE_CHECKING:
    from pyarrow import RecordBatch

Record: TypeAlias = Mapping[str, object]

_SPECIAL = re.compile(r'[",\r\n]|^\s|\s$')
_ESCAPED = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Output(Protocol):
    is_for_people: bool
    """Whether a person reads the output: then very many rows are cut off. Programs get all rows."""

    def records(self, records: Iterable[Record], columns: Sequence[str], *, none: str) -> None:
        """Print a list of records. A terminal shows the text `none` if there are none."""

    def event(self, record: Record, columns: Sequence[str]) -> None:
        """Print one of many records, at once and in one line."""

    def record(self, record: Record) -> None:
        """Print one record, field by field."""

    def report(self, record: Record, parts: Mapping[str, Sequence[Record]]) -> None:
        """Print one record and its lists. In a pipe, each line of a list begins with the list's name."""

    def text(self, name: str, text: str) -> None:
        """Print text unchanged; `name` is its key in JSON."""


def output_for(*, as_json: bool) -> Output:
    if as_json:
        return Json()
    # A pipe does not wait for rich, which takes FORCE_COLOR for a terminal.
    return cli.Screen() if sys.stdout.isatty() or os.environ.get("FORCE_COLOR") else Lines()


def rows_output(output: Output, form: str | None) -> Output:
    """Return the output for rows of a table: in a pipe they are CSV with a header, as of psql --csv and duckdb -csv."""
    if isinstance(output, Json) and form not in (None, "json"):
        raise click.UsageError(f"Give --json or --format {form}, not both.")
    match form:
        case "csv":
            return Csv()
        case "json":
            return Json()
    if form == "table" or output.is_for_people:
        return cli.Screen(heading=str)  # a user's column has its own name
    return Csv() if isinstance(output, Lines) else output


def rows_of(batches: Iterable[RecordBatch]) -> Iterator[Record]:
    """Yield the rows of Arrow batches as records."""
    for batch in batches:
        yield from batch.to_pylist()


class Lines:
    is_for_people = False

    def records(self, records: Iterable[Record], columns: Sequence[str], *, none: str) -> None:
        _write("\t".join(_for_pipes(record[name]) for name in columns) + "\n" for record in records)

    def event(self, record: Record, columns: Sequence[str]) -> None:
        click.echo("\t".join(_for_pipes(record[name]) for name in columns))

    def record(self, record: Record) -> None:
        for name, value in record.items():
            click.echo(f"{name}\t{_for_pipes(value)}")

    def report(self, record: Record, parts: Mapping[str, Sequence[Record]]) -> None:
        self.record(record)
        for name, records in parts.items():
            for each in records:
                click.echo("\t".join((name, *map(_for_pipes, each.values()))))

    def text(self, name: str, text: str) -> None:
        click.echo(text, nl=not text.endswith("\n"))


class Csv(Lines):
    """CSV as in RFC 4180. Null is empty; an empty string is "", so that the two can be told apart."""

    def records(self, records: Iterable[Record], columns: Sequence[str], *, none: str) -> None:
        _write([",".join(map(_csv_text, columns)) + "\n"])
        _write(",".join(_csv(record[name]) for name in columns) + "\n" for record in records)


class Json:
    is_for_people = False

    def records(self, records: Iterable[Record], columns: Sequence[str], *, none: str) -> None:
        _write(_json_pieces(records))

    def event(self, record: Record, columns: Sequence[str]) -> None:
        click.echo(json.dumps(_finite(record), default=_for_programs, ensure_ascii=False))

    def record(self, record: Record) -> None:
        _print_json(record)

    def report(self, record: Record, parts: Mapping[str, Sequence[Record]]) -> None:
        _print_json({**record, **parts})

    def text(self, name: str, text: str) -> None:
        _print_json({name: text})


def _json_pieces(records: Iterable[Record]) -> Iterator[str]:
    before = "["
    for record in records:
        yield f"{before}\n{indent(_json(record), '  ')}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


def _write(pieces: Iterable[str]) -> None:
    """Write many pieces without the flush that `click.echo` does after each."""
    sys.stdout.writelines(pieces)
    sys.stdout.flush()


def _print_json(value: object) -> None:
    click.echo(_json(value))


def _json(value: object) -> str:
    return json.dumps(_finite(value), default=_for_programs, ensure_ascii=False, indent=2)


def _finite(value: object) -> object:
    """Return a value with NaN and infinities as text: JSON has no numbers for them."""
    match value:
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case Mapping():
            return {str(name): _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value


def _csv(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(_finite(value))
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping() | list() | tuple():
            return _csv_text(json.dumps(_finite(value), default=_for_programs, ensure_ascii=False))
    return _csv_text(str(value))


def _csv_text(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or _SPECIAL.search(text) else text


def heading(name: str) -> str:
    return name.replace("_", " ")


def for_people(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return "–" if value is None else _plain(value)


def _for_pipes(value: object) -> str:
    if value is None:
        return ""
    return (value.isoformat() if isinstance(value, datetime) else _plain(value)).translate(_ESCAPED)


def _plain(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(f"{name}={'' if each is None else each}" for name, each in value.items())
        case list() | tuple():
            return ", ".join(map(str, value))
    return str(value)


def _for_programs(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)
