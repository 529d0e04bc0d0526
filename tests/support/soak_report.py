"""docs/soak.md: what every soak test showed in its last run, each with its own day and seed.

A part of the tests may be run: what was not run keeps its row. A failed run shows nothing, so it has no row; and since
what the test showed before no longer holds, that row goes too. The end of the run names the tests that failed. A test
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

Written by `make soak`: the last run of each test at its long size. `DELTARS_SEED` repeats a run. A test without a row
has not been run since it last failed, or never.

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

    def __init__(self, report: Path = REPORT) -> None:
        self._report = report
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "every_case_on" in report.keywords:
            # The cases that `make test` leaves out: hundreds, of which nobody wants a row each.
            return
        # A test that passed and fails when it is taken down has failed.
        if (report.when == "call" and not report.skipped) or report.failed:
            if report.failed:
                self._failed.append(report.nodeid)
            write_report({report.nodeid: report.outcome}, self._report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"wrote {self._report.name}")
        for test in self._failed:
            terminalreporter.write_line(f"no row in {self._report.name}, because it failed: {test}")


def write_report(outcomes: Mapping[str, str], report: Path = REPORT) -> None:
    """Put the rows of the tests that passed in the place of those from earlier runs, and take the others' away."""
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
        if outcome == "passed"
        for name, shown in found[test] or [(_name(test), outcome)]
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
