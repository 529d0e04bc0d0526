"""What every soak test showed in its last run, each with its own day and seed.

    tests/soak_runs.tsv    a row for each figure; a test without figures has one row, "passed"
    docs/reliability.md    its block "runs": figures in full, and the tests without figures counted by file

A part of the tests may be run: what was not run keeps its row. A failed run shows nothing, so it has no row; and since
what the test showed before no longer holds, that row goes too. The end of the run names the tests that failed. A test
that is gone from the source loses its row. A row is written when its test ends, so a run that is broken off keeps what
it showed until then.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.promises import PAGE, ROOT, write_block
from tests.support.soak import Figure, records, seed

RUNS = ROOT / "tests" / "soak_runs.tsv"
CAMPAIGN = "tests/faults/"
PASSED = "passed"


class Row(NamedTuple):
    what: str
    figures: str
    seed: str
    when: str
    machine: str
    test: str


class Reporter:
    """A plugin of pytest for soak runs."""

    def __init__(self, runs: Path = RUNS, page: Path = PAGE) -> None:
        self._runs = runs
        self._page = page
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        has_figures = any(test == report.nodeid for test, _, _ in records())
        if report.passed and "every_case_on" in report.keywords and not has_figures:
            # A case that `make test` leaves out: there are hundreds, and a row of each would hide the others.
            return
        # A test that passed and fails when it is taken down has failed.
        if (report.when == "call" and not report.skipped) or report.failed:
            if report.failed:
                self._failed.append(report.nodeid)
            write_report({report.nodeid: report.outcome}, self._runs)
            if self._page.exists():
                write_block("runs", rendered(read_runs(self._runs)), self._page)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"wrote {self._runs.name}")
        for test in self._failed:
            terminalreporter.write_line(f"no row in {self._runs.name}, because it failed: {test}")


def write_report(outcomes: Mapping[str, str], runs: Path = RUNS) -> None:
    """Put the rows of the tests that passed in the place of those from earlier runs, and take the others' away."""
    kept = [row for row in read_runs(runs) if row.test not in outcomes and _is_there(row.test)]
    rows = [Row._fields, *sorted([*kept, *_new(outcomes)])]
    runs.write_text("".join("\t".join(row) + "\n" for row in rows))


def read_runs(runs: Path = RUNS) -> list[Row]:
    if not runs.exists():
        return []
    return [Row(*line.split("\t")) for line in runs.read_text().splitlines()[1:]]


def rendered(rows: Iterable[Row]) -> str:
    """Return the rows for the page: the campaign's first, and tests without figures counted by file."""
    with_figures, plain = [], dict[str, list[Row]]()
    for row in rows:
        if row.figures == PASSED:
            plain.setdefault(row.test.partition("::")[0], []).append(row)
        else:
            with_figures.append(row)
    campaign = [row for row in with_figures if row.test.startswith(CAMPAIGN)]
    return "\n".join(
        [
            "### The campaign",
            "",
            *_table(campaign),
            "",
            "### Other long tests",
            "",
            *_table(row for row in with_figures if row not in campaign),
            "",
            "### Long tests without figures",
            "",
            "| tests | cases passed | last run |",
            "|---|---|---|",
            *(f"| [{path}](../{path}) | {len(ran)} | {max(row.when for row in ran)} |" for path, ran in plain.items()),
        ]
    )


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield "| what | figures | seed | when | machine |"
    yield "|---|---|---|---|---|"
    for row in rows:
        link = f"[{row.what}](../{row.test.partition('::')[0]})"
        yield f"| {link} | {row.figures} | {row.seed} | {row.when} | {row.machine} |"


def _new(outcomes: Mapping[str, str]) -> list[Row]:
    found: dict[str, list[tuple[str, str]]] = {test: [] for test in outcomes}
    for test, name, figures in records():
        found.setdefault(test, []).append((name, _shown(figures)))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"
    return [
        Row(name, shown, str(seed()), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", machine, test)
        for test, outcome in outcomes.items()
        if outcome == PASSED
        for name, shown in found[test] or [(_name(test), outcome)]
    ]


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
