"""A change feed on a plain dict: what a table must hold after all events, whatever order they arrived in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Event:
    id: int
    at: int
    name: str | None
    city: str | None
    gone: bool


def stream(draw: random.Random, size: int, *, keys: int = 4, values: int = 2) -> list[Event]:
    """Return events with few keys and few values, so that they repeat, and no two of one key at one time."""
    times = {(draw.randrange(keys), draw.randrange(4 * size)) for _ in range(size)}
    choices = [None, *(f"v{number}" for number in range(values))]
    return [
        Event(key, at, draw.choice(choices), draw.choice(choices), draw.random() < 0.25) for key, at in sorted(times)
    ]


def batches(draw: random.Random, events: Sequence[Event], count: int) -> list[list[Event]]:
    """Return the events shuffled and cut, some of them twice, and one batch again at the end."""
    shuffled = [*events, *draw.sample(events, len(events) // 4)]
    draw.shuffle(shuffled)
    cuts = sorted(draw.sample(range(len(shuffled)), count - 1))
    parts = [shuffled[low:high] for low, high in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    return [*parts, draw.choice(parts)]


def last_states(events: Sequence[Event]) -> list[Row]:
    """SCD 1: the last event of each key, unless it deletes."""
    last = {event.id: event for event in sorted(events, key=lambda event: event.at)}
    return [{"id": e.id, "at": e.at, "name": e.name, "city": e.city} for e in last.values() if not e.gone]


def history(events: Sequence[Event], tracked: Sequence[str] = ("name", "city")) -> list[Row]:
    """SCD 2: a row for each run of equal tracked values. Other columns have their last value."""
    rows: list[Row] = []
    for key in {event.id for event in events}:
        current: Row | None = None
        for event in sorted((event for event in events if event.id == key), key=lambda event: event.at):
            values = {"name": event.name, "city": event.city}
            if current is not None and not event.gone and all(current[name] == values[name] for name in tracked):
                current.update(values)
                continue
            if current is not None:
                current["__END_AT"] = event.at
            current = None
            if not event.gone:
                current = {"id": key, **values, "__START_AT": event.at, "__END_AT": None}
                rows.append(current)
    return rows
