"""String literals as Spark reads them.

'it\\'s'  "it's"  'it''s'      \\n \\t \\r \\b \\0 \\Z  \\\\u00e9  \\\\U0001F600  \\\\101 (octal)
\\% and \\_                    stay as they are, for LIKE to read
r'C:\\new'                    no escapes at all
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<octal>[01][0-7]{2})|(?P<one>.))", re.DOTALL
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def unquoted(raw: str) -> str:
    """The string that a literal in quotes stands for."""
    if raw[0] in "rR":
        return raw[2:-1]
    return _ESCAPE.sub(_meaning, raw[1:-1])


def _meaning(found: re.Match[str]) -> str:
    if found["one"] is not None:
        return _ESCAPES.get(found["one"], found["one"])
    code = int(found["octal"], 8) if found["octal"] else int(found["short"] or found["long"], 16)
    # Half of a surrogate pair is kept: only with the other half is it a character.
    return chr(code) if code <= 0x10FFFF else found[0]
