"""What a commit leaves in the catalog's tables, seen by plain SQL; and what the database itself refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import JSON, Boolean, Table, insert
from sqlalchemy.types import BigInteger, Integer

import deltars
from deltars.protocol import AddFile, Txn
from deltars.store import schema
from deltars.store.types import Id, Instant
from deltars.uri import parse_catalog_uri
from tests.store.conftest import OpenLog
from tests.support import witness
from tests.support.log import FEATURES, Log, added, creation, metadata, protocol, removed

CREATED = datetime(2020, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

REFERRING = [table for table in schema.metadata.tables.values() if table.foreign_keys]
"""Every table that says of its rows which table they are about."""


def document(value: Any) -> Any:
    """A JSON column as its driver hands it over: PostgreSQL's has parsed it."""
    return json.loads(value) if isinstance(value, str) else value


def moment(value: Any) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def type_of(uri: str, table: str, column: str) -> str:
    """How the database itself calls a column's type."""
    if parse_catalog_uri(uri).backend == "sqlite":
        [[name]] = witness.rows(uri, f"SELECT type FROM pragma_table_info('{table}') WHERE name = '{column}'")
    else:
        where = f"table_name = '{table}' AND column_name = '{column}' AND table_schema = current_schema()"
        [[name]] = witness.rows(uri, f"SELECT data_type FROM information_schema.columns WHERE {where}")
    return str(name)


JSON_TYPE = {"postgres": "jsonb", "sqlite": "JSON", "duckdb": "JSON"}


@pytest.mark.requirement("T-01")
def test_registered_table_has_its_row(catalog: deltars.Catalog) -> None:
    uri = catalog._session.uri.with_secrets()
    query = "SELECT table_id, name, location, min_reader_version, min_writer_version, current_version FROM dl_tables"
    created = catalog.create_table("features", "id BIGINT, seen TIMESTAMP_NTZ")
    registered = catalog.register_table("labels", "/data/labels")
    found = {name: (UUID(str(table_id)), *rest) for table_id, name, *rest in witness.rows(uri, query)}
    assert found == {
        # timestampNtz is a feature of readers too: version 3.
        "features": (created.id, f"{catalog.warehouse}/features", 3, 7, 0),
        "labels": (registered.id, "/data/labels", 1, 2, -1),
    }
    assert created.id.version == 4


@pytest.mark.requirement("T-02")
def test_table_properties_are_kept_as_json(catalog: deltars.Catalog, backend: str) -> None:
    uri = catalog._session.uri.with_secrets()
    catalog.create_table("features", "id BIGINT", properties={"owner": "me", "it's": '"ü" \\ \n'})
    catalog.set_properties("features", {"owner": "you"})
    [[properties]] = witness.rows(uri, "SELECT properties FROM dl_tables")
    expected = {"delta.enableInCommitTimestamps": "true", "owner": "you", "it's": '"ü" \\ \n'}
    assert document(properties) == expected
    assert catalog.table("features").properties == expected
    assert type_of(uri, "dl_tables", "properties") == JSON_TYPE[backend]
    owner = {"postgres": "properties->>'owner'", "sqlite": "json_extract(properties, '$.owner')"}
    condition = owner.get(backend, "json_extract_string(properties, '$.owner')")
    assert witness.rows(uri, f"SELECT name FROM dl_tables WHERE {condition} = 'you'") == [("features",)]


@pytest.mark.requirement("T-03")
def test_commit_is_described(log: Log) -> None:
    before = datetime.now(UTC)
    params = {"mode": "Append", "nested": {"list": [1, None, "ü"]}, "predicate": "a = 'b'"}
    result = log.commit([added("a")], operation="WRITE", operation_params=params, committer="etl")
    [row] = log.rows(
        "SELECT version, committed_at, commit_ts, committer, operation, operation_params, txn_id, read_version"
        " FROM dl_table_versions WHERE table_id = ? AND version = 1"
    )
    version, committed_at, commit_ts, committer, operation, operation_params, txn_id, read_version = row
    assert (version, committer, operation, read_version) == (1, "etl", "WRITE", 0)
    assert document(operation_params) == params
    assert UUID(str(txn_id)) == result.txn_id
    assert commit_ts == result.commit_ts
    stamped = moment(committed_at).astimezone(UTC)
    assert stamped == EPOCH + timedelta(microseconds=commit_ts)
    assert abs((stamped - before).total_seconds()) < 60


@pytest.mark.requirement("T-04")
def test_history_reads_newest_first(log: Log) -> None:
    for number in range(1, 13):
        log.append(operation=f"WRITE {number}", operation_params={"number": number}, committer=f"c{number}")
    history = log.catalog.table(log.name).history()
    assert [entry.version for entry in history] == list(range(12, -1, -1))
    assert [entry.operation for entry in history] == [*(f"WRITE {n}" for n in range(12, 0, -1)), "WRITE"]
    assert [entry.operation_params.get("number") for entry in history[:12]] == list(range(12, 0, -1))
    assert [entry.committer for entry in history[:2]] == ["c12", "c11"]
    assert [entry.version for entry in log.catalog.table(log.name).history(limit=3)] == [12, 11, 10]
    times = [entry.commit_ts for entry in history]
    assert times == sorted(set(times), reverse=True)


@pytest.mark.requirement("T-05")
def test_added_file_keeps_its_facts(log: Log) -> None:
    # Exact text: a JSON type would reorder the keys, rewrite the numbers and drop the sign of zero.
    exact = '{"numRecords":3,"minValues":{"z":-0.0,"a":1.797e308},"maxValues":{"z":1.0E2},"nullCount":{"a": 0}}'
    log.commit([added("a.parquet", size=11, stats=exact), added("b%20c.parquet", size=2**40)])
    log.commit([added("d.parquet", size=13)])
    query = "SELECT version, path, size, partition_values, stats, num_records FROM dl_add_files WHERE table_id = ?"
    rows = [(*row[:3], document(row[3]), *row[4:]) for row in log.rows(f"{query} ORDER BY version, ord")]
    assert rows == [
        (1, "a.parquet", 11, {}, exact, 3),
        (1, "b%20c.parquet", 2**40, {}, None, None),
        (2, "d.parquet", 13, {}, None, None),
    ]


@pytest.mark.requirement("T-06")
def test_partition_values_are_kept_as_json(open_log: OpenLog, backend: str) -> None:
    log = open_log().create("id INT, a STRING, b STRING", partition_columns=["a", "b"])
    values: list[dict[str, str | None]] = [
        {"a": "x", "b": None},
        {"a": "", "b": "null"},
        {"a": 'it\'s "ü" \\ {}', "b": "1e5"},
    ]
    log.commit([added(f"{n}", partition_values=value) for n, value in enumerate(values)])
    query = "SELECT partition_values FROM dl_add_files WHERE table_id = ? ORDER BY ord"
    assert [document(value) for (value,) in log.rows(query)] == values
    assert type_of(log.uri, "dl_add_files", "partition_values") == JSON_TYPE[backend]
    is_x = {"postgres": 'partition_values @> \'{"a": "x"}\'', "sqlite": "partition_values->>'a' = 'x'"}
    condition = is_x.get(backend, "(partition_values->>'$.a') = 'x'")
    assert log.rows(f"SELECT path FROM dl_add_files WHERE table_id = ? AND {condition}") == [("0",)]


@pytest.mark.requirement("T-07")
def test_removed_file_leaves_a_record(log: Log) -> None:
    log.append("a", "b", "c")
    log.commit([removed("a", deletion_timestamp=1_700_000_000_123), removed("c", deletion_timestamp=5)])
    log.commit([removed("b", deletion_timestamp=7)], operation="OPTIMIZE")
    query = "SELECT version, path, deletion_timestamp FROM dl_remove_files WHERE table_id = ? ORDER BY version, ord"
    assert log.rows(query) == [(2, "a", 1_700_000_000_123), (2, "c", 5), (3, "b", 7)]
    adds = "SELECT path, version, removed_version FROM dl_add_files WHERE table_id = ? ORDER BY path"
    assert log.rows(adds) == [("a", 1, 2), ("b", 1, 3), ("c", 1, 2)]


@pytest.mark.requirement("T-08")
def test_schema_changes_are_kept_by_version(log: Log) -> None:
    first = metadata()
    second = metadata("id BIGINT, name STRING, day DATE", partition_columns=["day"], configuration={"owner": "me"})
    log.append("a")
    log.commit([second, removed("a")])
    query = (
        "SELECT version, schema_json, partition_columns, properties, metadata_id"
        " FROM dl_metadata_updates WHERE table_id = ? ORDER BY version"
    )
    rows = [(row[0], row[1], document(row[2]), document(row[3]), row[4]) for row in log.rows(query)]
    assert rows == [
        (0, first.schema_string, [], {}, first.id),
        (2, second.schema_string, ["day"], {"owner": "me"}, second.id),
    ]
    assert log.one("SELECT metadata_version FROM dl_tables WHERE table_id = ?") == 2
    table = log.catalog.table(log.name)
    assert table.snapshot(1).schema.names == ("id", "name")
    assert table.snapshot(2).schema.names == ("id", "name", "day")


@pytest.mark.requirement("T-09")
def test_protocol_changes_are_kept_by_version(open_log: OpenLog) -> None:
    log = open_log().create(features=("appendOnly", "invariants"))
    log.append("a")
    log.commit([protocol(FEATURES)], operation="UPGRADE PROTOCOL")
    query = (
        "SELECT version, min_reader_version, min_writer_version, reader_features, writer_features"
        " FROM dl_protocol_updates WHERE table_id = ? ORDER BY version"
    )
    first, second = [(*row[:3], document(row[3]), document(row[4])) for row in log.rows(query)]
    assert first[:3] == (0, *versions(("appendOnly", "invariants")))
    assert second[:3] == (2, 3, 7)
    assert second[3] == ["deletionVectors"]
    assert set(second[4]) == set(FEATURES)
    current = log.rows(
        "SELECT min_reader_version, min_writer_version, protocol_version FROM dl_tables WHERE table_id = ?"
    )
    assert current == [(3, 7, 2)]


def versions(features: tuple[str, ...]) -> tuple[int, int]:
    named = protocol(features)
    return named.min_reader_version, named.min_writer_version


@pytest.mark.requirement("T-10")
def test_streaming_progress_is_kept_by_version(log: Log) -> None:
    log.commit([Txn(app_id="query 1", version=7, last_updated=1_700_000_000_000), added("a")])
    log.commit([Txn(app_id="query 1", version=8, last_updated=1_700_000_000_001), Txn(app_id="ü", version=2**40)])
    query = (
        "SELECT version, app_id, txn_version, last_update FROM dl_txn_actions WHERE table_id = ? ORDER BY version, ord"
    )
    assert log.rows(query) == [
        (1, "query 1", 7, 1_700_000_000_000),
        (2, "query 1", 8, 1_700_000_000_001),
        (2, "ü", 2**40, None),
    ]


def example(table: Table, table_id: UUID) -> dict[str, Any]:
    """A row with every column that has to be there."""
    row: dict[str, Any] = {}
    for column in table.c:
        if column.name == "table_id":
            row[column.name] = table_id
        elif not column.nullable:
            row[column.name] = _any_value(column.type)
    return row


def _any_value(kind: Any) -> Any:
    match kind:
        case Id():
            return uuid4()
        case Instant():
            return CREATED
        case Boolean():
            return False
        case BigInteger() | Integer():
            return 3
        case JSON():
            return {}
        case _:
            return "x"


@pytest.mark.requirement("T-14")
def test_rows_about_a_table_that_does_not_exist_are_refused_by_the_database(log: Log, backend: str) -> None:
    database = log.catalog._session.database
    for table in REFERRING:
        with pytest.raises(deltars.DatabaseError) as raised, database.write(10) as connection:
            connection.execute(insert(table).values(example(table, uuid4())))
        if backend == "postgres":
            assert (raised.value.sqlstate, raised.value.constraint) == ("23503", f"fk_{table.name}_table_id")
        elif backend == "sqlite":
            assert raised.value.sqlstate == "SQLITE_CONSTRAINT_FOREIGNKEY", table.name
        else:
            assert raised.value.sqlstate == "constraint", table.name
            assert "foreign key" in str(raised.value)
        if table is not schema.dl_mirror_status:
            # The same row about a table that is there: it was the key alone that was refused.
            with database.write(10) as connection:
                connection.execute(insert(table).values(example(table, log.table_id)))


def test_every_table_with_actions_refers_to_its_table() -> None:
    about_tables = {table for table in schema.metadata.tables.values() if "table_id" in table.c}
    # Their keys would be checked by waiting for whoever is committing to the table.
    unchecked = {schema.dl_mirror_log, schema.dl_writers, schema.dl_maintenance, schema.dl_identities}
    # For people: no commit depends on them.
    unchecked |= {schema.dl_reads, schema.dl_conflicts, schema.dl_chain}
    assert about_tables - set(REFERRING) == {schema.dl_tables, *unchecked}
    assert {schema.dl_table_versions, *schema.ACTION_TABLES} <= set(REFERRING)


@pytest.mark.requirement("T-14")
def test_commit_to_a_table_that_does_not_exist_is_refused_and_leaves_nothing(log: Log) -> None:
    before = log.dump()
    for version, actions in ((0, creation()), (1, [added("a")])):
        with pytest.raises(deltars.TableNotFound):
            log.writer.commit(uuid4(), version, actions, operation="WRITE")
    assert log.dump() == before


@pytest.mark.backends("postgres", "sqlite")
def test_database_refuses_to_forget_a_table_that_has_a_log(log: Log) -> None:
    with pytest.raises(deltars.DatabaseError), log.catalog._session.database.write(10) as connection:
        connection.execute(schema.dl_tables.delete())


@pytest.mark.backends("postgres", "sqlite")
@pytest.mark.parametrize("column", ["name", "location"])
def test_database_keeps_names_and_locations_of_living_tables_apart(catalog: deltars.Catalog, column: str) -> None:
    tables = schema.dl_tables
    first = example(tables, uuid4()) | {"name": "a", "location": "/a"}
    second = example(tables, uuid4()) | {"name": "b", "location": "/b", column: first[column]}
    database = catalog._session.database
    with database.write(10) as connection:
        connection.execute(insert(tables).values(first))
    with pytest.raises(deltars.DatabaseError) as raised, database.write(10) as connection:
        connection.execute(insert(tables).values(second))
    assert column in (raised.value.constraint or "")
    with database.write(10) as connection:
        connection.execute(tables.update().values(dropped_at=CREATED))
        connection.execute(insert(tables).values(second))


def test_added_files_are_the_same_whether_they_came_one_by_one_or_in_bulk(open_log: OpenLog) -> None:
    exact = '{"numRecords":3,"minValues":{"id":-0.0},"maxValues":{"id":1e2}}'
    files: list[AddFile] = [added(f"{n}", size=n, stats=exact, tags={"k": "v"}) for n in range(5)]
    contents = []
    for name, threshold in (("small", 100), ("bulk", 2)):
        log = open_log(name=name, copy_threshold=threshold).create()
        log.commit(files)
        columns = "path, ord, size, partition_values, stats, num_records, tags, dv_id, data_change, mins, maxs"
        rows = log.rows(f"SELECT {columns} FROM dl_add_files WHERE table_id = ? ORDER BY ord")
        # Bounds are numbers: in SQLite's text of them 100 and 100.0 are the same one.
        contents.append([[*map(str, row[:-2]), *map(document, row[-2:])] for row in rows])
    assert contents[0] == contents[1]
    assert len(contents[0]) == 5
