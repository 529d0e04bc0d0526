"""The page of `make coverage`: layers add up, and the largest gaps come first, each with its reason."""

from __future__ import annotations

from typing import Any

from scripts.coverage_page import page, places, tallies


def _file(statements: int, missing: list[int], branches: int = 0, partial: int = 0) -> dict[str, Any]:
    summary = {
        "num_statements": statements,
        "missing_lines": len(missing),
        "num_branches": branches,
        "missing_branches": partial,
    }
    return {"summary": summary, "functions": {"Reader.read": {"summary": summary, "missing_lines": missing}}}


FILES = {
    "src/deltars/log/bounds.py": _file(60, [7], branches=20, partial=3),
    "src/deltars/log/moments.py": _file(20, []),
    "src/deltars/spark/plane.py": _file(10, [4, 5, 9]),
    "src/deltars/uri.py": _file(10, []),
}


def test_layer_is_the_sum_of_its_modules() -> None:
    found = tallies(FILES)
    assert list(found) == ["log", "spark", "uri"]
    assert (found["log"].statements, found["log"].missed, found["log"].branches, found["log"].partial) == (80, 1, 20, 3)
    assert [found[layer].percent for layer in found] == [96, 70, 100]


def test_largest_gap_comes_first_and_what_is_covered_is_no_gap() -> None:
    assert [(place.path, place.missed, place.first_line) for place in places(FILES)] == [
        ("spark/plane.py", 3, 4),
        ("log/bounds.py", 1, 7),
    ]


def test_page_says_what_was_run_and_why_a_place_is_uncovered() -> None:
    lines = list(page({"files": FILES}, "-m 'not spark'", "2026-11-17"))
    assert "from `pytest -m 'not spark'`." in lines[2]
    assert "| **together** | 100 | 4 | 20 | 3 | 94.2 % |" in lines
    assert lines[-2].startswith("| `spark/plane.py:4` Reader.read | 10 | 3 | Runs with Spark")
    assert lines[-1] == "| `log/bounds.py:7` Reader.read | 60 | 1 | – |"
