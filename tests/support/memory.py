"""How much memory a process has had at most."""

from __future__ import annotations

import re
from pathlib import Path


def peak_mib() -> float:
    """Of this process, since its program began.

    `ru_maxrss` would not do: Linux lets a new program inherit the most of the process that started it.
    """
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
