"""Which test proves which requirement.

    tests/requirements.toml ─┐
                             ├─▶ problems()   what tests/test_requirements.py fails on
    markers on the tests ────┘─▶ render()     docs/requirements.md, written by `make requirements`
                        └──────▶ promises     the tests and controls of docs/reliability.md, collected along

The tests are found by pytest's own collection, so a proof knows the backends that its test really runs on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from deltars.uri import BACKENDS
from tests.support import promises, soak_report
from tests.support.promises import Claim

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "requirements.toml"
DOCUMENT = ROOT / "docs" / "requirements.md"
SCOPES = {"all": BACKENDS, "postgres": ("postgres",), "any": ()}
SHOWN = {"all": "all", "postgres": "PostgreSQL", "any": "–"}


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    title: str
    shows: str
    backends: str


@dataclass(frozen=True, slots=True)
class Requirements:
    listed: dict[str, Requirement]
    groups: dict[str, str]


@dataclass(frozen=True, slots=True, order=True)
class Proof:
    """One collected test that claims a requirement; `backend` is None when the test does not say."""

    requirement: str
    test: str
    backend: str | None


def load(source: Path = SOURCE) -> Requirements:
    tables = tomllib.loads(source.read_text())
    groups = tables.pop("groups")
    return Requirements({id: Requirement(id, **fields) for id, fields in tables.items()}, groups)


def problems(requirements: Requirements, proofs: Iterable[Proof]) -> list[str]:
    proven: dict[str, list[Proof]] = {}
    for proof in proofs:
        proven.setdefault(proof.requirement, []).append(proof)
    found = [
        f"{proof.test} claims {id}, which is not in tests/requirements.toml"
        for id in sorted(proven.keys() - requirements.listed.keys())
        for proof in proven[id]
    ]
    for id, requirement in requirements.listed.items():
        if id not in proven:
            found.append(f"{id} has no test: {requirement.title}")
        else:
            missing = set(SCOPES[requirement.backends]) - {proof.backend for proof in proven[id]}
            found += [f"{id} has no test on {backend}" for backend in sorted(missing)]
    return found


def render(requirements: Requirements, proofs: Iterable[Proof]) -> str:
    tests: dict[str, set[str]] = {}
    for proof in proofs:
        tests.setdefault(proof.requirement, set()).add(proof.test)
    return "\n".join(_lines(requirements, tests)) + "\n"


def _lines(requirements: Requirements, tests: dict[str, set[str]]) -> Iterator[str]:
    yield "# Requirements and the tests that prove them"
    yield ""
    yield "Written by `make requirements` from `tests/requirements.toml` and the markers on the tests."
    for prefix, heading in requirements.groups.items():
        yield from ("", f"## {heading}", "", "| id | what | backends | tests |", "|---|---|---|---|")
        for id, requirement in requirements.listed.items():
            if id.startswith(f"{prefix}-"):
                links = "<br>".join(_link(test) for test in sorted(tests.get(id, ())))
                what = f"**{requirement.title}.** {requirement.shows}"
                yield f"| {id} | {what} | {SHOWN[requirement.backends]} | {links or '**none**'} |"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name}](../{path})"


@dataclass(frozen=True, slots=True)
class Markers:
    """What the markers of the whole suite say."""

    proofs: list[Proof]
    claims: list[Claim]


def collect() -> Markers:
    """The markers in the tests tree, from a collection in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "proofs.json"
        command = [sys.executable, "-m", "tests.support.requirements", "--collect-into", str(answer)]
        # Options that narrow the outer run (-k, -m) would hide tests from this one.
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        outcome = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if outcome.returncode != 0:
            raise RuntimeError(f"the tests could not be collected:\n{outcome.stdout}{outcome.stderr}")
        found = json.loads(answer.read_text())
        return Markers([Proof(**proof) for proof in found["proofs"]], [Claim(**claim) for claim in found["claims"]])


class _Collector:
    """A pytest plugin that writes down what the markers claim."""

    def __init__(self) -> None:
        self.proofs: set[Proof] = set()
        self.claims: set[Claim] = set()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            self.claims.update(promises.claims(item, only_soak=True))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            # A test that never runs proves nothing.
            if item.get_closest_marker("skip") is None:
                self.proofs.update(_proofs(item))
                self.claims.update(promises.claims(item, only_soak=False))


def _proofs(item: pytest.Item) -> Iterator[Proof]:
    test = item.nodeid.partition("[")[0]
    for marker in item.iter_markers("requirement"):
        for id in marker.args:
            for backend in _backends(item):
                yield Proof(id, test, backend)


def _backends(item: pytest.Item) -> Sequence[str | None]:
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "backend" in callspec.params:
        return [callspec.params["backend"]]
    # A test with its own way to a database says by the marker which one it is about.
    return [name for marker in item.iter_markers("backends") for name in marker.args] or [None]


def _collect_into(answer: Path) -> int:
    collector = _Collector()
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", str(ROOT / "tests")]
    status = pytest.main(options, plugins=[collector])
    found: dict[str, set[Any]] = {"proofs": collector.proofs, "claims": collector.claims}
    answer.write_text(
        json.dumps({name: [asdict(one) for one in sorted(some, key=repr)] for name, some in found.items()})
    )
    return int(status)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Write docs/requirements.md and docs/reliability.md from the markers on the tests."
    )
    parser.add_argument("--collect-into", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.collect_into is not None:
        return _collect_into(arguments.collect_into)
    requirements, markers = load(), collect()
    DOCUMENT.write_text(render(requirements, markers.proofs))
    promises.write_block("promises", promises.table(markers.claims))
    promises.write_block("runs", soak_report.rendered(soak_report.read_runs()))
    print(f"wrote {DOCUMENT.relative_to(ROOT)} and {promises.PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
