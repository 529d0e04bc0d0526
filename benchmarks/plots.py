"""The plots of docs/performance.md, from the same JSON as its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from benchmarks.figures import OURS, RATE, Figure, Target, is_met, measured
from benchmarks.report import PLOTS
from benchmarks.results import Results

MET, MISSED, PEER = "#2a7f62", "#c0392b", "#9aa5b1"
AXES = ("versions", "files", "tables")


def draw(results: Results, directory: Path) -> list[str]:
    """Write PNG files; their names without the ending come back, of those that there are figures for."""
    directory.mkdir(parents=True, exist_ok=True)
    names = []
    for name, make in zip(PLOTS, (_targets, _commits, _growth), strict=True):
        figure = make(results)
        if figure is None:
            (directory / f"{name}.png").unlink(missing_ok=True)
            continue
        figure.tight_layout()
        figure.savefig(directory / f"{name}.png", dpi=90)
        plt.close(figure)
        names.append(name)
    return names


def _targets(results: Results) -> Any:
    """How far every target is: 1 is just met, 2 is twice as good."""
    bars = [
        (f"{lane.title}: {figure.what}"[:60], _distance(figure, target), is_met(figure, target))
        for lane in results.lanes.values()
        for figure in lane.figures
        for target in figure.targets
    ]
    known = [(name, min(max(far, 0.01), 100.0), met) for name, far, met in reversed(bars) if far is not None]
    if not known:
        return None
    figure, axes = plt.subplots(figsize=(10, 1 + 0.19 * len(known)))
    colors = [MET if met else MISSED for _, _, met in known]
    axes.barh(range(len(known)), [far - 1 for _, far, _ in known], left=1, color=colors)
    axes.set_yticks(range(len(known)), [name for name, _, _ in known], fontsize=6)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("measured, in multiples of the target (right of 1: met)")
    axes.margins(y=0.01)
    return figure


def _distance(figure: Figure, target: Target) -> float | None:
    value = measured(figure, target)
    if value is None:
        return None
    if target.kind in ("faster", "at_least"):
        return value / target.bound
    return target.bound / value if value else 100.0


def _commits(results: Results) -> Any:
    """Commits a second of every system, one panel for each race."""
    races = [
        (results.lanes[name].title, figure)
        for name in ("commits", "ten_rows")
        if name in results.lanes
        for figure in results.lanes[name].figures
        if figure.unit == RATE and len(figure.sides) > 1
    ]
    if not races:
        return None
    figure, panels = plt.subplots(1, len(races), figsize=(2.6 * len(races), 3.6), squeeze=False)
    for axes, (title, race) in zip(panels[0], races, strict=True):
        names = list(race.sides)
        colors = [MET if name.startswith(OURS) else PEER for name in names]
        axes.bar(range(len(names)), [side.value for side in race.sides.values()], color=colors)
        axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
        axes.set_yscale("log")
        axes.set_ylim(bottom=1)
        axes.minorticks_off()
        axes.set_title(f"{title}\n{race.what}", fontsize=7)
        axes.tick_params(axis="y", labelsize=7)
    panels[0][0].set_ylabel("a second", fontsize=8)
    return figure


def _growth(results: Results) -> Any:
    """What each call costs at a size, in multiples of one small table."""
    points = [figure for lane in results.lanes.values() for figure in lane.figures if figure.series]
    if not points:
        return None
    figure, panels = plt.subplots(1, len(AXES), figsize=(11, 3.6), sharey=True)
    for axes, axis in zip(panels, AXES, strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}
        for point in points:
            at, _, call = point.series.partition(": ")
            if at == axis and point.at is not None:
                cost = measured(point, point.targets[0])
                assert cost is not None
                lines.setdefault(call, []).append((point.at, cost))
        for call, line in lines.items():
            axes.plot(*zip(*sorted(line), strict=True), marker="o", markersize=4, label=call)
        axes.axhline(1.2, color=MISSED, linewidth=0.8, linestyle="--")
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(axis)
        if lines:
            axes.legend(fontsize=7)
    panels[0].set_ylabel("× one small table")
    return figure
