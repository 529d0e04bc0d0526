"""Where a run's time went: seconds per folder and per backend, printed at the end of every run.

The seconds are those of the tests themselves, in whichever worker they ran: two workers add up to twice the clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from deltars.uri import BACKENDS

NO_BACKEND = "–"
COLUMNS = (*BACKENDS, NO_BACKEND)


class Durations:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0.0))
        self._tests: dict[str, int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = folder_of(report.nodeid)
        self._seconds[folder][backend_of(report.nodeid)] += report.duration
        self._tests[folder] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self._seconds) > 1:
            terminalreporter.section("seconds per folder")
            for line in table(self._seconds, self._tests):
                terminalreporter.write_line(line)


def folder_of(nodeid: str) -> str:
    """Return the folder of a test that is in one, and `tests` for the files at the root."""
    parts = nodeid.partition("::")[0].split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def backend_of(nodeid: str) -> str:
    cases = nodeid.partition("[")[2].rstrip("]").split("-")
    return next((backend for backend in BACKENDS if backend in cases), NO_BACKEND)


def table(seconds: Mapping[str, Mapping[str, float]], tests: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of the table, the folder that took longest first."""
    yield _line("", "tests", ["seconds", *COLUMNS])
    for folder, each in sorted(seconds.items(), key=lambda row: -sum(row[1].values())):
        yield _line(folder, tests[folder], _shown(each))
    sums = {column: sum(each[column] for each in seconds.values()) for column in COLUMNS}
    yield _line("together", sum(tests.values()), _shown(sums))


def _shown(each: Mapping[str, float]) -> list[str]:
    return [f"{figure:,.0f}" for figure in (sum(each.values()), *(each[column] for column in COLUMNS))]


def _line(folder: str, tests: object, figures: list[str]) -> str:
    return f"{folder:22}{tests!s:>7}" + "".join(f"{figure:>10}" for figure in figures)
