"""The lists of requirements and promises, the markers on the tests, and the pages about them agree."""

from __future__ import annotations

import pytest

from tests.support import promises, soak_report
from tests.support import requirements as source
from tests.support.promises import Claim
from tests.support.requirements import Markers, Proof, Requirement, Requirements

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
def markers() -> Markers:
    return source.collect()


def test_every_requirement_is_proven_on_its_backends(markers: Markers) -> None:
    found = source.problems(source.load(), markers.proofs)
    assert not found, "\n" + "\n".join(found)


def test_the_document_is_what_make_requirements_writes(markers: Markers) -> None:
    expected = source.render(source.load(), markers.proofs)
    assert source.DOCUMENT.read_text() == expected, "stale: run `make requirements`"


def test_every_promise_has_a_test_and_a_control(markers: Markers) -> None:
    found = promises.problems(markers.claims)
    assert not found, "\n" + "\n".join(found)


def test_page_of_promises_has_their_tests_and_the_last_runs(markers: Markers) -> None:
    page = promises.PAGE.read_text()
    assert page == promises.with_block(page, "promises", promises.table(markers.claims)), "run `make requirements`"
    assert page == promises.with_block(page, "runs", soak_report.rendered(soak_report.read_runs()))


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


KEPT = [
    Claim(promise, role, f"tests/test_{promise}.py::test_a") for promise in promises.PROMISES for role in promises.ROLES
]


def test_promise_without_a_control_is_a_problem() -> None:
    assert promises.problems(KEPT) == []
    assert promises.problems(KEPT[:-1]) == ["N7 has no control in `make test`"]
    assert promises.problems(KEPT[1:]) == ["N1 has no test in `make test`"]


def test_test_that_only_a_soak_run_takes_is_not_enough() -> None:
    late = Claim("N7", "control", KEPT[-1].test, only_soak=True)
    assert promises.problems([*KEPT[:-1], late]) == ["N7 has no control in `make test`"]
    assert "(soak only)" in promises.table([*KEPT[:-1], late])


def test_unknown_promise_is_a_problem() -> None:
    [found] = promises.problems([*KEPT, Claim("N8", "promise", "tests/test_x.py::test_x")])
    assert found == "tests/test_x.py::test_x names N8, which is not promised"
