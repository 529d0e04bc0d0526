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


def _check(catalog: deltars.Catalog, spark: SparkSession, name: str, wanted: Any, *, type: int, **options: Any) -> None:
    rounds = scaled(1, soak=100)
    for number in range(rounds):
        draw = random.Random(seed() + number)
        events = stream(draw, draw.randrange(10, 30))
        table = f"{name}{number}"
        for batch in batches(draw, events, 3):
            with catalog.begin(isolation="serializable") as tx:
                tx.apply_changes(
                    table,
                    _frame(batch),
                    keys="id",
                    sequence_by="at",
                    apply_as_deletes="gone",
                    stored_as_scd_type=type,  # type: ignore[arg-type]
                    spark=spark,
                    **options,
                )
        found = catalog.table(table).to_arrow().to_pylist()
        assert _sorted(found) == _sorted(wanted(events)), f"DELTARS_SEED={seed()}, round {number}: {events}"
    record(f"change feeds in any order, {name}", streams=rounds)


def test_last_states_do_not_depend_on_the_order_of_arrival(catalog: deltars.Catalog, spark: SparkSession) -> None:
    _check(catalog, spark, "states", last_states, type=1, except_column_list="gone")


@pytest.mark.soak(only=True)
def test_histories_do_not_depend_on_the_order_of_arrival(catalog: deltars.Catalog, spark: SparkSession) -> None:
    _check(catalog, spark, "history", history, type=2, except_column_list=["gone", "at"])


@pytest.mark.soak(only=True)
def test_histories_of_some_columns_do_not_depend_on_the_order_of_arrival(
    catalog: deltars.Catalog, spark: SparkSession
) -> None:
    _check(
        catalog,
        spark,
        "tracked",
        lambda events: history(events, tracked=["name"]),
        type=2,
        except_column_list=["gone", "at"],
        track_history_column_list="name",
    )
