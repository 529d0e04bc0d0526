"""HTML tables and bars for notebooks. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MOST_ROWS = 100
MOST_CHARACTERS = 100


def html_table(caption: str, heads: Sequence[str], rows: Sequence[Iterable[Any]]) -> str:
    """Return a table with its caption; long values and long tables are cut."""
    shown = [*rows[:MOST_ROWS]]
    more = f", the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(as_text(value))}</td>' for value in row)}</tr>" for row in shown)
    return (
        f"<table><caption>{escape(caption + more)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def html_bars(caption: str, bars: Sequence[tuple[str, float, str]]) -> str:
    """Return bars, each with its label, its figure, and its figure as text. They have the colour of the text around."""
    most = max((figure for _, figure, _ in bars), default=0) or 1
    rows = "".join(
        f'<tr><td>{escape(label)}</td><td><svg width="160" height="10" role="img" aria-label="{escape(text)}">'
        f'<rect width="{max(1.0, 160 * figure / most):.1f}" height="10" fill="currentColor" fill-opacity="0.6"/></svg>'
        f'</td><td style="text-align:right">{escape(text)}</td></tr>'
        for label, figure, text in bars
    )
    return f"<table><caption>{escape(caption)}</caption><tbody>{rows}</tbody></table>"


def as_text(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
