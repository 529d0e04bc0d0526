"""Habits from delta-spark, deltalake, PyIceberg and pandas: each gets an error that names the call of deltars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deltars

ROWS = pa.table({"id": [1, 2], "x": [0.5, 1.5]})
Call = Callable[[deltars.Catalog, Any], object]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[deltars.Catalog]:
    """Catalog with one table `t`. One for all: a mistake changes nothing."""
    with deltars.connect(f"deltasql://sqlite/{tmp_path_factory.mktemp('habits')}/lake.db") as opened:
        opened.write("t", ROWS)
        yield opened


NAMES = {
    "table.to_df": "table.read()",
    "table.to_pyarrow_table": "table.to_arrow()",
    "table.load_as_version": "table.to_pandas(version=1)",
    "table.snapshots": "table.history()",
    "table.printSchema": "print(table.schema)",
    "table.groupBy": 'table.read().groupBy("day")',
    "table.is_deltatable": "catalog.table_exists(name)",
    "table.add_feature": "table.alter.set_properties",
    "table.versoin": "Did you mean version?",
    "table.amount": "table.to_pandas(columns=[…])",
    "table.alter.add_column": 'alter.add_columns("note STRING")',
    "table.alter.set_table_properties": "alter.set_properties",
    "catalog.create_namespace": "the first table makes its namespace",
    "catalog.t": "catalog.table(name)",
    "catalog.snapshot().t": "cut.to_pandas(name)",
    'catalog.write("t", ROWS, "ignore").version': 'result.versions["features"]',
}


@pytest.mark.parametrize("name", NAMES)
def test_attribute_of_another_library_is_answered_by_the_call_of_deltars(name: str, catalog: deltars.Catalog) -> None:
    with pytest.raises(AttributeError) as caught:
        eval(name, {"catalog": catalog, "table": catalog.table("t"), "ROWS": ROWS})
    assert NAMES[name] in str(caught.value)


def test_hidden_names_of_notebooks_get_no_advice(catalog: deltars.Catalog) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(catalog, "_ipython_display_")  # noqa: B009
    assert str(caught.value) == "'Catalog' object has no attribute '_ipython_display_'"


KEYWORDS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "Write replace_where=… in place of predicate=…": (
        lambda catalog, **given: catalog.write("t", ROWS, "overwrite", **given),
        {"predicate": "id = 1"},
    ),
    "merge_schema=True adds columns": (
        lambda catalog, **given: catalog.write("t", ROWS, **given),
        {"schema_mode": "merge"},
    ),
    "catalog.begin(txn_id=…)": (lambda catalog, **given: catalog.write("t", ROWS, **given), {"txn_id": "a"}),
    "Write set=… in place of updates=…": (
        lambda catalog, **given: catalog.table("t").update(**given),
        {"updates": {"x": "1"}},
    ),
    "Write force=… in place of enforce_retention_duration=…": (
        lambda catalog, **given: catalog.table("t").vacuum(**given),
        {"enforce_retention_duration": False},
    ),
    "Write older_than=… in place of days=…": (lambda catalog, **given: catalog.expire(**given), {"days": 30}),
}


@pytest.mark.parametrize("said", KEYWORDS)
def test_keyword_of_another_library_is_answered_by_the_keyword_of_deltars(said: str, catalog: deltars.Catalog) -> None:
    call, given = KEYWORDS[said]
    with pytest.raises(TypeError) as caught:
        call(catalog, **given)
    assert said in str(caught.value)


FRAMES: dict[str, tuple[Any, str]] = {
    "None": (None, "None cannot be written as a table"),
    "rows": ([{"id": 1}], "pyarrow.Table.from_pylist(rows)"),
    "columns": ({"id": [1]}, "pyarrow.table(columns)"),
    "name": ("t", "catalog.table(name)"),
    "path": (Path("rows.parquet"), "deltars load TABLE FILE"),
    "array": (np.zeros(2), "pandas.DataFrame(array, columns=[…])"),
    "pandas series": (pd.Series([1]), "series.to_frame()"),
    "polars series": (pl.Series([1]), "series.to_frame()"),
    "lazy frame": (pl.LazyFrame({"id": [1]}), "frame.collect()"),
    "pandas without names": (pd.DataFrame([[1, 2]]), "frame.rename(columns=str)"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_what_is_no_frame_is_answered_by_how_to_make_one(kind: str, catalog: deltars.Catalog) -> None:
    frame, said = FRAMES[kind]
    with pytest.raises(deltars.ValidationError) as caught:
        catalog.write("t", frame)
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [1.5, Decimal("1.5"), np.float32(1.5), np.array([1]), np.array([[1, 2]])], ids=repr)
def test_number_that_a_column_would_cut_and_an_array_are_no_values(value: object, catalog: deltars.Catalog) -> None:
    table = catalog.table("t")
    with pytest.raises(deltars.ValidationError):
        table.update({"id": value})
    assert table.version == 0


def test_whole_numbers_of_any_type_are_values_and_sql_is_cut_as_by_spark(tmp_path: Path) -> None:
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as opened:
        opened.write("t", ROWS)
        table = opened.table("t")
        for value, stored in ((2.0, 2), (Decimal("3.00"), 3), (np.int64(4), 4), (np.array(5), 5), ("1.5", 1)):
            table.update({"id": value})
            assert table.to_arrow()["id"].to_pylist() == [stored, stored]


OTHERS: dict[str, tuple[Call, str]] = {
    "connect by position": (lambda _, place: deltars.connect(place, "/data"), "takes its options by name"),  # type: ignore[call-arg]
    "catalog made by its class": (lambda _, place: deltars.Catalog(place), "deltars.connect(uri)"),
    "table made by its class": (lambda _, __: deltars.Table("t"), "catalog.table("),  # type: ignore[arg-type, call-arg]
    "compaction of deltalake": (lambda catalog, _: catalog.table("t").optimize.compact(), "Write table.optimize()."),  # type: ignore[attr-defined]
    "Z-order of deltalake": (lambda catalog, _: catalog.table("t").optimize.z_order(["id"]), "zorder_by="),  # type: ignore[attr-defined]
    "alter as a call": (lambda catalog, _: catalog.table("t").alter(), "table.alter.add_columns("),
    "directory that is no table": (
        lambda catalog, place: catalog.register_table("v", place.removeprefix("deltasql://sqlite/").rpartition("/")[0]),
        "it holds notes.txt",
    ),
    "column of sets": (
        lambda catalog, _: catalog.write("v", pd.DataFrame({"tags": [{"a"}, {"b", "c"}]})),
        ".map(sorted)",
    ),
    "table.write of a name": (lambda catalog, _: catalog.table("t").write("t", ROWS), "table.write(df, mode)"),  # type: ignore[arg-type]
    "mode that is a frame": (lambda catalog, _: catalog.write("t", ROWS, ROWS), "Known values: append"),
    "run of a function without the transaction": (lambda catalog, _: catalog.run(lambda: 1), "does not take one"),  # type: ignore[misc, arg-type]
    "mode error": (lambda catalog, _: catalog.write("t", ROWS, "error"), "mode='append'"),
    "table by its place in PostgreSQL": (lambda catalog, _: catalog.table("lake.public.t"), "Did you mean 't'?"),
    "column without a type": (lambda catalog, _: catalog.create_table("v", pa.schema([("a", pa.null())])), "void"),
    "description that is no text": (
        lambda catalog, _: catalog.create_table("v", "a INT", description=5),  # type: ignore[arg-type]
        "description must be a text",
    ),
    "description of a transaction": (
        lambda catalog, _: catalog.begin().create_table("v", "a INT", description=5),  # type: ignore[arg-type]
        "description must be a text",
    ),
    "rows beyond replace_where": (
        lambda catalog, _: catalog.write("t", ROWS, "overwrite", replace_where="id = 1"),
        "Write only rows that match it",
    ),
    "batch that is no Spark frame": (
        lambda catalog, _: deltars.each_batch(lambda tx, rows: None, app_id="a", catalog=catalog)(ROWS, 0),
        "a batch is a Spark DataFrame",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_mistake_is_answered_by_what_to_do(what: str, catalog: deltars.Catalog, tmp_path: Path) -> None:
    call, said = OTHERS[what]
    (tmp_path / "notes.txt").touch()
    with pytest.raises((deltars.DeltarsError, TypeError)) as caught:
        call(catalog, f"deltasql://sqlite/{tmp_path}/other.db")
    assert said in str(caught.value)
    assert catalog.table("t").version == 0
