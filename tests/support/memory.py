"""How much memory a process has had at most."""

from __future__ import annotations

import re
from pathlib import Path


def peak_mib() -> float:
    """Of this process, since its program began or `forget_peak` was called.

    `ru_maxrss` would not do: Linux lets a new program inherit the most of the process that started it.
    """
    return _mib("VmHWM")


def forget_peak() -> float:
    """Return the memory that this process has now. From here on, `peak_mib` counts from it."""
    Path("/proc/self/clear_refs").write_text("5")
    return _mib("VmRSS")


def _mib(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
