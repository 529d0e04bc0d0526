"""Names for columns that a computation adds to those of a frame."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count


def free_names(names: Collection[str], taken: Collection[str]) -> list[str]:
    """Return a column name for each of these words. `taken` has the names that are in use, in lower case."""
    for number in count():
        free = [f"__deltars_{name}_{number}" for name in names]
        if not any(name in taken for name in free):
            return free
    raise AssertionError("unreachable: some number is always free")
