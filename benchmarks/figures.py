"""What a lane returns: figures, each with what every system did in the same rounds, and the targets of ours.

    Figure ── what, unit
      ├── sides["deltars"], sides["DuckLake"], …   one value a round, latencies, processor time, memory, failures
      ├── missing["PyIceberg"]                     why a system has no side
      └── targets                                  met or missed: computed from the sides

Figures are kept as JSON, and everything that is published is made from them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

OURS = "deltars"
RATE = "a second"

Kind = Literal["faster", "cost", "at_least", "at_most", "p99", "p99_ms", "client_cpu_ms", "memory", "memory_mib"]


class Side(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one system did: a value for each round, in the unit of the figure, and what it took."""

    rounds: list[float]
    p50_ms: float | None = None
    p99_ms: float | None = None
    client_cpu_ms: float | None = None
    server_cpu_ms: float | None = None
    memory_mib: float | None = None
    failed: int = 0

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """A bound on a figure of ours, alone or beside that of a peer."""

    kind: Kind
    bound: float
    peer: str = ""


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    what: str
    unit: str
    """`a second`, of which more is better, or a unit of time, of which less is."""
    sides: dict[str, Side]
    missing: dict[str, str] = {}
    targets: list[Target] = []
    series: str = ""
    """The line of the plot that this figure is a point of, ..."""
    at: float | None = None
    """... and where on it."""

    @property
    def ours(self) -> Side:
        return self.sides[OURS]

    def ratios(self, peer: str) -> list[float]:
        """How many times as fast as the peer we were, round by round."""
        pairs = zip(self.ours.rounds, self.sides[peer].rounds, strict=True)
        # A peer of which every operation failed has a rate of 0.
        return [
            (mine / theirs if theirs else float("inf")) if self.unit == RATE else theirs / mine
            for mine, theirs in pairs
        ]


def measured(figure: Figure, target: Target) -> float | None:
    """The value that the target bounds; None where the peer is missing."""
    ours, theirs = figure.ours, figure.sides.get(target.peer)
    match target.kind:
        case "at_least" | "at_most":
            return ours.value
        case "p99_ms" | "client_cpu_ms" | "memory_mib":
            return getattr(ours, target.kind)  # type: ignore[no-any-return]
    if theirs is None:
        return None
    match target.kind:
        case "faster":
            return statistics.median(figure.ratios(target.peer))
        case "cost":
            return 1 / statistics.median(figure.ratios(target.peer))
        case "p99":
            return _share(ours.p99_ms, theirs.p99_ms)
        case "memory":
            return _share(ours.memory_mib, theirs.memory_mib)


def is_met(figure: Figure, target: Target) -> bool | None:
    """None where it cannot be said. A failed operation of ours misses every target."""
    value = measured(figure, target)
    if value is None:
        return None
    if figure.ours.failed:
        return False
    return value >= target.bound if target.kind in ("faster", "at_least") else value <= target.bound


def _share(ours: float | None, theirs: float | None) -> float | None:
    # A small run may need no memory that can be measured.
    return None if ours is None or not theirs else ours / theirs


# -- making them -------------------------------------------------------------------------------------------------------


def compared(
    what: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    peer: str,
    faster: float | None = None,
    unit: str = "s",
) -> Figure:
    """Two sides that took turns."""
    return Figure(
        what,
        unit,
        {OURS: Side(list(ours)), peer: Side(list(theirs))},
        targets=[] if faster is None else [Target("faster", faster, peer)],
    )


def timed(what: str, seconds: Sequence[float], *targets: Target, series: str = "", at: float | None = None) -> Figure:
    """Ours alone: milliseconds of calls that were repeated."""
    took_ms = [second * 1000 for second in seconds]
    side = Side([statistics.median(took_ms)], *percentiles_ms(seconds))
    return Figure(what, "ms", {OURS: side}, targets=list(targets), series=series, at=at)


def percentiles_ms(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile, or the slowest where there are fewer than a hundred."""
    ordered = sorted(second * 1000 for second in seconds)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
