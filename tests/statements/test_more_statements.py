"""Statements about other things than rows, without Spark: paths, views, changes, plans, and tables like others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltars import Catalog, PredicateError, TableNotFound, ValidationError
from deltars.transaction.table_write import TableWrite

pytestmark = pytest.mark.backends("sqlite")

Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the session that other tests of this process may have."""
    monkeypatch.setattr("deltars.transaction.queries.active_spark", lambda: None)
    monkeypatch.setattr("deltars.transaction.statements.engine.active_spark", lambda: None)


@pytest.fixture
def run(catalog: Catalog, tmp_path: Path) -> Run:
    def run_statement(text: str, **options: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in catalog.sql_to_arrow(text, **options).to_pylist()]

    catalog.write("t", pa.table({"id": [1, 2], "p": ["a", None]}), partition_by=["p"], location=str(tmp_path / "t"))
    return run_statement


def test_table_is_named_by_its_path(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    place = tmp_path / "t"
    assert run(f"SELECT count(*) FROM delta.`{place}`") == [(2,)]
    assert run(f"DELETE FROM delta.`{place}` WHERE id = 1") == [(1,)]
    assert run(f"INSERT INTO DELTA.`file://{place}/` VALUES (3, 'b')") == [(1, 1)]
    assert run(f"SELECT id FROM delta.`{place}` VERSION AS OF 0 ORDER BY id") == [(1,), (2,)]
    assert [row[4] for row in run(f"DESCRIBE HISTORY '{place}'")] == ["WRITE", "DELETE", "CREATE TABLE AS SELECT"]
    assert run(f"OPTIMIZE '{place}' WHERE p = 'a'")[0][0] == run(f"VACUUM '{place}'")[0][0] == str(place)
    with catalog.begin() as tx:
        tx.sql_to_arrow(f"CREATE TABLE delta.`{tmp_path}/made` (n INT) COMMENT 'new'")
        tx.sql_to_arrow(f"INSERT INTO delta.`{tmp_path}/made` VALUES (1)")
        assert tx.sql_to_arrow(f"SELECT n FROM delta.`{tmp_path}/made`").to_pylist() == [{"n": 1}]
    made = catalog.table("made")
    assert (made.location, made.count(), made.detail().description) == (str(tmp_path / "made"), 1, "new")
    assert catalog.table(f"delta.{place}") == catalog.table("t")
    for text, error, said in [
        (f"DELETE FROM delta.`{tmp_path}/none`", TableNotFound, "there is no table"),
        ("VACUUM 'none'", PredicateError, "'none' is no path"),
        (
            f"CREATE TABLE delta.`{tmp_path}/x` (n INT) LOCATION '/y'",
            PredicateError,
            "the table's name is its location",
        ),
    ]:
        with pytest.raises(error, match=said):
            run(text)


def test_view_is_read_as_its_tables_are_then(catalog: Catalog, run: Run) -> None:
    run("CREATE TEMP VIEW some AS SELECT id, p FROM t WHERE id > :least", args={"least": 1})
    run("CREATE OR REPLACE TEMPORARY VIEW numbers (n) AS SELECT id FROM some")
    assert run("SELECT n FROM numbers") == [(2,)]
    run("INSERT INTO t VALUES (3, 'b')")
    assert run("SELECT numbers.n, some.p FROM numbers JOIN some ON n = id ORDER BY n") == [(2, None), (3, "b")]
    assert run("SELECT n FROM numbers WHERE n > ?", args=[2]) == [(3,)]
    run("INSERT INTO t SELECT n + 10, 'v' FROM numbers")
    assert catalog.table("t").count() == 5
    with catalog.begin() as tx:
        tx.sql_to_arrow("DELETE FROM t WHERE id > 10")
        assert tx.sql_to_arrow("SELECT max(n) AS most FROM numbers").to_pylist() == [{"most": 3}]
    run("CREATE TEMP VIEW IF NOT EXISTS numbers AS SELECT 1")
    for text, said in [
        ("CREATE TEMP VIEW numbers AS SELECT 1", "there is already a view numbers"),
        ("CREATE TEMP VIEW wrong AS SELECT id FROM nowhere", "there is no table 'nowhere'"),
        ("CREATE TEMP VIEW t AS SELECT id FROM t", "would hide the table that it reads"),
        ("CREATE VIEW kept AS SELECT 1", "a catalog keeps tables, and no views"),
        ("CREATE TEMP TABLE x (a INT)", "CREATE TEMP TABLE is not supported"),
        ("DELETE FROM numbers", "numbers is a temporary view"),
        ("SELECT * FROM numbers VERSION AS OF 0", "a view has no versions"),
        ("DROP VIEW nowhere", "there is no view nowhere"),
    ]:
        with pytest.raises((PredicateError, TableNotFound), match=said):
            run(text)
    run("DROP VIEW some")
    run("DROP VIEW IF EXISTS some")
    with pytest.raises(TableNotFound, match="some"):
        run("SELECT n FROM numbers")
    run("CREATE OR REPLACE TEMP VIEW a AS SELECT 1 AS x")
    run("CREATE OR REPLACE TEMP VIEW b AS SELECT x FROM a")
    run("CREATE OR REPLACE TEMP VIEW a AS SELECT x FROM b")
    with pytest.raises(ValidationError, match="refers to itself"):
        run("SELECT x FROM a")


def test_changes_of_versions_are_rows_of_a_query(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    run("UPDATE t SET id = 9 WHERE id = 1")
    feed = "SELECT id, _change_type, _commit_version FROM table_changes('t', 1) ORDER BY id"
    assert run(feed) == [(1, "delete", 1), (9, "insert", 1)]
    assert run("SELECT c.id FROM table_changes('t', 0, 0) c WHERE c.id > 1") == [(2,)]
    assert run(f"SELECT count(*) FROM table_changes_by_path('{tmp_path}/t', 0, 1)") == [(4,)]
    assert run("SELECT count(*) FROM table_changes('t', '2000-01-01')") == [(4,)]
    run("CREATE TABLE log AS SELECT id, _change_type AS what FROM table_changes('t', 1, 1)")
    assert run("BEGIN ATOMIC INSERT INTO log SELECT id, 'again' FROM table_changes('t', 0, 0); END") == [(2, 2)]
    assert catalog.table("log").count() == 4
    for text, error, said in [
        ("SELECT * FROM table_changes('none', 0)", TableNotFound, "at position 15"),
        ("SELECT * FROM table_changes(t, 0)", PredicateError, "expected a table in quotes"),
        ("SELECT * FROM table_changes('t')", PredicateError, "expected ,"),
        ("SELECT * FROM table_changes('t', 7)", ValidationError, "after version 1"),
    ]:
        with pytest.raises(error, match=said):
            run(text)
    with catalog.begin() as tx, pytest.raises(PredicateError, match="no part of this transaction"):
        tx.sql_to_arrow(feed)


def test_plan_of_a_query_names_its_files(run: Run) -> None:
    [(plan,)] = run("EXPLAIN SELECT id FROM t WHERE p = 'a'")
    assert "t, 1 files" in plan
    with pytest.raises(PredicateError, match="only a query can be explained"):
        run("EXPLAIN DELETE FROM t")


def test_table_like_another_has_no_rows(catalog: Catalog, run: Run) -> None:
    catalog.table("t").alter.set_properties({"mine": "1", "delta.columnMapping.mode": "name"})
    run("CREATE TABLE other LIKE t TBLPROPERTIES ('more' = '2')")
    run("CREATE TABLE IF NOT EXISTS other LIKE t")
    run("INSERT INTO other VALUES (5, 'x')")
    detail = catalog.table("other").detail()
    assert (detail.partition_columns, detail.properties["mine"], detail.properties["more"]) == (("p",), "1", "2")
    assert catalog.table("other").to_arrow().to_pylist() == [{"id": 5, "p": "x"}]
    with pytest.raises(PredicateError, match="takes PARTITIONED BY from the other table"):
        run("CREATE TABLE more LIKE t PARTITIONED BY (id)")


def test_partitions_columns_and_definition_are_shown(catalog: Catalog, run: Run) -> None:
    assert run("SHOW PARTITIONS t") == [("p=__HIVE_DEFAULT_PARTITION__",), ("p=a",)]
    assert run("DESCRIBE t id") == [("col_name", "id"), ("data_type", "bigint"), ("comment", "NULL")]
    [(text,)] = run("SHOW CREATE TABLE t")
    catalog.drop_table("t")
    run(text.replace("LOCATION", "COMMENT 'again' LOCATION").replace("/t'", "/again'"))
    assert catalog.table("t").detail().partition_columns == ("p",)
    for wrong in ("SHOW PARTITIONS missing", "DESCRIBE t nope"):
        with pytest.raises((PredicateError, TableNotFound)):
            run(wrong)


def test_manifest_and_conversion_are_statements(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    catalog.write("flat", pa.table({"id": [1]}), location=str(tmp_path / "flat"))
    assert run("GENERATE symlink_format_manifest FOR TABLE flat") == []
    assert (tmp_path / "flat" / "_symlink_format_manifest" / "manifest").exists()
    (tmp_path / "plain" / "day=2").mkdir(parents=True)
    pq.write_table(pa.table({"id": [7]}), tmp_path / "plain" / "day=2" / "a.parquet")
    for _ in range(2):  # a directory that is a table already stays as it is
        assert run(f"CONVERT TO DELTA parquet.`{tmp_path}/plain` PARTITIONED BY (day INT)") == []
    assert catalog.table("plain").to_arrow().to_pylist() == [{"id": 7, "day": 2}]
    for text in ("GENERATE other FOR TABLE flat", "CONVERT TO DELTA csv.`/x`"):
        with pytest.raises((PredicateError, ValidationError)):
            run(text)
    with catalog.begin() as tx, pytest.raises(PredicateError, match="cannot be part of a transaction"):
        tx.sql_to_arrow("GENERATE symlink_format_manifest FOR TABLE flat")


def test_failure_after_the_commit_of_a_script_keeps_what_was_committed(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "BEGIN; INSERT INTO t VALUES (3, 'x'); COMMIT; INSERT INTO t VALUES ('four', 'x'); DELETE FROM t"
    with pytest.raises(ValidationError, match="cannot be cast"):
        catalog.sql_script(script)
    assert run("SELECT count(*) FROM t") == [(3,)]
    assert catalog.table("t").version == 1

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    # The rows of COMMIT are made after it.
    with monkeypatch.context() as patch:
        patch.setattr("deltars.catalog.statements._committed", interrupt)
        with pytest.raises(KeyboardInterrupt):
            catalog.sql_script("BEGIN; INSERT INTO t VALUES (4, 'x'); COMMIT")
    assert catalog.table("t").version == 2
    with monkeypatch.context() as patch:
        patch.setattr(TableWrite, "_write_rows", interrupt)
        with pytest.raises(KeyboardInterrupt):
            catalog.sql_script("BEGIN; DELETE FROM t; INSERT INTO t VALUES (5, 'x'); COMMIT")
    assert (catalog.table("t").version, catalog.table("t").count()) == (2, 4)
