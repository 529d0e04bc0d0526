"""Names of tables as Spark's verbs take them: `t`, `default.t`, `` `my table` ``, `` delta.`/lake/t` ``."""

from __future__ import annotations

import re
from collections.abc import Sequence

PART = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`.\s][^`.]*?))\s*(\.|$)")

NAME = re.compile(r"(?:`(?:[^`]|``)*`|\w+)(?:\s*\.\s*(?:`(?:[^`]|``)*`|\w+))*")


def parts_of(name: str) -> list[str]:
    """Return the parts of a name, without backquotes. A text that is no name is one part."""
    parts: list[str] = []
    at = 0
    while True:
        match = PART.match(name, at)
        if match is None:
            return [name]
        parts.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end()
        if match[3] != ".":
            return parts if at == len(name) else [name]


def quoted(parts: Sequence[str]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
