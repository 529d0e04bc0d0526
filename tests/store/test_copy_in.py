"""Rows of binary COPY: what PostgreSQL reads is what Arrow had."""

from __future__ import annotations

import json
import math
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Boolean, Column, Integer, MetaData, Table, Text

from deltars.store.backends.postgresql import copy_in
from deltars.store.types import Id, Instant, bounds_type, json_type
from tests.support.postgres import PostgresServer
from tests.support.soak import scaled

TABLE = Table(
    "every_type",
    MetaData(),
    Column("id", Id),
    Column("big", BigInteger),
    Column("small", Integer),
    Column("truth", Boolean),
    Column("text", Text),
    Column("document", json_type()),
    Column("moment", Instant),
    Column("numbers", bounds_type()),
)
DDL = (
    "CREATE TEMP TABLE every_type (id uuid, big bigint, small int, truth boolean, text text, document jsonb,"
    " moment timestamptz, numbers float8[])"
)
TYPES = {"big": pa.int64(), "small": pa.int32(), "truth": pa.bool_()}
NAMES = [column.name for column in TABLE.c if column.name != "numbers"]
COUNT = 3
"""Numbers in each array."""

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
moments = st.datetimes().map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0") + "Z")
rows = st.fixed_dictionaries(
    {
        "id": st.uuids().map(str),
        "big": st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-(2**31), 2**31 - 1),
        "truth": st.booleans(),
        "text": texts,
        "document": st.dictionaries(texts, texts | st.none(), max_size=3).map(json.dumps),
        "moment": moments,
    }
)
numbers = st.none() | st.lists(st.none() | st.floats(allow_subnormal=True), min_size=COUNT, max_size=COUNT)


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> Any:
    with postgres_server.connect() as connection:
        connection.execute(DDL)
        yield connection


@settings(max_examples=scaled(60, soak=2_000), suppress_health_check=list(HealthCheck))
@given(data=st.data(), values=st.lists(rows, min_size=1, max_size=8), skipped=st.integers(0, 3))
@pytest.mark.soak
def test_every_value_arrives_as_it_left(
    connection: psycopg.Connection[Any], data: st.DataObject, values: list[dict[str, Any]], skipped: int
) -> None:
    """Nulls, empty texts, infinities, NaN, -0.0, and rows that begin in the middle of their buffers."""
    for row in values:
        for name in row:
            row[name] = data.draw(st.sampled_from([row[name], row[name], None]))
    arrays = data.draw(st.lists(numbers, min_size=len(values), max_size=len(values)))
    columns = {name: pa.array([row[name] for row in values], TYPES.get(name, pa.string())) for name in NAMES}
    places = [pa.array([a[i] if a else None for a in arrays], pa.float64()) for i in range(COUNT)]
    encoded = copy_in.encode_arrays(places)
    there = pa.array([a is not None for a in arrays])
    columns["numbers"] = pa.array(
        [n if ok else None for n, ok in zip(encoded.to_pylist(), there.to_pylist(), strict=True)], pa.binary()
    )
    batch = pa.RecordBatch.from_pydict(columns).slice(min(skipped, len(values) - 1))
    with connection.transaction(force_rollback=True):
        with connection.cursor().copy(f"COPY every_type ({', '.join(columns)}) FROM STDIN (FORMAT binary)") as copy:
            for part in (copy_in.BEGIN, copy_in.encode(batch, TABLE), copy_in.END):
                copy.write(part)
        names = [
            *NAMES[:6],
            """to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""",
            "numbers",
        ]
        found = connection.execute(f"SELECT {', '.join(names)} FROM every_type").fetchall()
    expected = [
        (*(_seen(name, row[name]) for name in NAMES), array)
        for row, array in list(zip(values, arrays, strict=True))[-batch.num_rows :]
    ]
    # Rows take the places of those that were rolled back, in any order.
    assert sorted(map(_comparable, found), key=repr) == sorted(map(_comparable, expected), key=repr)


def _seen(name: str, value: Any) -> Any:
    if value is None:
        return None
    return UUID(value) if name == "id" else json.loads(value) if name == "document" else value


def _comparable(row: tuple[Any, ...]) -> list[Any]:
    """NaN equals nothing, and -0.0 equals 0.0: compare their texts."""
    *rest, array = row
    return [*rest, None if array is None else [number if number is None else repr(number) for number in array]]


def test_rows_without_any_value_are_rows_too(connection: psycopg.Connection[Any]) -> None:
    batch = pa.RecordBatch.from_pydict({"big": pa.nulls(3, pa.int64()), "text": pa.nulls(3, pa.string())})
    with connection.transaction(force_rollback=True):
        with connection.cursor().copy("COPY every_type (big, text) FROM STDIN (FORMAT binary)") as copy:
            for part in (copy_in.BEGIN, copy_in.encode(batch, TABLE), copy_in.END):
                copy.write(part)
        assert connection.execute("SELECT big, text FROM every_type").fetchall() == [(None, None)] * 3


def test_an_infinite_number_is_a_number(connection: psycopg.Connection[Any]) -> None:
    arrays = copy_in.encode_arrays([pa.array([math.inf]), pa.array([-math.inf])])
    with connection.transaction(force_rollback=True):
        with connection.cursor().copy("COPY every_type (numbers) FROM STDIN (FORMAT binary)") as copy:
            batch = pa.RecordBatch.from_pydict({"numbers": arrays})
            for part in (copy_in.BEGIN, copy_in.encode(batch, TABLE), copy_in.END):
                copy.write(part)
        assert connection.execute("SELECT numbers FROM every_type").fetchall() == [([math.inf, -math.inf],)]
