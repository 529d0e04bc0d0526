"""docs/performance.md, made from the JSON beside it: no figure on the page is typed by hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.figures import OURS, RATE, Figure, Side, Target, is_met, measured
from benchmarks.lane import Lane
from benchmarks.results import LaneResult, Results

JSON, PAGE, PICTURES = "performance.json", "performance.md", "pictures"
PLOTS = ("performance-targets", "performance-commits", "performance-growth")

_HEAD = """# Performance

`make bench` wrote every figure on this page, on the machine and day named with it. `make bench-quick` gives the main
ratios at small sizes. All systems run on one machine, in turns, with default durability. Machines differ, and shared
machines are noisy: read the ratios, which are taken round by round, and the processor time, which a noisy neighbour
hardly moves.

- *× as fast* is the median over the rounds, with the spread.
- Operations that failed are not counted as done, neither ours nor a peer's.
- CPU is processor time for each operation: of the client's process, and of all processes of the PostgreSQL server.
- A peer that is missing is named, with the reason.
- The size is `full`, or `quick` where a lane was last run small: a target is meant for the full size.
- [Earlier figures](performance-earlier.md) are those of the programs that these lanes replaced, at full size.
"""


def page(results: Results, lanes: Iterable[Lane], pictures: Sequence[str] = ()) -> str:
    """The whole page as text."""
    known = {lane.name: lane for lane in lanes}
    done = {name: results.lanes[name] for name in known if name in results.lanes}
    if not done:
        return _HEAD
    newest = max(done.values(), key=lambda result: result.date)
    parts = [_HEAD, _where(newest), _targets(done)]
    parts += [f"![{name.replace('-', ' ')}]({PICTURES}/{name}.png)" for name in pictures]
    parts += [_section(known[name], result, newest) for name, result in done.items()]
    if left := [lane.title for name, lane in known.items() if name not in done]:
        parts.append("## Not measured yet\n\n" + "\n".join(f"- {title}" for title in left))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _where(newest: LaneResult) -> str:
    named = ", ".join(f"{name} {number}" for name, number in newest.versions.items())
    return f"Machine: {newest.machine}. Versions: {named}. [All figures as JSON]({JSON})."


# -- targets -----------------------------------------------------------------------------------------------------------


def judged(figures: Iterable[Figure]) -> Iterator[tuple[Figure, Target, bool | None]]:
    for figure in figures:
        for target in figure.targets:
            yield figure, target, is_met(figure, target)


def _targets(done: dict[str, LaneResult]) -> str:
    rows: list[Sequence[object]] = []
    count = {True: 0, False: 0, None: 0}
    for result in done.values():
        for figure, target, met in judged(result.figures):
            count[met] += 1
            value = measured(figure, target)
            what = f"{result.title}: {figure.what}"
            found = "" if value is None else number(value)
            verdict = {True: "met", False: "**missed**", None: "–"}[met]
            rows.append([what, result.size, target_text(figure, target), found, verdict])
    total = f"{count[True]} of {len(rows)} targets are met, {count[False]} are missed"
    total += f", {count[None]} cannot be computed because a peer is missing." if count[None] else "."
    return f"## Targets\n\n{total}\n\n{table(['what', 'size', 'target', 'measured', ''], rows)}"


def target_text(figure: Figure, target: Target) -> str:
    bound = f"{target.bound:,g}"
    match target.kind:
        case "faster":
            return f"≥ {bound} × as fast as {target.peer}"
        case "cost":
            return f"≤ {bound} × {target.peer}"
        case "at_least":
            return f"≥ {bound} {figure.unit}"
        case "at_most":
            return f"≤ {bound} {figure.unit}"
        case "p99":
            return f"p99 ≤ {bound} × {target.peer}"
        case "p99_ms":
            return f"p99 ≤ {bound} ms"
        case "client_cpu_ms":
            return f"client CPU ≤ {bound} ms"
        case "memory":
            return f"memory ≤ {bound} × {target.peer}"
        case "memory_mib":
            return f"memory ≤ {bound} MiB"


# -- one lane ----------------------------------------------------------------------------------------------------------


def _section(lane: Lane, result: LaneResult, newest: LaneResult) -> str:
    run = [f"`{lane.name}`, size {result.size}", result.date, f"load {result.load:.0f}"]
    if result.machine != newest.machine:
        run.append(result.machine)
    run += [
        f"{name} {number}" for name, number in result.versions.items() if newest.versions.get(name, number) != number
    ]
    parts = [f"## {lane.title}", ", ".join(run) + ".", result.note, figures_table(result.figures)]
    if lane.missed and any(met is False for _, _, met in judged(result.figures)):
        parts.append(f"What stands between: {lane.missed}")
    return "\n\n".join(parts)


_COLUMNS = (
    "what",
    "system",
    "median",
    "deltars is × as fast",
    "p50 / p99 ms",
    "CPU ms: client / server",
    "memory, MiB",
    "failed",
)


def figures_table(figures: Sequence[Figure]) -> str:
    """A row for every system. Columns that have nothing to say are left out."""
    rows: list[list[str]] = []
    for figure in figures:
        for name, side in figure.sides.items():
            rows.append([figure.what if name == OURS else "", name, *_cells(figure, name, side)])
        rows += [["", name, f"missing: {reason}", *[""] * 5] for name, reason in figure.missing.items()]
    kept = [at for at in range(len(_COLUMNS)) if any(row[at] for row in rows)]
    return table([_COLUMNS[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _cells(figure: Figure, name: str, side: Side) -> list[str]:
    ratio = ""
    if name != OURS:
        ratios = figure.ratios(name)
        ratio = number(statistics.median(ratios))
        ratio += f" ({number(min(ratios))} to {number(max(ratios))})" if len(ratios) > 1 else ""
    cpu = [value for value in (side.client_cpu_ms, side.server_cpu_ms) if value is not None]
    return [
        f"{number(side.value)} {figure.unit}" if side.value or figure.unit != RATE else "none succeeded",
        ratio,
        "" if side.p50_ms is None or side.p99_ms is None else f"{number(side.p50_ms)} / {number(side.p99_ms)}",
        " / ".join(number(value) for value in cpu),
        "" if side.memory_mib is None else number(side.memory_mib),
        f"{side.failed:,}" if side.failed else "",
    ]


# -- text --------------------------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def number(value: float) -> str:
    """Three digits, as far as they mean something."""
    if value == float("inf"):
        return "∞"
    if value == round(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3}f}"


def write(directory: Path, results: Results, lanes: Iterable[Lane]) -> None:
    """Write the page and its plots."""
    from benchmarks.plots import draw

    pictures = draw(results, directory / PICTURES)
    (directory / PAGE).write_text(page(results, lanes, pictures))
