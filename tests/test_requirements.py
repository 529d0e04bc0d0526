"""The list of requirements, the markers on the tests and docs/requirements.md agree."""

from __future__ import annotations

import pytest

from tests.support import requirements as source
from tests.support.requirements import Proof, Requirement, Requirements

# Collecting the whole suite takes seconds; one worker does it once.
pytestmark = [pytest.mark.xdist_group("requirements"), pytest.mark.slow]

LISTED = Requirements(
    {
        "W-01": Requirement("W-01", "A commit", "It commits.", "all"),
        "T-11": Requirement("T-11", "An index", "It is used.", "postgres"),
        "D-01": Requirement("D-01", "An interface", "It is there.", "any"),
    },
    groups={"W": "Writing", "T": "Tables", "D": "Design"},
)
PROVEN = [
    *(Proof("W-01", "tests/test_w.py::test_commit", backend) for backend in ("postgres", "sqlite", "duckdb")),
    Proof("T-11", "tests/test_t.py::test_index", "postgres"),
    Proof("D-01", "tests/test_d.py::test_interface", None),
]


@pytest.fixture(scope="module")
def proofs() -> list[Proof]:
    return source.collect()


def test_every_requirement_is_proven_on_its_backends(proofs: list[Proof]) -> None:
    found = source.problems(source.load(), proofs)
    assert not found, "\n" + "\n".join(found)


def test_the_document_is_what_make_requirements_writes(proofs: list[Proof]) -> None:
    expected = source.render(source.load(), proofs)
    assert source.DOCUMENT.read_text() == expected, "stale: run `make requirements`"


def test_the_list_holds_all_94_requirements_each_in_a_group() -> None:
    requirements = source.load()
    assert len(requirements.listed) == 94
    assert {id.partition("-")[0] for id in requirements.listed} == requirements.groups.keys()


def test_full_proof_leaves_no_problem() -> None:
    assert source.problems(LISTED, PROVEN) == []


def test_requirement_without_a_test_is_a_problem() -> None:
    assert source.problems(LISTED, PROVEN[:-1]) == ["D-01 has no test: An interface"]


def test_requirement_without_a_test_on_one_backend_is_a_problem() -> None:
    assert source.problems(LISTED, PROVEN[1:]) == ["W-01 has no test on postgres"]


def test_test_that_does_not_say_its_backend_proves_none() -> None:
    proofs = [*PROVEN[:3], Proof("T-11", "tests/test_t.py::test_index", None), PROVEN[-1]]
    assert source.problems(LISTED, proofs) == ["T-11 has no test on postgres"]


def test_marker_with_an_unknown_id_is_a_problem() -> None:
    proofs = [*PROVEN, Proof("X-99", "tests/test_x.py::test_x", None)]
    assert source.problems(LISTED, proofs) == [
        "tests/test_x.py::test_x claims X-99, which is not in tests/requirements.toml"
    ]
