"""Tables of a catalog: made, found, renamed, changed and dropped, on every backend."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as spark

import deltars
from deltars.log.new_table import NewTable
from deltars.protocol import AddFile, DeletionVector, SchemaLike, StructType, schema_from_ddl
from tests.support import witness
from tests.support.crowd import at_once, failures
from tests.support.jobs import create_at, create_table

DDL = "id BIGINT NOT NULL, day DATE, tags ARRAY<STRING>"
FRAME = pa.table({"id": [1, 2, 3]})

SCHEMAS: dict[str, SchemaLike] = {
    "ddl": DDL,
    "ours": schema_from_ddl(DDL),
    "delta json": schema_from_ddl(DDL).to_json(),
    "spark": spark.StructType(
        [
            spark.StructField("id", spark.LongType(), nullable=False),
            spark.StructField("day", spark.DateType()),
            spark.StructField("tags", spark.ArrayType(spark.StringType())),
        ]
    ),
    "arrow": pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("day", pa.date32()), ("tags", pa.list_(pa.string()))]
    ),
}


def registration(catalog: deltars.Catalog, table_id: UUID) -> dict[str, Any]:
    """What the warehouse says of a table, for whoever rebuilds the catalog."""
    assert catalog.warehouse is not None
    entry: dict[str, Any] = json.loads(Path(catalog.warehouse, f"_deltars/tables/{table_id}.json").read_text())
    return entry


def published(table: deltars.Table) -> list[str]:
    return sorted(path.name for path in Path(table.location, "_delta_log").glob("*.json"))


# -- create -------------------------------------------------------------------------------------------------------


def test_new_table_is_at_version_0_and_any_delta_reader_opens_it(catalog: deltars.Catalog) -> None:
    table = catalog.create_table(
        "features",
        DDL,
        partition_by=["DAY"],
        properties={"owner": "me", "delta.appendOnly": "true"},
        description="what the model eats",
        committer="etl",
    )
    assert table.version == 0
    assert table.location == f"{catalog.warehouse}/features"
    assert table.schema == schema_from_ddl(DDL)
    snapshot = table.snapshot()
    assert snapshot.metadata.partition_columns == ["day"]
    assert snapshot.metadata.id == str(table.id)
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (1, 7)
    assert set(snapshot.protocol.writer_features or ()) == {
        "appendOnly",
        "invariants",
        "inCommitTimestamp",
        "deltars.sqlManaged",
    }
    [entry] = table.history()
    assert (entry.version, entry.operation, entry.committer) == (0, "CREATE TABLE", "etl")
    assert published(table) == [f"{0:020}.json"]
    outside = DeltaTable(table.location)
    assert outside.version() == 0
    assert outside.metadata().description == "what the model eats"
    assert outside.metadata().partition_columns == ["day"]
    assert outside.metadata().configuration == {
        "delta.enableInCommitTimestamps": "true",
        "owner": "me",
        "delta.appendOnly": "true",
    }
    assert registration(catalog, table.id)["name"] == "features"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("kind", SCHEMAS)
def test_schema_may_be_given_in_every_form(catalog: deltars.Catalog, kind: str) -> None:
    table = catalog.create_table("features", SCHEMAS[kind])
    assert table.schema == schema_from_ddl(DDL)
    assert [field.name for field in DeltaTable(table.location).schema().fields] == ["id", "day", "tags"]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schema": StructType()}, "a table needs at least one column"),
        (
            {"schema": "id BIGINT, ID STRING"},
            "(upper and lower case are the same): rename or drop one",
        ),
        ({"schema": "id BIGINTEGER"}, "BIGINTEGER"),
        ({"schema": 5}, "int is not a schema"),
        ({"partition_by": ["month"]}, "there is no column 'month' to partition by; the columns are id, day, tags"),
        ({"partition_by": ["tags"]}, "cannot be partitioned by the column tags"),
        ({"partition_by": ["day", "day"]}, "duplicate partition column day"),
        ({"schema": "id BIGINT", "partition_by": ["id"]}, "needs at least one column that is not a partition column"),
        ({"properties": {"owner": 5}}, "keys and values must be strings"),
        ({"properties": {"owner": "a\0b"}}, "U+0000"),
        ({"properties": {"delta.enableInCommitTimestamps": "false"}}, "cannot be turned off"),
        ({"location": "relative/path"}, "neither an absolute path nor a URL"),
        ({"if_not_exists": True, "replace": True}, "exclude each other"),
    ],
)
def test_table_that_cannot_be_is_refused_and_leaves_nothing(
    catalog: deltars.Catalog, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(deltars.ValidationError) as raised:
        catalog.create_table(**({"name": "features", "schema": DDL} | arguments))
    assert message in str(raised.value)
    assert catalog.tables() == []
    assert [path.name for path in (tmp_path / "warehouse").rglob("*")] == ["_deltars", "catalog.json"]


def test_name_that_is_taken_is_refused_and_says_what_to_do(catalog: deltars.Catalog) -> None:
    first = catalog.create_table("features", DDL)
    with pytest.raises(deltars.TableExists) as raised:
        catalog.create_table("features", "id BIGINT")
    assert f"there is already a table named 'features', at {first.location}" in str(raised.value)
    assert "if_not_exists=True or replace=True" in str(raised.value)
    assert raised.value.table_id == str(first.id)
    with pytest.raises(deltars.TableExists):
        catalog.register_table("features", "/elsewhere")
    assert catalog.tables() == [first]
    assert first.version == 0


def test_if_not_exists_returns_the_table_that_is_there(catalog: deltars.Catalog) -> None:
    first = catalog.create_table("features", DDL, if_not_exists=True)
    assert catalog.create_table("features", "other STRING", if_not_exists=True) == first
    assert first.version == 0
    assert first.schema == schema_from_ddl(DDL)


def test_replace_gives_the_table_a_new_schema_and_no_rows(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT", replace=True)
    catalog.write("features", FRAME)
    again = catalog.create_table("features", "name STRING", replace=True, properties={"owner": "me"}, committer="etl")
    assert again == table
    assert again.location == table.location
    assert (again.version, again.schema.names) == (2, ("name",))
    assert again.snapshot().files.num_rows == 0
    assert table.snapshot(1).files.num_rows == 1
    assert [(entry.operation, entry.committer) for entry in again.history(limit=1)] == [
        ("CREATE OR REPLACE TABLE", "etl")
    ]
    outside = DeltaTable(table.location)
    assert (outside.version(), outside.file_uris(), outside.metadata().configuration["owner"]) == (2, [], "me")
    catalog.create_table("features", "id INT", replace=True, location=f"{table.location}/")
    with pytest.raises(deltars.ValidationError, match="keeps its location"):
        catalog.create_table("features", "id INT", replace=True, location="/elsewhere")


@pytest.mark.backends("sqlite")
def test_replace_removes_files_with_deletion_vectors_and_partitions(catalog: deltars.Catalog) -> None:
    table = catalog.create_table(
        "features", "id INT, p STRING", partition_by=["p"], properties={"delta.enableDeletionVectors": "true"}
    )
    vector = DeletionVector(storage_type="i", path_or_inline_dv="x", size_in_bytes=4, cardinality=1)
    add = AddFile(
        path="p=a/f.parquet",
        partition_values={"p": "a"},
        size=9,
        modification_time=0,
        data_change=True,
        stats='{"numRecords":2}',
        deletion_vector=vector,
    )
    deltars.SqlTxnLogWriter(catalog).commit(table.id, 1, [add], operation="WRITE")
    catalog.create_table("features", "id INT", replace=True)
    assert table.snapshot().files.num_rows == 0
    removed = json.loads(Path(table.location, f"_delta_log/{2:020}.json").read_text().splitlines()[-1])["remove"]
    assert (removed["path"], removed["partitionValues"], removed["size"]) == ("p=a/f.parquet", {"p": "a"}, 9)
    assert removed["deletionVector"]["cardinality"] == 1


def test_released_table_has_its_protocol_and_cannot_be_replaced(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    version = catalog.release("t")
    assert table.snapshot().protocol == table.snapshot(version).protocol
    assert table.detail().table_features == ("appendOnly", "invariants")
    with pytest.raises(deltars.TableHeld, match="released to other writers"):
        catalog.create_table("t", "name STRING", replace=True)
    assert (table.version, table.schema.names) == (version, ("id",))


def test_registered_table_is_replaced_by_its_version_0(catalog: deltars.Catalog, tmp_path: Path) -> None:
    registered = catalog.register_table("features", str(tmp_path / "features"))
    made = catalog.create_table("features", DDL, replace=True, committer="etl")
    assert made == registered
    assert [(entry.version, entry.operation, entry.committer) for entry in made.history()] == [
        (0, "CREATE TABLE", "etl")
    ]


def test_registered_table_waits_for_its_version_0(catalog: deltars.Catalog, tmp_path: Path) -> None:
    table = catalog.register_table("features", str(tmp_path / "features"))
    assert (table.version, table.location) == (-1, str(tmp_path / "features"))
    assert catalog.table("features") == table
    assert registration(catalog, table.id)["location"] == table.location
    with pytest.raises(deltars.ValidationError, match="nothing was committed to the table yet"):
        table.snapshot()
    with pytest.raises(deltars.ValidationError, match="nothing was committed to the table yet"):
        catalog.set_properties("features", {"owner": "me"})
    assert not (tmp_path / "features").exists()


# -- names --------------------------------------------------------------------------------------------------------

NAMES = [
    "'; DROP TABLE dl_tables; --",
    'a "quoted" name',
    "back`tick and %s %(x)s {} ? :name $1",
    "semi;colon",
    "größe 表 🦆 नाम",
    "a  b",
    "..",
    ".",
    "...hidden",
    "_deltars",
    "_delta_log",
    "day=2026-01-01",
    "a\\b",
    "#1?x=y",
    "100%25",
    "CON",
    "x" * 300,
    "ä" * 500,
    "NULL",
]


def test_names_are_data(catalog: deltars.Catalog, tmp_path: Path) -> None:
    made = {name: catalog.create_table(name, "id BIGINT") for name in NAMES}
    assert {table.name for table in catalog.tables()} == set(NAMES)
    warehouse = tmp_path / "warehouse"
    for name, table in made.items():
        assert catalog.table_exists(name)
        assert catalog.table(name) == table
        assert Path(table.location).parent == warehouse
        assert published(table) == [f"{0:020}.json"]
        assert DeltaTable(table.location).version() == 0
        assert registration(catalog, table.id)["name"] == name
    assert (warehouse / "_deltars/tables").is_dir()
    assert len({table.location for table in made.values()}) == len(NAMES)
    renamed = catalog.rename_table(NAMES[0], NAMES[0] + "2")
    assert catalog.table(NAMES[0] + "2") == renamed
    for name in NAMES[1:]:
        catalog.drop_table(name)
    assert catalog.tables() == [renamed]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        (" features", "begins or ends with a space"),
        ("features\n", "begins or ends with a space"),
        ("a/b", "contains a slash"),
        ("a\0b", "contains a control character"),
        ("a\x7fb", "contains a control character"),
        ("a\tb", "contains a control character"),
        ("a\ud800b", "contains a control character"),
        ("x" * 501, "has 501 characters; at most 500 are allowed"),
        ("9c858901-8a57-4791-81fe-4c455b099bc9", "looks like a table id"),
        ("deadbeef" * 4, "looks like a table id"),
    ],
)
def test_name_that_cannot_be_is_refused_everywhere(catalog: deltars.Catalog, name: str, problem: str) -> None:
    catalog.create_table("features", "id BIGINT")
    jobs: tuple[Callable[[], object], ...] = (
        lambda: catalog.create_table(name, "id BIGINT"),
        lambda: catalog.register_table(name, "/elsewhere"),
        lambda: catalog.rename_table("features", name),
        *([] if problem == "looks like a table id" else [lambda: catalog.write(name, FRAME)]),
    )
    for job in jobs:
        with pytest.raises(deltars.ValidationError, match=problem) as raised:
            job()
        assert raised.value.field == "name"
        assert len(str(raised.value)) < 300
    assert [table.name for table in catalog.tables()] == ["features"]
    assert catalog.warehouse is not None
    assert {path.name for path in Path(catalog.warehouse).iterdir()} == {"features", "_deltars"}


def test_table_id_that_is_not_there_is_not_made_a_name_by_a_write(catalog: deltars.Catalog) -> None:
    with pytest.raises(deltars.TableNotFound):
        catalog.write(str(uuid4()), FRAME)
    assert catalog.tables() == []


def test_table_is_found_by_name_id_and_uri(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("my features", "id BIGINT")
    base, _, parameters = catalog._session.uri.with_secrets().partition("?")
    uri = f"{base}/my%20features" + (f"?{parameters}" if parameters else "")
    for way in ("my features", table.id, str(table.id), uri):
        assert catalog.table(way) == table
        assert catalog.table_exists(way)
    for way in ("features", uuid4(), str(uuid4()), uri.replace("my%20", "")):
        assert not catalog.table_exists(way)
        with pytest.raises(deltars.TableNotFound) as raised:
            catalog.table(way)
        assert "catalog.tables() lists the tables" in str(raised.value)
    with pytest.raises(deltars.ValidationError, match="is in another catalog"):
        catalog.table("deltasql://sqlite//elsewhere.db/features")


def test_tables_come_by_name(catalog: deltars.Catalog) -> None:
    for name in ("b", "a", "c"):
        catalog.create_table(name, "id BIGINT")
    assert [table.name for table in catalog.tables()] == ["a", "b", "c"]


# -- locations ----------------------------------------------------------------------------------------------------


def test_two_tables_neither_share_a_location_nor_lie_inside_one_another(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    catalog.register_table("first", str(tmp_path / "lake/a"))
    for location, relation in {
        "lake/a": "is",
        "lake/a/": "is",
        "lake/x/../a": "is",
        "lake/a/b": "is inside",
        "lake": "contains",
    }.items():
        with pytest.raises(deltars.TableExists) as raised:
            catalog.create_table("second", "id BIGINT", location=f"{tmp_path}/{location}")
        assert f"{relation} that of the table 'first', {tmp_path}/lake/a" in str(raised.value)
        assert raised.value.field == "location"
        with pytest.raises(deltars.TableExists):
            catalog.register_table("second", f"{tmp_path}/{location}")
    assert catalog.create_table("second", "id BIGINT", location=f"{tmp_path}/lake/a2").version == 0


@pytest.mark.backends("sqlite")
def test_one_place_in_an_object_store_has_two_names(catalog: deltars.Catalog) -> None:
    registry = catalog._session.registry
    registry.register(NewTable(uuid4(), "first", "s3://bucket/lake/a"))
    with pytest.raises(deltars.TableExists, match="is inside"):
        registry.register(NewTable(uuid4(), "second", "s3a://bucket/lake/a/b"))
    registry.register(NewTable(uuid4(), "third", "s3://other/lake/a"))


def test_default_location_that_is_taken_gets_the_tables_id(catalog: deltars.Catalog) -> None:
    catalog.register_table("first", f"{catalog.warehouse}/features")
    catalog.register_table("second", f"{catalog.warehouse}/labels/deep")
    for name in ("features", "labels"):
        table = catalog.create_table(name, "id BIGINT")
        assert table.location == f"{catalog.warehouse}/{name}-{table.id.hex[:8]}"
        assert DeltaTable(table.location).version() == 0


def test_existing_delta_log_is_refused_and_points_to_import(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = tmp_path / "theirs/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text('{"commitInfo":{}}')
    jobs: tuple[Callable[[], object], ...] = (
        lambda: catalog.create_table("features", "id BIGINT", location=str(tmp_path / "theirs")),
        lambda: catalog.register_table("features", str(tmp_path / "theirs")),
    )
    for job in jobs:
        with pytest.raises(deltars.TableExists) as raised:
            job()
        assert f"there is a Delta table at {tmp_path}/theirs already" in str(raised.value)
        assert "import_table" in str(raised.value)
    assert catalog.tables() == []
    assert [path.name for path in log.iterdir()] == [f"{0:020}.json"]


# -- rename and drop ----------------------------------------------------------------------------------------------


def test_renamed_table_keeps_its_id_location_and_history(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT")
    catalog.write("features", FRAME)
    other = catalog.create_table("labels", "id BIGINT")
    renamed = catalog.rename_table("features", "inputs")
    assert (renamed.id, renamed.location, renamed.version) == (table.id, table.location, 1)
    assert registration(catalog, table.id)["name"] == "inputs"
    assert not catalog.table_exists("features")
    with pytest.raises(deltars.TableExists, match="there is already a table named 'labels'"):
        catalog.rename_table("inputs", "labels")
    with pytest.raises(deltars.TableNotFound):
        catalog.rename_table("features", "anything")
    assert catalog.rename_table("inputs", "inputs") == renamed
    assert catalog.rename_table(table.id, "features").name == "features"
    assert [found.id for found in catalog.tables()] == [table.id, other.id]


def test_handle_of_a_dropped_table_reads_and_writes_nothing(catalog: deltars.Catalog) -> None:
    rows = pa.table({"id": [1]})
    catalog.write("gone", rows)
    table, cut = catalog["gone"], catalog.snapshot()
    catalog.tag("before")
    catalog.drop_table("gone")
    catalog.write("gone", pa.table({"other": ["x"]}))
    attempts: list[Callable[[], object]] = [
        table.to_pandas,
        table.count,
        lambda: table.schema,
        lambda: table.to_arrow(version=0),
        lambda: table.to_arrow(as_of="before"),
        lambda: table.write(rows),
        lambda: table.delete("id = 1"),
        lambda: catalog.table(table.id),
        lambda: catalog.rename_table(table, "new"),
        lambda: catalog.drop_table(table),
    ]
    for attempt in attempts:
        with pytest.raises(deltars.TableNotFound, match=r"dropped \[table gone\].*snapshot\(as_of=…\)"):
            attempt()
    for past in (cut, catalog.snapshot("before")):
        assert past.to_arrow(table.id) == rows


def test_dropped_tables_log_and_files_stay(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT")
    catalog.write("features", FRAME)
    files = sorted(Path(table.location).rglob("*"))
    catalog.drop_table("features")
    assert not catalog.table_exists("features")
    assert catalog.tables() == []
    assert sorted(Path(table.location).rglob("*")) == files
    assert len(table.history()) == 2
    assert "droppedAt" in registration(catalog, table.id)
    assert witness.rows(catalog._session.uri.with_secrets(), "SELECT count(*) FROM dl_add_files") == [(1,)]
    with pytest.raises(deltars.TableNotFound):
        catalog.drop_table("features")
    with pytest.raises(deltars.TableNotFound, match="the table was dropped"):
        deltars.SqlTxnLogWriter(catalog).commit(table.id, 2, [], operation="WRITE")


def test_dropped_tables_files_go_when_asked(catalog: deltars.Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("features", "id BIGINT")
    neighbour = catalog.create_table("features2", "id BIGINT")
    catalog.write("features", FRAME)
    catalog.write("features2", FRAME)
    catalog.drop_table("features", delete_data=True)
    assert [path for path in Path(table.location).rglob("*") if path.is_file()] == []
    assert DeltaTable(neighbour.location).version() == 1
    assert len(table.history()) == 2


def test_name_of_a_dropped_table_is_free_again_and_its_directory_is_not(catalog: deltars.Catalog) -> None:
    first = catalog.create_table("features", "id BIGINT")
    catalog.drop_table("features")
    # Its published log is still there, and no second table writes into it.
    second = catalog.create_table("features", "id BIGINT")
    assert second.location == f"{catalog.warehouse}/features-{second.id.hex[:8]}"
    catalog.drop_table("features", delete_data=True)
    shutil.rmtree(first.location)
    third = catalog.create_table("features", "id BIGINT")
    assert third.location == f"{catalog.warehouse}/features-{third.id.hex[:8]}"
    assert len({table.location for table in (first, second, third)}) == 3
    assert (third.version, DeltaTable(third.location).version()) == (0, 0)


# -- properties ---------------------------------------------------------------------------------------------------


def test_property_changes_are_commits_that_outside_readers_see(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT", properties={"owner": "me", "team": "a"})
    catalog.write("features", FRAME)
    changed = catalog.set_properties("features", {"team": "b", "größe": "'\";"}, committer="etl")
    assert changed.version == 2
    expected = {"delta.enableInCommitTimestamps": "true", "owner": "me", "team": "b", "größe": "'\";"}
    assert changed.properties == expected
    [entry] = changed.history(limit=1)
    assert (entry.operation, entry.committer) == ("SET TBLPROPERTIES", "etl")
    assert entry.operation_params == {"properties": {"team": "b", "größe": "'\";"}}
    assert table.snapshot(1).metadata.configuration["team"] == "a"
    assert changed.snapshot().files.num_rows == 1
    outside = DeltaTable(table.location)
    assert (outside.version(), outside.metadata().configuration) == (2, expected)
    assert DeltaTable(table.location, version=1).metadata().configuration["team"] == "a"


def test_property_that_needs_a_feature_raises_the_protocol(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT")
    changed = catalog.set_properties("features", {"delta.enableChangeDataFeed": "true"})
    assert "changeDataFeed" in (changed.snapshot().protocol.writer_features or ())
    assert "changeDataFeed" not in (table.snapshot(0).protocol.writer_features or ())
    assert "changeDataFeed" in (DeltaTable(table.location).protocol().writer_features or ())


def test_property_that_cannot_be_is_refused_and_nothing_is_committed(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT")
    for properties in ({"owner": 5}, {"delta.enableInCommitTimestamps": "false"}, {"a": "\0"}):
        with pytest.raises(deltars.ValidationError):
            catalog.set_properties("features", properties)  # type: ignore[arg-type]
    with pytest.raises(deltars.TableNotFound):
        catalog.set_properties("labels", {"owner": "me"})
    assert table.version == 0


# -- many at once -------------------------------------------------------------------------------------------------


@pytest.mark.backends("postgres", "sqlite")
def test_of_many_processes_that_create_one_name_one_wins(catalog: deltars.Catalog) -> None:
    uri = catalog._session.uri.with_secrets()
    outcomes = at_once(6, create_table, uri, "features", False)
    won = [outcome for outcome in outcomes if isinstance(outcome, UUID)]
    lost = [outcome for outcome in outcomes if not isinstance(outcome, UUID)]
    assert [catalog.table("features").id] == won
    assert {type(outcome) for outcome in lost} == {deltars.TableExists}, failures(lost)
    assert len(lost) == 5
    assert at_once(3, create_table, uri, "features", True) == won * 3
    assert DeltaTable(catalog.table("features").location).version() == 0


@pytest.mark.backends("postgres", "sqlite")
def test_of_many_processes_that_create_at_one_location_one_wins(catalog: deltars.Catalog, tmp_path: Path) -> None:
    location = str(tmp_path / "one place")
    outcomes = at_once(6, create_at, catalog._session.uri.with_secrets(), None, location)
    assert outcomes.count(location) == 1, failures(outcomes)
    assert {type(outcome) for outcome in outcomes if outcome != location} == {deltars.TableExists}
    assert [table.location for table in catalog.tables()] == [location]


@pytest.mark.parametrize("if_not_exists", [False, True])
def test_of_many_threads_that_create_one_name_one_wins(catalog: deltars.Catalog, if_not_exists: bool) -> None:
    barrier = threading.Barrier(6)

    def create() -> UUID | deltars.TableExists:
        barrier.wait()
        try:
            return catalog.create_table("features", "id BIGINT", if_not_exists=if_not_exists).id
        except deltars.TableExists as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        outcomes = [future.result() for future in [pool.submit(create) for _ in range(6)]]
    won = [outcome for outcome in outcomes if isinstance(outcome, UUID)]
    assert set(won) == {catalog.table("features").id}
    assert len(won) == (6 if if_not_exists else 1)
    assert witness.rows(catalog._session.uri.with_secrets(), "SELECT count(*) FROM dl_tables") == [(1,)]


def test_rows_written_under_any_name_are_read_by_others(catalog: deltars.Catalog) -> None:
    catalog.create_table("größe; '\"", "id BIGINT")
    catalog.write("größe; '\"", FRAME)
    location = catalog.table("größe; '\"").location
    [file] = DeltaTable(location).file_uris()
    assert pq.read_table(file).num_rows == 3


# -- one table, one line -----------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
def test_table_is_opened_by_its_uri_or_in_the_default_catalog_by_its_name(
    catalog: deltars.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("features", "id BIGINT")
    assert deltars.table(f"{catalog.uri}/features") == table
    monkeypatch.setenv("DELTARS_CATALOG", catalog.uri)
    assert deltars.table("features") == table
    with pytest.raises(deltars.TableNotFound):
        deltars.table("labels")


@pytest.mark.backends("sqlite")
def test_table_writes_itself_and_lists_its_files_at_any_version(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("features", "id BIGINT")
    assert table.write(pa.table({"id": [1]})).versions == {"features": 1}
    catalog.rename_table("features", "renamed")
    result = table.write(pa.table({"id": [5]}), "overwrite", replace_where="id >= 3", user_metadata="five")
    assert result.versions_by_id == {table.id: 2}
    assert table.history(1)[0].user_metadata == "five"
    assert [len(table.files(version=version)) for version in (0, 1, 2)] == [0, 1, 2]
    assert table.files(where="id > 3").num_rows == 1
    assert table.files(timestamp=table.snapshot(1).timestamp).num_rows == 1
    with pytest.raises(deltars.ValidationError, match="unknown mode 'upsert'"):
        table.write(pa.table({"id": [1]}), "upsert")  # type: ignore[arg-type]


@pytest.mark.backends("sqlite")
def test_table_itself_is_taken_wherever_its_name_is(catalog: deltars.Catalog) -> None:
    rows = pa.table({"id": [1, 2]})
    catalog.write("features", rows)
    table = catalog.table("features")
    assert catalog.table(table) == catalog[table] == table
    assert table in catalog
    assert catalog.table_exists(table)
    catalog.write(table, rows)
    catalog.set_properties(table, {"owner": "ada"})
    assert catalog.copy_table(table, "copy").count() == 4
    assert catalog.copy_table(table, "older", version=0).count() == 2
    catalog.restore(catalog.tag("now").name, tables=[table])
    assert catalog.compare_log(table).table == "features"
    cut = catalog.snapshot()
    assert cut.table(table).version == 2
    assert cut.files(table).num_rows == 2
    assert cut.to_arrow(table).num_rows == len(cut.to_pandas(table)) == 4
    with catalog.begin() as tx:
        assert tx.files(table).num_rows == 2
        assert tx.to_arrow(table).num_rows == 4
        tx.alter(table).set_properties({"owner": "bob"})
        tx.update(table, {"id": "id + 1"}, where="id = 2")
        tx.delete(table, "id = 3")
        tx.merge(table, rows, on="t.id = s.id").when_not_matched_insert_all().execute()
        tx.purge(table)
    with catalog.begin() as tx:
        tx.restore(table, 0)
    with catalog.begin() as tx:
        tx.drop_table(catalog.table("older"))
    catalog.release(table)
    assert catalog.adopt(table) == catalog.table("features").version
    catalog.untag("now")
    catalog.drop_table(catalog.rename_table(table, "renamed"), delete_data=True)
    assert [table.name for table in catalog.tables()] == ["copy"]
