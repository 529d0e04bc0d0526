"""Statements without Spark: what they change, what they return, and that a failure changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import deltars
from deltars import Catalog, PredicateError, SchemaMismatch, TableExists, TableNotFound, ValidationError
from deltars.errors import ConfigError
from tests.statements.grammar import statements
from tests.support.soak import scaled

pytestmark = pytest.mark.backends("sqlite")

CREATE = "CREATE TABLE t (id BIGINT NOT NULL, name STRING, d DOUBLE)"


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the session that other tests of this process may have."""
    monkeypatch.setattr("deltars.transaction.queries.active_spark", lambda: None)
    monkeypatch.setattr("deltars.transaction.statements.engine.active_spark", lambda: None)
    monkeypatch.setattr("deltars.transaction.row_change.RowChange._spark", lambda change: None)


@pytest.fixture
def run(catalog: Catalog) -> Callable[..., list[tuple[Any, ...]]]:
    """`run("SELECT …")`: the rows as tuples."""

    def run_statement(text: str, **options: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in catalog.sql_to_arrow(text, **options).to_pylist()]

    return run_statement


Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def lake(run: Run) -> None:
    run(CREATE)
    run("INSERT INTO t VALUES (1, 'a', 1.5), (2, NULL, 2), (3, 'c', NULL)")


def rows(catalog: Catalog, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in catalog.table(table).to_arrow().to_pylist()), key=repr)


@pytest.mark.usefixtures("lake")
def test_rows_are_inserted_by_position_by_list_and_by_name(catalog: Catalog, run: Run) -> None:
    assert run("INSERT INTO t (d, id) VALUES (:d, ?)".replace("?", "-:id"), args={"d": 4, "id": -4}) == [(1, 1)]
    assert run("INSERT INTO t BY NAME SELECT 'x' AS name, 5 AS id") == [(1, 1)]
    assert run("INSERT INTO t TABLE t VERSION AS OF 1") == [(3, 3)]
    assert run("SELECT id, name, d FROM t WHERE id > 3 ORDER BY id") == [(4, None, 4.0), (5, "x", None)]
    assert catalog.table("t").count() == 8
    for text, error, said in [
        ("INSERT INTO t VALUES (1)", PredicateError, "the rows have 1 columns, and the table has 3"),
        ("INSERT INTO t (id, nope) VALUES (1, 2)", PredicateError, "there is no column nope"),
        ("INSERT INTO t (id, ID) VALUES (1, 2)", PredicateError, "the column id is given twice"),
        ("INSERT INTO t VALUES ('one', 'a', 1)", SchemaMismatch, "because it is malformed, at position 23"),
        ("INSERT INTO t SELECT name, name, 1 FROM t", SchemaMismatch, "id"),
        ("INSERT INTO t BY NAME VALUES (1, 'a', 1)", PredicateError, "VALUES have no names"),
        ("INSERT INTO t BY NAME SELECT 1 AS id, 2 AS more", SchemaMismatch, "more"),
        ("INSERT INTO t (name) VALUES ('no id')", SchemaMismatch, "id"),
        ("INSERT INTO t PARTITION (id = 1) VALUES (1, 2)", PredicateError, "id is no partition column"),
        ("INSERT INTO missing VALUES (1)", TableNotFound, "at position 13 of the statement"),
    ]:
        with pytest.raises(error, match=said):
            run(text)
    assert catalog.table("t").version == 4


def test_texts_in_a_statement_are_cast_to_the_types_of_their_columns(catalog: Catalog, run: Run) -> None:
    catalog.create_table(
        "c", "day DATE, n INT, b BOOLEAN, x DOUBLE, m DECIMAL(5,2), s STRUCT<y: BIGINT>, p DATE", partition_by="p"
    )
    run("INSERT INTO c PARTITION (p = '2026-01-31') (day, n, b) VALUES ('2026-02-28', '5', 'true'), (NULL, 6, FALSE)")
    run("UPDATE c SET day = '2026-03-01', x = ' 1e3 ', s.y = '7' WHERE n = 5")
    merge = "MERGE INTO c USING (SELECT 6 AS k) AS u ON c.n = u.k WHEN MATCHED THEN UPDATE SET "
    run(f"{merge} m = '1.50', day = ('2026-04-01')")
    days = [date(2026, 1, 31), date(2026, 3, 1), date(2026, 4, 1)]
    assert rows(catalog, "c") == sorted(
        [
            (days[1], 5, True, 1000.0, None, {"y": 7}, days[0]),
            (days[2], 6, False, None, Decimal("1.50"), None, days[0]),
        ],
        key=repr,
    )
    version = catalog.table("c").version
    for text in (
        "SET day = 'nope'",
        "SET n = 'x'",
        "SET n = '99999999999'",
        "SET b = 'maybe'",
        "SET day = CAST(n AS STRING)",
    ):
        with pytest.raises(SchemaMismatch):
            run(f"UPDATE c {text}")
    assert run("INSERT INTO c SELECT * FROM c WHERE n > 9") == [(0, 0)]
    assert catalog.table("c").version == version


@pytest.mark.usefixtures("lake")
def test_rows_are_replaced_where_the_statement_says(catalog: Catalog, run: Run) -> None:
    assert run("INSERT INTO t REPLACE WHERE id = 1 VALUES (1, 'new', 0)") == [(1, 1)]
    assert rows(catalog) == [(1, "new", 0.0), (2, None, 2.0), (3, "c", None)]
    with pytest.raises(ValidationError):
        run("INSERT INTO t REPLACE WHERE id = 1 VALUES (9, 'outside', 0)")
    run("INSERT OVERWRITE t VALUES (7, 'all', 7)")
    assert rows(catalog) == [(7, "all", 7.0)]
    run("CREATE TABLE p (id INT, k STRING) PARTITIONED BY (k)")
    run("INSERT INTO p VALUES (1, 'a'), (2, 'b')")
    run("INSERT OVERWRITE p PARTITION (k = 'a') VALUES (10)")
    run("INSERT INTO p PARTITION (k = 'it''s') (id) VALUES (3)")
    run("INSERT INTO p (id) VALUES (4)")
    assert rows(catalog, "p") == [(10, "a"), (2, "b"), (3, "it's"), (4, None)]
    run("INSERT OVERWRITE p PARTITION (k = NULL) VALUES (40)")
    assert rows(catalog, "p") == [(10, "a"), (2, "b"), (3, "it's"), (40, None)]
    run("INSERT WITH SCHEMA EVOLUTION INTO p BY NAME SELECT 5 AS id, 'e' AS k, 'new' AS more")
    assert catalog.table("p").schema.names == ("id", "k", "more")


@pytest.mark.usefixtures("lake")
def test_rows_are_changed_by_the_table_or_its_alias(catalog: Catalog, run: Run) -> None:
    attack = "x' OR 1 = 1; DROP TABLE t; --\\"
    assert run("UPDATE t AS x SET x.name = :v, d = x.d + 1 WHERE x.id = 1", args={"v": attack}) == [(1,)]
    assert run("SELECT name FROM t WHERE id = :v", args={"v": 1}) == [(attack,)]
    assert run("DELETE FROM t WHERE t.id = 2") == [(1,)]
    assert run("DELETE FROM t WHERE name = ?", args=["nobody"]) == [(0,)]
    assert rows(catalog) == [(1, attack, 2.5), (3, "c", None)]
    merged = run(
        "MERGE INTO t USING (SELECT 1 AS id, 'm' AS name UNION ALL SELECT 9, 'n') AS s ON t.id = s.id"
        " WHEN MATCHED AND s.name = :m THEN UPDATE SET t.name = concat(s.name, '!')"
        " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
        " WHEN NOT MATCHED BY SOURCE THEN DELETE",
        args={"m": "m"},
    )
    assert merged == [(3, 1, 1, 1)]
    assert rows(catalog) == [(1, "m!", 2.5), (9, "n", None)]
    run("CREATE TABLE s (id BIGINT, extra INT)")
    run("INSERT INTO s VALUES (1, 5)")
    run("MERGE WITH SCHEMA EVOLUTION INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    assert rows(catalog) == [(1, "m!", 2.5, 5), (9, "n", None, None)]
    assert run("TRUNCATE TABLE t") == [(2,)]
    entry = catalog.table("t").history(limit=1)[0]
    assert entry.operation == "DELETE"


@pytest.mark.usefixtures("lake")
def test_default_means_the_columns_default(catalog: Catalog, run: Run) -> None:
    run("CREATE TABLE v (id INT, s STRING DEFAULT 'none', g INT GENERATED ALWAYS AS (id + 1))")
    run("INSERT INTO v (id, s) VALUES (1, DEFAULT), (2, 'x')")
    run("INSERT INTO v (id) VALUES (3)")
    run("UPDATE v SET s = DEFAULT WHERE id = 2")
    assert rows(catalog, "v") == [(1, "none", 2), (2, "none", 3), (3, "none", 4)]


@pytest.mark.usefixtures("lake")
def test_moment_in_a_query_reads_that_version(catalog: Catalog, run: Run) -> None:
    run("DELETE FROM t WHERE id = 1")
    before = catalog.table("t").history()[1].committed_at
    assert run("SELECT count(*) AS n FROM t") == [(2,)]
    assert run("SELECT count(*) AS n FROM t VERSION AS OF 1") == [(3,)]
    assert run("SELECT count(*) AS n FROM t@v1 AS x") == [(3,)]
    assert run("SELECT count(*) AS n FROM t TIMESTAMP AS OF :then", args={"then": before.isoformat()}) == [(3,)]
    assert run("SELECT a.id FROM t@v1 AS a LEFT JOIN t AS b ON a.id = b.id WHERE b.id IS NULL") == [(1,)]
    with catalog.begin() as tx:
        tx.sql_to_arrow("INSERT INTO t VALUES (10, 'x', 0)")
        assert tx.sql_to_arrow("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 3}]
        assert tx.sql_to_arrow("SELECT count(*) AS n FROM t@v1").to_pylist() == [{"n": 3}]
    with pytest.raises(deltars.VersionNotFound):
        run("SELECT * FROM t@v99")
    with pytest.raises(ValidationError, match="as_of goes with a query"):
        run("DELETE FROM t", as_of="2026-01-01")


@pytest.mark.usefixtures("lake")
def test_tables_are_created_replaced_altered_and_dropped(catalog: Catalog, run: Run) -> None:
    with pytest.raises(TableExists, match="at position 14"):
        run("CREATE TABLE t (id INT)")
    run("CREATE TABLE IF NOT EXISTS t (id INT)")
    assert run("CREATE TABLE u COMMENT 'copy' TBLPROPERTIES ('mine' = 'x') AS SELECT id, name FROM t") == [(3, 3)]
    assert run("CREATE OR REPLACE TABLE u CLUSTER BY (id) AS SELECT id FROM u WHERE id > 1") == [(2, 2)]
    assert catalog.table("u").version == 1
    with pytest.raises(TableNotFound):
        run("REPLACE TABLE nope (id INT)")
    run("ALTER TABLE u ADD COLUMNS (note STRING COMMENT 'n', first INT FIRST)")
    run("ALTER TABLE u ALTER COLUMN note COMMENT 'better'")
    run("ALTER TABLE u SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'mine' = 'y')")
    run("ALTER TABLE u RENAME COLUMN note TO remark")
    run("ALTER TABLE u DROP COLUMN first")
    run("ALTER TABLE u ALTER COLUMN remark FIRST")
    run("ALTER TABLE u UNSET TBLPROPERTIES ('mine')")
    run("ALTER TABLE u ADD CONSTRAINT positive CHECK (id > 0)")
    assert run("DESCRIBE u") == [("remark", "string", "better"), ("id", "bigint", None)]
    with pytest.raises(ValidationError, match="positive"):
        run("INSERT INTO u (id) VALUES (-1)")
    run("ALTER TABLE u DROP CONSTRAINT positive")
    run("ALTER TABLE u CLUSTER BY NONE")
    run("ALTER TABLE u RENAME TO w")
    assert run("SHOW TABLES LIKE 'w|u'") == [("", "w", False)]
    run("DROP TABLE w")
    run("DROP TABLE IF EXISTS w")
    with pytest.raises(TableNotFound):
        run("DROP TABLE w")


@pytest.mark.usefixtures("lake")
def test_descriptions_have_the_columns_of_delta(catalog: Catalog, run: Run) -> None:
    history = catalog.sql_to_arrow("DESCRIBE HISTORY t LIMIT 1").to_pylist()[0]
    assert (history["version"], history["operation"], history["readVersion"]) == (1, "WRITE", 0)
    assert dict(history["operationMetrics"])["numOutputRows"] == "3"
    detail = catalog.sql_to_arrow("DESCRIBE DETAIL t").to_pylist()[0]
    assert (detail["format"], detail["name"], detail["numFiles"]) == ("delta", "t", 1)
    assert detail["location"] == catalog.table("t").location
    assert run("SHOW COLUMNS IN t") == [("id",), ("name",), ("d",)]
    assert ("Provider", "delta", "") in run("DESCRIBE TABLE EXTENDED t")
    assert run("SHOW TBLPROPERTIES t ('delta.enableInCommitTimestamps')")[0][1] == "true"
    run("CREATE TABLE p (id INT, k STRING) PARTITIONED BY (k)")
    assert ("# Partition Information", "", "") in run("DESCRIBE p")


@pytest.mark.usefixtures("lake")
def test_maintenance_returns_deltas_metrics(catalog: Catalog, run: Run) -> None:
    run("INSERT INTO t VALUES (4, 'd', 4)")
    [(path, metrics)] = run("OPTIMIZE t WHERE id > 0")
    assert (path, metrics["numFilesAdded"], metrics["numFilesRemoved"]) == (catalog.table("t").location, 1, 2)
    assert run("OPTIMIZE t ZORDER BY (id, name)")[0][1]["numFilesAdded"] == 1
    assert run("VACUUM t") == [(catalog.table("t").location,)]
    with pytest.raises(ValidationError, match="less than 7 days"):
        run("VACUUM t RETAIN 0 HOURS")
    assert run("VACUUM t RETAIN 168 HOURS DRY RUN") == []
    assert run("RESTORE TABLE t TO VERSION AS OF 1")[0][1:4] == (1, 1, 1)
    assert len(rows(catalog)) == 3
    run("ALTER TABLE t SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    run("DELETE FROM t WHERE id = 2")
    assert run("REORG TABLE t APPLY (PURGE)")[0][1]["numFilesRemoved"] == 1


@pytest.mark.usefixtures("lake")
def test_atomic_block_is_one_transaction_over_all_its_tables(catalog: Catalog, run: Run) -> None:
    result = run(
        "BEGIN ATOMIC CREATE TABLE u (id BIGINT); INSERT INTO u SELECT id FROM t; DELETE FROM t WHERE id = 1;"
        " SELECT (SELECT count(*) FROM u) + (SELECT count(*) FROM t) AS n; END;"
    )
    assert result == [(5,)]
    newest = {catalog.table(name).history(limit=1)[0].txn_id for name in ("t", "u")}
    assert len(newest) == 1
    before = catalog.snapshot().versions
    for failing in ("DELETE FROM missing", "INSERT INTO u VALUES ('x')", "UPDATE t SET nope = 1", "DROP TABLE nope"):
        with pytest.raises(deltars.DeltarsError):
            run(f"BEGIN ATOMIC INSERT INTO u VALUES (99); DELETE FROM t; {failing}; END")
    with pytest.raises(PredicateError, match="ends too early"):
        run("BEGIN ATOMIC INSERT INTO u VALUES (99); DELETE FROM t WHERE (; END")
    assert catalog.snapshot().versions == before


@pytest.mark.usefixtures("lake")
def test_script_commits_what_is_between_begin_and_commit(catalog: Catalog) -> None:
    results = catalog.sql_script(
        "-- nightly\nCREATE TABLE u (id BIGINT); BEGIN; INSERT INTO u VALUES (1); UPDATE t SET name = 'z' WHERE id = 1;"
        " SELECT name FROM t WHERE id = 1; COMMIT; BEGIN TRANSACTION; DELETE FROM t; ROLLBACK;"
        " SELECT count(*) AS n FROM t"
    )
    assert results[4].to_pylist() == [{"name": "z"}]
    assert results[5].to_pylist() == [{"table": "t", "version": 2}, {"table": "u", "version": 1}]
    assert results[-1].to_pylist() == [{"n": 3}]
    before = catalog.snapshot().versions
    with pytest.raises(TableNotFound):
        catalog.sql_script("INSERT INTO u VALUES (2); BEGIN; DELETE FROM t; DELETE FROM missing; COMMIT")
    after = catalog.snapshot().versions
    assert after == before | {"u": before["u"] + 1}  # the statement before BEGIN was committed alone
    with pytest.raises(PredicateError):
        catalog.sql_script("DELETE FROM t; DELETE FROM t WHERE (")
    assert catalog.snapshot().versions == after


@pytest.mark.usefixtures("lake")
def test_interrupted_script_leaves_nothing_of_its_transaction(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = catalog.snapshot().versions

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(deltars.Transaction, "update", interrupt)
    for script in (
        "BEGIN; DELETE FROM t; UPDATE t SET d = 1; COMMIT",
        "BEGIN ATOMIC DELETE FROM t; UPDATE t SET d = 1; END",
    ):
        with pytest.raises(KeyboardInterrupt):
            catalog.sql_script(script)
    assert catalog.snapshot().versions == before


@pytest.mark.usefixtures("lake")
def test_transaction_reads_what_it_wrote_and_conflicts_by_what_it_read(catalog: Catalog) -> None:
    catalog.sql_to_arrow("CREATE TABLE u (id BIGINT)")
    tx = catalog.begin(isolation="serializable")
    tx.sql_to_arrow("INSERT INTO u SELECT id FROM t WHERE id = 1")
    assert tx.sql_to_arrow("SELECT id FROM u").to_pylist() == [{"id": 1}]
    with pytest.raises(PredicateError, match="not allowed inside a transaction"):
        tx.sql_to_arrow("BEGIN ATOMIC DELETE FROM u; END")
    with pytest.raises(PredicateError, match="OPTIMIZE commits by itself"):
        tx.sql_to_arrow("OPTIMIZE u")
    catalog.sql_to_arrow("DELETE FROM t WHERE id = 1")
    with pytest.raises(deltars.VersionConflict):
        tx.commit()
    assert catalog.table("u").count() == 0


@pytest.mark.usefixtures("lake")
def test_failed_merge_does_not_keep_the_transaction_from_committing(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        with pytest.raises(PredicateError):
            tx.sql_to_arrow("MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.nope WHEN MATCHED THEN DELETE")
        tx.sql_to_arrow("DELETE FROM t WHERE id = 1")
    assert catalog.table("t").count() == 2


@pytest.mark.usefixtures("lake")
def test_what_only_spark_can_do_says_so_before_anything_changes(catalog: Catalog, run: Run) -> None:
    for text in ("SELECT upper(name) FROM t", "INSERT INTO t SELECT id, upper(name), d FROM t"):
        with pytest.raises(ConfigError, match="this needs Spark"):
            run(text)
    with pytest.raises(ConfigError, match="this needs Spark: only Spark can compute"):
        run("INSERT INTO t VALUES (5, upper('x'), 1)")
    with pytest.raises(ValidationError, match="only Spark can do this"):
        run("DELETE FROM t WHERE soundex(name) = 'x'")
    assert catalog.table("t").version == 1


@pytest.mark.usefixtures("lake")
def test_threads_insert_at_once(catalog: Catalog) -> None:
    failures: list[BaseException] = []

    def insert(number: int) -> None:
        try:
            for _ in range(3):
                catalog.sql_to_arrow("INSERT INTO t (id) VALUES (:n)", args={"n": number})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=insert, args=(100 + number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert catalog.table("t").count("id >= 100") == 12


# -- any statement -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    place: Path = tmp_path_factory.mktemp("fuzzed")
    with deltars.connect(f"deltasql://sqlite/{place}/lake.db", mirror="off") as catalog:
        yield catalog


@pytest.mark.usefixtures("lake")
def test_query_that_fails_at_the_end_of_a_block_leaves_nothing(catalog: Catalog, run: Run) -> None:
    version = catalog.table("t").version
    with pytest.raises(deltars.DeltarsError):
        run("BEGIN ATOMIC TRUNCATE TABLE t; SELECT * FROM select; END")
    assert catalog.table("t").version == version


@pytest.mark.soak
@settings(
    max_examples=scaled(60, soak=3_000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(statements())
def test_statement_that_fails_changes_nothing_and_raises_our_errors(fuzzed: Catalog, text: str) -> None:
    for name in ("t", "u"):
        if name not in fuzzed:
            fuzzed.create_table(name, "id BIGINT, name STRING, d DOUBLE")
            fuzzed.write(name, pa.table({"id": [1, 2], "name": ["a", None], "d": [0.5, None]}))
    before, schemas = fuzzed.snapshot().versions, {table.name: table.schema for table in fuzzed.tables()}
    failed = True
    with suppress(deltars.DeltarsError):  # any other exception fails the test
        fuzzed.sql_to_arrow(text, args={"p": 1})
        failed = False
    if failed:
        assert fuzzed.snapshot().versions == before, text
        assert {table.name: table.schema for table in fuzzed.tables()} == schemas
