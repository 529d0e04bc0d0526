"""Moments in a text: `VERSION AS OF 3`, `TIMESTAMP AS OF '2026-01-31'`, and Delta's short form `t@v3`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from deltars.predicate.source import Source
from deltars.predicate.statements.tokens import Cursor, tokens_of
from deltars.predicate.statements.tree import Fragment, Moment

_KINDS: dict[str, Literal["version", "timestamp"]] = {
    "VERSION": "version", "SYSTEM_VERSION": "version", "TIMESTAMP": "timestamp", "SYSTEM_TIME": "timestamp",
}  # fmt: skip
_WORDS = "|".join(_KINDS)
_HINT = "Write VERSION AS OF 3, or TIMESTAMP AS OF '2026-01-31 12:00:00'."
_MARKS = ("word", "quoted")


@dataclass(frozen=True, slots=True)
class FoundMoment:
    """A moment in a text, with the place of all its words."""

    moment: Moment
    start: int
    end: int


def moments_in(source: Source) -> list[FoundMoment]:
    """Return every moment that follows a name in the text."""
    cursor = Cursor(source, tokens_of(source))
    found: list[FoundMoment] = []
    while not cursor.is_done:
        is_behind_name = cursor.advance().kind in _MARKS
        start = cursor.position
        if is_behind_name and (moment := moment_at(cursor)) is not None:
            found.append(FoundMoment(moment, start, cursor.behind))
    return found


def moment_at(cursor: Cursor) -> Moment | None:
    """Read a moment, if one is next."""
    place = cursor.place
    if cursor.take("@"):
        token = cursor.next
        if token.kind == "word" and re.fullmatch(r"[vV]\d+", token.text):
            cursor.advance()
            return Moment("version", Fragment(token.text[1:], token.start + 1))
        if token.kind == "number" and re.fullmatch(r"\d{14}(\d{3})?", token.text):
            cursor.advance()
            return Moment("timestamp", Fragment(token.text, token.start))
        cursor.place = place
        return None
    cursor.take("FOR")
    kind = _KINDS.get(cursor.next.text.upper())
    if kind is None or not cursor.take(_WORDS, "AS", "OF"):
        cursor.place = place
        return None
    value = _value(cursor)
    if value is None:
        cursor.place = place  # `SELECT version AS of FROM t` has an alias.
        return None
    return Moment(kind, value)


def _value(cursor: Cursor) -> Fragment | None:
    start = cursor.position
    if not _primary(cursor):
        return None
    while cursor.is_at("+|-", "INTERVAL"):
        cursor.advance()
        cursor.advance()
        while cursor.next.kind in ("number", "string"):
            cursor.advance()
        cursor.identifier("a unit of time", hint="Write INTERVAL 1 DAY.")
    return Fragment(cursor.source.text[start : cursor.behind], start)


def _primary(cursor: Cursor) -> bool:
    token = cursor.next
    if token.kind in ("string", "number") or cursor.is_at("?"):
        cursor.advance()
        return True
    if cursor.is_at(":") and cursor.ahead(1).kind == "word":
        cursor.advance()
        cursor.advance()
        return True
    if cursor.is_at("("):
        cursor.parenthesized(hint=_HINT)
        return True
    if token.kind == "word" and cursor.ahead(1).kind == "string":
        cursor.advance()
        cursor.advance()
        return True
    if token.kind == "word" and cursor.ahead(1).matches("("):
        cursor.advance()
        if cursor.ahead(1).matches(")"):
            cursor.take("(", ")")
        else:
            cursor.parenthesized(hint=_HINT)
        return True
    return False
