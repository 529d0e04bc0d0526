"""A dict of a limited size, for what is quicker to keep than to find out again."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Remembered(dict[K, V]):
    """Keep at most `most` entries: where a new one has no room, the oldest tenth goes. Threads may share it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._most and key not in self:
            # A copy, which is made at once: to iterate while another thread adds an entry is an error.
            for oldest in list(self)[: len(self) - self._most + 1 + self._most // 10]:
                self.pop(oldest, None)
        super().__setitem__(key, value)

    def __reduce__(self) -> tuple[type[Remembered[K, V]], tuple[int]]:
        # A copy for another process finds out by itself.
        return Remembered, (self._most,)
