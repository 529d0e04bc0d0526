"""The pools of database connections of this process, asked when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from deltars.observe.events import Source


@dataclass(frozen=True, slots=True)
class PoolUse:
    """One moment of a pool, and what it went through since it was opened."""

    size: int
    """How many connections it may open."""
    in_use: int
    idle: int
    waiting: int
    """Callers who asked for a connection and have none yet."""
    asked: int
    """How many were ever asked for."""
    waited_s: float
    """How long all callers waited, taken together."""


class Pooled(Protocol):
    @property
    def source(self) -> Source: ...

    def pool_use(self) -> PoolUse | None:
        """None where no connection was opened yet."""


_pooled: WeakSet[Pooled] = WeakSet()


def watch_pool(pooled: Pooled) -> None:
    _pooled.add(pooled)


def pools() -> Iterator[tuple[Source, PoolUse]]:
    for pooled in list(_pooled):
        use = pooled.pool_use()
        if use is not None:
            yield pooled.source, use
