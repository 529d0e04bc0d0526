"""Rows of a cut and of a transaction without Spark: the same rows by every library, and protected like `tx.read`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import deltars

pytestmark = pytest.mark.backends("sqlite")

READERS: dict[str, Callable[..., list[tuple[Any, ...]]]] = {
    "to_arrow": lambda place, table, **asked: _tuples(place.to_arrow(table, **asked)),
    "to_arrow_batch_reader": lambda place, table, **asked: _tuples(
        place.to_arrow_batch_reader(table, **asked).read_all()
    ),
    "to_pandas": lambda place, table, **asked: list(place.to_pandas(table, **asked).itertuples(index=False, name=None)),
    "to_polars": lambda place, table, **asked: place.to_polars(table, **asked).rows(),
    "to_duckdb": lambda place, table, **asked: place.to_duckdb(table, **asked).fetchall(),
    "to_duckdb of a connection": lambda place, table, **asked: place.to_duckdb(
        table, duckdb.connect(), **asked
    ).fetchall(),
}


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


@pytest.fixture
def accounts(catalog: deltars.Catalog) -> deltars.Catalog:
    catalog.write("accounts", pa.table({"id": [1, 2], "amount": [10.0, float("nan")]}))
    return catalog


@pytest.mark.parametrize("reader", READERS)
def test_every_library_reads_a_cut_at_its_versions(accounts: deltars.Catalog, reader: str) -> None:
    cut = accounts.snapshot()
    accounts.write("accounts", pa.table({"id": [3], "amount": [30.0]}))
    read = READERS[reader]
    assert sorted(read(cut, "accounts", columns=["id"])) == [(1,), (2,)]
    assert read(cut, accounts.table("accounts").id, where="id > 1", columns=["id"]) == [(2,)]
    assert sorted(read(accounts.snapshot(), "ACCOUNTS", columns=["id"])) == [(1,), (2,), (3,)]
    assert read(cut, "accounts", where="id > 9", columns=["id"]) == []


@pytest.mark.parametrize("reader", READERS)
def test_every_library_sees_what_the_transaction_has_staged(accounts: deltars.Catalog, reader: str) -> None:
    read = READERS[reader]
    with accounts.begin() as tx:
        tx.write("accounts", pa.table({"id": [3], "amount": [30.0]}))
        tx.write("new", pa.table({"id": [7]}))
        assert sorted(read(tx, "accounts", columns=["id"])) == [(1,), (2,), (3,)]
        assert read(tx, "accounts", where="amount = 30.0", columns=["id"]) == [(3,)]
        assert read(tx, "new") == [(7,)]


@pytest.mark.parametrize("level", ["strict", "serializable"])
def test_read_modify_write_with_pandas_loses_no_update(accounts: deltars.Catalog, level: deltars.Isolation) -> None:
    tx = accounts.begin(isolation=level)
    frame = tx.to_pandas("accounts")
    frame["amount"] = frame["amount"].fillna(0.0) + 1
    accounts.write("accounts", pa.table({"id": [9], "amount": [90.0]}))
    tx.write("accounts", frame, mode="overwrite")
    with pytest.raises(deltars.VersionConflict):
        tx.commit()
    assert sorted(accounts.table("accounts").to_arrow()["id"].to_pylist()) == [1, 2, 9]


def test_row_read_for_another_table_is_protected_too(accounts: deltars.Catalog) -> None:
    tx = accounts.begin(isolation="serializable")
    total = tx.to_polars("accounts", where="id <= 2")["id"].sum()
    tx.write("totals", pd.DataFrame({"total": [total]}))
    accounts.write("accounts", pa.table({"id": [0], "amount": [1.0]}))
    with pytest.raises(deltars.ConcurrentAppend):
        tx.commit()


def test_conditional_read_is_recorded_by_its_condition(accounts: deltars.Catalog) -> None:
    with accounts.begin(isolation="serializable") as tx:
        rows = tx.to_arrow("accounts", where="id <= 2")
        tx.write("copy", rows)
        accounts.write("accounts", pa.table({"id": [1000], "amount": [1.0]}))
    assert tx.result.versions == {"copy": 0}


def test_wrong_table_or_condition_is_named(accounts: deltars.Catalog) -> None:
    cut = accounts.snapshot()
    for place in (cut, accounts.begin()):
        with pytest.raises(deltars.TableNotFound):
            place.to_arrow("nothing")
        with pytest.raises(deltars.PredicateError):
            place.to_pandas("accounts", where="nothing = 1")
        with pytest.raises(deltars.ValidationError, match="there is no column 'nothing'"):
            place.to_polars("accounts", columns=["nothing"])


def test_ended_transaction_reads_nothing(accounts: deltars.Catalog) -> None:
    with accounts.begin() as tx:
        pass
    with pytest.raises(deltars.TransactionClosed):
        tx.to_arrow("accounts")
