"""One test, two sizes: small in `make test`, long in `make soak`.

    @pytest.mark.soak
    def test_nothing_is_lost_under_many_writers(catalog_uri: str) -> None:
        commits = scaled(200, soak=200_000)
        ...
        record("many writers", commits=commits, lost=0)       # a line of docs/soak.md

DELTARS_SOAK=1 chooses the long size. DELTARS_SEED repeats a run; it is printed, and drawn if not given.
"""

from __future__ import annotations

import json
import os
import platform
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from tests.support.run_directory import run_directory

Figure: TypeAlias = int | float | str

REPORT = Path(__file__).parents[2] / "docs" / "soak.md"


def is_soak() -> bool:
    return os.environ.get("DELTARS_SOAK") == "1"


def scaled(test: int, soak: int) -> int:
    return soak if is_soak() else test


def seed() -> int:
    """The run's seed, the same in all its processes."""
    return int(os.environ.setdefault("DELTARS_SEED", str(random.SystemRandom().randrange(2**32))))


def record(name: str, **figures: Figure) -> None:
    """Keep the figures of a test for the report of a soak run."""
    if is_soak():
        line = json.dumps({"name": name, "figures": figures}) + "\n"
        with (run_directory() / "soak.jsonl").open("a") as records:
            records.write(line)


def write_report(*, duration_s: float, passed: int, failed: int) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(_render(_records(), duration_s=duration_s, passed=passed, failed=failed))


def _records() -> list[tuple[str, dict[str, Figure]]]:
    path = run_directory() / "soak.jsonl"
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["name"], line["figures"]) for line in lines]


def _render(records: list[tuple[str, dict[str, Figure]]], *, duration_s: float, passed: int, failed: int) -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = [
        "# The last soak run",
        "",
        "Written by `make soak`.",
        "",
        f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- machine: {os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}",
        f"- seed: {seed()}",
        f"- duration: {duration_s:.0f} s",
        f"- tests: {passed} passed, {failed} failed",
        "",
        "| what | figures |",
        "|---|---|",
        *(f"| {name} | {_shown(figures)} |" for name, figures in sorted(records, key=lambda record: record[0])),
    ]
    return "\n".join(lines) + "\n"


def _shown(figures: dict[str, Figure]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name.replace('_', ' ')} {value}"
        for name, value in figures.items()
    )
