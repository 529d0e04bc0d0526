"""docs/performance.md: each benchmark replaces its own part, and nobody writes figures by hand."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

_HEAD = """# Performance

Every figure here was written by a benchmark, on the machine and day named with it. Machines differ and shared ones
are noisy: read the ratios, which compare with a peer measured in the same run, round by round.
"""


def machine() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = model[1] if model else platform.machine()
    return f"{os.cpu_count()} cores ({name}), {memory:.0f} GiB, Python {platform.python_version()}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def write_section(name: str, command: str, body: str) -> None:
    """Put `body` where the section of this name stands, or at the end."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    section = f"{begin}\n## {name}\n\n`{command}`, {now}, {machine()}.\n\n{body.strip()}\n{end}"
    page = PAGE.read_text() if PAGE.exists() else _HEAD
    if begin in page:
        head, _, rest = page.partition(begin)
        page = head + section + rest.partition(end)[2]
    else:
        page = f"{page.rstrip()}\n\n{section}\n"
    PAGE.write_text(page)
