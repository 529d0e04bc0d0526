"""Queries over tables of one cut, as a Spark user writes them: the answers of plain Spark SQL, from fewer files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars import Catalog, CatalogSnapshot
from deltars.errors import PredicateError, TableNotFound, UriError, ValidationError

DAY = date(2026, 1, 1)


def lake(catalog: Catalog) -> None:
    """Orders of four months and their lines, a month a commit; customers by country; and a small dimension."""
    catalog.write("nation", pa.table({"n_key": [1, 2, 3], "n_name": ["France", "Peru", "Kenya"]}))
    customers = pa.table(
        {"c_key": list(range(12)), "c_nation": [1 + key % 3 for key in range(12)], "c_name": list("abcdefghijkl")}
    )
    catalog.write("customer", customers, partition_by=["c_nation"])
    for month in range(4):
        keys = list(range(month * 10, month * 10 + 10))
        orders = {
            "o_key": keys,
            "o_customer": [key % 12 if key % 7 else None for key in keys],
            "o_day": [DAY + timedelta(days=30 * month + key % 10) for key in keys],
            "o_price": [float(key * key % 17) for key in keys],
        }
        lines = {
            "l_order": [key for key in keys for _ in range(key % 3)],
            "l_quantity": [quantity + 1 for key in keys for quantity in range(key % 3)],
            "l_flag": [["A", "N", "R"][(key + quantity) % 3] for key in keys for quantity in range(key % 3)],
        }
        with catalog.begin() as tx:
            tx.write("orders", pa.table(orders))
            tx.write("lineitem", pa.table(lines))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    place = tmp_path_factory.mktemp("sql")
    with deltars.connect(f"deltasql://sqlite/{place}/lake.db") as opened:
        lake(opened)
        yield opened


@pytest.fixture(scope="module")
def views(catalog: Catalog, spark: SparkSession) -> Iterator[CatalogSnapshot]:
    """Every table whole, as a view of the session."""
    cut = catalog.snapshot()
    for name in cut.register_views(spark=spark):
        assert spark.catalog.tableExists(name)
    yield cut
    for name in cut.versions:
        spark.catalog.dropTempView(name)


QUERIES = {
    "pricing": """
        SELECT l_flag, sum(l_quantity) AS quantity, count(*) AS lines, avg(o_price) AS price
        FROM lineitem JOIN orders ON l_order = o_key
        WHERE o_day <= DATE '2026-02-05' GROUP BY l_flag ORDER BY l_flag""",
    "shipping": """
        SELECT o.o_key, o.o_day, sum(l.l_quantity) AS quantity
        FROM customer c, orders o, lineitem l
        WHERE c.c_nation = 2 AND c.c_key = o.o_customer AND l.l_order = o.o_key AND o.o_day < '2026-03-01'
        GROUP BY o.o_key, o.o_day ORDER BY quantity DESC, o.o_key""",
    "priority": """
        SELECT month(o_day) AS m, count(*) FROM orders
        WHERE o_day >= DATE '2026-01-01' AND o_day < DATE '2026-01-01' + INTERVAL '3' MONTH
          AND EXISTS (SELECT * FROM lineitem WHERE l_order = o_key AND l_flag = 'R') GROUP BY 1 ORDER BY 1""",
    "volume by nation": """
        SELECT n_name, sum(o_price) AS revenue
        FROM customer JOIN orders ON c_key = o_customer JOIN nation ON c_nation = n_key
        WHERE n_name IN ('France', 'Kenya') AND o_key BETWEEN 5 AND 25 GROUP BY n_name ORDER BY revenue DESC""",
    "customers without orders": """
        SELECT c_name FROM customer LEFT JOIN orders ON c_key = o_customer AND o_key < 8
        WHERE o_key IS NULL ORDER BY c_name""",
    "top customer": """
        WITH revenue AS (SELECT o_customer AS r_key, sum(o_price) AS total FROM orders WHERE o_key < 20 GROUP BY 1)
        SELECT c_name, total FROM customer, revenue WHERE c_key = r_key
          AND total = (SELECT max(total) FROM revenue WHERE r_key IS NOT NULL) ORDER BY c_name""",
    "orders shadowed": """
        WITH orders AS (SELECT * FROM orders WHERE o_price > 5)
        SELECT count(*), min(o_key) FROM orders WHERE o_key > 15""",
    "anti": """
        SELECT o_key FROM orders ANTI JOIN lineitem ON l_order = o_key AND l_quantity = 1
        WHERE o_key > 12 ORDER BY 1""",
    "full": """
        SELECT c.c_key, o.o_key FROM customer c FULL OUTER JOIN orders o ON c.c_key = o.o_customer AND o.o_key > 20
        ORDER BY 1, 2""",
    "twice": """
        SELECT a.o_key, b.o_key FROM orders a JOIN orders b ON a.o_key = b.o_key + 10 WHERE a.o_key < 13 ORDER BY 1""",
    "window over a union": """
        SELECT o_key, rank() OVER (ORDER BY o_key) FROM (
          SELECT o_key FROM orders WHERE o_key < 2 UNION ALL SELECT l_order FROM lineitem WHERE l_order > 37)
        ORDER BY 1, 2""",
    "a filter behind a limit": "FROM orders |> ORDER BY o_key |> LIMIT 5 |> WHERE o_key > 3",
    "a filter behind a group": """
        SELECT o_customer, count(*) AS o_key FROM orders GROUP BY 1
        |> WHERE o_key = 3 |> ORDER BY o_customer""",
    "a sample by the table's name": "SELECT orders.o_key FROM orders TABLESAMPLE (100 PERCENT) ORDER BY 1",
    "by the table's name": "SELECT orders.o_key, 'a {brace} is text' FROM orders WHERE orders.o_key = 7",
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_answers_as_on_views_of_the_whole_tables(
    name: str, catalog: Catalog, views: CatalogSnapshot, spark: SparkSession
) -> None:
    expected = spark.sql(QUERIES[name]).collect()
    assert expected
    assert deltars.sql(QUERIES[name], catalog=catalog, spark=spark).collect() == expected


def test_files_that_a_query_needs_not_are_not_opened(catalog: Catalog, spark: SparkSession) -> None:
    month = catalog.sql("SELECT * FROM orders WHERE o_key = 25", spark=spark)
    assert [row.o_key for row in month.collect()] == [25]
    assert len(month.inputFiles()) == 1
    both = catalog.sql(
        "SELECT * FROM orders o JOIN lineitem l ON l.l_order = o.o_key WHERE o.o_key < 10 AND l.l_order >= 20",
        spark=spark,
    )
    assert len(both.inputFiles()) == 1 + 2


def test_all_tables_are_at_one_moment_and_a_past_one_can_be_asked_for(tmp_path: Path, spark: SparkSession) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(uri) as catalog:
        with catalog.begin() as first:
            first.write("features", pa.table({"id": [1]}))
            first.write("labels", pa.table({"id": [1]}))
        with catalog.begin() as second:
            second.write("features", pa.table({"id": [2]}))
            second.write("labels", pa.table({"id": [2]}))
        text = "SELECT count(*) AS n FROM features JOIN labels USING (id)"
        assert deltars.sql(text, catalog=catalog, spark=spark).collect()[0]["n"] == 2
        assert deltars.sql(text, catalog=uri, as_of=first.id, spark=spark).collect()[0]["n"] == 1
        cut = catalog.snapshot()
        catalog.write("features", pa.table({"id": [3]}))
        assert cut.sql("SELECT count(*) AS n FROM features", spark=spark).collect()[0]["n"] == 2
        assert catalog.sql(f"SELECT count(*) AS n FROM `{uri}/features`", spark=spark).collect()[0]["n"] == 3


def test_time_without_a_zone_is_in_that_of_the_session(tmp_path: Path, spark: SparkSession) -> None:
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog:
        for number in range(2):
            catalog.write("features", pa.table({"id": [number]}))
        moment = datetime.now(UTC)
        text, elsewhere = "SELECT count(*) AS n FROM features", moment.astimezone(ZoneInfo("America/New_York"))
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            naive = elsewhere.replace(tzinfo=None)
            assert deltars.sql(text, catalog=catalog, as_of=naive, spark=spark).collect()[0]["n"] == 2
            assert deltars.sql(text, catalog=catalog, as_of=naive.isoformat(), spark=spark).collect()[0]["n"] == 2
            spark.conf.set("spark.sql.session.timeZone", "PST")
            with pytest.raises(ValidationError, match="Python does not know the session's time zone 'PST'"):
                deltars.sql(text, catalog=catalog, as_of=naive, spark=spark)
            with pytest.raises(ValidationError, match="Python does not know the session's time zone 'PST'"):
                catalog.table("features").read(spark=spark, timestamp=naive)
            assert deltars.sql(text, catalog=catalog, as_of=elsewhere, spark=spark).collect()[0]["n"] == 2
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_parameters_are_sparks_own(catalog: Catalog, spark: SparkSession) -> None:
    named = deltars.sql("SELECT o_key FROM orders WHERE o_key = :key", catalog=catalog, args={"key": 3}, spark=spark)
    assert [row.o_key for row in named.collect()] == [3]
    placed = deltars.sql("SELECT o_key FROM Orders WHERE o_key < ? ORDER BY 1", catalog=catalog, args=[2], spark=spark)
    assert [row.o_key for row in placed.collect()] == [0, 1]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT * FROM ordesr", TableNotFound, "'ordesr'"),
        ("SELECT * FROM other.orders", TableNotFound, "'other.orders'"),
        ("SELECT * FROM `deltasql://postgres/elsewhere/public/orders`", (UriError, ValidationError), "elsewhere"),
        ("SELECT * FROM orders WHERE", PredicateError, "position"),
        ("SELECT o_kee FROM orders WHERE o_key > 1", PredicateError, r"(?s)no column o_kee.*Did you mean o_key"),
        ("DROP VIEW orders", PredicateError, "there is no view orders"),
        ("SELECT * FROM orders TIMESTAMP AS OF '2001-01-01'", ValidationError, "no version at or before"),
    ],
)
def test_a_name_that_is_not_of_this_catalog_is_refused_clearly(
    text: str, error: Any, message: str, catalog: Catalog, spark: SparkSession
) -> None:
    with pytest.raises(error, match=message):
        deltars.sql(text, catalog=catalog, spark=spark)


def test_a_query_without_tables_is_sparks_alone(catalog: Catalog, spark: SparkSession) -> None:
    assert deltars.sql("SELECT '{a}' AS text", catalog=catalog, spark=spark).collect()[0]["text"] == "{a}"


def test_query_joins_tables_with_views_of_the_session(catalog: Catalog, spark: SparkSession) -> None:
    wanted = spark.createDataFrame([(1,), (3,)], "key long")
    wanted.createOrReplaceTempView("`wanted {keys}`")
    spark.createDataFrame([(9, "nowhere")], "n_key long, n_name string").createOrReplaceTempView("Nation")
    try:
        query = "SELECT n_name FROM nation JOIN `wanted {keys}` AS w ON n_key = w.key WHERE w.key > 0 ORDER BY n_name"
        assert [row.n_name for row in catalog.sql(query, spark=spark).collect()] == ["France", "Kenya"]
        # A name that is both is the catalog's table.
        assert catalog.sql("SELECT count(*) AS n FROM nation", spark=spark).collect()[0].n == 3
        only = "SELECT key FROM `wanted {keys}` WHERE key > 1"
        assert [row.key for row in deltars.sql(only, catalog=catalog, spark=spark).collect()] == [3]
    finally:
        spark.catalog.dropTempView("wanted {keys}")
        spark.catalog.dropTempView("Nation")
    with pytest.raises(TableNotFound, match="A temporary view of the Spark session works too"):
        catalog.sql("SELECT * FROM wanted", spark=spark)


@pytest.mark.parametrize("query", ["SELECT * FROM nation FOR UPDATE", "SELECT * EXCLUDE (n_key) FROM nation"])
def test_syntax_error_of_spark_is_told_without_names_of_ours(query: str, catalog: Catalog, spark: SparkSession) -> None:
    with pytest.raises(ValidationError, match=r"Spark cannot run the query: .*[Ss]yntax error") as raised:
        catalog.sql(query, spark=spark)
    assert "_pyspark" not in str(raised.value)
