"""The second opinion: what it is told, what it finds in bad histories, and that it agrees with our own checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import deltars
from tests.checker import anomalies, sabotage
from tests.checker.anomalies import find_anomalies, kinds
from tests.checker.history import History, Txn
from tests.checker.second_opinion import NoSecondOpinion, adya, find_by_adya, operations
from tests.checker.test_anomalies import LEVELS, SERIAL, r, small_histories, t, w
from tests.checker.workload import run_workload
from tests.support.soak import seed


def told(level: str, *txns: Txn) -> list[list[Any]]:
    """Who began or ended, how, and the steps, in the order of time."""
    return [
        [operation["txn"], operation["type"], *map(list, operation["value"])]
        for operation in operations(History(level, txns))
    ]


WRITERS = (
    t("t1", w("x", "b"), x=1, began_at=0, ended_at=2),
    t("t2", w("x", "a"), is_committed=False, began_at=1, ended_at=3),
)


def test_a_table_is_told_as_one_list_in_the_order_of_versions() -> None:
    reader = t("t3", r("x", "b"), w("x", "c"), r("x", "cb"), x=2, began_at=3, ended_at=4)
    assert told("serializable", *WRITERS, reader) == [
        ["t1", "invoke", ["append", "x", "b"]],
        ["t2", "invoke", ["append", "x", "a"]],
        ["t1", "ok", ["append", "x", "b"]],
        ["t3", "invoke", ["append", "x", "c"]],
        ["t2", "fail", ["append", "x", "a"]],
        ["t3", "ok", ["r", "x", ["b"]], ["append", "x", "c"], ["r", "x", ["b", "c"]]],
        ["final", "invoke"],
        ["final", "ok", ["r", "x", ["b", "c"]]],
    ]


def test_reads_of_an_aborted_transaction_are_told_as_another_that_only_reads() -> None:
    aborted = t("t3", r("x", "b"), w("x", "c"), r("x", "bc"), is_committed=False)
    assert [one for one in told("serializable", *WRITERS[:1], aborted) if one[0] == "t3" and one[1] != "invoke"] == [
        ["t3", "fail", ["r", "x", ["b"]], ["append", "x", "c"], ["r", "x", ["b", "c"]]],
        ["t3", "ok", ["r", "x", ["b"]], ["r", "x", ["b"]]],
    ]


def test_list_that_is_gone_is_told_as_empty() -> None:
    *_, end = operations(History("strict", WRITERS, {}))
    assert end["value"] == [("r", "x", [])]


def test_values_without_an_order_are_told_as_a_list_each() -> None:
    reader = t("t3", r("x"), w("x", "c"), x=2, began_at=1, ended_at=4)
    assert [one for one in told("snapshot", WRITERS[0], reader) if one[1] == "ok"] == [
        ["t1", "ok", ["append", "x b", "b"]],
        ["t3", "ok", ["r", "x b", []], ["append", "x c", "c"]],
        ["final", "ok", ["r", "x b", ["b"]], ["r", "x c", ["c"]]],
    ]


def test_blind_append_that_a_writer_may_miss_is_not_told_as_missed() -> None:
    readers = t("t3", r("x"), w("y", "c"), y=1), t("t4", r("x"))
    assert [one for one in told("write_serializable", WRITERS[0], *readers) if one[0] in ("t3", "t4")][3:] == [
        ["t3", "ok", ["append", "y c", "c"], ["append", "y in order of versions", "t3"]],
        ["t3", "ok", ["r", "x b", []]],
        ["t4", "ok", ["r", "x b", []]],
    ]


# -- the program -----------------------------------------------------------------------------------------------------


@pytest.fixture
def program() -> None:
    try:
        adya()
    except NoSecondOpinion as reason:
        pytest.skip(str(reason))


SKEW = [t("t1", r("x"), r("y"), w("x", "a"), x=1), t("t2", r("x"), r("y"), w("y", "b"), y=1)]
LOST = [t("t1", r("x"), w("x", "a"), x=1), t("t2", r("x"), w("x", "b"), x=2)]
HOLE = [t("t1", r("z"), w("x", "a"), x=1), t("t2", r("x", "a"), w("y", "b"), y=1), t("t3", r("x"), r("y", "b"))]
STALE = [t("t1", w("x", "a"), x=1, began_at=0, ended_at=1), t("t2", r("x"), began_at=2, ended_at=3)]
OPPOSITE = [t("t1", w("x", "a"), w("y", "b"), x=1, y=2), t("t2", w("x", "c"), w("y", "d"), x=2, y=1)]
CIRCULAR = [t("t1", r("y", "b"), w("x", "a"), x=1), t("t2", r("x", "a"), w("y", "b"), y=1)]
ABORTED = [t("t1", w("x", "a"), is_committed=False), t("t2", r("x", "a"))]
HALF = [t("t1", w("x", "a"), w("x", "b"), x=1), t("t2", r("x", "a"))]
FORK = [
    t("t1", w("x", "a"), x=1),
    t("t2", w("y", "b"), y=1),
    t("t3", r("x", "a"), r("y")),
    t("t4", r("x"), r("y", "b")),
]


@pytest.mark.soak(only=True)
@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    ("txns", "levels", "kind"),
    [
        pytest.param(OPPOSITE, LEVELS[:3], "G0", id="write cycle"),
        pytest.param(ABORTED, LEVELS, "G1a", id="dirty read"),
        pytest.param(HALF, SERIAL, "G1b", id="intermediate read"),
        pytest.param(HALF, LEVELS[2:], "G-single", id="intermediate read of values"),
        pytest.param(CIRCULAR, LEVELS, "G1c", id="circular flow"),
        pytest.param(HOLE, LEVELS, "G-single", id="hole in the past"),
        pytest.param(STALE, LEVELS, "G-single-item-realtime", id="stale read"),
        pytest.param(LOST, SERIAL, "lost-update", id="lost update"),
        pytest.param(LOST, LEVELS[2:3], "G-single", id="lost update of values"),
        pytest.param(SKEW, LEVELS[:3], "G2", id="write skew"),
        pytest.param(FORK, LEVELS, "G-nonadjacent", id="long fork"),
    ],
)
@pytest.mark.control("N1")
def test_bad_history_is_found_by_the_second_opinion_too(txns: list[Txn], levels: Sequence[str], kind: str) -> None:
    for level in levels:
        found = kinds(find_by_adya(History(level, txns)))
        assert any(name.startswith(kind) for name in found), (level, found)


@pytest.mark.soak(only=True)
@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.control("N1")
def test_lost_write_is_found_by_the_second_opinion_too(level: str) -> None:
    writer = t("t1", w("x", "a"), w("y", "b"), x=1, y=1, began_at=0, ended_at=1)
    assert find_by_adya(History(level, [writer], {"x": "a", "y": "b"})) == []
    assert find_by_adya(History(level, [writer], {"y": "b"})) != []


@pytest.mark.soak(only=True)
@pytest.mark.usefixtures("program")
@given(small_histories())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_second_opinion_agrees_with_our_checker(txns: list[Txn]) -> None:
    """Under the weaker levels it may find more than ours, such as a long fork, but nothing in a serial history."""
    ours = {level: find_anomalies(History(level, txns)) for level in LEVELS}
    theirs = {level: find_by_adya(History(level, txns)) for level in LEVELS}
    for level in LEVELS:
        assert bool(ours[level]) <= bool(theirs[level]) <= bool(ours["strict"]), (level, ours, theirs)


@pytest.mark.soak(only=True)
@pytest.mark.usefixtures("program")
@pytest.mark.backends("postgres")
@pytest.mark.xdist_group("races")
@pytest.mark.control("N1")
def test_missing_version_check_is_found_by_the_second_opinion_too(catalog: deltars.Catalog, catalog_uri: str) -> None:
    [(history, _)] = run_workload(
        catalog,
        catalog_uri,
        ["strict"],
        clients=4,
        count=30,
        seed=seed(),
        tables=2,
        sabotage=sabotage.no_version_check,
    )
    assert kinds(find_anomalies(history)) & {anomalies.LOST_UPDATE, anomalies.SINGLE}
    found = kinds(find_by_adya(history))
    assert any(name.startswith(("lost-update", "G-single", "incompatible-order")) for name in found), found
