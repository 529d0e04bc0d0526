"""Long IN lists of literals, removed from a text before it is parsed.

    id IN (1, 2, …, 100000)  ──▶  id IN (1)      and, by the position of that 1: ["2", …, "100000"]

sqlglot creates an object for every token, and takes a hundred times longer for such a list than a regular expression.
A match that is not a list after all (for example in a string) is not used by the parser; then the whole text is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from deltars.predicate.literals import Literal, negated, number_literal

LONG = 100
"""Number of values from which a list is removed."""

Lists: TypeAlias = Mapping[int, Sequence[str]]
"""The texts of the values after the first one, by the position of the first one's digits or quote."""

_VALUE = r"(?:-?[0-9]+(?:\.[0-9]+)?+(?![\w.])|'[^'\\]*+')"
_FOUND = re.compile(
    r"""'(?:[^'\\]|\\.)*+' | "(?:[^"\\]|\\.)*+" | `[^`]*+` | --[^\n]*+ | /\*.*?\*/ """
    rf"| (?<![\w.`])IN\s*\(\s*(?P<first>{_VALUE})(?P<rest>(?:\s*,\s*{_VALUE})++)(?=\s*\))",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_VALUES = re.compile(_VALUE)
_SHORT = 19
"""Texts shorter than this always fit 64 bits."""


class ListNeededError(Exception):
    """The shortened text is not enough; the whole text must be parsed."""


def shortened(text: str) -> tuple[str, Lists]:
    """Return the text with only the first value of each long list, and the removed values."""
    if text.count(",") < LONG:
        return text, {}
    pieces: list[str] = []
    lists: dict[int, Sequence[str]] = {}
    end = dropped = 0
    for found in _FOUND.finditer(text):
        rest = found["rest"]
        if rest is None or rest.count(",") < LONG:
            continue
        lists[found.start("first") + found["first"].startswith("-") - dropped] = _VALUES.findall(rest)
        pieces.append(text[end : found.start("rest")])
        end = found.end("rest")
        dropped += len(rest)
    return "".join([*pieces, text[end:]]), lists


def literal_of(text: str) -> Literal:
    """Return the literal of a removed value."""
    if text[0] == "'":
        return Literal("string", text[1:-1])
    if len(text) < _SHORT and "." not in text:
        whole = int(text)
        return Literal("integer" if -(1 << 31) < whole < 1 << 31 else "long", whole)
    if text[0] != "-":
        return number_literal(text)
    number = negated(number_literal(text[1:]))
    assert number is not None
    return number
