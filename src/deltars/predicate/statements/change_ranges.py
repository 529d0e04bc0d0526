"""Changed rows as a table of a query: `table_changes('features', 3, 7)`, as Delta and Databricks write it."""

from __future__ import annotations

from dataclasses import dataclass

from deltars.predicate.source import Source
from deltars.predicate.statements.tokens import Cursor, tokens_of
from deltars.predicate.statements.tree import Moment

_CALLS = "TABLE_CHANGES|TABLE_CHANGES_BY_PATH"
_HINT = "Write table_changes('features', 3, 7): a table, and its first and last version or time."


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The versions whose changes a query reads, and where the text says so."""

    table: str
    first: Moment
    last: Moment | None
    start: int
    end: int


def change_ranges_in(source: Source) -> list[ChangeRange]:
    """Return every call of `table_changes` in a text."""
    cursor = Cursor(source, tokens_of(source))
    found: list[ChangeRange] = []
    while not cursor.is_done:
        if cursor.is_at(_CALLS, "("):
            found.append(_change_range(cursor))
        else:
            cursor.advance()
    return found


def _change_range(cursor: Cursor) -> ChangeRange:
    start, by_path = cursor.position, cursor.advance().text.upper().endswith("_BY_PATH")
    cursor.expect("(", hint=_HINT)
    if cursor.next.kind != "string":
        raise cursor.missing("a table in quotes", hint=_HINT)
    named = cursor.string(hint=_HINT)
    cursor.expect(",", hint=_HINT)
    first = _moment(cursor)
    last = _moment(cursor) if cursor.take(",") else None
    cursor.expect(")", hint=_HINT)
    table = f"delta.{named}" if by_path else _unquoted(named)
    return ChangeRange(table, first, last, start, cursor.behind)


def _moment(cursor: Cursor) -> Moment:
    value = cursor.until((",",), what="a version or a time", hint=_HINT)
    return Moment("version" if value.text.strip().isdecimal() else "timestamp", value)


def _unquoted(name: str) -> str:
    """Return delta./lake/t of delta.`/lake/t`."""
    parts = Cursor(source := Source(name, "statement"), tokens_of(source)).parts("the name of a table", hint=_HINT)
    return ".".join(parts)


__all__ = ["ChangeRange", "change_ranges_in"]
