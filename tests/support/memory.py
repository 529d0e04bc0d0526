"""How much memory a process has had at most."""

from __future__ import annotations

import re
from pathlib import Path


def peak_mib() -> float:
    """Return the peak of this process since its program began, or since `forget_peak`.

    `ru_maxrss` would not do: on Linux a new program inherits the peak of the process that started it.
    """
    return _mib("VmHWM")


def forget_peak() -> float:
    """Return the memory that this process has now, and let `peak_mib` count from here."""
    Path("/proc/self/clear_refs").write_text("5")
    return _mib("VmRSS")


def _mib(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
