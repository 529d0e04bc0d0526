"""Statistics are bounds: nothing a file or row group holds lies outside of them."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltars.data import WriteTarget, WrittenFile, write_table, writer
from deltars.protocol import FileStats, decode_stats, schema_from_arrow

ONE_MS = timedelta(milliseconds=1)

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=100) | st.text(alphabet="z\x7f\U0010ffff\u0080", max_size=100),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us"): st.datetimes(),
    pa.decimal128(38, 10): st.decimals(min_value=-(10**27), max_value=10**27, places=10),
}


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    kind = draw(st.sampled_from(list(VALUES)))
    values = draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=30))
    return pa.array(values, kind)


def write(
    table: pa.Table, root: str, properties: Mapping[str, str] | None = None, file_size: int = 2**20
) -> list[WrittenFile]:
    target = WriteTarget(root, schema_from_arrow(table.schema), (), properties or {}, target_file_size=file_size)
    return write_table(target, table.to_batches(max_chunksize=4))


@given(columns(), st.booleans())
@example(pa.array([float("nan"), 1.0, None]), False)
@example(pa.array([float("nan")]), False)
@example(pa.array([float("nan")] * 8 + [1.0]), False)
@example(pa.array([0.0, -0.0]), False)
@example(pa.array(["a" * 31 + "\U0010ffff" * 40]), False)
def test_bounds_enclose_and_nulls_are_counted_in_every_file_and_row_group(column: pa.Array, nested: bool) -> None:
    table = pa.table({"c": column})
    if nested:
        outer = pa.StructArray.from_arrays(
            [column], names=["c"], mask=pa.array([i % 5 == 4 for i in range(len(column))])
        )
        table = pa.table({"s": outer})
    schema = schema_from_arrow(table.schema)
    with tempfile.TemporaryDirectory() as root, mock.patch.object(writer, "ROW_GROUP_BYTES", 64):
        for file in write(table, root, file_size=1_000):
            parquet = pq.ParquetFile(f"{root}/{file.add.path}")
            parts = [(file.add.stats, parquet.read())]
            parts += [(group.stats, parquet.read_row_group(group.ordinal)) for group in file.row_groups]
            assert len(parts) == 1 + parquet.num_row_groups
            for text, rows in parts:
                values = rows["s"].combine_chunks().flatten()[0] if nested else rows["c"]
                check(decode_stats(text or "", schema), values.to_pylist(), nested)
            assert decode_stats(file.add.stats or "", schema).num_records == parquet.metadata.num_rows


def check(stats: FileStats, values: list[Any], nested: bool) -> None:
    minimum: Any
    maximum: Any
    minimum, maximum, nulls = (
        (part.get("s", {}) if nested else part).get("c")
        for part in (stats.min_values, stats.max_values, stats.null_count)
    )
    present = [value for value in values if value is not None]
    assert nulls == len(values) - len(present)
    if not present:
        assert (minimum, maximum) == (None, None)
        return
    assert minimum is not None
    if isinstance(present[0], float):
        assert same(minimum, min(present, key=nan_last))
        assert same(maximum, max(present, key=nan_last))
    elif isinstance(present[0], datetime):
        assert minimum <= min(present) < minimum + ONE_MS
        assert maximum <= max(present) < maximum + ONE_MS
    elif isinstance(present[0], str):
        assert minimum == min(present)[:32]
        assert len(max(present)) > 64 if maximum is None else max(present) <= maximum
        assert maximum is None or len(max(present)) > 32 or maximum == max(present)
    else:
        assert (minimum, maximum) == (min(present), max(present))


def nan_last(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def stats_of(table: pa.Table, root: str, properties: Mapping[str, str] | None = None) -> dict[str, Any]:
    (file,) = write(table, root, properties)
    stats: dict[str, Any] = json.loads(file.add.stats or "")
    return stats


def test_zero_bounds_cover_both_signs(tmp_path_str: str) -> None:
    stats = stats_of(pa.table({"c": [0.0, -0.0]}), tmp_path_str)
    assert math.copysign(1, stats["minValues"]["c"]) == -1
    assert math.copysign(1, stats["maxValues"]["c"]) == 1


def test_nan_is_the_greatest_value(tmp_path_str: str) -> None:
    stats = stats_of(pa.table({"c": [float("nan"), 1.0, float("inf")]}), tmp_path_str)
    assert (stats["minValues"], stats["maxValues"]) == ({"c": 1.0}, {"c": "NaN"})


def test_types_without_bounds_have_their_nulls_counted(tmp_path_str: str) -> None:
    table = pa.table({"b": [True, None], "x": [b"a", None], "l": [[1], None], "i": [1, 2]})
    stats = stats_of(table, tmp_path_str)
    assert (stats["minValues"], stats["maxValues"]) == ({"i": 1}, {"i": 2})
    assert stats["nullCount"] == {"b": 1, "x": 1, "l": 1, "i": 0}


def test_nulls_of_a_struct_count_for_its_fields(tmp_path_str: str) -> None:
    stats = stats_of(pa.table({"s": [{"a": {"b": 1}}, {"a": None}, None]}), tmp_path_str)
    assert stats["nullCount"] == {"s": {"a": {"b": 2}}}
    assert stats["minValues"] == {"s": {"a": {"b": 1}}}


def test_the_first_32_leaves_have_statistics(tmp_path_str: str) -> None:
    table = pa.table({f"c{i}": [i] for i in range(40)})
    assert list(stats_of(table, tmp_path_str)["nullCount"]) == [f"c{i}" for i in range(32)]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"delta.dataSkippingNumIndexedCols": "1"}, {"a": 0}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, None),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"a": 0, "s": {"x": 0, "y": 0}}),
        ({"delta.dataSkippingStatsColumns": "s.y"}, {"s": {"y": 0}}),
    ],
)
def test_properties_choose_the_columns(
    tmp_path_str: str, properties: dict[str, str], expected: dict[str, Any] | None
) -> None:
    stats = stats_of(pa.table({"a": [1], "s": [{"x": 1, "y": 2}]}), tmp_path_str, properties)
    assert stats["numRecords"] == 1
    assert (stats.get("nullCount") or None) == expected


def test_the_prefix_length_of_strings_is_a_property(tmp_path_str: str) -> None:
    stats = stats_of(pa.table({"c": ["abcdef"]}), tmp_path_str, {"delta.dataSkippingStringPrefixLength": "3"})
    assert stats["minValues"] == {"c": "abc"}
    assert stats["maxValues"] == {"c": "abc\x7f"}


def test_times_beyond_pythons_calendar_have_no_bound(tmp_path_str: str) -> None:
    table = pa.table(
        {
            "t": pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "d": pa.array([0, -(2**30)], pa.int32()).cast(pa.date32()),
        }
    )
    stats = stats_of(table, tmp_path_str)
    assert stats["minValues"] == {"t": "1970-01-01T00:00:00.000Z"}
    assert stats["maxValues"] == {"d": "1970-01-01"}
    assert stats["nullCount"] == {"t": 0, "d": 0}


def test_decimals_are_exact_numbers(tmp_path_str: str) -> None:
    value = Decimal("12345678901234567890123456.789")
    (file,) = write(
        pa.table({"c": pa.array([value], pa.decimal128(38, 3))}),
        tmp_path_str,
    )
    assert '"minValues":{"c":12345678901234567890123456.789}' in (file.add.stats or "")


def test_dates_are_iso_text(tmp_path_str: str) -> None:
    assert stats_of(pa.table({"c": [date(2024, 2, 29)]}), tmp_path_str)["minValues"] == {"c": "2024-02-29"}


@pytest.fixture
def tmp_path_str(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("table"))
