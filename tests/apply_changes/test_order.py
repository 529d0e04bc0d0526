"""Change feeds in any order: shuffled, cut into batches, repeated. The end is that of the events in their order."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from tests.apply_changes.model import Event, Row, batches, history, last_states, stream
from tests.support.soak import record, scaled, seed

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.timeout(900), pytest.mark.soak]

SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("gone", pa.bool_())]
)


def _frame(events: list[Event]) -> pa.Table:
    return pa.Table.from_pylist([vars(event) for event in events], schema=SCHEMA)


def _sorted(rows: list[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.fixture(params=["here", pytest.param("spark", marks=pytest.mark.soak(only=True))])
def spark_or_here(request: pytest.FixtureRequest) -> SparkSession | None:
    """Who applies the events: Spark, or this process."""
    if request.param == "here":
        return None
    request.getfixturevalue("all_by_spark")
    spark: SparkSession = request.getfixturevalue("spark")
    return spark


def _check(
    catalog: deltars.Catalog, spark: SparkSession | None, name: str, wanted: Any, *, type: int, **options: Any
) -> None:
    rounds = scaled(3, soak=300) if spark is None else scaled(1, soak=30)
    for number in range(rounds):
        draw = random.Random(seed() + number)
        events = stream(draw, draw.randrange(10, 30))
        table = f"{name}{number}"
        for batch in batches(draw, events, 3):
            rows = _frame(batch)
            frame = rows if spark is None else spark.createDataFrame(rows)
            with catalog.begin(isolation="serializable") as tx:
                tx.apply_changes(
                    table,
                    frame,
                    keys="id",
                    sequence_by="at",
                    apply_as_deletes="gone",
                    stored_as_scd_type=type,  # type: ignore[arg-type]
                    **options,
                )
        found = catalog.table(table).to_arrow().to_pylist()
        assert _sorted(found) == _sorted(wanted(events)), f"DELTARS_SEED={seed()}, round {number}: {events}"
    place = "in this process" if spark is None else "on Spark"
    record(f"change feeds in any order, {name}, {place}", streams=rounds)


def test_last_states_do_not_depend_on_the_order_of_arrival(
    catalog: deltars.Catalog, spark_or_here: SparkSession | None
) -> None:
    _check(catalog, spark_or_here, "states", last_states, type=1, except_column_list="gone")


def test_histories_do_not_depend_on_the_order_of_arrival(
    catalog: deltars.Catalog, spark_or_here: SparkSession | None
) -> None:
    _check(catalog, spark_or_here, "history", history, type=2, except_column_list=["gone", "at"])


def test_histories_of_some_columns_do_not_depend_on_the_order_of_arrival(
    catalog: deltars.Catalog, spark_or_here: SparkSession | None
) -> None:
    _check(
        catalog,
        spark_or_here,
        "tracked",
        lambda events: history(events, tracked=["name"]),
        type=2,
        except_column_list=["gone", "at"],
        track_history_column_list="name",
    )
