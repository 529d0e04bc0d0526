"""Sessions of Spark Connect: the same jobs see the same as in a classic session, and the classes are Spark's again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.errors import NotSupportedYet
from tests.enabled.jobs import queries, rows, tables, write_to
from tests.support.spark import connected

pytestmark = pytest.mark.backends("sqlite")

PEOPLE = [["1", "a"], ["2", "b"], ["3", "c"]]


@pytest.fixture(scope="module")
def remote(connect_url: str) -> Iterator[SparkSession]:
    with connected(connect_url) as session:
        yield session


def fail_half_way(remote: SparkSession, place: Path) -> None:
    queries(remote, str(place))
    remote.range(5).write.format("delta").mode("append").saveAsTable("people")
    assert remote.table("people").count() == 6
    raise ZeroDivisionError


@pytest.mark.soak(only=True)
def test_jobs_see_the_same_over_connect(catalog: deltars.Catalog, remote: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.connect.readwriter import DataFrameWriter

    own = DataFrameWriter.__dict__["save"]
    deltars.enable(remote, catalog)
    try:
        assert tables(remote, str(tmp_path)) == [
            "refused",
            [*PEOPLE, ["4", "d"]],
            "refused",
            [["4", "d"]],
            PEOPLE,
            [True, True, False],
            ["people"],
            [["1", "a"], ["1", "a"], ["2", "b"], ["2", "b"]],
            "refused",
        ]
        with pytest.raises(ZeroDivisionError), deltars.begin():
            fail_half_way(remote, tmp_path)
        assert sorted(table.name for table in catalog.tables()) == ["outside", "people"]
        assert rows(remote.table("people")) == [["4", "d"]]
        with pytest.raises(NotSupportedYet, match="each_batch"):
            remote.readStream.format("delta").load(str(tmp_path / "outside"))
    finally:
        deltars.disable(remote)
    assert DataFrameWriter.__dict__["save"] is own
    assert not remote.catalog.tableExists("people")


@pytest.mark.soak(only=True)
def test_new_writers_see_the_same_over_connect(catalog: deltars.Catalog, remote: SparkSession, tmp_path: Path) -> None:
    deltars.enable(remote, catalog)
    try:
        assert write_to(remote, str(tmp_path)) == [
            "refused",
            PEOPLE,
            [["1", "a"], ["3", "c"], ["9", "b"]],
            [["3", "c"], ["8", "a"], ["9", "b"]],
            "refused",
            "refused",
            [["0"], ["1"]],
            [["5"]],
            "struct<n:int>",
        ]
    finally:
        deltars.disable(remote)
