"""Drawings of the pages: lanes, lineage, statistics of columns; and how they hold with 100,000 transactions."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from uuid import UUID

import pytest

import deltars
from deltars.catalog import LineageEdge
from deltars.catalog.lanes import draw
from deltars.console.column_statistics import ColumnStatistics, column_statistics
from deltars.console.graph import MOST_BOXES, Node, around, layered
from deltars.protocol import as_schema
from deltars.store.read.activity import CommitRow
from deltars.store.schema import dl_table_versions, dl_transactions
from tests.console.test_pages import client_of


def test_drawing_keeps_every_commit_inside_its_lane() -> None:
    lanes = {UUID(int=number): f"t{number}" for number in range(3)}
    commits = [
        CommitRow(UUID(int=9), 5, UUID(int=0), 1, "WRITE", None, None, 2**62),
        CommitRow(UUID(int=9), 5, UUID(int=2), 4, "WRITE", None, None, None),
        CommitRow(UUID(int=8), 99, UUID(int=77), 4, "WRITE", None, None, None),
    ]
    drawing = draw(lanes, 0, 100, commits)
    [mark] = drawing.marks
    assert [(dot.table, dot.version) for dot in mark.dots] == [("t0", 1), ("t2", 4)]
    assert drawing.labels < mark.x < drawing.width
    assert all((dot.published_x or mark.x) <= drawing.width for dot in mark.dots)
    assert draw({}, 0, 0).height > 0


def test_graph_has_each_table_once_and_arrows_to_the_right() -> None:
    def edge(source: str, target: str, depth: int) -> LineageEdge:
        return LineageEdge(source, target, depth, 1, 0, 0)

    # c is made of b and a, and b of a; d is made of c, and c of d.
    made = around(
        "c", 5, [edge("a", "c", 1), edge("b", "c", 1), edge("a", "b", 2), edge("d", "c", 1)], [edge("c", "d", 1)]
    )
    assert made is not None
    assert sorted(box.label for box in made.boxes) == ["a", "b", "c", "d"]
    x = {box.label: box.x for box in made.boxes}
    assert x["a"] < x["b"] < x["c"]
    assert len(made.arrows) == 4
    assert around("alone", 0, [], []) is None
    many = layered(
        [[Node(str(n), str(n)) for n in range(40)], [Node("m", "m")]], [(str(n), "m") for n in range(40)], "m"
    )
    assert many is not None
    assert many.boxes[MOST_BOXES - 1].label == "and 29 more"


def test_statistics_of_columns_are_bounds_of_all_files() -> None:
    schema = as_schema("id BIGINT, s STRING, p STRUCT<x: DOUBLE>, mixed STRING, none STRING")
    files = [
        '{"minValues": {"id": 3, "s": "b", "p": {"x": -0.5}, "mixed": "a"}, "nullCount": {"id": 1, "p": {"x": 0}}}',
        '{"minValues": {"id": -2, "s": "a", "mixed": 1}, "maxValues": {"id": 9, "s": "LONG"}, "nullCount": {"id": 4}}',
        None,
        "",
    ]
    found = column_statistics(schema, [file and file.replace("LONG", "z" * 99) for file in files])
    assert found["id"] == ColumnStatistics("-2", "9", 5)
    assert found["p.x"] == ColumnStatistics("-0.5", None, None)
    assert (found["s"].least, len(found["s"].most or "")) == ("a", 60)
    assert found.keys() == {"id", "s", "p.x"}


@pytest.mark.backends("sqlite")
@pytest.mark.soak(only=True)
def test_100_000_transactions_stay_fluid(catalog: deltars.Catalog) -> None:
    """Any window is answered in a second or two: far out as cells, near as marks."""
    tables = [catalog.create_table(f"t{number}", "id BIGINT").id for number in range(20)]
    with catalog._session.database.write(600) as connection:
        for begin in range(0, 100_000, 10_000):
            versions, transactions = [], []
            for number in range(begin, begin + 10_000):
                txn_id, at = UUID(int=number + 1), 1_700_000_000_000_000 + number * 3_000_000
                chosen = {tables[number % 20]: number // 20 + 1, tables[(number + 7) % 20]: 100_000 + number}
                transactions.append(
                    {
                        "txn_id": txn_id,
                        "outcome": "committed",
                        "commit_ts": at,
                        "participants": {str(k): v for k, v in chosen.items()},
                    }
                )
                versions += [
                    {"table_id": key, "version": version, "commit_ts": at, "committed_at": datetime.now(UTC),
                     "in_commit_timestamp": at // 1000, "txn_id": txn_id, "operation": "WRITE", "committer": "etl"}
                    for key, version in chosen.items()
                ]  # fmt: skip
            connection.execute(dl_transactions.insert(), transactions)
            connection.execute(dl_table_versions.insert(), versions)
    with client_of(catalog) as client:
        took = {}
        for span_s in (300_000, 100_000, 20_000, 2_000, 200):
            query = f"from=1700000000000000&to={1_700_000_000_000_000 + span_s * 1_000_000}"
            began = time.perf_counter()
            page = client.get(f"/transactions/lanes?{query}")
            took[span_s] = time.perf_counter() - began
            assert page.status_code == 200
            assert len(page.text) < 2_000_000
        assert client.get(f"/transactions.json?{query}").json()["num_commits"] == 134
        assert 'class="cell' in client.get("/transactions/lanes?from=1700000000000000&to=1700300000000000").text
    assert max(took.values()) < 10, took
