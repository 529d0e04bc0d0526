"""Which files have only matching rows, so that they go unopened: never one with another row."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from deltars.log.coverage import split_files
from deltars.predicate import Predicate, parse
from deltars.protocol import Metadata, schema_from_ddl
from tests.support.soak import scaled
from tests.support.where import Case, cases

DDL = (
    "id BIGINT, name STRING, at TIMESTAMP, day DATE, x DOUBLE, ok BOOLEAN, s STRUCT<n: INT>, region STRING,"
    " price DECIMAL(38,10)"
)


def _table(rows: list[tuple[dict[str, str | None], str | None, int | None]]) -> pa.Table:
    return pa.table(
        {
            "path": [str(place) for place in range(len(rows))],
            "partition_values": pa.array([json.dumps(values) for values, _, _ in rows], pa.string()),
            "stats": pa.array([stats for _, stats, _ in rows], pa.string()),
            "num_records": pa.array([count for _, _, count in rows], pa.int64()),
        }
    )


def _metadata() -> Metadata:
    schema = schema_from_ddl(DDL)
    return Metadata(id="m", schema_string=schema.to_json(), partition_columns=["region"], configuration={})


def _is_certain(where: str, *, low: Any = None, high: Any = None, nulls: Any = None, **more: Any) -> bool:
    parts = {"minValues": low, "maxValues": high, "nullCount": nulls}
    stats = {"numRecords": 3, **{name: values for name, values in parts.items() if values is not None}, **more}
    files = _table([({"region": "north"}, json.dumps(stats), 3)])
    metadata = _metadata()
    certain, doubt = split_files(parse(where, metadata.schema), metadata, files)
    assert certain.num_rows + doubt.num_rows == 1
    return bool(certain.num_rows)


@settings(max_examples=scaled(150, soak=10_000))
@given(cases())
@pytest.mark.soak
def test_every_row_of_a_certain_file_matches(case: Case) -> None:
    predicate = parse(case.condition.sql, case.metadata.schema, zone=case.zone)
    files = _table([(file.partition_values, file.stats, None) for file in case.files])
    certain, doubt = split_files(predicate, case.metadata, files)
    assert sorted([*certain["path"].to_pylist(), *doubt["path"].to_pylist()]) == sorted(files["path"].to_pylist())
    for path in certain["path"].to_pylist():
        assert all(case.condition.of(row) is True for row in case.files[int(path)].rows)


def test_file_with_a_null_is_in_doubt() -> None:
    bounds: dict[str, Any] = {"low": {"id": 10}, "high": {"id": 11}}
    assert not _is_certain("id >= 5", **bounds, nulls={"id": 1})
    assert not _is_certain("id >= 5", **bounds)
    assert _is_certain("id >= 5", **bounds, nulls={"id": 0})


def test_field_of_a_struct_may_be_null_whatever_its_count_says() -> None:
    assert not _is_certain("s.n >= 5", low={"s": {"n": 5}}, high={"s": {"n": 6}}, nulls={"s": {"n": 0}})


def test_nan_and_zeros_have_their_places_in_spark_s_order() -> None:
    bounds: dict[str, Any] = {"low": {"x": -0.0}, "high": {"x": 2.0}, "nulls": {"x": 0}}
    assert _is_certain("x >= 0", **bounds)
    assert not _is_certain("x <= 2", **bounds)
    assert _is_certain("x <> 7", **bounds)
    assert not _is_certain("x <> CAST('NaN' AS DOUBLE)", **bounds)
    assert not _is_certain("x > 0", **bounds)


def test_bounds_that_may_be_cut_are_in_doubt_at_their_end() -> None:
    cut = {"low": {"name": "x" * 32}, "high": {"name": "x" * 32}, "nulls": {"name": 0}}
    assert not _is_certain(f"name <= '{'x' * 32}'", **cut)
    assert _is_certain("name < 'y'", **cut)
    assert _is_certain("name LIKE 'xxx%'", **cut)
    moment = {"low": {"at": "2026-01-01T00:00:00.000Z"}, "high": {"at": "2026-01-01T00:00:00.000Z"}, "nulls": {"at": 0}}
    assert not _is_certain("at <= '2026-01-01'", **moment)
    assert _is_certain("at < '2026-01-02'", **moment)
    early = {"low": {"day": "1500-01-01"}, "high": {"day": "1500-01-01"}, "nulls": {"day": 0}}
    assert not _is_certain("day < '1501-01-01'", **early)


@pytest.mark.parametrize("where", ["length(name) > 0", "name LIKE '%x%'", "id = id", "id >= 5 AND length(name) > 0"])
def test_condition_that_statistics_cannot_decide_is_in_doubt(where: str) -> None:
    assert not _is_certain(where, low={"id": 5, "name": "x"}, high={"id": 5, "name": "x"}, nulls={"id": 0, "name": 0})


def test_partition_value_decides_alone() -> None:
    assert _is_certain("region = 'north'")
    assert _is_certain("region IN ('north', 'south') AND region IS NOT NULL")
    assert not _is_certain("region = 'north' AND id > 3")
    assert _is_certain("region = 'north' OR id > 3")


def test_wide_bounds_of_a_file_with_a_vector_still_prove_a_match() -> None:
    bounds: dict[str, Any] = {"low": {"id": 10}, "high": {"id": 11}, "nulls": {"id": 0}}
    assert _is_certain("id >= 5", **bounds, tightBounds=False)
    assert not _is_certain("id >= 11", **bounds, tightBounds=False)


@pytest.mark.parametrize("predicate", [None, parse("id = 1", schema_from_ddl(DDL))])
def test_file_without_rows_is_certain(predicate: Predicate | None) -> None:
    files = _table([({}, None, 0), ({}, None, None), ({}, None, 1)])
    certain, doubt = split_files(predicate, _metadata(), files)
    expected = ["0"] if predicate else ["0", "1", "2"]
    assert certain["path"].to_pylist() == expected
    assert certain.num_rows + doubt.num_rows == 3


def test_no_files_are_split_into_none() -> None:
    certain, doubt = split_files(parse("id = 1", schema_from_ddl(DDL)), _metadata(), _table([]))
    assert (certain.num_rows, doubt.num_rows) == (0, 0)
