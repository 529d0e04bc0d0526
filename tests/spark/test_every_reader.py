"""Edge values of every type, by every writer: each reader finds the same rows with a filter as without one.

A reader with a filter skips files by the log's statistics, row groups by footers, pages by their index, and values by
dictionaries. Whatever a reader holds of NaN or of -0.0, it must be the same for the rows that it reads, and for those
that it skips: so its filters are compared with its own answers to the same conditions, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from tests.mirror.test_readers import by_deltalake, by_duckdb, by_polars, load_extension
from tests.spark.test_round_trip import shown
from tests.support.delta_spark import DeltaSpark
from tests.support.soak import is_soak

NAN, INF = float("nan"), float("inf")
FAR, EARLY = datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1583, 1, 1)

# Edge values, and one in their middle that stands beside each of them in its file.
VALUES: dict[str, tuple[pa.DataType, Any, list[Any]]] = {
    "byte": (pa.int8(), 1, [-128, 127, None]),
    "short": (pa.int16(), 1, [-(2**15), 2**15 - 1, None]),
    "int": (pa.int32(), 1, [-(2**31), 2**31 - 1, None]),
    "long": (pa.int64(), 1, [-(2**63), 2**63 - 1, 2**53 + 1, None]),
    "f": (pa.float32(), 1.0, [NAN, -0.0, 0.0, INF, -INF, None, 1e-45]),
    "d": (pa.float64(), 1.0, [NAN, -0.0, 0.0, INF, -INF, None, 5e-324]),
    "zero": (pa.float64(), -0.0, [-0.0, 0.0, NAN]),
    "small": (pa.decimal128(5, 2), Decimal("1.00"), [Decimal("-999.99"), Decimal("999.99"), Decimal("-0.01"), None]),
    "large": (pa.decimal128(38, 10), Decimal("1.0000000000"), [Decimal("-1e27"), Decimal("1e27"), Decimal("-1e-10")]),
    "wide": (pa.decimal128(18, 4), Decimal("1.0000"), [Decimal("-1e13"), Decimal("1e13"), None]),
    "text": (pa.string(), "m", ["", "é", "\ue000", "😀", "Z", "\x00", None, "\U0010ffff" * 40, "z" * 100]),
    "bytes": (pa.binary(), b"m", [b"", b"\x80", b"\xff\xff", b"\x7f", None, b"\xff" * 100]),
    "yes": (pa.bool_(), True, [False, True, None]),
    "day": (pa.date32(), date(2026, 1, 1), [EARLY.date(), date(9999, 12, 31), date(1969, 12, 31), None]),
    "moment": (
        pa.timestamp("us", "UTC"),
        datetime(2026, 1, 1, tzinfo=UTC),
        [EARLY.replace(tzinfo=UTC), FAR.replace(tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), None],
    ),
    "local": (pa.timestamp("us"), datetime(2026, 1, 1), [EARLY, FAR, datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    "s": (
        pa.struct([("x", pa.float64()), ("in", pa.struct([("f", pa.float32()), ("t", pa.string())]))]),
        {"x": 1.0, "in": {"f": 1.0, "t": "m"}},
        [
            {"x": NAN, "in": {"f": NAN, "t": "é"}},
            {"x": -0.0, "in": {"f": -0.0, "t": ""}},
            None,
            {"x": None, "in": None},
            {"x": 0.0, "in": {"f": 0.0, "t": "😀"}},
        ],
    ),
    "l": (pa.list_(pa.float64()), [1.0], [[NAN], [], None, [-0.0, None]]),
    "m": (pa.map_(pa.string(), pa.float64()), [("k", 1.0)], [[("k", NAN)], [], None]),
}
FILES = 9

_ORDER = ("{} > {}", "{} >= {}", "{} < {}", "{} <= {}", "{} = {}", "{} <> {}")
_LITERALS = {
    "byte": ["1", "127"],
    "long": ["9223372036854775806", "-9223372036854775808"],
    "f": ["CAST(1 AS FLOAT)", "CAST(0 AS FLOAT)"],
    "d": ["CAST(1 AS DOUBLE)", "CAST(0 AS DOUBLE)", "CAST('NaN' AS DOUBLE)"],
    "zero": ["CAST(0 AS DOUBLE)", "CAST('-0.0' AS DOUBLE)"],
    "small": ["1.00", "-0.01"],
    "large": ["1.0000000000"],
    "wide": ["1.0000"],
    "text": ["'m'", "'é'", "''", "'😀'"],
    "bytes": ["X'6D'", "X'80'"],
    "day": ["DATE '2026-01-01'"],
    "moment": ["TIMESTAMP '2026-01-01 00:00:00'"],
    "local": ["TIMESTAMP '2026-01-01 00:00:00'"],
}
CONDITIONS = [
    *(
        pattern.format(name, literal)
        for name, literals in _LITERALS.items()
        for literal in literals
        for pattern in _ORDER
    ),
    "NOT (d < CAST(1 AS DOUBLE))",
    "d NOT IN (CAST(1 AS DOUBLE), CAST(2 AS DOUBLE))",
    "d IN (CAST(5 AS DOUBLE), CAST('NaN' AS DOUBLE))",
    "zero IN (CAST(0 AS DOUBLE))",
    "d BETWEEN CAST(0 AS DOUBLE) AND CAST(2 AS DOUBLE)",
    "d IS NULL",
    "text IS NULL",
    "yes",
]
NESTED = [
    *(pattern.format("s.x", f"CAST({literal} AS DOUBLE)") for literal in (0, 1) for pattern in _ORDER),
    "s.in.f > CAST(1 AS FLOAT)",
    "s.in.f = CAST(0 AS FLOAT)",
    "s.in.t > 'm'",
    "s.x IS NULL",
    "s IS NULL",
]
"""For Spark alone: the others have other words for a field of a struct."""
TELLING = [
    "d > CAST(1 AS DOUBLE)",
    "NOT (d <= CAST(1 AS DOUBLE))",
    "d <> CAST(1 AS DOUBLE)",
    "d = CAST('NaN' AS DOUBLE)",
    "zero = CAST(0 AS DOUBLE)",
    "zero >= CAST(0 AS DOUBLE)",
    "f > CAST(1 AS FLOAT)",
    "s.x > CAST(1 AS DOUBLE)",
    "s.x = CAST(0 AS DOUBLE)",
    "s.in.f > CAST(1 AS FLOAT)",
    "text > 'é'",
    "bytes >= X'80'",
    "small < -0.01",
    "large > 1.0000000000",
    "moment > TIMESTAMP '2026-01-01 00:00:00'",
]
"""For the short form: Spark compiles a program for each condition."""


def conditions_for_spark() -> list[str]:
    return [*CONDITIONS, *NESTED] if is_soak() else TELLING


def rows() -> pa.Table:
    """Two rows for each file: an edge value of every type, and the middle ones."""
    columns: dict[str, pa.Array] = {"id": pa.array(range(2 * FILES), pa.int64())}
    for name, (type_, middle, edges) in VALUES.items():
        found = [value for at in range(FILES) for value in (edges[at % len(edges)], middle)]
        columns[name] = pa.array(found, type_)
    columns["p"] = pa.array([f"p{at // 2}" for at in range(2 * FILES)])
    return pa.table(columns)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[deltars.Catalog]:
    place = tmp_path_factory.mktemp("readers")
    with deltars.connect(f"deltasql://sqlite/{place}/lake.db", migrate=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def by_arrow(catalog: deltars.Catalog) -> deltars.Table:
    catalog.write("by_arrow", rows(), max_records_per_file=2)
    return written(catalog, "by_arrow", "parquet-cpp")


@pytest.fixture(scope="module")
def tables(
    catalog: deltars.Catalog, spark: SparkSession, by_arrow: deltars.Table, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, deltars.Table]:
    source = str(tmp_path_factory.mktemp("source"))
    pq.write_table(rows(), f"{source}/rows.parquet")
    frame = spark.read.parquet(source)
    catalog.write("natively", frame, max_records_per_file=2)
    catalog.write("in_tasks", frame, partition_by="p")
    return {
        "arrow": by_arrow,
        "natively": written(catalog, "natively", "parquet-mr"),
        "in_tasks": written(catalog, "in_tasks", "parquet-cpp"),
    }


def written(catalog: deltars.Catalog, name: str, writer: str) -> deltars.Table:
    """The table, if it is made as it should be: of many files, by this writer."""
    table = catalog.table(name)
    footers = [
        pq.read_metadata(file) for file in Path(table.location).rglob("*.parquet") if "_delta_log" not in str(file)
    ]
    assert len(footers) == FILES
    assert all(footer.created_by.startswith(writer) for footer in footers)
    return table


def ids_of(found: pa.Table) -> dict[int, list[int]]:
    """Of each condition, by its number."""
    ids: dict[int, list[int]] = {}
    for row in found.to_pylist():
        ids.setdefault(row["n"], []).append(row["id"])
    return {number: sorted(those) for number, those in ids.items()}


def judged(found: pa.Table, count: int) -> dict[int, list[int]]:
    """The same of a table with a column of booleans for each condition."""
    rows = found.to_pylist()
    ids = {number: sorted(row["id"] for row in rows if row[f"c{number}"]) for number in range(count)}
    return {number: those for number, those in ids.items() if those}


def compare(filtered: pa.Table, unfiltered: pa.Table, conditions: Sequence[str]) -> None:
    by_filter, by_row = ids_of(filtered), judged(unfiltered, len(conditions))
    wrong = {
        condition: (by_filter.get(number), by_row.get(number))
        for number, condition in enumerate(conditions)
        if by_filter.get(number) != by_row.get(number)
    }
    assert not wrong
    assert len(by_row) > len(conditions) / 2


def queries(conditions: Sequence[str], relation: str) -> tuple[str, str]:
    """Each condition as a filter of its own, and all of them beside the rows."""
    filters = " UNION ALL ".join(
        f"SELECT {number} AS n, id FROM {relation} WHERE {condition}" for number, condition in enumerate(conditions)
    )
    columns = ", ".join(f"({condition}) AS c{number}" for number, condition in enumerate(conditions))
    return filters, f"SELECT id, {columns} FROM {relation}"


def all_rows(found: pa.Table) -> list[str]:
    return shown(_as_ours(found), is_partitioned=False)


def _as_ours(found: pa.Table) -> pa.Table:
    """Polars has no maps: a list of structs."""
    wanted = rows().schema
    at = found.column_names.index("m")
    if isinstance(found.schema.field("m").type, pa.MapType):
        return found.select(wanted.names)
    maps = [
        None if entries is None else [(entry["key"], entry["value"]) for entry in entries]
        for entries in found.column("m").to_pylist()
    ]
    return found.set_column(at, "m", pa.array(maps, wanted.field("m").type)).select(wanted.names)


READERS: dict[str, Callable[[Path, int | None], pa.Table]] = {
    "deltalake": by_deltalake,
    "duckdb": by_duckdb,
    "polars": by_polars,
}


@pytest.mark.soak
@pytest.mark.parametrize("writer", ["arrow", "natively", "in_tasks"])
def test_spark_finds_the_same_rows_with_a_filter_and_without(
    spark: SparkSession, tables: Mapping[str, deltars.Table], writer: str
) -> None:
    assert spark.conf.get("spark.sql.parquet.filterPushdown") == "true"
    frame = tables[writer].read(spark=spark)
    assert all_rows(frame.toArrow()) == all_rows(tables[writer].to_arrow()) == all_rows(rows())
    conditions = conditions_for_spark()
    parts = [frame.where(condition).select(F.lit(at).alias("n"), "id") for at, condition in enumerate(conditions)]
    unfiltered = frame.select("id", *(F.expr(condition).alias(f"c{at}") for at, condition in enumerate(conditions)))
    compare(reduce(DataFrame.union, parts).toArrow(), unfiltered.toArrow(), conditions)


@pytest.mark.parametrize("writer", ["arrow", "natively", "in_tasks"])
@pytest.mark.parametrize("reader", READERS)
def test_others_find_the_same_rows_with_a_filter_and_without(
    tables: Mapping[str, deltars.Table], writer: str, reader: str
) -> None:
    location = Path(tables[writer].location)
    # The SQL of Polars has no literal for a time with a zone.
    conditions = [said for said in CONDITIONS if reader != "polars" or not said.startswith("moment")]
    assert all_rows(READERS[reader](location, None)) == all_rows(rows())
    match reader:
        case "deltalake":
            builder = QueryBuilder().register("t", DeltaTable(location))
            found = [pa.table(builder.execute(query).read_all()) for query in queries(conditions, "t")]
        case "duckdb":
            with duckdb.connect() as connection:
                load_extension(connection)
                connection.execute("SET TimeZone = 'UTC'")
                relation = f"delta_scan('{location}')"
                found = [connection.execute(query).to_arrow_table() for query in queries(conditions, relation)]
        case "polars":
            lazy = pl.scan_delta(str(location))
            found = [pl.SQLContext(t=lazy).execute(query, eager=True).to_arrow() for query in queries(conditions, "t")]
    filtered, unfiltered = found
    compare(filtered, unfiltered, conditions)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_delta_spark_finds_the_same_rows_with_a_filter_and_without(
    by_arrow: deltars.Table, delta_spark: DeltaSpark, request: pytest.FixtureRequest
) -> None:
    # Spark itself is started for the long form alone: two JVMs are many for one process of tests.
    tables = request.getfixturevalue("tables") if is_soak() else {"arrow": by_arrow}
    conditions = conditions_for_spark()
    for table in tables.values():
        assert all_rows(delta_spark.read(table.location)) == all_rows(rows())
        filtered, unfiltered = map(delta_spark.sql, queries(conditions, f"delta.`{table.location}`"))
        compare(filtered, unfiltered, conditions)
