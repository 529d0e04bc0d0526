"""The index of decisions lists every number, page and title."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
PAGES = {int(page.name[:4]): page for page in sorted(DECISIONS.glob("[0-9]*.md"))}
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
ROWS = [(int(number), title, status) for number, title, status in ROW.findall((DECISIONS / "README.md").read_text())]


def test_index_has_every_number_once_and_in_order() -> None:
    assert [number for number, _, _ in ROWS] == list(range(1, max(PAGES) + 1))


def test_index_has_the_title_and_the_name_of_every_page() -> None:
    for number, title, _ in ROWS:
        if number not in PAGES:
            assert title == "not used", number
            continue
        page = PAGES[number]
        first_line = page.read_text().partition("\n")[0]
        assert title == f"[{first_line.removeprefix(f'# {number}. ')}]({page.name})"
        assert first_line.startswith(f"# {number}. "), page.name


def test_every_decision_has_a_status_that_names_decisions_of_the_index() -> None:
    known = re.compile(r"accepted(, extended by \d+)?|replaced by \d+")
    for number, _, status in ROWS:
        if number in PAGES:
            assert known.fullmatch(status), number
            assert {int(other) for other in re.findall(r"\d+", status)} <= PAGES.keys(), number
        else:
            assert status == "", number


def test_every_page_says_its_status_below_its_title() -> None:
    for number, _, status in ROWS:
        if number in PAGES:
            said = PAGES[number].read_text().split("\n", 3)[2]
            assert re.sub(r"\[(\d+)\]\([^)]*\)", r"\1", said) == f"Status: {status}.", number


def test_index_explains_every_number_without_a_page() -> None:
    [explained] = re.findall(r"The numbers ([\d, and]+) have no page", (DECISIONS / "README.md").read_text())
    assert {int(number) for number in re.findall(r"\d+", explained)} == {n for n, _, _ in ROWS} - PAGES.keys()
