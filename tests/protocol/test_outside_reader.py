"""A log written with nothing but this layer, read by another implementation."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from deltars.protocol import (
    AddFile,
    FileStats,
    Metadata,
    StructType,
    encode_commit,
    encode_stats,
    partition_directory,
    path_to_uri,
    protocol_for_new_table,
    schema_from_ddl,
    schema_to_arrow,
    serialize_partition_value,
)

NASTY = [
    None, "a", "a b", "a/b", "..", "a:colon", "100%", "%20", "/%20%f", "it's", 'say "x"', "a=b&c", "😀",
    "größe", "back\\slash", "tab\tnewline\n", "null", "a+b", "#hash?", "{[^]}", "\x7f", "no\u00a0break", "<>|`~",
]  # fmt: skip


def _create(root: Path, schema: StructType, partition_columns: list[str], rows: list[dict[str, Any]]) -> None:
    """A table with one file a row."""
    adds = []
    for number, row in enumerate(rows):
        values = {name: serialize_partition_value(row[name], schema[name].type) for name in partition_columns}
        path = "/".join(filter(None, [partition_directory(partition_columns, values), f"part {number}.parquet"]))
        data = {name: value for name, value in row.items() if name not in partition_columns}
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        columns = pa.schema([column for column in schema_to_arrow(schema) if column.name in data])
        pq.write_table(pa.Table.from_pylist([data], schema=columns), file)
        stats = FileStats(1, data, data, {name: int(value is None) for name, value in data.items()})
        adds.append(
            AddFile(
                path=path_to_uri(path),
                partition_values=values,
                size=file.stat().st_size,
                modification_time=number,
                data_change=True,
                stats=encode_stats(stats, schema),
            )
        )
    metadata = Metadata(id="x", schema_string=schema.to_json(), partition_columns=partition_columns)
    log = root / "_delta_log" / f"{0:020}.json"
    log.parent.mkdir()
    log.write_bytes(encode_commit([protocol_for_new_table(schema, {}), metadata, *adds]))


def _query(root: Path, sql: str) -> list[dict[str, Any]]:
    result = QueryBuilder().register("t", DeltaTable(str(root))).execute(sql).read_all()
    rows: list[dict[str, Any]] = pa.table(result).to_pylist()
    return rows


def test_files_of_every_strange_partition_are_found(tmp_path: Path) -> None:
    schema = schema_from_ddl("id BIGINT, p STRING")
    _create(tmp_path, schema, ["p"], [{"id": number, "p": value} for number, value in enumerate(NASTY)])
    rows = _query(tmp_path, "SELECT id, p FROM t ORDER BY id")
    assert [row["p"] for row in rows] == NASTY


PARTITIONS: list[tuple[str, list[Any]]] = [
    ("BIGINT", [-(2**63), 2**63 - 1, None]),
    ("INT", [0, None]),
    ("BOOLEAN", [True, False, None]),
    ("DOUBLE", [0.1, -0.0, 1e300, math.inf, -math.inf, None]),
    ("FLOAT", [0.5, None]),
    ("DECIMAL(38,10)", [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001"), None]),
    ("DATE", [date(1, 1, 1), date(9999, 12, 31), None]),
    (
        "TIMESTAMP",
        [datetime(1970, 1, 1, 0, 0, 0, 123456, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC), None],
    ),
    ("TIMESTAMP_NTZ", [datetime(2013, 7, 5, 17, 1, 0, 123456), datetime(1969, 12, 31, 23, 59, 59), None]),
]


@pytest.mark.parametrize(("ddl", "values"), PARTITIONS)
def test_partition_values_of_every_type_are_read(tmp_path: Path, ddl: str, values: list[Any]) -> None:
    schema = schema_from_ddl(f"id BIGINT, p {ddl}")
    _create(tmp_path, schema, ["p"], [{"id": number, "p": value} for number, value in enumerate(values)])
    assert [row["p"] for row in _query(tmp_path, "SELECT id, p FROM t ORDER BY id")] == values


def test_statistics_are_understood_and_never_skip_a_row_that_matches(tmp_path: Path) -> None:
    schema = schema_from_ddl("id BIGINT, s STRING, t TIMESTAMP, d DECIMAL(20,2), x DOUBLE, day DATE")
    moment = datetime(2024, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {"id": 1, "s": "a" * 40, "t": moment, "d": Decimal("1.50"), "x": 0.1, "day": date(2024, 1, 1)},
        {"id": 2, "s": "é" * 40, "t": moment, "d": Decimal("-7.25"), "x": math.nan, "day": date(1, 1, 1)},
        {"id": 3, "s": None, "t": None, "d": None, "x": None, "day": None},
    ]
    _create(tmp_path, schema, [], rows)
    for where, ids in (
        (f"s = '{'a' * 40}'", [1]),
        (f"s = '{'é' * 40}'", [2]),
        ("t = TIMESTAMP '2024-01-01T00:00:00.001999Z'", [1, 2]),
        ("d = 1.50", [1]),
        ("d < 0", [2]),
        ("x = 0.1", [1]),
        ("day = DATE '2024-01-01'", [1]),
        ("s IS NULL", [3]),
    ):
        found = [row["id"] for row in _query(tmp_path, f"SELECT id FROM t WHERE {where} ORDER BY id")]
        assert found == ids, where
