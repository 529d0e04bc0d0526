"""A table read without Spark: as Arrow, pandas, Polars, DuckDB, and in a notebook."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import deltars


@pytest.fixture
def days(catalog: deltars.Catalog) -> deltars.Table:
    """Versions 0 to 2: a day each."""
    for day in (1, 2, 3):
        rows = pa.table({"id": [10 * day, 10 * day + 1], "name": ["<a>", None], "day": [dt.date(2026, 1, day)] * 2})
        with catalog.begin() as tx:
            tx.write("days", rows, partition_by=["day"])
    return catalog.table("days")


def test_rows_of_a_version_a_time_a_condition_and_some_columns(days: deltars.Table) -> None:
    assert sorted(days.to_arrow()["id"].to_pylist()) == [10, 11, 20, 21, 30, 31]
    assert sorted(days.to_arrow(version=0)["id"].to_pylist()) == [10, 11]
    then = days.snapshot(1).timestamp
    assert sorted(days.to_arrow(timestamp=then)["id"].to_pylist()) == [10, 11, 20, 21]
    chosen = days.to_arrow(where="day >= '2026-01-02' AND name IS NULL", columns=["id"])
    assert (chosen.column_names, sorted(chosen["id"].to_pylist())) == (["id"], [21, 31])


def test_a_condition_leaves_files_unopened(days: deltars.Table) -> None:
    for file in Path(days.location).glob("day=2026-01-01/*.parquet"):
        file.unlink()
    assert days.to_arrow(where="day > '2026-01-01'").num_rows == 4
    with pytest.raises(deltars.StorageError, match="is missing, and version 2 needs it"):
        days.to_arrow()


READERS: dict[str, Callable[..., list[tuple[Any, ...]]]] = {
    "to_arrow": lambda table, **asked: _tuples(table.to_arrow(**asked)),
    "to_arrow_batch_reader": lambda table, **asked: _tuples(table.to_arrow_batch_reader(**asked).read_all()),
    "to_pandas": lambda table, **asked: list(table.to_pandas(**asked).itertuples(index=False, name=None)),
    "to_polars": lambda table, **asked: table.to_polars(**asked).rows(),
    "to_duckdb": lambda table, **asked: table.to_duckdb(**asked).fetchall(),
    "to_duckdb of a connection": lambda table, **asked: table.to_duckdb(duckdb.connect(), **asked).fetchall(),
}


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("reader", READERS)
def test_every_library_takes_the_rows_that_are_asked_for(days: deltars.Table, reader: str) -> None:
    read = READERS[reader]
    assert sorted(read(days, columns=["id"])) == [(10,), (11,), (20,), (21,), (30,), (31,)]
    assert sorted(read(days, version=0, columns=["id"])) == [(10,), (11,)]
    assert sorted(read(days, timestamp=days.snapshot(1).timestamp, columns=["id"])) == [(10,), (11,), (20,), (21,)]
    assert sorted(read(days, where="name IS NOT NULL AND id > 10", columns=["name", "id"])) == [
        ("<a>", 20),
        ("<a>", 30),
    ]
    assert sorted(read(days, version=1, where="day = '2026-01-02'", columns=["id"])) == [(20,), (21,)]


@pytest.mark.backends("sqlite")
def test_libraries_that_take_arrow_streams_take_a_table(days: deltars.Table) -> None:
    assert pl.DataFrame(days).height == 6
    assert pa.table(days).num_rows == 6


@pytest.mark.backends("sqlite")
def test_a_notebook_shows_a_few_rows_and_no_markup_of_theirs(days: deltars.Table) -> None:
    shown = days._repr_html_()
    assert "days, version 2" in shown
    assert "&lt;a&gt;" in shown
    assert "<a>" not in shown
    assert shown.count("<tr>") == 7


@pytest.mark.backends("sqlite")
def test_a_notebook_shows_why_a_table_cannot_be_shown(catalog: deltars.Catalog, tmp_path: Path) -> None:
    table = catalog.register_table("empty", str(tmp_path / "empty"))
    assert "nothing was committed" in table._repr_html_()


def test_duckdb_compares_floats_itself(catalog: deltars.Catalog) -> None:
    """pyarrow, to which DuckDB hands conditions and joins on Arrow rows, tells NaN from NaN and −0.0 from 0.0."""
    catalog.write("floats", pa.table({"id": [1, 2, 3], "x": [float("nan"), -0.0, 1.0]}))
    relation = catalog.table("floats").to_duckdb(duckdb.connect())
    assert [row[0] for row in relation.filter("x > 0.5").fetchall()] == [1, 3]
    assert [row[0] for row in relation.filter("x = 0.0").fetchall()] == [2]
    assert relation.query("v", "SELECT count(*) FROM v JOIN v AS w USING (x)").fetchall() == [(3,)]
