"""Every state that commit, mirror, checkpoint, vacuum and crash can reach for three writers and two tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from deltars.uri import CatalogUri
from tests.faults.exploration import explore, walk
from tests.faults.model import BUGS, COMMITS, MIRROR, VACUUM, Setting, start
from tests.faults.replay import Replay, expected
from tests.support.campaign import Rounds
from tests.support.soak import is_soak, record
from tests.support.templates import CatalogTemplates

WALKED = Setting(publishers=2, at_once=True)
"""What the real code walks through: all but broken connections, which SQLite does not have."""


@pytest.mark.promise("N1", "N2", "N3", "N4", "N7")
def test_no_commit_breaks_a_promise_whoever_dies_or_loses_its_connection() -> None:
    found = explore(COMMITS)
    assert found.broken is None, found.trace
    assert found.states > 3_000


@pytest.mark.promise("N5", "N6")
@pytest.mark.campaign(rounds=1, soak=1)
@pytest.mark.parametrize("setting", [MIRROR, VACUUM], ids=["mirror", "vacuum"])
def test_mirror_and_vacuum_break_no_promise_in_any_order(setting: Setting, rounds: Rounds) -> None:
    for _ in rounds:
        found = explore(setting if is_soak() else replace(setting, mirrored=(0,)))
        assert found.broken is None, found.trace
        assert found.states > 1_000
        record(f"model, {'vacuum' if setting.has_vacuum else 'two publishers'}", states=found.states, steps=found.steps)


@pytest.mark.control("N1", "N2", "N3", "N5", "N6", "N7")
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found(bug: str) -> None:
    promise, setting = BUGS[bug]
    found = explore(replace(setting, bug=bug))
    assert found.broken == promise, found.trace


@pytest.mark.promise("N5", "N6")
@pytest.mark.campaign(rounds=2)
def test_real_code_goes_the_ways_of_the_model(
    catalog_templates: CatalogTemplates, tmp_path: Path, rounds: Rounds
) -> None:
    taken: Counter[str] = Counter()
    for number in rounds:
        uri = str(CatalogUri("sqlite", str(tmp_path / f"{number}.db")))
        catalog_templates.lay_out(uri)
        state = start(WALKED)
        with Replay(uri, tmp_path / f"{number}") as replay:
            assert replay.seen() == expected(state)
            for step, after in walk(WALKED, rounds.lot.choice, most=25):
                replay.take(step, state)
                state = after
                taken[step.what] += 1
                assert replay.seen() == expected(state), (step, dict(taken))
    record("ways of the model, walked by the code", ways=rounds.done, steps=taken.total())
