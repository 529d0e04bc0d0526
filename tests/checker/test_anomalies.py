"""The checker itself: for every anomaly a history that has it and one that only looks like it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker import anomalies
from tests.checker.anomalies import Anomaly, find_anomalies, kinds
from tests.checker.history import Append, History, Read, Step, Txn

LEVELS = ("strict", "serializable", "write_serializable", "snapshot")
SERIAL = LEVELS[:2]


def r(table: str, values: str = "", **more: Any) -> Read:
    """Each letter a value."""
    return Read(table, tuple(values), **more)


def w(table: str, value: str) -> Append:
    return Append(table, value)


def t(name: str, *steps: Step, **more: Any) -> Txn:
    """`x=1` is the version that it wrote of x."""
    versions = {key: value for key, value in more.items() if len(key) == 1}
    return Txn(name, steps, versions, **{key: value for key, value in more.items() if len(key) > 1})


def found(*txns: Txn, level: str = "strict", final: Mapping[str, Sequence[str]] | None = None) -> set[str]:
    return kinds(find_anomalies(History(level, txns, final)))


@pytest.mark.parametrize("level", LEVELS)
def test_transactions_one_after_the_other_are_right(level: str) -> None:
    history = [
        t("t1", w("x", "a"), w("y", "b"), x=1, y=1, began_at=0, committing_at=1, ended_at=2),
        t("t2", r("x", "a", at=4), r("y", "b", at=4), w("x", "c"), x=2, began_at=3, committing_at=5, ended_at=6),
        t("t3", r("x", "ac", at=8), w("y", "d"), w("y", "e"), y=2, began_at=7, committing_at=9, ended_at=10),
        t("t4", r("y", "bde", at=12), r("x", "ac", at=12), began_at=11, committing_at=12, ended_at=13),
    ]
    assert not found(*history, level=level, final={"x": "ac", "y": "bde"})


# -- one transaction's reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_dirty_read_of_an_aborted_transaction(level: str) -> None:
    aborted = t("t1", w("x", "a"), is_committed=False)
    assert found(aborted, t("t2", r("x", "a")), level=level) == {anomalies.DIRTY_READ}
    assert found(aborted, t("t2", r("x")), level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_dirty_read_of_a_transaction_that_commits_later(level: str) -> None:
    writer = t("t1", w("x", "a"), x=1, began_at=0, committing_at=5, ended_at=6)
    assert found(writer, t("t2", r("x", "a", at=4)), level=level) == {anomalies.DIRTY_READ}
    assert found(writer, t("t2", r("x", "a", at=5.5)), level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_intermediate_read_of_half_a_transaction(level: str) -> None:
    writer = t("t1", w("x", "a"), w("x", "b"), x=1)
    assert anomalies.INTERMEDIATE_READ in found(writer, t("t2", r("x", "a")), level=level)
    assert found(writer, t("t2", r("x", "ab")), level=level) == set()
    assert found(writer, t("t2", r("x")), level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_fractured_read_of_two_tables(level: str) -> None:
    writer = t("t1", w("x", "a"), w("y", "b"), x=1, y=1)
    assert anomalies.FRACTURED_READ in found(writer, t("t2", r("x", "a"), r("y")), level=level)
    assert anomalies.FRACTURED_READ in found(writer, t("t2", r("y", "b"), r("x"), is_committed=False), level=level)
    assert found(writer, t("t2", r("x", "a"), r("y", "b")), level=level) == set()
    assert found(writer, t("t2", r("x"), r("y")), level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_fractured_read_through_a_later_writer_of_one_table(level: str) -> None:
    writers = [t("t1", w("x", "a"), w("y", "b"), x=1, y=1), t("t2", w("x", "c"), x=2)]
    assert anomalies.FRACTURED_READ in found(*writers, t("t3", r("x", "ac"), r("y")), level=level)
    assert found(*writers, t("t3", r("x", "ac"), r("y", "b")), level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_fractured_read_of_one_table_with_a_gap(level: str) -> None:
    writers = [t("t1", w("x", "a"), x=1), t("t2", w("x", "b"), x=2)]
    assert anomalies.FRACTURED_READ in found(*writers, t("t3", r("x", "b")), level=level)
    assert found(*writers, t("t3", r("x", "a")), level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_stale_read_of_who_began_after_a_commit(level: str) -> None:
    writer = t("t1", w("x", "a"), x=1, began_at=0, committing_at=1, ended_at=2)
    assert found(writer, t("t2", r("x", at=4), began_at=3), level=level) == {anomalies.STALE_READ}
    assert found(writer, t("t2", r("x", at=4), began_at=1.5), level=level) == set()


def test_unrepeatable_read_within_one_transaction() -> None:
    writer = t("t1", w("x", "a"), x=1)
    assert anomalies.UNREPEATABLE_READ in found(writer, t("t2", r("x"), r("x", "a")))
    assert found(writer, t("t2", r("x", "a"), w("x", "b"), r("x", "ab"), x=2)) == set()


def test_own_write_missed() -> None:
    assert found(t("t1", w("x", "a"), r("x"), x=1)) == {anomalies.OWN_WRITE_MISSED}
    assert found(t("t1", r("x"), w("x", "a"), r("x", "a"), x=1)) == set()


def test_values_from_nowhere_and_values_repeated() -> None:
    assert found(t("t1", r("x", "a"))) == {anomalies.PHANTOM_VALUE}
    writer = t("t1", w("x", "a"), x=1)
    assert found(writer, t("t2", r("x", "aa"))) == {anomalies.REPEATED_VALUE}


def test_final_state_has_what_was_committed_once_and_nothing_else() -> None:
    writers = [t("t1", w("x", "a"), x=1), t("t2", w("x", "b"), is_committed=False)]
    assert found(*writers, final={"x": "a"}) == set()
    assert found(*writers, final={"x": ""}) == {anomalies.LOST_WRITE}
    assert found(*writers, final={"x": "ab"}) == {anomalies.DIRTY_READ}
    assert found(*writers, final={"x": "aa"}) == {anomalies.REPEATED_VALUE}
    assert found(*writers, final={"x": "a", "y": "c"}) == {anomalies.PHANTOM_VALUE}


# -- cycles --------------------------------------------------------------------------------------------------------


def test_lost_update_is_two_that_read_and_wrote_one_table_unseen_by_each_other() -> None:
    both = [t("t1", r("x"), w("x", "a"), x=1), t("t2", r("x"), w("x", "b"), x=2)]
    for level in LEVELS[:3]:
        assert found(*both, level=level) == {anomalies.LOST_UPDATE}
    one_after_the_other = [both[0], t("t2", r("x", "a"), w("x", "b"), x=2)]
    assert found(*one_after_the_other) == set()


def test_lost_update_of_values_that_are_rewritten_shows_in_the_final_state_at_every_level() -> None:
    both = [t("t1", r("x"), w("x", "a"), x=1), t("t2", r("x"), w("x", "b"), x=2)]
    assert found(*both, level="snapshot", final={"x": "b"}) == {anomalies.LOST_WRITE}
    assert found(*both, level="snapshot", final={"x": "ab"}) == set()


def test_write_cycle_of_two_tables_in_opposite_order() -> None:
    opposite = [t("t1", w("x", "a"), w("y", "b"), x=1, y=2), t("t2", w("x", "c"), w("y", "d"), x=2, y=1)]
    same = [t("t1", w("x", "a"), w("y", "b"), x=1, y=1), t("t2", w("x", "c"), w("y", "d"), x=2, y=2)]
    for level in LEVELS[:3]:
        assert found(*opposite, level=level) == {anomalies.WRITE_CYCLE}
        assert found(*same, level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_circular_information_flow_is_two_that_read_each_other(level: str) -> None:
    circular = [t("t1", r("y", "b"), w("x", "a"), x=1), t("t2", r("x", "a"), w("y", "b"), y=1)]
    assert anomalies.CIRCULAR_FLOW in found(*circular, level=level)
    one_way = [t("t1", r("y"), w("x", "a"), x=1), t("t2", r("x", "a"), w("y", "b"), y=1)]
    assert found(*one_way, level=level) == set()


@pytest.mark.parametrize("level", LEVELS)
def test_g_single_is_a_past_with_a_hole(level: str) -> None:
    """t3 saw t2, which had seen t1; t3 did not see t1. No two tables were written by one transaction."""
    writers = [t("t1", w("x", "a"), x=1), t("t2", r("x", "a"), w("y", "b"), y=1)]
    assert found(*writers, t("t3", r("x"), r("y", "b"), w("z", "c"), z=1), level=level) == (
        {anomalies.SINGLE} if level != "write_serializable" else set()
    )
    assert found(*writers, t("t3", r("x", "a"), r("y", "b"), w("z", "c"), z=1), level=level) == set()
    assert found(*writers, t("t3", r("x", "a"), r("y"), w("z", "c"), z=1), level=level) == set()


def test_write_serializable_forgives_what_a_writer_did_not_see_of_a_blind_append_and_nothing_else() -> None:
    reader = t("t3", r("x"), r("y", "b"), w("z", "c"), z=1)
    second = t("t2", r("x", "a"), w("y", "b"), y=1)
    blind, seeing = t("t1", w("x", "a"), x=1), t("t1", r("z"), w("x", "a"), x=1)
    assert found(blind, second, reader, level="write_serializable") == set()
    assert found(seeing, second, reader, level="write_serializable") == {anomalies.SINGLE}
    only_reading = t("t3", r("x"), r("y", "b"))
    assert found(blind, second, only_reading, level="write_serializable") == {anomalies.SINGLE}


def test_write_skew_is_forbidden_but_under_snapshot() -> None:
    skew = [t("t1", r("x"), r("y"), w("x", "a"), x=1), t("t2", r("x"), r("y"), w("y", "b"), y=1)]
    for level in LEVELS[:3]:
        assert found(*skew, level=level) == {anomalies.WRITE_SKEW}
    assert found(*skew, level="snapshot") == set()
    seen = [skew[0], t("t2", r("x", "a"), r("y"), w("y", "b"), y=1)]
    assert found(*seen) == set()


def test_write_skew_of_three_around_three_tables() -> None:
    ring = [t(f"t{i}", r("xyz"[i]), w("xyz"[i - 1], "abc"[i]), **{"xyz"[i - 1]: 1}) for i in range(3)]
    assert found(*ring) == {anomalies.WRITE_SKEW}
    assert found(*ring[:2]) == set()


def test_reader_that_sees_an_order_which_never_was() -> None:
    """t2 came after t1 for itself; for the reader only t2 has been. Each of the three alone is right."""
    t1 = t("t1", r("x"), r("y"), w("x", "a"), x=1)
    t2 = t("t2", r("y"), w("y", "b"), y=1)
    assert found(t1, t2, t("t3", r("x"), r("y", "b"))) == {anomalies.WRITE_SKEW}
    assert found(t1, t2, t("t3", r("x", "a"), r("y"))) == set()


def test_a_cycle_is_told_edge_by_edge() -> None:
    both = [t("t1", r("x"), w("x", "a"), x=1), t("t2", r("x"), w("x", "b"), x=2)]
    assert find_anomalies(History("strict", both)) == [
        Anomaly(anomalies.LOST_UPDATE, ("t2", "t1"), "t2 -rw x-> t1 -ww x-> t2")
    ]


# -- against the definition ------------------------------------------------------------------------------------------


@st.composite
def small_histories(draw: st.DrawFn) -> list[Txn]:
    """Up to five transactions over two tables; each reads some version of a table, whichever, and appends."""
    count = draw(st.integers(1, 5))
    writes = [draw(st.sets(st.sampled_from("xy"))) for _ in range(count)]
    orders = {table: draw(st.permutations([i for i in range(count) if table in writes[i]])) for table in "xy"}
    txns = []
    for i in range(count):
        steps: list[Step] = []
        for table in sorted(draw(st.sets(st.sampled_from("xy")))):
            upto = orders[table][: draw(st.integers(0, len(orders[table])))]
            # What comes before its own write, if it is among them.
            upto = upto[: upto.index(i)] if i in upto else upto
            steps.append(Read(table, [f"{table}{j}" for j in upto]))
        steps += [Append(table, f"{table}{i}") for table in sorted(writes[i])]
        txns.append(Txn(f"t{i}", steps, {table: orders[table].index(i) + 1 for table in sorted(writes[i])}))
    return txns


def _serial_orders(txns: list[Txn]) -> Iterator[tuple[Txn, ...]]:
    """Orders in which each transaction could have run alone, with the same reads and the same versions."""
    for order in permutations(txns):
        tables: dict[str, list[str]] = {"x": [], "y": []}
        is_same = True
        for txn in order:
            is_same &= all(sorted(read.values) == sorted(tables[read.table]) for read in txn.reads)
            for step in txn.appends:
                tables[step.table].append(step.value)
                is_same &= len(tables[step.table]) == txn.versions[step.table]
        if is_same:
            yield order


@given(small_histories())
def test_a_history_is_right_just_when_it_could_have_run_one_by_one(txns: list[Txn]) -> None:
    is_serializable = next(_serial_orders(txns), None) is not None
    for level in SERIAL:
        assert (not find_anomalies(History(level, txns))) == is_serializable


@given(small_histories())
def test_what_a_level_forbids_those_above_it_forbid_too(txns: list[Txn]) -> None:
    is_right = {level: not find_anomalies(History(level, txns)) for level in LEVELS}
    assert is_right["strict"] == is_right["serializable"] <= is_right["write_serializable"]
    assert is_right["serializable"] <= is_right["snapshot"]
