"""Values that a new user passes by mistake: each gets an error of deltars that says what to do, or simply works."""

from __future__ import annotations

import copy
import datetime as dt
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deltars
from deltars.catalog.vacuum import VacuumOptions
from deltars.errors import DeltarsError, ValidationError

ROWS = pa.table({"id": [1, 2], "s": ["a", "b"]})
NO_TABLES: tuple[Any, ...] = (None, 3, True, b"t", ROWS, ["t"], "", " ", "a\0b", "a\ud800b")
NO_TIMES: tuple[Any, ...] = (True, 1.0, 0, "yesterday", "", np.int64(3), pd.NaT, dt.time(1), b"x", float("nan"), [1])
NO_VERSIONS: tuple[Any, ...] = (True, 1.0, "1", np.bool_(True), b"0", float("nan"), [0], pd.Timestamp("2026-01-01"))
NO_CONDITIONS: tuple[Any, ...] = (3, True, b"id > 1", ["id > 1"], pl.col("id") > 1)
NO_TEXTS: tuple[Any, ...] = (5, b"a", {"a": 1}, "a\0b", "a\ud800b")
NO_FLAGS: tuple[Any, ...] = ("no", "false", "", 0, 1, None, [True])


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[deltars.Catalog]:
    with deltars.connect(f"deltasql://sqlite/{tmp_path_factory.mktemp('values')}/lake.db") as opened:
        opened.write("t", ROWS)
        yield opened


Call = Callable[[deltars.Catalog, Any], object]

CALLS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "catalog.table": (lambda catalog, value: catalog.table(value), NO_TABLES),
    "catalog.write": (lambda catalog, value: catalog.write(value, ROWS), NO_TABLES),
    "catalog.create_table": (lambda catalog, value: catalog.create_table(value, "id BIGINT"), NO_TABLES),
    "catalog.register_table": (lambda catalog, value: catalog.register_table(value, "/nowhere"), NO_TABLES),
    "catalog.rename_table": (lambda catalog, value: catalog.rename_table("t", value), NO_TABLES),
    "catalog.import_table": (lambda catalog, value: catalog.import_table(value), NO_TABLES),
    "catalog.release": (lambda catalog, value: catalog.release(value), NO_TABLES),
    "tx.write": (lambda catalog, value: catalog.begin().write(value, ROWS), NO_TABLES),
    "tx.create_table": (lambda catalog, value: catalog.begin().create_table(value, "id BIGINT"), NO_TABLES),
    "tx.drop_table": (lambda catalog, value: catalog.begin().drop_table(value), NO_TABLES),
    "tx.to_arrow": (lambda catalog, value: catalog.begin().to_arrow(value), NO_TABLES),
    "tx.stage": (lambda catalog, value: catalog.begin().stage(value, []), NO_TABLES),
    "cut.to_arrow": (lambda catalog, value: catalog.snapshot().to_arrow(value), NO_TABLES),
    "deltars.table": (lambda _, value: deltars.table(value), NO_TABLES[:6]),
    "deltars.write": (lambda _, value: deltars.write(value, ROWS), NO_TABLES[:6]),
    "as_of": (lambda catalog, value: catalog.snapshot(value), NO_TIMES),
    "timestamp": (lambda catalog, value: catalog.table("t").to_arrow(timestamp=value), NO_TIMES),
    "version": (lambda catalog, value: catalog.table("t").to_arrow(version=value), NO_VERSIONS),
    "txn_id": (lambda catalog, value: catalog.begin(txn_id=value), (True, 1.0, "", b"x", [1], dt.date(2026, 1, 1))),
    "where": (lambda catalog, value: catalog.table("t").to_arrow(where=value), NO_CONDITIONS),
    "replace_where": (
        lambda catalog, value: catalog.write("t", ROWS, "overwrite", replace_where=value),
        NO_CONDITIONS,
    ),
    "columns": (
        lambda catalog, value: catalog.table("t").to_arrow(columns=value),
        (3, [1], b"id", [None], "id,s", [], ()),
    ),
    "columns of Spark": (lambda catalog, value: catalog.table("t").read(columns=value), ([], ())),
    "partition_by": (lambda catalog, value: catalog.write("p", ROWS, partition_by=value), (3, [1], b"id", [None])),
    "properties": (
        lambda catalog, value: catalog.create_table("p", "id BIGINT", properties=value),
        ([("a", "b")], "a=b", {"a": 1}, {1: "a"}, {"a": None}),
    ),
    "location": (
        lambda catalog, value: catalog.create_table("p", "id BIGINT", location=value),
        (3, "", "here/there", Path("here/there"), b"/data"),
    ),
    "mode": (lambda catalog, value: catalog.write("t", ROWS, value), ("upsert", None, 3, "Append")),
    "frame": (
        lambda catalog, value: catalog.write("t", value),
        (None, {"id": [1]}, [{"id": 1}], np.zeros(3), "data.csv", pl.Series("id", [1]), pd.Series([1])),
    ),
    "frame that holds what no table can": (
        lambda catalog, value: catalog.write("p", value),
        (
            pl.DataFrame({"x": [object()]}, schema={"x": pl.Object}),
            pl.DataFrame({"x": [dt.timedelta(1)]}),
            pl.DataFrame({"x": [dt.time(1)]}),
            pd.DataFrame({"x": [1, "a"]}),
            pd.DataFrame({"x": [1j]}),
            pd.DataFrame({"x": [2**70]}),
            pd.DataFrame({"x": ["a\ud800b"]}),
        ),
    ),
    "app_id": (lambda catalog, value: catalog.write("t", ROWS, app_id=value, app_version=1), (3, b"a")),
    "app_version": (lambda catalog, value: catalog.write("t", ROWS, app_id="a", app_version=value), ("1", 1.0, True)),
    "user_metadata": (lambda catalog, value: catalog.begin(user_metadata=value), NO_TEXTS),
    "user_metadata of a write": (lambda catalog, value: catalog.write("t", ROWS, user_metadata=value), NO_TEXTS),
    "user_metadata of a change": (lambda catalog, value: catalog.table("t").delete(user_metadata=value), NO_TEXTS),
    "committer": (lambda catalog, value: catalog.begin(committer=value), NO_TEXTS),
    "committer of a table": (lambda catalog, value: catalog.create_table("p", "id INT", committer=value), NO_TEXTS),
    "expected_version": (
        lambda catalog, value: catalog.write("t", ROWS, expected_version=value),
        (2**70, -(2**70), "1", True),
    ),
    "swapped": (lambda catalog, value: catalog.write(value, "t"), (ROWS, pd.DataFrame({"id": [1]}))),  # type: ignore[arg-type]
    "head": (lambda catalog, value: catalog.table("t").head(value), ("3", -1, 1.5)),
    "run": (lambda catalog, value: catalog.run(value), (None, 3)),
    "stage": (lambda catalog, value: catalog.begin().stage("t", value), (None, 3, "add")),
    "isolation": (lambda catalog, value: catalog.begin(isolation=value), ("SERIALIZABLE", 3, ["strict"])),
    "connect": (lambda _, value: deltars.connect(value), (3, b"lake", "postgresql://x/y", "")),
    "delete_data": (lambda catalog, value: catalog.drop_table("t", delete_data=value), NO_FLAGS),
    "delete_data of a transaction": (
        lambda catalog, value: catalog.begin().drop_table("t", delete_data=value),
        NO_FLAGS,
    ),
    "merge_schema": (lambda catalog, value: catalog.write("t", ROWS, merge_schema=value), NO_FLAGS),
    "overwrite_schema": (
        lambda catalog, value: catalog.write("t", ROWS, "overwrite", overwrite_schema=value),
        NO_FLAGS,
    ),
    "if_not_exists": (lambda catalog, value: catalog.create_table("t", "id INT", if_not_exists=value), NO_FLAGS),
    "replace": (lambda catalog, value: catalog.create_table("t", "id INT", replace=value), NO_FLAGS),
    "replace in a transaction": (
        lambda catalog, value: catalog.begin().create_table("t", "id INT", replace=value),
        NO_FLAGS,
    ),
    "read_only": (lambda catalog, value: catalog.import_table("/nowhere", read_only=value), NO_FLAGS),
    "take_over": (lambda catalog, value: catalog.import_table("/nowhere", take_over=value), NO_FLAGS),
    "dry_run": (lambda catalog, value: catalog.table("t").restore(0, dry_run=value), NO_FLAGS),
    "dry_run of all tables": (
        lambda catalog, value: catalog.restore(dt.datetime.now(dt.UTC), dry_run=value),
        NO_FLAGS,
    ),
    "discard": (lambda catalog, value: catalog.accept_log("t", discard=value), NO_FLAGS),
    "partitions": (lambda catalog, value: catalog.table("t").detail(partitions=value), NO_FLAGS),
    "deep": (lambda catalog, value: catalog.table("t").verify(deep=value), NO_FLAGS),
    "orphans": (lambda catalog, value: catalog.table("t").verify(orphans=value), NO_FLAGS),
    "if_exists": (lambda catalog, value: catalog.table("t").alter.drop_constraint("c", if_exists=value), NO_FLAGS),
    "migrate": (lambda catalog, value: deltars.connect(catalog.uri, migrate=value), ("no", "", 0, 1)),
    "views": (lambda catalog, value: deltars.migrate.sql(catalog.uri, views=value), NO_FLAGS),
    "warehouse": (
        lambda catalog, value: deltars.connect(catalog.uri, warehouse=value),
        (3, "here", Path("here")),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_value_gets_an_error_that_says_what_to_do(
    catalog: deltars.Catalog, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    call, values = CALLS[name]
    for value in values:
        with pytest.raises(DeltarsError) as caught:
            call(catalog, value)
        assert caught.value.hint, f"{value!r:.60}: {caught.value}"
    assert [table.name for table in catalog.tables()] == ["t"]
    assert catalog.table("t").version == 0


def test_moments_of_every_kind_are_one_moment(catalog: deltars.Catalog) -> None:
    now = dt.datetime.now(dt.UTC)
    naive = now.replace(tzinfo=None)
    result = deltars.TransactionResult(catalog.table("t").history()[0].txn_id, 1)
    same: tuple[Any, ...] = (now, now.isoformat(), pd.Timestamp(now), pd.Timestamp(naive), np.datetime64(naive))
    assert {catalog.snapshot(moment).as_of for moment in same} == {now}
    assert {catalog.table("t").snapshot(timestamp=moment).version for moment in same} == {0}
    assert catalog.snapshot(dt.date(2026, 1, 1)).versions == catalog.snapshot("2026-01-01").versions == {}
    assert catalog.snapshot(result).versions == catalog.snapshot(result.txn_id).versions == {"t": 0}
    assert catalog.table("t").to_arrow(version=np.int64(0)).num_rows == 2  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="had nothing to commit"):
        catalog.snapshot(deltars.TransactionResult(result.txn_id, None))


def test_transaction_is_neither_pickled_nor_copied(catalog: deltars.Catalog) -> None:
    tx = catalog.begin()
    for send in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(ValidationError, match=r"belongs to the process that began it.*Send the catalog"):
            send(tx)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b"])], ids=str)
def test_categories_of_polars_are_written_as_strings(tmp_path: Path, kind: Any) -> None:
    values = ["a", "b", None, "a"]
    frame = pl.DataFrame(
        {"x": values, "l": [[value] for value in values], "s": [{"y": value} for value in values]},
        schema={"x": kind, "l": pl.List(kind), "s": pl.Struct({"y": kind})},
    )
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog:
        catalog.write("t", frame, partition_by="x")
        catalog.write("t", frame.clear())
        catalog.create_table(
            "u", "x STRING, d INT DEFAULT 1", properties={"delta.feature.allowColumnDefaults": "supported"}
        )
        catalog.write("u", frame.select("x"))
        catalog.write("u", frame.select("x").lazy().collect().slice(1, 2))
        rows = catalog.table("t").to_arrow().to_pylist()
        assert sorted(row["x"] or "" for row in rows) == ["", "a", "a", "b"]
        assert all(row["l"] == [row["x"]] and row["s"] == {"y": row["x"]} for row in rows)
        assert sorted(catalog.table("u").to_arrow()["x"].to_pylist(), key=str) == [None, None, "a", "a", "b", "b"]
        assert set(catalog.table("u").to_arrow()["d"].to_pylist()) == {1}


def test_table_object_is_taken_as_a_name(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(uri) as catalog, deltars.connect(uri) as again:
        catalog.write("t", ROWS)
        table: Any = again.table("t")
        catalog.write(table, ROWS)
        with catalog.begin() as tx:
            assert tx.to_arrow(table).num_rows == 4
            tx.write(table, ROWS)
            tx.delete(table, "id = 1")
        with deltars.begin() as tx:
            tx.write(table, ROWS)
        assert catalog.snapshot().to_arrow(table).num_rows == 5
        assert table in catalog
        assert catalog.table(table) == table
        with deltars.connect(f"deltasql://sqlite/{tmp_path}/other.db") as other:
            other.write("t", ROWS)
            with pytest.raises(ValidationError, match="in another catalog"):
                catalog.write(cast(Any, other.table("t")), ROWS)
        assert catalog.table("t").count() == 5


def test_wrong_value_is_named_with_its_column_or_its_place(catalog: deltars.Catalog) -> None:
    frame = pd.DataFrame({"id": [1], "big": [2**70]})
    with pytest.raises(ValidationError, match=r"the column 'big' .* more than 64 bits"):
        catalog.write("p", frame)
    with pytest.raises(ValidationError, match=r"the column 's' .* surrogate"):
        catalog.write("p", pd.DataFrame({"id": [1], "s": ["\ud800"]}))
    with pytest.raises(ValidationError, match=r"the table comes first.*write\('t', df\)"):
        catalog.write(cast(Any, ROWS), cast(Any, "t"))
    with pytest.raises(deltars.errors.VersionNotFound, match=r"\[table t\]"):
        catalog.table("t").snapshot(99)
    with pytest.raises(deltars.errors.VersionNotFound, match=r"\[table t\b"):
        catalog.table("t").restore(99)
    with pytest.raises(deltars.errors.TimestampTooEarly, match=r"\[table t\]"):
        catalog.table("t").to_arrow(timestamp="1999-01-01")


def test_unknown_keyword_is_answered_with_all_parameters(catalog: deltars.Catalog) -> None:
    table: Any = catalog.table("t")
    with pytest.raises(TypeError, match="options are on, target_alias, source_alias, merge_schema, app_id"):
        table.merge(ROWS, "t.id = s.id", alias="x")
    with pytest.raises(TypeError, match="options are where, app_id"):
        table.delete(condition="id = 1")
    with pytest.raises(TypeError, match="options are warehouse, migrate, "):
        deltars.connect(catalog.uri, ware_house="x")  # type: ignore[call-arg]


READS: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "delta-spark's version": (
        lambda catalog, table: table.read(versionAsOf=0),
        r"^read\(\) got an unexpected keyword argument 'versionAsOf'; options are version, timestamp, as_of, where,"
        r" columns, spark\. Write version=… in place of versionAsOf=…$",
    ),
    "delta-spark's time": (lambda catalog, table: table.to_arrow(timestampAsOf="2026-01-01"), "Write timestamp=…"),
    "pandas' filters": (lambda catalog, table: table.to_pandas(filters=[]), "Write where=… in place of filters=…"),
    "PyIceberg's filter": (
        lambda catalog, table: table.to_polars(row_filter="id = 1"),
        "Write where=… in place of row_f",
    ),
    "PyIceberg's columns": (lambda catalog, table: table.to_arrow(selected_fields=["id"]), "Write columns=…"),
    "a limit": (lambda catalog, table: table.to_pandas(limit=5), r"options are version.*; table\.head\(10\) returns"),
    "a version by position": (
        lambda catalog, table: table.to_pandas(0),
        r"^to_pandas\(\) takes its options by name, name=value, got 0; options are version, timestamp",
    ),
    "a level by position": (
        lambda catalog, table: catalog.begin("serializable"),
        r"^begin\(\) takes its options by name",
    ),
    "a retention by position": (
        lambda catalog, table: table.vacuum(168),
        rf"^vacuum\(\) takes.* got 168; options are {', '.join(VacuumOptions.__annotations__)}, report$",
    ),
    "drop if exists": (
        lambda catalog, table: catalog.drop_table("t", if_exists=True),
        r"options are delete_data, purge; look first: if \"features\" in catalog$",
    ),
    "retries of others": (
        lambda catalog, table: catalog.run(lambda tx: None, max_retries=3),
        r"^run\(\) got.*options are retries, retry_timeout, isolation.*Write retries=…",
    ),
    "a cut": (lambda catalog, table: catalog.snapshot().to_pandas("t", filters=1), "options are where, columns. Write"),
    "a transaction": (lambda catalog, table: catalog.begin().to_pandas("t", colums=["id"]), "Write columns=…"),
    "no table": (lambda catalog, table: catalog.snapshot().read(), r"^read\(\) needs the argument 'table'$"),
    "the module": (lambda catalog, table: cast(Any, deltars).read("t", version_as_of=1), r"^read\(\).*Write version=…"),
}


@pytest.mark.parametrize(("call", "said"), READS.values(), ids=READS)
def test_wrong_keyword_of_a_read_is_answered_with_the_options_and_what_is_meant(
    catalog: deltars.Catalog, call: Callable[[Any, Any], object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        call(catalog, catalog.table("t"))


def test_every_public_method_checks_its_call() -> None:
    for kind in (deltars.Catalog, deltars.Table, deltars.CatalogSnapshot, deltars.Transaction, deltars.MergeBuilder):
        for name in dir(kind):
            method = getattr(kind, name)
            if name.startswith("_") or not inspect.isfunction(method):
                continue
            with pytest.raises(TypeError, match=r"^\w+\(\) takes its options by name"):
                method(*(None,) * 20)


def test_tag_in_place_of_a_version_is_sent_to_as_of(catalog: deltars.Catalog) -> None:
    with pytest.raises(deltars.ValidationError, match="a tag to as_of="):
        catalog.table("t").restore(cast(Any, "day0"))


def test_error_of_another_library_says_in_which_write_it_happened(catalog: deltars.Catalog) -> None:
    class Broken:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise RuntimeError("broken")

    tx = catalog.begin()
    with pytest.raises(RuntimeError) as caught:
        tx.write(catalog.table("t").id, Broken())
    assert caught.value.__notes__ == [f"deltars: table t, transaction {tx.id}"]


def test_text_in_place_of_a_list_of_tables_is_one_table(catalog: deltars.Catalog) -> None:
    catalog.write("list", ROWS)
    catalog.tag("one")
    catalog.write("list", ROWS)
    table = catalog.table("list")
    for one in ("list", table.id, table):
        [restored] = catalog.restore("one", tables=one, dry_run=True).tables
        assert restored.table == "list"
    with pytest.raises(deltars.ValidationError, match=r"tables must be a list of tables, got 3.*Write tables=\["):
        catalog.restore("one", tables=3)  # type: ignore[arg-type]
    with pytest.raises(deltars.ValidationError, match=r"names must map each table.*Write copy_tables\({"):
        catalog.copy_tables(["list"])  # type: ignore[arg-type]
    for frame in (table, catalog.snapshot()):
        arguments = ("con",) if frame is table else ("list", "con")
        with pytest.raises(deltars.ValidationError, match="must be a DuckDB connection, got 'con'"):
            frame.to_duckdb(*arguments)


def test_sparse_column_is_refused_with_what_makes_it_dense(catalog: deltars.Catalog) -> None:
    frame = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 1.0])})
    with pytest.raises(deltars.ValidationError, match=r"column a.*Make sparse columns dense.*astype"):
        catalog.write("sparse", frame)
    catalog.write("sparse", frame.astype({"a": "float64"}))


def test_condition_of_optimize_that_is_no_text_is_answered_with_an_example(catalog: deltars.Catalog) -> None:
    with pytest.raises(ValidationError, match="Write it as Spark SQL, such as"):
        catalog.table("t").optimize(cast(Any, pl.col("id") > 1))
