"""docs/soak.md: the last run of every soak test, each with its own day and seed.

A part of the tests may be run: what was not run keeps its row. A test that failed loses what it showed before, and one
that is gone from the source loses its row. A row is written when its test ends, so a run that is broken off keeps what
it showed until then.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.soak import Figure, records, seed

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "soak.md"

_HEAD = """# Soak runs

Written by `make soak`: the last run of each test at its long size. `DELTARS_SEED` repeats a run.

| what | figures | seed | when | machine | test |
|---|---|---|---|---|---|
"""


class Row(NamedTuple):
    what: str
    figures: str
    seed: str
    when: str
    machine: str
    test: str


class Reporter:
    """A plugin of pytest for soak runs."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (report.when == "call" and not report.skipped) or report.failed:
            write_report({report.nodeid: report.outcome})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"wrote {REPORT.name}")


def write_report(outcomes: Mapping[str, str], report: Path = REPORT) -> None:
    """Put the rows of these tests, and how each of them ended, in the place of those from earlier runs."""
    kept = [row for row in _rows(report) if row.test not in outcomes and _is_there(row.test)]
    report.parent.mkdir(exist_ok=True)
    report.write_text(_HEAD + "".join(f"| {' | '.join(row)} |\n" for row in sorted([*kept, *_new(outcomes)])))


def _new(outcomes: Mapping[str, str]) -> list[Row]:
    found: dict[str, list[tuple[str, str]]] = {test: [] for test in outcomes}
    for test, name, figures in records():
        found.setdefault(test, []).append((name, _shown(figures)))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"
    return [
        Row(name, shown, str(seed()), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", machine, test)
        for test, outcome in outcomes.items()
        for name, shown in (found[test] if outcome == "passed" and found[test] else [(_name(test), outcome)])
    ]


def _rows(report: Path) -> list[Row]:
    if not report.exists():
        return []
    cells = [line.strip("| ").split(" | ") for line in report.read_text().splitlines() if line.startswith("| ")]
    return [Row(*row) for row in cells[1:] if len(row) == len(Row._fields)]


def _is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    return (ROOT / path).exists() and f"def {name.partition('[')[0]}(" in (ROOT / path).read_text()


def _name(test: str) -> str:
    """A test's name is a sentence."""
    name, _, parameters = test.rpartition("::test_")[2].partition("[")
    return ", ".join([name.replace("_", " "), *filter(None, [parameters.rstrip("]")])])


def _shown(figures: Mapping[str, Figure]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name.replace('_', ' ')} {value}"
        for name, value in figures.items()
    )
