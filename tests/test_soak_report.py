"""The record of soak runs forgets nothing that was not run again."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.support.soak import is_soak, record, scaled
from tests.support.soak_report import PASSED, Reporter, Row, read_runs, rendered, write_report

HERE = "tests/test_soak_report.py::"
FIRST = f"{HERE}test_part_run_keeps_the_rows_of_the_others"
SECOND = f"{HERE}test_failed_test_loses_what_it_showed_before"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DELTARS_SOAK", "1")
    monkeypatch.setenv("DELTARS_TEST_RUN", str(tmp_path))
    return tmp_path / "runs.tsv"


def _run(test: str, monkeypatch: pytest.MonkeyPatch, seed: int, report: Path, outcome: str = "passed") -> None:
    monkeypatch.setenv("DELTARS_SEED", str(seed))
    monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{test} (call)")
    (report.parent / "soak.jsonl").unlink(missing_ok=True)
    record(f"what {test[-6:]}", commits=seed * 1_000)
    write_report({test: outcome}, report)


def test_part_run_keeps_the_rows_of_the_others(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for test, seed in ((FIRST, 1), (SECOND, 2), (FIRST, 3)):
        _run(test, monkeypatch, seed, report)
    rows = [line for line in report.read_text().splitlines() if HERE in line]
    assert [row.split("\t")[1:3] for row in rows] == [["commits 2,000", "2"], ["commits 3,000", "3"]]


def test_failed_test_loses_what_it_showed_before(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(FIRST, monkeypatch, 1, report)
    _run(SECOND, monkeypatch, 1, report)
    _run(SECOND, monkeypatch, 2, report, outcome="failed")
    [row] = [line for line in report.read_text().splitlines() if HERE in line]
    assert FIRST in row
    _run(SECOND, monkeypatch, 3, report)
    assert SECOND in report.read_text()


def test_run_ends_with_the_names_of_tests_that_failed(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(SECOND, monkeypatch, 1, report)
    reporter, lines = Reporter(report, report.with_name("no page")), _Lines()
    reporter.pytest_runtest_logreport(_report(SECOND, "passed", "call"))
    reporter.pytest_runtest_logreport(_report(SECOND, "failed", "teardown"))
    reporter.pytest_terminal_summary(lines)  # type: ignore[arg-type]
    assert lines.written == ["wrote runs.tsv", f"no row in runs.tsv, because it failed: {SECOND}"]
    assert HERE not in report.read_text()


class _Lines:
    def __init__(self) -> None:
        self.written: list[str] = []

    def write_line(self, line: str) -> None:
        self.written.append(line)


def _report(test: str, outcome: Literal["passed", "failed"], when: Literal["call", "teardown"]) -> pytest.TestReport:
    return pytest.TestReport(test, ("", None, ""), {}, outcome, None, when)


def test_no_run_that_failed_is_kept() -> None:
    rows = read_runs()
    assert len(rows) > 1
    assert not [row for row in rows if row.figures in ("failed", "error")]


def test_page_has_every_figure_and_folds_the_tests_without_one() -> None:
    made = ("1", "2026-11-17 08:57 UTC", "2 cores")
    rows = [
        Row("kills", "kills 3", *made, "tests/faults/test_kills.py::test_a"),
        Row("others", "rounds 9", *made, "tests/store/test_b.py::test_b"),
        *(Row("plain", PASSED, *made, f"tests/store/test_c.py::test_c[{case}]") for case in "xyz"),
    ]
    lines = rendered(rows).splitlines()
    headings = [lines.index(f"### {one}") for one in ("The campaign", "Other long tests", "Long tests without figures")]
    shown = [next(i for i, line in enumerate(lines) if text in line) for text in ("kills 3", "rounds 9", "| 3 |")]
    assert sorted([*headings, *shown]) == [place for pair in zip(headings, shown, strict=True) for place in pair]


def test_test_that_is_gone_loses_its_row(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(f"{HERE}test_of_yesterday", monkeypatch, 1, report)
    _run(FIRST, monkeypatch, 2, report)
    assert "of_yesterday" not in report.read_text()


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [("", (5, 20)), ("0", (5, 20)), ("1", (1_000, 1)), ("0.1", (100, 1)), ("0.001", (5, 1)), ("7", (1_000, 1))],
)
def test_part_of_the_long_size_can_be_asked_for(
    asked: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTARS_SOAK", asked)
    assert (scaled(5, soak=1_000), scaled(20, soak=1)) == sizes
    assert is_soak() == (asked not in ("", "0"))
