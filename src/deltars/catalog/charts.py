"""Small charts: a line over versions, and bars. Pure. Pages draw them by templates, notebooks by `line_html`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, MARGIN = 360, 90, 4


@dataclass(frozen=True, slots=True)
class Line:
    """A figure that changes from version to version."""

    title: str
    points: str
    """Points of an SVG polyline."""
    first: int
    last: int
    least: int
    most: int
    now: int
    """Figure of the last version."""
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    count: int
    width: float
    """Share of the widest bar, from 0 to 100."""


def size_text(size_bytes: float) -> str:
    """Return a size as people write it, such as 1.5 MiB."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size_bytes /= 1024
        if size_bytes < 1024:
            return f"{size_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} TiB"


def line(title: str, values: Sequence[tuple[int, int]]) -> Line | None:
    """Return the line through (version, figure); None without a figure."""
    if not values:
        return None
    figures = [figure for _, figure in values]
    least, most = min(figures), max(figures)
    first, last = values[0][0], values[-1][0]
    span, height = max(last - first, 1), max(most - min(least, 0), 1)

    def point(version: int, figure: int) -> str:
        x = MARGIN + (version - first) / span * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - (figure - min(least, 0)) / height * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    points = [point(*value) for value in values]
    # A single figure is drawn as a level line.
    return Line(
        title,
        " ".join(points if len(points) > 1 else [points[0], point(last + 1, figures[-1])]),
        first,
        last,
        least,
        most,
        figures[-1],
    )


def line_html(line: Line) -> str:
    """Return a line as a figure for notebooks, which have no stylesheet: it has the colour of the text around it."""
    most = size_text(line.most) if line.title == "bytes" else f"{line.most:,}"
    label = f"{line.title} from version {line.first} to {line.last}"
    return (
        '<figure style="display:inline-block;margin:0 1em 0 0">'
        f"<figcaption>{escape(line.title)}: {most} at most</figcaption>"
        f'<svg width="{line.width}" height="{line.height}" viewBox="0 0 {line.width} {line.height}" role="img"'
        f' aria-label="{escape(label)}"><polyline points="{line.points}" fill="none" stroke="currentColor"'
        ' stroke-width="1.5"/></svg>'
        f"<br><small>version {line.first} to {line.last}</small></figure>"
    )


def bars(counts: Sequence[tuple[str, int]]) -> list[Bar]:
    most = max((count for _, count in counts), default=0) or 1
    return [Bar(label, count, round(100 * count / most, 1)) for label, count in counts]
