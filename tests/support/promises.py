"""What docs/reliability.md promises, which test tries to break each promise, and which control shows that it can fail.

    @pytest.mark.promise("N1", "N3")      a test of these promises
    @pytest.mark.control("N1")            a fault is planted, and what checks the promise finds it
    @pytest.mark.campaign(rounds=2)       repeated by `make soak`, for its share of the time (`Rounds`)

The markers are collected with those of the requirements (`tests/support/requirements.py`). `make requirements` writes
the table of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"

PROMISES = {
    "N1": "Every acknowledged commit is there after recovery.",
    "N2": "A commit is in each of its tables exactly once.",
    "N3": "A commit is in all its tables, or in none.",
    "N4": "The versions of a table have no gap.",
    "N5": "Every live file exists, with its size and content. Maintenance deletes nothing that is needed.",
    "N6": "`_delta_log` is at every moment a gap-free prefix of the SQL history.",
    "N7": "What the client was told is true.",
}

Role: TypeAlias = Literal["promise", "control"]
ROLES: tuple[Role, ...] = ("promise", "control")


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """One collected test that says which promise it tests, or is a control of."""

    promise: str
    role: Role
    test: str
    only_soak: bool = False
    """Whether `make test` leaves it out."""


def claims(item: pytest.Item, *, only_soak: bool) -> Iterator[Claim]:
    test = item.nodeid.partition("[")[0]
    for role in ROLES:
        for marker in item.iter_markers(role):
            for promise in marker.args:
                yield Claim(promise, role, test, only_soak)


def problems(found: Iterable[Claim]) -> list[str]:
    """Return what is missing: each promise needs a test and a control that `make test` runs."""
    claimed = list(found)
    unknown = sorted({claim for claim in claimed if claim.promise not in PROMISES})
    there = {(claim.promise, claim.role) for claim in claimed if not claim.only_soak}
    return [f"{claim.test} names {claim.promise}, which is not promised" for claim in unknown] + [
        f"{promise} has no {'test' if role == 'promise' else role} in `make test`"
        for promise in PROMISES
        for role in ROLES
        if (promise, role) not in there
    ]


def table(found: Iterable[Claim]) -> str:
    """Return the promises with their tests and controls, for the page."""
    tests: dict[tuple[str, Role], dict[str, bool]] = {}
    for claim in sorted(found):
        cases = tests.setdefault((claim.promise, claim.role), {})
        cases[claim.test] = cases.get(claim.test, True) and claim.only_soak
    lines = []
    for promise, text in PROMISES.items():
        lines += [f"### {promise}", "", text, ""]
        for role, title in zip(ROLES, ("Tests:", "Controls, each with a planted fault that is found:"), strict=True):
            shown = [_item(*case) for case in tests.get((promise, role), {}).items()]
            lines += [title, "", *(shown or ["- **none**"]), ""]
    return "\n".join(lines)


def _item(test: str, only_soak: bool) -> str:
    path, _, name = test.partition("::")
    sentence = name.removeprefix("test_").replace("_", " ")
    return f"- [{sentence}](../{path})" + (" (soak only)" if only_soak else "")


# -- the page ----------------------------------------------------------------------------------------------------------


def with_block(page: str, name: str, text: str) -> str:
    """Return the page with this text between the comments that begin and end a generated block."""
    begin, end = f"<!-- {name}: generated -->\n", f"<!-- {name}: end -->\n"
    head, found, rest = page.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the page has no generated block {name!r}")
    return f"{head}{begin}\n{text.rstrip()}\n\n{end}{tail}"


def write_block(name: str, text: str, page: Path = PAGE) -> None:
    page.write_text(with_block(page.read_text(), name, text))
