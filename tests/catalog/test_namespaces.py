"""Namespaces: tables named `namespace.table`, in the API, URIs, queries, completion and a rebuilt catalog."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltars
from deltars.cli.options import namespace_names, table_names
from deltars.store.names import namespace_of
from tests.cli.conftest import Run, run

__all__ = ["run"]

# The subject is not the database.
pytestmark = pytest.mark.backends("sqlite")

QUERIES = [
    "SELECT * FROM sales.orders",
    "SELECT sales.orders.id, orders.at.x FROM Sales.Orders WHERE sales.orders.id >= 1",
    "SELECT sales.orders.* FROM sales.orders",
    "SELECT o.id, o.at FROM sales.orders AS o JOIN hr.orders ON hr.orders.id = o.id",
    "SELECT * FROM `sales.orders`",
]


@pytest.fixture
def full(catalog: deltars.Catalog) -> deltars.Catalog:
    with catalog.begin() as tx:
        tx.write("sales.orders", pa.table({"id": [1], "at": [{"x": 5}]}))
        tx.write("Sales.items", pa.table({"id": [2]}))
        tx.write("hr.orders", pa.table({"id": [1]}))
        tx.write("orders2", pa.table({"id": [3]}))
        tx.write("v1.2.3", pa.table({"id": [4]}))
    return catalog


def test_first_table_makes_a_namespace_and_the_last_one_ends_it(full: deltars.Catalog) -> None:
    assert full.namespaces() == ["hr", "Sales"]
    assert [table.name for table in full.tables(namespace="SALES")] == ["Sales.items", "sales.orders"]
    assert len(full.tables()) == 5
    full.rename_table("hr.orders", "people.orders")
    full.drop_table("sales.items")
    assert full.namespaces() == ["people", "sales"]
    with pytest.raises(deltars.ValidationError, match=r"no namespace 'hr'.*people, sales"):
        full.tables(namespace="hr")
    with pytest.raises(deltars.ValidationError, match="Did you mean 'sales'"):
        full.tables(namespace="sale")
    with pytest.raises(deltars.ValidationError, match="a namespace is a text"):
        full.tables(namespace=3)  # type: ignore[arg-type]


def test_names_with_other_dots_stay_names_of_tables_without_a_namespace(full: deltars.Catalog) -> None:
    assert namespace_of("a.b") == "a"
    assert not any(map(namespace_of, ("a", "v1.2.3", ".a", "a.", "a..b")))
    assert full.table("v1.2.3").to_arrow()["id"].to_pylist() == [4]


def test_uri_has_the_namespace_as_a_segment_or_in_the_name(full: deltars.Catalog) -> None:
    for end in ("sales/orders", "sales.orders", "SALES/Orders"):
        assert full.table(f"{full.uri}/{end}").name == "sales.orders"
    with pytest.raises(deltars.UriError, match="dot in its namespace"):
        full.table(f"{full.uri}/sales/a.b")
    with pytest.raises(deltars.TableNotFound, match=r"Did you mean 'hr\.orders' or 'sales\.orders'"):
        full.table("orders")


def test_queries_resolve_namespaces_on_spark(full: deltars.Catalog, spark: SparkSession) -> None:
    for query in QUERIES:
        assert [row.id for row in full.sql(query, spark=spark).collect()] == [1], query


def test_commands_list_query_and_complete_namespaces(full: deltars.Catalog, run: Run) -> None:
    catalog = ("--catalog", str(full.uri))
    listed = json.loads(run("namespaces", "--json", *catalog).stdout)
    assert listed == [{"namespace": "hr", "tables": 1}, {"namespace": "Sales", "tables": 2}]
    assert "orders2" not in run("tables", "--namespace", "sales", *catalog).stdout
    for query in QUERIES:
        done = run("sql", query, "--engine", "duckdb", "--format", "csv", *catalog)
        assert done.exit_code == 0, done.stderr
        assert done.stdout.splitlines()[1].startswith("1"), query
    context = click.Context(click.Command("tables"))
    context.params["catalog"] = str(full.uri)
    parameter = click.Option(["--namespace"])
    assert [item.value for item in namespace_names(context, parameter, "s")] == ["Sales"]
    assert [item.value for item in table_names(context, parameter, "sales.o")] == ["sales.orders"]


def test_rebuilt_catalog_has_the_namespaces(full: deltars.Catalog, tmp_path: Path) -> None:
    assert full.table("sales.orders").location == f"{full.warehouse}/sales.orders"
    uri = f"deltasql://sqlite/{tmp_path}/again.db"
    deltars.rebuild(str(full.warehouse), uri)
    with deltars.connect(uri) as again:
        assert again.namespaces() == ["hr", "Sales"]
        assert again.table("sales.orders").to_arrow()["id"].to_pylist() == [1]
