"""The page of soak runs forgets nothing that was not run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.soak import record
from tests.support.soak_report import write_report

HERE = "tests/test_soak_report.py::"
FIRST = f"{HERE}test_part_run_keeps_the_rows_of_the_others"
SECOND = f"{HERE}test_failed_test_loses_what_it_showed_before"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DELTARS_SOAK", "1")
    monkeypatch.setenv("DELTARS_TEST_RUN", str(tmp_path))
    return tmp_path / "soak.md"


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
    assert [row.split(" | ")[1:3] for row in rows] == [["commits 2,000", "2"], ["commits 3,000", "3"]]


def test_failed_test_loses_what_it_showed_before(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(SECOND, monkeypatch, 1, report)
    _run(SECOND, monkeypatch, 2, report, outcome="failed")
    [row] = [line for line in report.read_text().splitlines() if HERE in line]
    assert row.startswith("| failed test loses what it showed before | failed | 2 |")


def test_test_that_is_gone_loses_its_row(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(f"{HERE}test_of_yesterday", monkeypatch, 1, report)
    _run(FIRST, monkeypatch, 2, report)
    assert "of_yesterday" not in report.read_text()
