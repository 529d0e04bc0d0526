"""Writes docs/coverage.md from a coverage report in JSON: `make coverage`.

coverage run ─▶ coverage json ─▶ report.json ─▶ this ─▶ docs/coverage.md

python scripts/coverage_page.py report.json ["the options of pytest that the run had"]
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "coverage.md"
PACKAGE = "src/deltars/"
PLACES = 20
"""How many of the largest uncovered places the page lists."""

WHY = {
    "cli/": "Commands that a separate process or a terminal runs.",
    "demo/": "The acts run with Spark.",
    "spark/": "Runs with Spark, and in its executors, which are not measured.",
    "store/backends/postgresql/": "Runs on PostgreSQL.",
    "store/migrations/": "Alembic imports its scripts by path.",
}
"""Why a place may be uncovered, by how its path begins; the longest that fits counts."""


@dataclass
class Tally:
    statements: int = 0
    missed: int = 0
    branches: int = 0
    partial: int = 0

    def add(self, summary: Mapping[str, Any]) -> None:
        self.statements += summary["num_statements"]
        self.missed += summary["missing_lines"]
        self.branches += summary["num_branches"]
        self.partial += summary["missing_branches"]

    @property
    def percent(self) -> float:
        """Statements and branches together, as coverage itself counts."""
        whole = self.statements + self.branches
        return 100.0 if whole == 0 else 100 * (1 - (self.missed + self.partial) / whole)


@dataclass(frozen=True)
class Place:
    path: str
    name: str
    statements: int
    missed: int
    first_line: int


def tallies(files: Mapping[str, Any]) -> dict[str, Tally]:
    """Count each layer: a package of deltars, or a module that is none."""
    found: dict[str, Tally] = defaultdict(Tally)
    for path, file in files.items():
        found[path.removeprefix(PACKAGE).partition("/")[0].removesuffix(".py")].add(file["summary"])
    return dict(sorted(found.items()))


def places(files: Mapping[str, Any]) -> list[Place]:
    """Return functions with uncovered statements, that with the most of them first."""
    found = [
        Place(
            path.removeprefix(PACKAGE),
            name or "(the module)",
            function["summary"]["num_statements"],
            function["summary"]["missing_lines"],
            min(function["missing_lines"]),
        )
        for path, file in files.items()
        for name, function in file["functions"].items()
        if function["missing_lines"]
    ]
    return sorted(found, key=lambda place: (-place.missed, place.path, place.name))


def why(path: str) -> str:
    fitting = [start for start in WHY if path.startswith(start)]
    return WHY[max(fitting, key=len)] if fitting else "–"


def page(report: Mapping[str, Any], options: str, today: str) -> Iterator[str]:
    files: Mapping[str, Any] = report["files"]
    ran = f"`pytest {options}`" if options else "the whole suite"
    yield from ("# Coverage", "")
    yield f"Written by `make coverage` on {today}, from {ran}."
    yield "Branches count: a condition that only ever went one way is half covered. Processes that the tests start are"
    yield "measured too; Spark's executors are not."
    yield from ("", "| layer | statements | missed | branches | missed | covered |", "|---|---|---|---|---|---|")
    layers = tallies(files)
    whole = Tally()
    for file in files.values():
        whole.add(file["summary"])
    yield from (_row(f"`{layer}`", tally) for layer, tally in layers.items())
    yield _row("**together**", whole)
    yield from ("", "## The largest uncovered places", "")
    yield from ("| place | statements | missed | why |", "|---|---|---|---|")
    for place in places(files)[:PLACES]:
        where = f"`{place.path}:{place.first_line}` {place.name}"
        yield f"| {where} | {place.statements} | {place.missed} | {why(place.path)} |"


def _row(layer: str, tally: Tally) -> str:
    counts = f"{tally.statements:,} | {tally.missed:,} | {tally.branches:,} | {tally.partial:,}"
    return f"| {layer} | {counts} | {tally.percent:.1f} % |"


def main(arguments: Iterable[str]) -> None:
    source, *options = arguments
    lines = page(json.loads(Path(source).read_text()), " ".join(options).strip(), f"{datetime.now(UTC):%Y-%m-%d}")
    PAGE.write_text("\n".join(lines) + "\n")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
