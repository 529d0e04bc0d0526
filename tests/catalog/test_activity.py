"""What happened in a catalog: transactions by time, lost races, and which tables made which."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from deltars.log.read_description import MOST_CHARACTERS
from tests.console.history import HOSTILE, fill, lose_a_race

ROWS = pa.table({"id": [1, 2], "v": [1, 2]})


def test_transactions_are_listed_whole_and_newest_first(catalog: deltars.Catalog) -> None:
    fill(catalog)
    found = catalog.activity()
    assert [one.txn_id for one in found] == [one.txn_id for one in sorted(found, key=lambda o: o.committed_at)][::-1]
    [both] = [one for one in found if one.committer == "ada"]
    assert dict(both.versions) == {"features": 1, "labels": 1}
    assert (both.operations, both.isolation) == (("WRITE",), "strict")
    assert both.published_at is not None
    assert both.published_at >= both.committed_at
    assert found[0].published_at is None  # its mirror was off
    assert catalog.activity(limit=2) == found[:2]
    assert catalog.activity(limit=0) == []
    assert catalog.activity(committer="ada") == catalog.activity(tables=["labels"], committer="ada") == [both]
    assert catalog.activity(tables=[HOSTILE], operation="WRITE")[0].read[0].condition == "`id` > 2"
    assert catalog.activity(since=found[1].committed_at) == found[:2]
    assert catalog.activity(until=found[1].committed_at) == found[2:]
    assert "<script>" not in catalog.activity()._repr_html_()  # type: ignore[attr-defined]


@pytest.mark.backends("sqlite")
def test_more_tables_than_the_limit_make_one_transaction(catalog: deltars.Catalog) -> None:
    for _ in range(3):
        with catalog.begin() as tx:
            for name in "abcd":
                tx.write(name, ROWS)
    assert [dict(one.versions) for one in catalog.activity(limit=2)] == [
        dict.fromkeys("abcd", 2),
        dict.fromkeys("abcd", 1),
    ]


def test_lost_race_is_recorded_with_its_winner(catalog: deltars.Catalog) -> None:
    catalog.create_table("features", "id BIGINT, v BIGINT, day DATE")
    assert catalog.conflicts() == []
    lose_a_race(catalog)
    [race] = catalog.conflicts(tables=["features"])
    winner = catalog.table("features").history(1)[0]
    assert (race.table, race.rule, race.committer, race.isolation) == ("features", "VersionConflict", "loser", "strict")
    assert (race.winning_txn_id, race.winning_version) == (winner.txn_id, 1)
    assert (race.expected_version, race.actual_version) == (0, 1)
    assert catalog.conflicts(since=race.recorded_at + timedelta(seconds=1)) == []
    assert catalog.conflicts(since=race.recorded_at, limit=1) == [race]


@pytest.mark.backends("sqlite")
def test_rule_and_reason_of_a_conflict_by_rows(catalog: deltars.Catalog) -> None:
    catalog.write("t", ROWS)
    first, second = (catalog.begin(isolation="serializable") for _ in range(2))
    first.delete("t", "id = 1")
    second.delete("t", "id = 1")
    first.commit()
    with pytest.raises(deltars.ConcurrentDeleteDelete):
        second.commit()
    [race] = catalog.conflicts()
    assert (race.rule, race.operation) == ("ConcurrentDeleteDelete", "DELETE")
    assert race.reason is not None
    assert "which this transaction changes too" in race.reason


def test_lineage_follows_what_transactions_read(catalog: deltars.Catalog) -> None:
    catalog.write("raw", ROWS)
    for source, target in (("raw", "clean"), ("clean", "features"), ("clean", "features")):
        with catalog.begin() as tx:
            tx.write(target, tx.to_arrow(source))
    up = [(edge.source, edge.target, edge.depth, edge.num_commits) for edge in catalog.lineage("features")]
    assert up == [("clean", "features", 1, 2), ("raw", "clean", 2, 1)]
    down = [(edge.source, edge.target, edge.depth) for edge in catalog.lineage("raw", downstream=True)]
    assert down == [("raw", "clean", 1), ("clean", "features", 2)]
    assert [edge.target for edge in catalog.lineage("raw", downstream=True, depth=1)] == ["clean"]
    assert catalog.lineage("raw") == []
    catalog.drop_table("clean")
    assert [edge.source for edge in catalog.lineage("features", depth=1)] == ["clean"]


@pytest.mark.backends("sqlite")
def test_circle_of_tables_ends(catalog: deltars.Catalog) -> None:
    catalog.write("a", ROWS)
    for source, target in (("a", "b"), ("b", "a")):
        with catalog.begin() as tx:
            tx.write(target, tx.to_arrow(source))
    assert len(catalog.lineage("a", depth=50)) == 2


@pytest.mark.backends("sqlite")
def test_setting_turns_recording_off(migrated_uri: str, tmp_path: Path) -> None:
    with deltars.connect(migrated_uri, warehouse=tmp_path / "w", record_activity=False) as catalog:
        catalog.write("features", ROWS)
        with catalog.begin() as tx:
            tx.write("copy", tx.to_arrow("features"))
        first, second = catalog.begin(), catalog.begin()
        for tx in (first, second):
            tx.write("features", ROWS)
        first.commit()
        with pytest.raises(deltars.VersionConflict):
            second.commit()
        assert catalog.conflicts() == []
        assert catalog.lineage("copy") == []
        assert len(catalog.activity()) == 3


def test_expire_deletes_what_was_recorded_before(catalog: deltars.Catalog) -> None:
    catalog.write("features", ROWS)
    with catalog.begin() as tx:
        tx.write("copy", tx.to_arrow("features"))
    first, second = catalog.begin(), catalog.begin()
    for tx in (first, second):
        tx.write("features", ROWS)
    first.commit()
    with pytest.raises(deltars.VersionConflict):
        second.commit()
    now = datetime.now(UTC)
    catalog.expire(now - timedelta(days=40))
    assert (len(catalog.conflicts()), len(catalog.lineage("copy"))) == (1, 1)
    catalog.expire(timedelta(0), force=True)
    assert (catalog.conflicts(), catalog.lineage("copy")) == ([], [])


@pytest.mark.backends("sqlite")
def test_long_condition_is_cut(catalog: deltars.Catalog) -> None:
    catalog.write("features", ROWS)
    with catalog.begin() as tx:
        rows = tx.to_arrow("features", where=f"id IN ({', '.join(map(str, range(5_000)))}) AND v <> {'1' * 15}")
        tx.write("copy", rows)
    [read] = catalog.activity(limit=1)[0].read
    assert read.condition is not None
    assert len(read.condition) <= MOST_CHARACTERS
    assert read.condition.startswith("`id` IN (0, 1, 2")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "call",
    [
        lambda catalog: catalog.activity(limit=-1),
        lambda catalog: catalog.activity(limit="many"),
        lambda catalog: catalog.activity(since="yesterday"),
        lambda catalog: catalog.activity(tables=["none"]),
        lambda catalog: catalog.activity(operation=5),
        lambda catalog: catalog.activity(committer=["ada"]),
        lambda catalog: catalog.conflicts(limit=1.5),
        lambda catalog: catalog.lineage("features", depth=0),
        lambda catalog: catalog.lineage("features", downstream="yes"),
        lambda catalog: catalog.lineage("none"),
    ],
)
def test_wrong_argument_is_an_error_of_ours(catalog: deltars.Catalog, call: object) -> None:
    catalog.write("features", ROWS)
    with pytest.raises((deltars.ValidationError, deltars.TableNotFound, deltars.errors.ConfigError)):
        call(catalog)  # type: ignore[operator]
