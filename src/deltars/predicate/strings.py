"""String literals and LIKE patterns, as Spark reads them.

'it\\'s'  "it's"  'it''s'      \\n \\t \\r \\b \\0 \\Z  \\\\u00e9  \\\\U0001F600  \\\\101 (octal)
\\% and \\_                    are kept, because LIKE interprets them
r'C:\\new'                    no escapes at all
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<octal>[01][0-7]{2})|(?P<one>.))", re.DOTALL
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def unquoted(raw: str) -> str:
    """Return the value of a string literal."""
    if raw[0] in "rR":
        return raw[2:-1]
    return _ESCAPE.sub(_meaning, raw[1:-1])


def _meaning(found: re.Match[str]) -> str:
    if found["one"] is not None:
        return _ESCAPES.get(found["one"], found["one"])
    code = int(found["octal"], 8) if found["octal"] else int(found["short"] or found["long"], 16)
    # Half of a surrogate pair is kept, because the other half may follow.
    return chr(code) if code <= 0x10FFFF else found[0]


def like_prefix(pattern: str, escape: str) -> tuple[str, str] | None:
    """Return the literal prefix of a LIKE pattern and the rest, or None if the pattern is invalid."""
    if len(escape) != 1:
        return None
    prefix, place = "", 0
    while place < len(pattern) and pattern[place] not in "%_":
        if pattern[place] == escape:
            place += 1
            if place == len(pattern) or pattern[place] not in ("%", "_", escape):
                return None
        prefix += pattern[place]
        place += 1
    rest = pattern[place:]
    return prefix, "%" if rest and not rest.strip("%") else rest


def with_backslashes(pattern: str, escape: str) -> str | None:
    """Return the pattern with a backslash as its escape character, or None if it has an invalid escape."""
    found, place = "", 0
    while place < len(pattern):
        is_escaped = pattern[place] == escape
        place += is_escaped
        if is_escaped and (place == len(pattern) or pattern[place] not in ("%", "_", escape)):
            return None
        is_plain = is_escaped or pattern[place] not in "%_"
        found += "\\" + pattern[place] if is_plain and pattern[place] in "%_\\" else pattern[place]
        place += 1
    return found
