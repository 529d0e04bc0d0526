"""The plans of PostgreSQL for what is asked most, over 200,000 files: each look-up is answered from its index.

With statistics gathered (ANALYZE) and the planner's own settings, through a connection that deltars has no part in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from sqlalchemy import Select, Text, func, literal, literal_column, select
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

import deltars
from deltars.store.backends import Backend, Query, backend_for
from deltars.store.file_search import by_partition, by_range, partitions_of, probes
from deltars.store.read.live_files import live_files
from deltars.store.read.reader import newest_first
from deltars.store.read.version_header import open_current, open_version
from deltars.store.schema import dl_add_files, dl_table_versions
from deltars.uri import CatalogUri, parse_catalog_uri
from tests.support import witness
from tests.support.log import creation, removed
from tests.support.postgres import PostgresServer

# One catalog for the module: a second worker would have to fill its own.
pytestmark = pytest.mark.xdist_group("plans")

TABLES = 8
FILES = 25_000
VERSIONS = 2_000
FIRST_VERSIONS = 2
"""Versions of a table that add files; the rest of its history was about something else."""


@dataclass(frozen=True)
class Filled:
    """A catalog of TABLES × FILES files, seen through a plain connection."""

    connection: psycopg.Connection[tuple[Any, ...]]
    schema: str
    table_id: UUID

    def plan(self, query: Query) -> list[dict[str, Any]]:
        """The nodes of the plan, outermost first."""
        text = query.compile(
            dialect=PGDialect_psycopg(),  # type: ignore[no-untyped-call]
            compile_kwargs={"literal_binds": True},
            schema_translate_map={None: self.schema},
            render_schema_translate=True,
        )
        [[[plan]]] = self.connection.execute(f"EXPLAIN (FORMAT JSON) {text}".replace("%%", "%").encode()).fetchall()
        return list(nodes(plan["Plan"]))

    def indexes(self, query: Query) -> list[str]:
        """The indexes that the plan scans; a table that is read from end to end is in it by its own name."""
        return [
            node.get("Index Name") or node["Relation Name"]
            for node in self.plan(query)
            if "Index Name" in node or node["Node Type"].endswith("Seq Scan")
        ]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.fixture(scope="module")
def filled(
    postgres_server: PostgresServer, postgres_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Filled]:
    uri = postgres_server.create_catalog_uri(postgres_database)
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    with deltars.connect(uri, warehouse=warehouse, migrate=True) as catalog:
        writer = deltars.SqlTxnLogWriter(catalog)
        for number in range(TABLES):
            table_id = catalog.register_table(f"t{number}", f"{warehouse}/t{number}").id
            writer.commit(table_id, 0, creation(), operation="CREATE TABLE")
            for version in range(1, FIRST_VERSIONS + 1):
                writer.commit(table_id, version, files(version, FILES // FIRST_VERSIONS), operation="WRITE")
            gone = [removed(f"part-1-{n:06}.parquet") for n in range(0, 1_000)]
            writer.commit(table_id, FIRST_VERSIONS + 1, gone, operation="DELETE")
    parsed = parse_catalog_uri(uri)
    with witness.postgres_connection(parsed) as connection:
        connection.execute(MORE_HISTORY, [FIRST_VERSIONS + 2, VERSIONS])
        connection.execute("ANALYZE")
        [[count]] = connection.execute("SELECT count(*) FROM dl_add_files").fetchall()
        assert count == TABLES * FILES
        yield Filled(connection, str(parsed.schema), table_id)


# Versions that add nothing, so that `dl_table_versions` has the size it has in life.
MORE_HISTORY = """
INSERT INTO dl_table_versions (table_id, version, committed_at, commit_ts, in_commit_timestamp, txn_id, operation)
SELECT table_id, version, now(), version, version, gen_random_uuid(), 'WRITE'
FROM dl_tables, generate_series(%s::bigint, %s::bigint) AS version"""


def files(version: int, count: int) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "path": [f"part-{version}-{n:06}.parquet" for n in numbers],
            "partition_values": ["{}"] * count,
            "size": pa.array([1_000 + n for n in numbers], pa.int64()),
            "modification_time": pa.array([0] * count, pa.int64()),
            "data_change": [True] * count,
            "stats": [
                f'{{"numRecords":{n % 5_000},"minValues":{{"id":{n}}},'
                f'"maxValues":{{"id":{n + 1}}},"nullCount":{{"id":0}}}}'
                for n in numbers
            ],
        }
    )


@pytest.mark.backends("postgres")
@pytest.mark.requirement("T-11")
def test_newest_version_costs_one_look_up_in_the_index_on_falling_versions(filled: Filled) -> None:
    limit, *scans = filled.plan(newest_first(filled.table_id, limit=1))
    assert limit["Node Type"] == "Limit"
    # Once, which version is the current one: the table of tables is so small here that reading all of it is as good.
    [standing] = [node for node in scans if node["Relation Name"] == "dl_tables"]
    assert standing["Parent Relationship"] == "InitPlan"
    [newest] = [node for node in scans if node is not standing]
    assert newest["Node Type"] == "Index Scan"
    assert newest["Index Name"] == "ix_dl_table_versions_latest"
    assert newest["Scan Direction"] == "Forward"
    assert "Filter" not in newest


@pytest.mark.backends("postgres")
def test_newest_version_as_anybody_would_ask_for_it_reads_one_entry_of_an_index(filled: Filled) -> None:
    versions = dl_table_versions.c
    of_table = versions.table_id == filled.table_id
    for query in (
        select(versions.version).where(of_table).order_by(versions.version.desc()).limit(1),
        select(func.max(versions.version)).where(of_table),
    ):
        plan = filled.plan(query)
        assert "Limit" in [node["Node Type"] for node in plan]
        assert {"Sort", "Seq Scan"}.isdisjoint(node["Node Type"] for node in plan)


@pytest.mark.backends("postgres")
@pytest.mark.requirement("T-12")
def test_path_is_found_through_the_index_on_table_and_path(filled: Filled) -> None:
    columns = dl_add_files.c
    one = select(columns.size).where(columns.table_id == filled.table_id, columns.path == "part-1-000007.parquet")
    [scan] = filled.plan(one)
    assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", "ix_dl_add_files_path")
    assert "table_id" in scan["Index Cond"]
    assert "path" in scan["Index Cond"]


@pytest.mark.backends("postgres")
@pytest.mark.requirement("T-13")
def test_containment_on_statistics_is_answered_from_the_gin_index(filled: Filled) -> None:
    columns = dl_add_files.c
    matches = func.dl_stats_filter(columns.stats).op("@>")(literal_column("'{\"numRecords\": 4321}'::jsonb"))
    assert filled.indexes(select(columns.path).where(matches)) == ["ix_dl_add_files_stats"]
    found = filled.connection.execute(
        "SELECT count(*) FROM dl_add_files WHERE dl_stats_filter(stats) @> '{\"numRecords\": 4321}'"
    )
    expected = TABLES * FIRST_VERSIONS * len(range(4_321, FILES // FIRST_VERSIONS, 5_000))
    assert found.fetchall() == [(expected,)]


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("open_table", [open_current, open_version])
def test_opening_a_table_is_a_look_up_in_each_primary_key(
    filled: Filled, open_table: Callable[[Backend], Select[Any]]
) -> None:
    backend = backend_for(CatalogUri("postgres", "lake", filled.schema))
    query = open_table(backend).params(table_id=str(filled.table_id), version=3)
    # As the reader asks for it: some of these tables are so small here that reading all of one would be as good.
    settings = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
    with filled.connection.transaction():
        for setting in settings:
            filled.connection.execute(sql.SQL("SET LOCAL {} = off").format(sql.Identifier(setting)))
        tables = ("dl_tables", "dl_table_versions", "dl_metadata_updates", "dl_protocol_updates")
        assert set(filled.indexes(query)) <= {*(f"pk_{name}" for name in tables), "ix_dl_table_versions_latest"}
        assert {node["Node Type"] for node in filled.plan(query) if "Join" in node["Node Type"]} == set()


@pytest.mark.backends("postgres")
def test_live_files_of_a_snapshot_are_two_index_ranges(filled: Filled) -> None:
    for version in (1, FIRST_VERSIONS, FIRST_VERSIONS + 1):
        # And for each of them one look-up, whether the version is there.
        used = sorted(filled.indexes(live_files(filled.table_id, version)))
        assert used[:2] == ["ix_dl_add_files_live", "ix_dl_add_files_removed"]
        assert set(used[2:]) <= {"ix_dl_table_versions_latest", "pk_dl_table_versions"}


@pytest.mark.backends("postgres")
def test_range_and_partition_are_answered_from_their_indexes(filled: Filled) -> None:
    columns, backend = dl_add_files.c, backend_for(CatalogUri("postgres", "lake", filled.schema))
    slot = literal(1)
    partitions = partitions_of(backend, slot)
    is_listed = partitions.c.value == literal_column("'{}'")
    for search, index in (
        (by_range(backend, literal(probes([(77.0, 77.0)], 1), Text())), "ix_dl_add_files_range"),
        (by_partition(backend, partitions, is_listed, slot), "ix_dl_add_files_partition"),
    ):
        query = select(columns.path).where(columns.removed_version.is_(None), search.is_hit)
        assert set(filled.indexes(query)) == {index}


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    "stats",
    [
        '{"numRecords":1,"nullCount":{"a\\u0000b":0}}',
        '{"numRecords":1,"nullCount":{"\\ud800":0}}',
        '{"numRecords":1,"minValues":{"x":NaN}}',
        '{"numRecords":1,"minValues":{"x":1e400}}',
        '{"numRecords":1,"minValues":{"x":"\\u0000"},"maxValues":{"x":"\\u0000"},"nullCount":{"x":0}}',
    ],
)
def test_statistics_that_jsonb_cannot_hold_are_kept_and_left_out_of_the_index(filled: Filled, stats: str) -> None:
    with filled.connection.transaction(force_rollback=True):
        filled.connection.execute(
            "INSERT INTO dl_add_files (table_id, version, ord, path, size, partition_values, stats, modification_time,"
            " data_change, slot) VALUES (%s, 9999, 0, 'odd', 1, '{}', %s, 0, true, 1)",
            [filled.table_id, stats],
        )
        query = "SELECT stats, dl_stats_filter(stats) FROM dl_add_files WHERE table_id = %s AND path = 'odd'"
        [[kept, filter_]] = filled.connection.execute(query, [filled.table_id]).fetchall()
    assert kept == stats
    assert filter_ is None or "minValues" not in filter_


USUAL = '{"numRecords":7,"minValues":{"a":1},"maxValues":{"a":2},"nullCount":{"a":3}}'


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    ("stats", "filter_"),
    [
        (USUAL, {"numRecords": 7, "nullCount": {"a": 3}}),
        (USUAL.replace("}}", '},"tightBounds":true}'), {"numRecords": 7, "nullCount": {"a": 3}, "tightBounds": True}),
        # Columns that are named like the statistics, in any of them.
        (
            '{"numRecords":7,"minValues":{"b":1,"nullCount":{"x":1}},"maxValues":{"b":1,"nullCount":{"x":1}},'
            '"nullCount":{"b":0,"nullCount":{"x":9}}}',
            {"numRecords": 7, "nullCount": {"b": 0, "nullCount": {"x": 9}}},
        ),
        (
            '{"numRecords":7,"nullCount":{"a":0,"minValues":{"x":5}},"minValues":{"a":1,"nullCount":{"x":5}},"maxValues":{}}',
            {"numRecords": 7, "nullCount": {"a": 0, "minValues": {"x": 5}}},
        ),
        (
            '{"numRecords":{"x":1,"minValues":{"y":1,"nullCount":{"z":2}},"b":1},"nullCount":{"a":0}}',
            {"numRecords": {"x": 1, "minValues": {"y": 1, "nullCount": {"z": 2}}, "b": 1}, "nullCount": {"a": 0}},
        ),
        # Texts that look like the end of the minima.
        (
            json.dumps(
                {"numRecords": 7, "minValues": {"a": ',"nullCount":{'}, "maxValues": {"a": "}"}, "nullCount": {"a": 0}},
                separators=(",", ":"),
            ),
            {"numRecords": 7, "nullCount": {"a": 0}},
        ),
        ('{"numRecords": 7, "nullCount": {"a": 1}, "maxValues": {"a": 1}}', {"numRecords": 7, "nullCount": {"a": 1}}),
        (
            '{"numRecords":7,"minValues":{"a":1},"nullCount":{"a":1},"maxValues":{"a":2}}',
            {"numRecords": 7, "nullCount": {"a": 1}},
        ),
        ('{"numRecords":7,"minValues":{"a":1},"nullCount":{', None),
        ("no statistics", None),
        ("", None),
    ],
)
def test_filter_of_statistics_has_all_but_minima_and_maxima(filled: Filled, stats: str, filter_: object) -> None:
    query = sql.SQL("SELECT {}.dl_stats_filter(%s)").format(sql.Identifier(filled.schema))
    assert filled.connection.execute(query, [stats]).fetchall() == [(filter_,)]
