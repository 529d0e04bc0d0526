"""A table read without Spark: as Arrow, pandas, Polars, DuckDB, and in a notebook."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

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


@pytest.mark.backends("sqlite")
def test_other_libraries_take_the_same_rows(days: deltars.Table) -> None:
    assert len(days.to_pandas(where="id > 20")) == 3
    assert days.to_polars(columns=["id"])["id"].sum() == 123
    assert days.to_duckdb(version=0).aggregate("count(*)").fetchall() == [(2,)]
    assert pl.DataFrame(days).height == 6
    assert sum(batch.num_rows for batch in days.to_arrow_batch_reader()) == 6


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
