"""The benchmark does not rot: every lane without Spark runs at its smallest size, and the page is made from JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks import bulk, growth, imports, mirror, reading, report, results, row_changes
from benchmarks.__main__ import measure
from benchmarks.figures import OURS, RATE, Figure, Side, Target, is_met, measured
from benchmarks.lane import SIZES, Lane
from benchmarks.lanes import LANES
from benchmarks.race import NO_PEERS, PEERS
from benchmarks.results import LaneResult, Results
from benchmarks.rig import Rig, open_rig
from tests.support.postgres import PostgresServer

DOCS = Path(__file__).parents[2] / "docs"
SHORT = ("bulk", "embedded_commits", "growth_files", "imports", "row_changes_arrow", "transactions")
"""Lanes of every kind; `make soak-all` runs all of them."""
TINY = [
    pytest.param(lane, id=lane.name, marks=[] if lane.name in SHORT else [pytest.mark.soak(only=True)])
    for lane in LANES.values()
    if "tiny" in lane.sizes
]


@pytest.fixture(scope="module")
def rig(postgres_server: PostgresServer) -> Iterator[Rig]:
    """On the server of the tests, as it is: nothing here is about durability."""
    with open_rig(postgres_server) as rig:
        yield rig


@pytest.fixture
def same_process(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Only their own memory needs their own processes; one lane shows that they work."""
    if request.node.callspec.id != "bulk":
        for module in (bulk, growth, imports, mirror, reading, row_changes):
            monkeypatch.setattr(module, "in_own_process", lambda work, *arguments: work(*arguments))


@pytest.mark.slow
@pytest.mark.usefixtures("same_process")
@pytest.mark.parametrize("lane", TINY)
def test_lane_has_figures_of_ours_and_of_every_peer_or_names_it(lane: Lane, rig: Rig, tmp_path: Path) -> None:
    found = measure(lane, "tiny", rig)
    assert found.figures
    for figure in found.figures:
        assert figure.ours.value > 0
        # Whether commits are in time is for the machine to say.
        assert lane.name == "mirror_lag" or not figure.ours.failed, figure
        for target in figure.targets:
            assert target.peer in {"", *figure.sides, *figure.missing}, (figure.what, target)
        if not PEERS.exists():
            assert set(figure.missing.values()) <= {NO_PEERS}
    # What is kept is what was measured, but for the digits that are dropped.
    results.save(tmp_path / report.JSON, Results({lane.name: found}))
    kept = results.load(tmp_path / report.JSON)
    assert [figure.what for figure in kept.lanes[lane.name].figures] == [figure.what for figure in found.figures]
    assert f"## {lane.title}" in report.page(kept, [lane])


def test_every_lane_has_sizes_and_a_full_one() -> None:
    assert len(LANES) >= 25
    for lane in LANES.values():
        assert set(lane.sizes) <= set(SIZES)
        assert "full" in lane.sizes
        lane.described(lane.sizes["full"])


def test_published_page_is_made_from_its_json() -> None:
    kept = results.load(DOCS / report.JSON)
    pictures = [name for name in report.PLOTS if (DOCS / report.PICTURES / f"{name}.png").exists()]
    assert kept.lanes, "run make bench"
    made = report.page(kept, LANES.values(), pictures)
    assert (DOCS / report.PAGE).read_text() == made, "run python -m benchmarks --report"


def figure(*, failed: int = 0, missing: bool = False) -> Figure:
    theirs = {} if missing else {"peer": Side([10.0, 10.0], p99_ms=50.0)}
    return Figure(
        "commits",
        RATE,
        {OURS: Side([25.0, 35.0], p99_ms=2.0, failed=failed), **theirs},
        {"peer": "not installed"} if missing else {},
        [Target("faster", 3, "peer"), Target("faster", 4, "peer"), Target("p99", 1 / 20, "peer")],
    )


def test_targets_are_met_or_missed_by_what_was_measured() -> None:
    done = figure()
    assert [measured(done, target) for target in done.targets] == [3.0, 3.0, 0.04]
    assert [is_met(done, target) for target in done.targets] == [True, False, True]
    # Times are better when they are shorter.
    times = Figure("scan", "s", {OURS: Side([2.0]), "peer": Side([6.0])})
    assert measured(times, Target("faster", 1, "peer")) == 3
    assert measured(times, Target("cost", 1, "peer")) == pytest.approx(1 / 3)


def test_failed_operation_of_ours_misses_every_target_and_missing_peer_is_named() -> None:
    assert not any(is_met(figure(failed=1), target) for target in figure().targets)
    absent = figure(missing=True)
    assert [is_met(absent, target) for target in absent.targets] == [None, None, None]
    lane = Lane("x", "Commits", "", lambda rig, sizes: [], {"full": None})
    kept = Results({"x": LaneResult("Commits", "", "full", "2026-01-01", "", 0.0, 1.0, {}, [absent])})
    page = report.page(kept, [lane])
    assert "missing: not installed" in page
    assert "3 cannot be computed because a peer is missing" in page


def test_peer_of_which_nothing_succeeded_says_so() -> None:
    side = Side([0.0], failed=7)
    text = report.figures_table([Figure("commits", RATE, {OURS: Side([5.0]), "peer": side})])
    assert "none succeeded" in text
    assert "∞" in text
    assert msgspec.json.decode(msgspec.json.encode(side), type=Side) == side
