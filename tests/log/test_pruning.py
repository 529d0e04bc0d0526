"""Which files a condition passes over: all that it may, and never one with a row that matches."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings

from deltars.log.bounds import Bounds
from deltars.log.pruning import Pruner
from deltars.predicate import parse
from deltars.protocol import Metadata, PrimitiveType, StructField, StructType, schema_from_ddl
from tests.support.soak import scaled
from tests.support.where import Case, cases

DDL = (
    "id BIGINT, name STRING, price DECIMAL(38,10), at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, x DOUBLE, f FLOAT,"
    " ok BOOLEAN, s STRUCT<n: INT, t: STRUCT<deep: STRING>>, tags ARRAY<INT>, region STRING, moment TIMESTAMP"
)
PARTITIONS = ["region", "moment"]
LOW: dict[str, Any] = {
    "id": 1, "name": "ada", "at": "2026-01-01T00:00:00.000Z", "wall": "2026-01-01T00:00:00.000", "day": "2026-01-01",
    "x": 1.5, "f": 0.1, "s": {"n": 1, "t": {"deep": "k"}},
}  # fmt: skip
HIGH: dict[str, Any] = {
    "id": 9, "name": "alan", "at": "2026-01-31T00:00:00.000Z", "wall": "2026-01-31T00:00:00.000", "day": "2026-01-31",
    "x": 2.5, "f": 0.1, "s": {"n": 9, "t": {"deep": "m"}},
}  # fmt: skip
NULLS = {"id": 0, "name": 1, "x": 0, "f": 0, "ok": 3, "s": {"n": 3}, "tags": 0}
STATS = json.dumps({"numRecords": 3, "minValues": LOW, "maxValues": HIGH, "nullCount": NULLS})
VALUES = {"region": "north", "moment": "2026-01-01T12:00:00.000000Z"}


def _metadata(schema: StructType, partition_columns: list[str] | None = None) -> Metadata:
    return Metadata(id="m", schema_string=schema.to_json(), partition_columns=partition_columns or [], configuration={})


def _keeps(where: str, stats: str | None = STATS, values: dict[str, str | None] | None = None) -> bool:
    schema = schema_from_ddl(DDL)
    pruner = Pruner(parse(where, schema), _metadata(schema, PARTITIONS))
    return pruner.keeps(VALUES if values is None else values, stats)


@settings(max_examples=scaled(150, soak=10_000))
@given(cases())
@pytest.mark.soak
def test_no_file_with_a_matching_row_is_passed_over(case: Case) -> None:
    pruner = Pruner(parse(case.condition.sql, case.metadata.schema, zone=case.zone), case.metadata)
    kept = [pruner.keeps(file.partition_values, file.stats) for file in case.files]
    assert [keep or not must for keep, must in zip(kept, case.must_keep(), strict=True)] == [True] * len(kept)
    columns = {
        "partition_values": [json.dumps(file.partition_values) for file in case.files],
        "stats": pa.array([file.stats for file in case.files], pa.string()),
    }
    assert pruner.keep(pa.table(columns)).to_pylist() == kept


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ((17, 5), "112336575819.12832"),
        ((38, 20), "1.00000000000000000001"),
        ((38, 10), "-12345678901234567890.1234567890"),
        ((20, 0), "12345678901234567891"),
        ((20, 0), "-12345678901234567891"),
        ((15, 5), "1234567890.12345"),
    ],
)
def test_decimal_is_found_in_a_file_of_delta_rs(tmp_path: Path, type_: tuple[int, int], value: str) -> None:
    write_deltalake(tmp_path, pa.table({"price": pa.array([Decimal(value)], pa.decimal128(*type_))}))
    [*_, line] = next((tmp_path / "_delta_log").glob("*.json")).read_text().splitlines()
    stats = json.loads(line)["add"]["stats"]
    schema = StructType((StructField("price", PrimitiveType.decimal(*type_), True),))
    pruner = Pruner(parse(f"price = {value}BD", schema), _metadata(schema))
    assert pruner.keeps({}, stats)
    numbers = Bounds(schema).of(stats)
    [low, *_], [high, *_] = numbers.mins or [], numbers.maxs or []
    assert low is not None
    assert high is not None
    assert low <= Decimal(value) <= high


PASSED_OVER = [
    "id = 10", "id > 9", "id < 1", "id IN (0, 10)", "id = 9.5", "id > 9e0", "id IS NULL", "id <> 5 AND id = 11",
    "name = 'alana'", "name < 'ada'", "name LIKE 'b%'", "name NOT LIKE 'a%'", "price = 1 AND id = 0",
    "at > '2026-01-31 00:00:00.002'", "at < '2026-01-01'", "wall > '2026-01-31 00:00:00.002'",
    "day > '2026-01-31'", "day = '2025-12-31'", "x = 3", "x < 1.5", "x > 3 AND x < 4", "x BETWEEN 3 AND 4",
    "f = 0.1", "f <> 0.1F AND f < 7", "ok", "ok IS NOT NULL", "s.n IS NOT NULL", "s.n = 5", "s.t.deep > 'm'",
    "tags IS NULL", "region = 'south'", "region IS NULL", "region <> 'north'", "region NOT IN ('north', 'east')",
    "region LIKE 's%'", "moment > '2026-01-01 12:00:00'", "NOT (id BETWEEN 0 AND 10)", "id = NULL", "FALSE",
    "lower(name) = 'x' AND id = 10", "region = 'south' OR id = 10", "id = 5 AND region = 'south'",
]  # fmt: skip
KEPT = [
    "id = 9", "id >= 9", "id <= 1", "id <> 1", "id IN (0, 5)", "id NOT IN (1, 9)", "name = 'alan'", "name IS NULL",
    "name LIKE 'al%'", "name NOT LIKE 'ad%'", "at = '2026-01-31 00:00:00.000999'", "at > '2026-01-31 00:00:00.0005'",
    "wall = '2026-01-31 00:00:00.0001'", "day = '2026-01-31'", "x > 3", "x <> 2", "x >= CAST('NaN' AS DOUBLE)",
    "f = 0.1F", "s.n IS NULL", "s.t.deep = 'l'", "tags IS NOT NULL", "region = 'north'", "region <> 'south'",
    "moment = '2026-01-01 13:00:00+01:00'", "price = 5", "lower(name) = 'x'", "id = 10 OR lower(name) = 'x'", "TRUE",
]  # fmt: skip


@pytest.mark.parametrize("where", PASSED_OVER)
def test_file_that_cannot_match_is_passed_over(where: str) -> None:
    assert not _keeps(where)


@pytest.mark.parametrize("where", KEPT)
def test_file_that_may_match_is_kept(where: str) -> None:
    assert _keeps(where)


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        "7",
        "{}",
        '{"numRecords":"3","minValues":7,"maxValues":[],"nullCount":"x"}',
        '{"numRecords":3,"minValues":{"id":"1"},"maxValues":{"id":true},"nullCount":{"id":-1}}',
        '{"numRecords":3,"nullCount":{"id":4}}',
        '{"numRecords":3,"minValues":{"id":99999999999999999999},"maxValues":{"id":null}}',
    ],
)
def test_statistics_that_say_nothing_keep_the_file(stats: str | None) -> None:
    for where in ("id = 10", "id IS NOT NULL", "id < 0"):
        assert _keeps(where, stats)


def test_nan_is_found_whatever_a_writer_s_maximum_says() -> None:
    """NaN comes after every number, and many writers leave it out of their maxima."""
    for where in ("x > 100", "x >= 100", "x <> 2", "x = CAST('NaN' AS DOUBLE)", "NOT (x <= 100)", "x NOT IN (1D, 2D)"):
        assert _keeps(where), where
    same = '{"numRecords":1,"minValues":{"x":2.0},"maxValues":{"x":2.0}}'
    assert _keeps("x <> 2", same)
    for where in ("x = 100", "x > 100 AND x < 200", "x IN (100D, 200D)", "x < 0", "x BETWEEN 100 AND 200"):
        assert not _keeps(where), where
    nan = '{"numRecords":1,"minValues":{"x":"NaN"},"maxValues":{"x":"NaN"}}'
    for where in ("x = CAST('NaN' AS DOUBLE)", "x > 5", "x < 5"):
        assert _keeps(where, nan), where


def test_both_zeros_are_one_number() -> None:
    zero = '{"numRecords":1,"minValues":{"x":-0.0},"maxValues":{"x":-0.0}}'
    assert _keeps("x = 0", zero)
    assert _keeps("x = -0.0D", zero)
    assert not _keeps("x < 0", zero)


def test_decimals_are_compared_to_the_last_digit() -> None:
    number = "1234567890123456789012345678.0123456789"
    stats = f'{{"numRecords":1,"minValues":{{"price":{number}}},"maxValues":{{"price":{number}}}}}'
    assert _keeps(f"price = {number}", stats)
    assert not _keeps(f"price > {number}", stats)
    assert not _keeps(f"price = {number[:-1]}8", stats)
    assert not _keeps(f"price <> {number}", stats)


def test_whole_numbers_are_compared_to_the_last_digit() -> None:
    stats = '{"numRecords":1,"minValues":{"id":9007199254740993},"maxValues":{"id":9007199254740993}}'
    assert not _keeps("id = 9007199254740992", stats)
    assert _keeps("id = 9007199254740993", stats)
    # As doubles the two are one.
    assert _keeps("id = 9007199254740992e0", stats)


def test_string_bounds_that_were_cut_still_bound() -> None:
    long = "x" * 40
    cut = json.dumps({"numRecords": 1, "minValues": {"name": "x" * 32}, "maxValues": {"name": "x" * 32 + "\x7f"}})
    assert _keeps(f"name = '{long}'", cut)
    assert _keeps(f"name LIKE '{long}%'", cut)
    assert not _keeps("name = 'y'", cut)
    assert not _keeps(f"name NOT LIKE '{'x' * 10}%'", cut)
    assert _keeps(f"name NOT LIKE '{'x' * 33}%'", cut)


def test_deletion_vector_leaves_bounds_and_null_counts_on_the_safe_side() -> None:
    loose = json.dumps(json.loads(STATS) | {"tightBounds": False})
    assert not _keeps("id = 10", loose)
    assert _keeps("name IS NULL", loose)
    assert not _keeps("id IS NULL", loose)


@pytest.mark.parametrize(
    ("value", "where", "expected"),
    [
        ("", "region IS NULL", True),
        ("", "region = ''", False),
        (None, "region IS NULL", True),
        (None, "region IS NOT NULL", False),
        (None, "region <> 'x'", False),
        ("2026-01-01 12:00:00", "moment = '2026-01-01 20:00:00'", True),
        ("2026-01-01 12:00:00", "moment = '2026-01-03 12:00:00'", False),
        ("2026-01-01T12:00:00.000000Z", "moment = '2026-01-01 20:00:00'", False),
        ("nonsense", "moment = '2026-01-01 20:00:00'", True),
    ],
)
def test_partition_values_decide_exactly(value: str | None, where: str, expected: bool) -> None:
    assert _keeps(where, None, {"region": value, "moment": value}) is expected


def test_partition_value_that_is_missing_keeps_the_file() -> None:
    assert _keeps("region = 'x'", None, {})


def test_row_groups_are_judged_by_the_same_code() -> None:
    schema = schema_from_ddl("id BIGINT, name STRING")
    groups = pa.table(
        {
            "partition_values": ["{}"] * 4,
            "stats": [
                '{"minValues":{"id":1},"maxValues":{"id":5},"nullCount":{"id":0,"name":10}}',
                '{"minValues":{"id":6},"maxValues":{"id":9},"nullCount":{"id":0,"name":9}}',
                '{"minValues":{},"maxValues":{},"nullCount":{"id":10}}',
                None,
            ],
            "num_rows": [10, 10, 10, 10],
        }
    )
    metadata = _metadata(schema)
    assert Pruner(parse("id > 5", schema), metadata).keep(groups).to_pylist() == [False, True, False, True]
    assert Pruner(parse("name = 'x'", schema), metadata).keep(groups).to_pylist() == [False, True, True, True]


def test_files_are_judged_by_the_names_that_data_files_use() -> None:
    document = {"name": "id", "type": "long", "nullable": True, "metadata": {"delta.columnMapping.physicalName": "c-1"}}
    schema = StructType.from_dict({"type": "struct", "fields": [document, {**document, "name": "part",
        "metadata": {"delta.columnMapping.physicalName": "c-2"}}]})  # fmt: skip
    stats = '{"numRecords":1,"minValues":{"c-1":5,"id":100},"maxValues":{"c-1":5,"id":100}}'
    metadata = _metadata(schema, ["part"])
    assert Pruner(parse("id = 5 AND part = 1", schema), metadata).keeps({"c-2": "1"}, stats)
    assert not Pruner(parse("id = 100", schema), metadata).keeps({"c-2": "1"}, stats)
    assert not Pruner(parse("part = 2", schema), metadata).keeps({"c-2": "1"}, stats)


def test_double_column_that_was_float_is_bounded_by_what_the_float_was() -> None:
    """An old file says 0.1 for the float 0.1, which as a double is 0.10000000149011612."""
    change = {"toType": "double", "fromType": "float"}
    field = {"name": "x", "type": "double", "nullable": True, "metadata": {"delta.typeChanges": [change]}}
    schema = StructType.from_dict({"type": "struct", "fields": [field]})
    stats = '{"numRecords":1,"minValues":{"x":0.1},"maxValues":{"x":0.1}}'
    for where, expected in [
        ("x = 0.1F", True),
        ("x = 0.1D", True),
        ("x < 0.10000000149011612D AND x > 0.1D", True),
        ("x = 0.11D", False),
        ("x < 0.09D", False),
    ]:
        assert Pruner(parse(where, schema), _metadata(schema)).keeps({}, stats) is expected, where
    found = Bounds(schema).of(stats)
    assert (found.mins, found.maxs) == ([0.1, 0.1], [0.10000000149011612] * 2)


def _one_column(type_: str, low: Any, high: Any) -> tuple[StructType, str]:
    schema = schema_from_ddl(f"c {type_}")
    return schema, json.dumps({"numRecords": 1, "minValues": {"c": low}, "maxValues": {"c": high}})


def _keeps_one(type_: str, low: Any, high: Any, where: str) -> bool:
    schema, stats = _one_column(type_, low, high)
    return Pruner(parse(where, schema), _metadata(schema)).keeps({}, stats)


@pytest.mark.parametrize(
    ("type_", "bound", "where", "expected"),
    [
        # The hybrid calendar's names for 0001-01-01, 1582-10-14 and 1500-03-10.
        ("DATE", "0001-01-03", "c = '0001-01-01'", True),
        ("DATE", "1582-10-04", "c = '1582-10-14'", True),
        ("DATE", "1500-02-29", "c = '1500-03-10'", True),
        ("DATE", "1582-10-04", "c <> '1582-10-04'", True),
        ("DATE", "1582-10-10", "c = '1582-10-15'", True),
        ("DATE", "1582-10-04", "c > '1582-10-15'", False),
        ("DATE", "1582-10-15", "c < '1582-10-15'", False),
        ("DATE", "1582-10-15", "c > '1582-10-15'", False),
        ("DATE", "1500-01-01", "c >= '1600-01-01'", False),
        ("TIMESTAMP", "0001-01-03T00:00:00.000Z", "c = '0001-01-01 00:00:00'", True),
        ("TIMESTAMP", "1883-01-01T00:22:58.000Z", "c = '1883-01-01 00:00:00'", True),
        ("TIMESTAMP", "1899-12-31T23:00:00.000Z", "c > '1900-01-02'", False),
        ("TIMESTAMP", "1936-05-05T12:00:00.000+00:19", "c = '1936-05-05 11:40:28'", True),
        ("TIMESTAMP", "1936-05-05T12:00:00.000+00:19", "c = '1936-05-05 11:39:00'", False),
        ("TIMESTAMP", "2026-01-01T00:00:00.000Z", "c < '2026-01-01'", False),
        ("TIMESTAMP", "2026-01-01T00:00:00", "c = '2025-12-31 11:00:00'", True),
        ("TIMESTAMP", "2026-01-01T00:00:00", "c = '2026-01-03'", False),
        ("TIMESTAMP_NTZ", "1582-10-04T12:00:00.000", "c = '1582-10-14 12:00:00'", True),
        ("TIMESTAMP_NTZ", "1970-01-01T00:00:00.000", "c = '1969-12-31 23:59:59.9995'", True),
        ("TIMESTAMP_NTZ", "1970-01-01T00:00:00.001", "c < '1970-01-01 00:00:00.001'", False),
        # Cut between the halves of U+1F600; old maxima end in U+FFFD, which comes before it.
        ("STRING", "x" * 32 + "\ufffd", f"c = '{'x' * 32}😀'", True),
        ("STRING", "x" * 31 + "?\ufffd", f"c = '{'x' * 31}😀y'", True),
        ("STRING", "x" * 31 + "\ud83d", f"c = '{'x' * 31}😀y'", True),
        ("STRING", "x" * 32, f"c = '{'x' * 32}y'", True),
        ("STRING", "x" * 32, f"c = '{'x' * 31}y1'", False),
        ("STRING", "x" * 32 + "\x7f", "c > 'y'", False),
        ("STRING", "a\ufffd", "c = 'a😀'", True),
        ("STRING", "\U0010ffff" * 32, "c > 'y'", True),
    ],
)
def test_bounds_hold_whoever_wrote_them(type_: str, bound: str, where: str, expected: bool) -> None:
    assert _keeps_one(type_, bound, bound, where) is expected


def test_last_moments_of_the_calendar_are_bounded() -> None:
    last = "9999-12-31T23:59:59.999Z"
    assert _keeps_one("TIMESTAMP", last, last, "c > '9999-12-31 23:59:59.999'")
    assert not _keeps_one("TIMESTAMP", last, last, "c < '9999-12-31'")


def test_null_counts_of_fields_and_of_collections_prove_only_what_every_writer_means() -> None:
    """Some count a field's nulls without those of its struct, some the elements of an array that are null."""
    counts = {"s": {"n": 0}, "tags": 3}
    stats = json.dumps({"numRecords": 3, "nullCount": counts})
    assert _keeps("s.n IS NULL", stats)
    assert _keeps("tags IS NOT NULL", stats)
    assert not _keeps("id IS NULL", json.dumps({"numRecords": 3, "nullCount": {"id": 0}}))
    assert not _keeps("s.n IS NOT NULL", json.dumps({"numRecords": 3, "nullCount": {"s": {"n": 3}}}))
