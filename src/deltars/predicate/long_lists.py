"""Long lists of plain literals, taken out of a text before it is parsed.

    id IN (1, 2, …, 100000)  ──▶  id IN (1)      and, by the place of that 1: ["2", …, "100000"]

A parser that makes an object of every token takes a hundred times longer over them than a regular expression. What is
found here in a place that is no list after all (in a string, say) is never asked for: then the whole text is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from deltars.predicate.literals import Literal, negated, number_literal

LONG = 100
"""Values from which on a list is taken out."""

Lists: TypeAlias = Mapping[int, Sequence[str]]
"""The texts of the values after the first, by the place of the first one's digits or quote."""

_VALUE = r"(?:-?[0-9]+(?:\.[0-9]+)?+(?![\w.])|'[^'\\]*+')"
_FOUND = re.compile(
    r"""'(?:[^'\\]|\\.)*+' | "(?:[^"\\]|\\.)*+" | `[^`]*+` | --[^\n]*+ | /\*.*?\*/ """
    rf"| (?<![\w.`])IN\s*\(\s*(?P<first>{_VALUE})(?P<rest>(?:\s*,\s*{_VALUE})++)(?=\s*\))",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_VALUES = re.compile(_VALUE)
_SHORT = 19
"""Digits that 64 bits always hold."""


class ListNeededError(Exception):
    """The text that a list was taken out of cannot do without it."""


def shortened(text: str) -> tuple[str, Lists]:
    """The text without the rest of its long lists, and these."""
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
    """A value of a list that was taken out."""
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
