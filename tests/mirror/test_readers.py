"""What is published is read back by other implementations, equal at every version."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, TableFeatures, write_deltalake

import deltars
from tests.mirror.history import History, build

Read = Callable[[Path, int | None], pa.Table]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    place = tmp_path_factory.mktemp("history")
    with deltars.connect(f"deltasql://sqlite/{place}/lake.db") as catalog:
        yield build(catalog)


@pytest.fixture(scope="module")
def without_old_commits(history: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose readers have to begin at a checkpoint."""
    copy = tmp_path_factory.mktemp("copy") / "t"
    shutil.copytree(history.location, copy)
    for version in range(8):
        (copy / "_delta_log" / f"{version:020}.json").unlink()
    return copy


def by_deltalake(table: Path, version: int | None) -> pa.Table:
    reader = DeltaTable(table, version=version)
    return pa.table(QueryBuilder().register("t", reader).execute("SELECT * FROM t").read_all())


def by_duckdb(table: Path, version: int | None) -> pa.Table:
    with duckdb.connect() as connection:
        load_extension(connection)
        at = "" if version is None else f", version={version}"
        return connection.execute(f"SELECT * FROM delta_scan('{table}'{at})").to_arrow_table()


def by_polars(table: Path, version: int | None) -> pa.Table:
    return pl.scan_delta(str(table), version=version).collect().to_arrow()


READERS: dict[str, Read] = {"deltalake": by_deltalake, "duckdb": by_duckdb, "polars": by_polars}
each_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


def load_extension(connection: duckdb.DuckDBPyConnection) -> None:
    [file] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection.execute(f"LOAD '{file}'")


def rows_of(found: pa.Table) -> list[dict[str, Any]]:
    rows = found.to_pylist()
    for row in rows:
        # Polars has no maps: a list of structs.
        if row["map"] and isinstance(row["map"][0], dict):
            row["map"] = [(entry["key"], entry["value"]) for entry in row["map"]]
        row["t"] = row["t"].astimezone(UTC)
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.slow
@each_reader
def test_every_version_is_read_back_as_it_was_committed(history: History, read: Read) -> None:
    for version in history.rows:
        assert rows_of(read(history.location, version)) == history.expected(version), version
    assert rows_of(read(history.location, None)) == history.expected(history.last)


@pytest.mark.slow
@each_reader
def test_versions_from_a_checkpoint_on_are_read_without_the_commits_before_it(
    history: History, without_old_commits: Path, read: Read
) -> None:
    for version in range(8, history.last + 1):
        assert rows_of(read(without_old_commits, version)) == history.expected(version), version


def test_time_travel_by_timestamp_follows_the_commits(history: History) -> None:
    reader = DeltaTable(history.location)
    for version, time_ms in history.times_ms.items():
        reader.load_as_version(datetime.fromtimestamp(time_ms / 1000, UTC))
        assert reader.version() == version


def test_history_tells_operations_and_transactions(history: History) -> None:
    told = DeltaTable(history.location).history()
    assert [entry["version"] for entry in told] == list(range(history.last, -1, -1))
    assert {entry["operation"] for entry in told} >= {"CREATE TABLE", "WRITE", "DELETE", "ADD COLUMNS"}
    assert all(entry["engineInfo"].startswith("deltars") and entry["txnId"] for entry in told)


def content(table: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (table / "_delta_log").iterdir()}


def deltalake_writes(table: Path) -> dict[str, Callable[[], object]]:
    rows = pa.table({"id": pa.array([1], pa.int64())})

    def opened() -> DeltaTable:
        return DeltaTable(table)

    return {
        "append": lambda: write_deltalake(table, rows, mode="append", schema_mode="merge"),
        "overwrite": lambda: write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite"),
        "delete": lambda: opened().delete(),
        "update": lambda: opened().update(updates={"i": "1"}),
        "merge": lambda: (
            opened().merge(rows, "s.id = t.id", source_alias="s", target_alias="t").when_matched_delete().execute()
        ),
        "compact": lambda: opened().optimize.compact(),
        "z-order": lambda: opened().optimize.z_order(["id"]),
        "restore": lambda: opened().restore(1),
        "vacuum": lambda: opened().vacuum(0, dry_run=False, enforce_retention_duration=False),
        "constraint": lambda: opened().alter.add_constraint({"positive": "id >= 0"}),
        "properties": lambda: opened().alter.set_table_properties({"delta.appendOnly": "true"}),
        "feature": lambda: opened().alter.add_feature([TableFeatures.ChangeDataFeed]),
    }


@pytest.mark.parametrize("write", sorted(deltalake_writes(Path())))
def test_deltalake_cannot_commit(history: History, write: str) -> None:
    before = content(history.location)
    data = {path: path.stat().st_mtime_ns for path in history.location.rglob("part-*.parquet")}
    with pytest.raises(Exception, match=r"deltars\.sqlManaged|[Uu]nsupported"):
        deltalake_writes(history.location)[write]()
    assert content(history.location) == before
    assert {path: path.stat().st_mtime_ns for path in data} == data


def test_duckdb_cannot_commit(tmp_path: Path) -> None:
    with deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog:
        location = Path(catalog.create_table("plain", "id BIGINT").location)
    before = content(location)
    with duckdb.connect() as connection:
        load_extension(connection)
        connection.execute(f"ATTACH '{location}' AS t (TYPE delta)")
        with pytest.raises(duckdb.Error, match=r"deltars\.sqlManaged"):
            connection.execute("INSERT INTO t VALUES (1)")
    assert content(location) == before
