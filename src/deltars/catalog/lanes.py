"""Geometry of the swimlanes: a lane for each table, time to the right, a line for each transaction. Pure.

    commits ──▶ Marks     few: each transaction is a line through the lanes of its tables, with a dot for each version
    density ──▶ Cells     many: each slice of time of a lane is a cell, darker for more commits
    lost    ──▶ Crosses   a cross in the lane of the table for which a transaction lost a race

Lengths are units of the drawing's `viewBox`; the browser scales it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from deltars.store.read.activity import CommitRow, ConflictRow, DensityRow

WIDTH = 1200
LABELS = 180
"""Width of the names at the left."""
TOP = 28
"""Height of the time axis."""
LANE = 30
LABEL = 30
"""Width of a version beside its dot."""
LEVELS = 5
"""Shades of a cell."""
BUCKETS = 240
"""Slices of time of a lane that has too many commits to draw."""
MOST_MARKS = 1500
"""Commits up to which each is drawn."""
MOST_LABELS = 60
"""Commits up to which each has its version beside it."""
TICKS = 6

_STEPS_S = (0.001, 0.01, 0.1, 1, 5, 15, 60, 300, 900, 3600, 10800, 43200, 86400, 604800, 2592000, 31536000)


@dataclass(frozen=True, slots=True)
class Lane:
    table_id: UUID
    name: str
    y: float


@dataclass(frozen=True, slots=True)
class Dot:
    table: str
    version: int
    y: float
    has_label: bool
    """Whether its version is written beside it, which is the case where there is room."""
    published_x: float | None
    """Where its publication is; None if it is not published."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One transaction."""

    txn_id: UUID
    x: float
    title: str
    dots: tuple[Dot, ...]

    @property
    def top(self) -> float:
        return min(dot.y for dot in self.dots)

    @property
    def bottom(self) -> float:
        return max(dot.y for dot in self.dots)


@dataclass(frozen=True, slots=True)
class Cell:
    x: float
    y: float
    width: float
    level: int
    title: str
    from_us: int
    to_us: int


@dataclass(frozen=True, slots=True)
class Cross:
    """A race that was lost."""

    x: float
    y: float
    title: str
    winning_txn_id: UUID | None


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Drawing:
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    cells: tuple[Cell, ...]
    crosses: tuple[Cross, ...]
    width: int
    height: float
    labels: int = LABELS


class Scale:
    """Time to the right."""

    def __init__(self, from_us: int, to_us: int) -> None:
        self.from_us = from_us
        self.to_us = max(to_us, from_us + 1)

    def x(self, us: int) -> float:
        share = (us - self.from_us) / (self.to_us - self.from_us)
        return round(LABELS + min(max(share, 0.0), 1.0) * (WIDTH - LABELS - 10), 1)


def draw(
    tables: Mapping[UUID, str],
    from_us: int,
    to_us: int,
    commits: Sequence[CommitRow] = (),
    density: Iterable[DensityRow] = (),
    lost: Iterable[ConflictRow] = (),
    *,
    buckets: int = BUCKETS,
    what: str = "commits",
) -> Drawing:
    """Return the drawing of a window: its commits, or how many there are in each bucket where they are too many."""
    scale = Scale(from_us, to_us)
    lanes = tuple(
        Lane(table_id, name, TOP + LANE * (place + 0.5)) for place, (table_id, name) in enumerate(tables.items())
    )
    return Drawing(
        lanes,
        tuple(_ticks(scale)),
        tuple(_marks(lanes, scale, commits)),
        tuple(_cells(lanes, scale, density, buckets, what)),
        tuple(_crosses(lanes, scale, lost)),
        WIDTH,
        TOP + LANE * max(len(lanes), 1) + 6,
    )


def _marks(lanes: Sequence[Lane], scale: Scale, commits: Iterable[CommitRow]) -> Iterable[Mark]:
    at = {lane.table_id: lane for lane in lanes}
    by_transaction: dict[UUID, list[CommitRow]] = {}
    for commit in commits:
        if commit.table_id in at:
            by_transaction.setdefault(commit.txn_id, []).append(commit)
    rooms = _Rooms(sum(map(len, by_transaction.values())))
    for txn_id, made in by_transaction.items():
        first = made[0]
        x = scale.x(first.commit_ts)
        dots = tuple(
            Dot(
                at[one.table_id].name,
                one.version,
                at[one.table_id].y,
                rooms.take(at[one.table_id].y, x),
                None if one.published_at is None else scale.x(one.published_at),
            )
            for one in made
        )
        names = ", ".join(f"{dot.table} v{dot.version}" for dot in dots)
        operations = ", ".join(sorted({one.operation for one in made}))
        who = f" by {first.committer}" if first.committer else ""
        yield Mark(txn_id, x, f"{moment(first.commit_ts)} {operations}{who}: {names}{_torn(made)}", dots)


class _Rooms:
    """Places for the versions beside their dots: none where another one is near, or where there are too many."""

    def __init__(self, num_commits: int) -> None:
        self._has_any = num_commits <= MOST_LABELS
        self._taken: dict[float, list[float]] = {}

    def take(self, y: float, x: float) -> bool:
        near = self._taken.setdefault(y, [])
        is_free = self._has_any and all(abs(x - other) > LABEL for other in near)
        if is_free:
            near.append(x)
        return is_free


def torn_us(commits: Iterable[CommitRow]) -> int | None:
    """Return how long readers of `_delta_log` saw some tables of a transaction changed and others not yet.

    None if one of them is not published.
    """
    times = [one.published_at for one in commits]
    known = [at for at in times if at is not None]
    return max(known) - min(known) if known and len(known) == len(times) else None


def _torn(commits: Sequence[CommitRow]) -> str:
    torn = torn_us(commits)
    return "" if torn is None or len(commits) == 1 else f"; published within {torn / 1e6:.3g} s of each other"


def _cells(
    lanes: Sequence[Lane], scale: Scale, density: Iterable[DensityRow], buckets: int, what: str
) -> Iterable[Cell]:
    at = {lane.table_id: lane for lane in lanes}
    rows = [row for row in density if row.table_id in at]
    most = max((row.num_commits for row in rows), default=1)
    width_us = max(1, -(-(scale.to_us - scale.from_us) // buckets))
    for row in rows:
        begin = scale.from_us + row.bucket * width_us
        end = min(begin + width_us, scale.to_us)
        x = scale.x(begin)
        level = 1 + min(LEVELS - 1, int(LEVELS * math.log1p(row.num_commits) / math.log1p(most + 1)))
        title = f"{moment(begin)}: {row.num_commits} {what} of {at[row.table_id].name}"
        width = max(1.0, round(scale.x(end) - x, 1))
        yield Cell(x, at[row.table_id].y - LANE * 0.35, width, level, title, begin, end)


def _crosses(lanes: Sequence[Lane], scale: Scale, lost: Iterable[ConflictRow]) -> Iterable[Cross]:
    at = {lane.table_id: lane for lane in lanes}
    for one in lost:
        if one.table_id in at:
            who = f" by {one.committer}" if one.committer else ""
            to = "" if one.winning_version is None else f" to version {one.winning_version}"
            what = one.operation or "a transaction"
            title = f"{moment(one.recorded_at)} {what}{who} lost{to} of {at[one.table_id].name}: {one.rule}"
            yield Cross(scale.x(one.recorded_at), at[one.table_id].y, title, one.winning_txn_id)


def _ticks(scale: Scale) -> Iterable[Tick]:
    length_s = (scale.to_us - scale.from_us) / 1e6
    step_s = next((step for step in _STEPS_S if length_s / step <= TICKS), _STEPS_S[-1])
    step_us = max(1, int(step_s * 1e6))
    form = (
        "%Y-%m-%d"
        if step_s >= 86400
        else "%m-%d %H:%M"
        if length_s > 86400
        else "%H:%M"
        if step_s >= 60
        else "%H:%M:%S"
    )
    first = -(-scale.from_us // step_us)
    for place in range(first, scale.to_us // step_us + 1):
        us = place * step_us
        label = _time(us).strftime(form)
        yield Tick(scale.x(us), label if step_s >= 1 else f"{label}.{us // 1000 % 1000:03}")


def moment(us: int) -> str:
    return _time(us).strftime("%Y-%m-%d %H:%M:%S.") + f"{us // 1000 % 1000:03} UTC"


def _time(us: int) -> datetime:
    # An offset, because `fromtimestamp` rounds by floats.
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
