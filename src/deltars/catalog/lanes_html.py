"""The newest transactions as lanes, for notebooks: the same drawing as the console's, without links.

A notebook has no stylesheet, so the drawing has the colour of the text around it.
"""

from __future__ import annotations

from html import escape

from deltars.catalog.activity import EVER_US
from deltars.catalog.lanes import Drawing, Scale, draw
from deltars.errors import DeltarsError
from deltars.session import CatalogSession
from deltars.store.read.activity import Activity, Window

MOST_COMMITS = 60
SEARCHED_TABLES = 40
"""Tables, by name, whose commits are looked up."""
MOST_LANES = 12


def recent_lanes(session: CatalogSession, until_us: int | None = None) -> str:
    """Return the newest transactions as HTML, up to a moment, which is marked; empty if there are none."""
    try:
        return _recent(session, until_us)
    except DeltarsError:
        # The database is away: what is shown besides says so.
        return ""


def _recent(session: CatalogSession, until_us: int | None) -> str:
    names = {record.table_id: record.name for record in session.registry.tables()[:SEARCHED_TABLES]}
    if not names:
        return ""
    activity = Activity(session.database)
    end = EVER_US if until_us is None else until_us + 1
    commits = activity.commits(Window(0, end, tuple(names)), MOST_COMMITS)
    if not commits:
        return ""
    with_commits = {one.table_id for one in commits}
    shown = dict([item for item in names.items() if item[0] in with_commits][:MOST_LANES])
    first, last = commits[-1].commit_ts, max(commits[0].commit_ts, until_us or 0)
    margin = max((last - first) // 30, 1_000)
    window = Window(first - margin, last + margin, tuple(shown))
    lost = [one for one in activity.lost(window, MOST_COMMITS) if one.recorded_at < end]
    drawing = draw(shown, window.from_us, window.to_us, commits, lost=lost)
    mark = None if until_us is None else Scale(window.from_us, window.to_us).x(until_us)
    return drawing_html(drawing, mark)


def drawing_html(drawing: Drawing, marked_x: float | None = None) -> str:
    """Return a drawing as SVG. `marked_x` is where a dashed line goes through all lanes."""
    bottom = drawing.height - 6
    parts = [
        f'<svg viewBox="0 0 {drawing.width} {drawing.height}" width="100%" role="img"'
        ' aria-label="Transactions by table and time" font-family="sans-serif" font-size="12" fill="currentColor"'
        ' stroke="currentColor">'
    ]
    for tick in drawing.ticks:
        parts.append(_text(tick.x, 14, tick.label, anchor="middle"))
        parts.append(_line(tick.x, 22, tick.x, bottom, 0.15))
    for lane in drawing.lanes:
        parts.append(_text(4, lane.y + 4, lane.name))
        parts.append(_line(drawing.labels, lane.y, drawing.width - 10, lane.y, 0.3))
    for mark in drawing.marks:
        parts.append(f"<g><title>{escape(mark.title)}</title>")
        if len(mark.dots) > 1:
            parts.append(_line(mark.x, mark.top, mark.x, mark.bottom, 0.8, width=2.5))
        for dot in mark.dots:
            parts.append(f'<circle cx="{mark.x}" cy="{dot.y}" r="5" stroke="none"/>')
            if dot.has_label:
                parts.append(_text(mark.x + 6, dot.y - 5, f"v{dot.version}", size=10))
        parts.append("</g>")
    for cross in drawing.crosses:
        parts.append(
            f'<g><title>{escape(cross.title)}</title><path d="M{cross.x - 4} {cross.y - 4}l8 8m0 -8l-8 8"'
            ' stroke="#c2302c" stroke-width="2.2" fill="none"/></g>'
        )
    if marked_x is not None:
        parts.append(_line(marked_x, 20, marked_x, bottom, 1.0, width=1.5, dashes=' stroke-dasharray="5 4"'))
    return "".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    cut = text if len(text) <= 26 else f"{text[:25]}…"
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" stroke="none">{escape(cut)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float, *, width: float = 1, dashes: str = "") -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke-opacity="{opacity}" stroke-width="{width}"{dashes}/>'
