"""Geometry of lineage: boxes in columns, from what was read on the left to what was made on the right. Pure.

    images v12 ──┐
                 ├──▶ transaction ──▶ features v5
    labels v9 ───┘

Lengths are units of the drawing's `viewBox`; the browser scales it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from deltars.catalog import LineageEdge, TransactionSummary

BOX, HEIGHT = 200, 40
GAP, STEP = 64, 10
"""Between two columns, and between two boxes of one."""
MOST_BOXES = 12
"""Boxes of one column. What is left out is counted in one more."""


@dataclass(frozen=True, slots=True)
class Node:
    key: str
    label: str
    note: str = ""
    table: str | None = None
    """Table whose page it links to."""


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    label: str
    note: str
    table: str | None
    is_middle: bool


@dataclass(frozen=True, slots=True)
class Graph:
    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[str, ...]
    """Paths of SVG."""
    box_width: int = BOX
    box_height: int = HEIGHT


def layered(columns: Sequence[Sequence[Node]], edges: Collection[tuple[str, str]], middle: str) -> Graph | None:
    """Return the drawing of nodes in columns; None if there is no edge between them."""
    shown = [_cut(column) for column in columns if column]
    tallest = max((len(column) for column in shown), default=0)
    height = max(1, tallest) * (HEIGHT + STEP) - STEP + 2
    places: dict[str, tuple[float, float]] = {}
    boxes = []
    for number, column in enumerate(shown):
        top = (height - (len(column) * (HEIGHT + STEP) - STEP)) / 2
        for place, node in enumerate(column):
            x, y = number * (BOX + GAP) + 1, round(top + place * (HEIGHT + STEP), 1)
            places[node.key] = x, y
            boxes.append(Box(x, y, node.label, node.note, node.table, node.key == middle))
    known = [(places[one], places[other]) for one, other in edges if one in places and other in places]
    # Arrows to the left, of tables that are made from each other, would cross the boxes.
    arrows = [_arrow(begin, end) for begin, end in known if end[0] > begin[0]]
    if not arrows:
        return None
    return Graph(len(shown) * (BOX + GAP) - GAP + 2, height, tuple(boxes), tuple(arrows))


def around(table: str, version: int, sources: Sequence[LineageEdge], dependents: Sequence[LineageEdge]) -> Graph | None:
    """Return the tables that a table was made from on its left, the farthest first, and on its right those made of it.

    A table at several distances is drawn once, at the farthest, so that arrows go to the right. One on both sides is
    drawn on the left.
    """
    placed: dict[str, tuple[int, Node]] = {}
    for edge in sources:
        placed[edge.source] = -edge.depth, _node(edge.source, f"read at v{edge.source_version}", edge)
    for edge in dependents:
        if placed.get(edge.target, (1,))[0] > 0:
            placed[edge.target] = edge.depth, _node(edge.target, f"made v{edge.target_version}", edge)
    placed[table] = 0, Node(table, table, f"version {version}", table)
    columns: dict[int, list[Node]] = {}
    for column, node in placed.values():
        columns.setdefault(column, []).append(node)
    edges = {(edge.source, edge.target): None for edge in (*sources, *dependents)}
    return layered([columns[column] for column in sorted(columns)], list(edges), table)


def of_run(run: TransactionSummary) -> Graph | None:
    """Return which versions were read to make which."""
    read = [Node(f"read {one.table}", one.table, f"v{one.version}, {one.kind.value}", one.table) for one in run.read]
    made = [Node(f"made {name}", name, f"v{version}", name) for name, version in run.versions.items()]
    middle = Node("run", run.committer or "transaction", " ".join(run.operations))
    edges = [*((node.key, middle.key) for node in read), *((middle.key, node.key) for node in made)]
    return layered([read, [middle], made], edges, middle.key)


def _node(table: str, what: str, edge: LineageEdge) -> Node:
    commits = f"{edge.num_commits:,} commit{'' if edge.num_commits == 1 else 's'}"
    return Node(table, table, f"{what}, {commits}", table)


def _cut(nodes: Sequence[Node]) -> list[Node]:
    if len(nodes) <= MOST_BOXES:
        return list(nodes)
    return [*nodes[: MOST_BOXES - 1], Node("", f"and {len(nodes) - MOST_BOXES + 1:,} more")]


def _arrow(begin: tuple[float, float], end: tuple[float, float]) -> str:
    x1, x2, y1, y2 = begin[0] + BOX, end[0], begin[1] + HEIGHT / 2, end[1] + HEIGHT / 2
    return f"M{x1} {y1}C{x1 + GAP / 2} {y1} {x2 - GAP / 2} {y2} {x2} {y2}"
