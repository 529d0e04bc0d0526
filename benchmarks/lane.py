"""A lane: a name, sizes, and a function that returns figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Figure
from benchmarks.rig import Rig

SIZES = ("tiny", "quick", "full")


@dataclass(frozen=True)
class Lane:
    name: str
    title: str
    note: str
    """What was done; `{sizes.…}` stands for a size of the run."""
    run: Callable[[Rig, Any], list[Figure]]
    sizes: Mapping[str, Any]
    """By name of a size. A lane without a tiny size needs Spark."""
    is_main: bool = True
    """Whether `make bench-quick` runs it. Any other lane runs at its quick size where it is named."""
    missed: str = ""
    """What stands between a missed target and the figure. It is shown where one was missed."""

    def described(self, sizes: Any) -> str:
        return self.note.format(sizes=sizes)
