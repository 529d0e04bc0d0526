"""What the benchmarks stand on: a durable server, new catalogs, and processes whose memory is their own."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
from psycopg import sql

import deltars
from deltars.protocol import AddFile
from tests.support.postgres import PostgresServer, server_of_this_run

SCHEMA = "id BIGINT, name STRING, day DATE"
STATS = (
    '{"numRecords":1000,"minValues":{"id":%d,"name":"ada","day":"2026-01-01"},'
    '"maxValues":{"id":%d,"name":"zoe","day":"2026-12-31"},"nullCount":{"id":0,"name":3,"day":0}}'
)

Result = TypeVar("Result")


def durable_server() -> PostgresServer:
    """The tests' server, but with PostgreSQL's own defaults for what must survive a crash."""
    server = server_of_this_run()
    with server.connect() as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = on").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")
    return server


def new_catalog(server: PostgresServer) -> str:
    uri = server.create_catalog_uri(server.create_database("bench"))
    deltars.connect(uri, warehouse=tempfile.mkdtemp(), migrate=True).close()
    return uri


def in_own_process(work: Callable[..., Result], *arguments: object) -> Result:
    """In a process of its own, so that its memory is its own too."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def add_table(files: int) -> pa.Table:
    """Add actions as columns."""
    return pa.table(
        {
            "path": [f"part-{i:08d}-{uuid4()}.c000.zstd.parquet" for i in range(files)],
            "partition_values": pa.array(["{}"] * files),
            "size": pa.array([1_000_000] * files, pa.int64()),
            "modification_time": pa.array([1_767_225_600_000] * files, pa.int64()),
            "data_change": [True] * files,
            "stats": [STATS % (i, i + 999) for i in range(files)],
        }
    )


def add_file(number: int) -> AddFile:
    return AddFile(
        path=f"part-{number:08d}-{uuid4()}.c000.zstd.parquet",
        partition_values={},
        size=1_000_000,
        modification_time=1_767_225_600_000,
        data_change=True,
        stats=STATS % (number, number + 999),
    )
