"""Directories as they were when their files were looked at: what has not changed need not be looked at again.

A file that is made, renamed or deleted changes the time of its directory.
"""

from __future__ import annotations

import os
import time
from typing import TypeAlias

SETTLED_S = 2.0
"""The clocks of file systems tick: what changed just now may change again at the same time."""

_State: TypeAlias = tuple[int, int, int, int]


class Directories:
    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._is_settled = True
        self.has_links = False
        """Whether a file in them is a link: what becomes of its target is not seen here."""

    def add(self, path: str) -> None:
        """Before its files are looked at."""
        state = _state(path)
        self._states[path] = state
        if time.time_ns() - state[2] < SETTLED_S * 1e9:
            self._is_settled = False

    @property
    def can_tell(self) -> bool:
        """Whether a later change will be seen."""
        return self._is_settled and not self.has_links

    def are_unchanged(self) -> bool:
        try:
            return all(_state(path) == state for path, state in self._states.items())
        except OSError:
            return False

    def __contains__(self, path: str) -> bool:
        return path in self._states


def _state(path: str) -> _State:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
