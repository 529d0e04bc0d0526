"""The database connection pools of this process, read when metrics are collected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from deltars.observe.events import Source


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The current state of a pool, and its totals since it was opened."""

    size: int
    """Most connections that it may open."""
    in_use: int
    idle: int
    waiting: int
    """Callers that are waiting for a connection."""
    asked: int
    """Total number of requests for a connection."""
    waited_s: float
    """Total time that callers waited."""


class Pooled(Protocol):
    @property
    def source(self) -> Source: ...

    def pool_use(self) -> PoolUse | None:
        """Return the use of the pool, or None if no connection was opened yet."""


_pooled: WeakSet[Pooled] = WeakSet()


def watch_pool(pooled: Pooled) -> None:
    _pooled.add(pooled)


def pools() -> Iterator[tuple[Source, PoolUse]]:
    for pooled in list(_pooled):
        use = pooled.pool_use()
        if use is not None:
            yield pooled.source, use
