"""State of directories when their files were checked: files of an unchanged directory need no second check.

Creating, renaming or deleting a file changes the modification time of its directory.
"""

from __future__ import annotations

import os
import time
from typing import TypeAlias

SETTLED_S = 2.0
"""Age from which a modification time is trusted: file system clocks are coarse, so two changes can share a time."""

_State: TypeAlias = tuple[int, int, int, int]


class Directories:
    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._is_settled = True
        self.has_links = False
        """Whether a file in them is a symbolic link: changes of its target do not change the directory."""

    def add(self, path: str) -> None:
        """Record the state of a directory. Call it before checking the files."""
        state = _state(path)
        self._states[path] = state
        if time.time_ns() - state[2] < SETTLED_S * 1e9:
            self._is_settled = False

    @property
    def can_detect_changes(self) -> bool:
        """Whether `are_unchanged` will notice a later change."""
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
