"""What every lane can use: a durable server, new catalogs, one Spark, and processes whose memory is their own."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from psycopg import sql

import deltars
from deltars.protocol import AddFile
from tests.support.postgres import PostgresServer, server_of_this_run
from tests.support.run_directory import RunDirectory

if TYPE_CHECKING:
    from benchmarks.spark_bench import SparkBench

SCHEMA = "id BIGINT, name STRING, day DATE"
STATS = (
    '{"numRecords":1000,"minValues":{"id":%d,"name":"ada","day":"2026-01-01"},'
    '"maxValues":{"id":%d,"name":"zoe","day":"2026-12-31"},"nullCount":{"id":0,"name":3,"day":0}}'
)
SMALL_ROWS: dict[str, list[Any]] = {
    "id": list(range(10)),
    "name": [f"name-{number}" for number in range(10)],
    "day": [date(2026, 1, 1)] * 10,
}

Result = TypeVar("Result")


class Rig:
    """Started once a run, each part when a lane first needs it."""

    def __init__(self, directory: Path, resources: ExitStack, server: PostgresServer | None = None) -> None:
        self.directory = directory
        self._server = server
        self._resources = resources
        self._made: dict[str, Any] = {}

    @cached_property
    def server(self) -> PostgresServer:
        return self._server or durable_server()

    @cached_property
    def spark(self) -> SparkBench:
        from benchmarks.spark_bench import open_spark

        return self._resources.enter_context(open_spark(self.server, self.directory))

    def new_directory(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))

    def new_embedded_catalog(self, backend: str) -> str:
        uri = f"deltasql://{backend}/{self.new_directory(backend)}/catalog.db"
        deltars.connect(uri, migrate=True).close()
        return uri

    def once(self, name: str, make: Callable[[], Result]) -> Result:
        """What several lanes use, made by the first of them."""
        if name not in self._made:
            self._made[name] = make()
        result: Result = self._made[name]
        return result


@contextmanager
def open_rig(server: PostgresServer | None = None) -> Iterator[Rig]:
    """A rig for one run, on this server, or on one with PostgreSQL's own defaults for durability."""
    with ExitStack() as resources:
        if server is None:
            resources.callback(RunDirectory().close)
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        # The server's user opens nothing here, but Spark's lists of files have to be found: see SparkBench.forget.
        resources.enter_context(_temporary_files_in(directory))
        yield Rig(directory, resources, server)


@contextmanager
def _temporary_files_in(directory: Path) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


class ServerClock:
    """Processor seconds of a server's processes, those that have ended included."""

    def __init__(self, server: PostgresServer) -> None:
        self._postmaster = int((server.data / "postmaster.pid").read_text().split()[0]) if server.data else None

    def seconds(self) -> float | None:
        """None for a server that is not on this machine."""
        if self._postmaster is None:
            return None
        ticks = sum(_fields(self._postmaster)[11:15])
        for child in Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children").read_text().split():
            try:
                ticks += sum(_fields(int(child))[11:13])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended, and is in the postmaster's sum
        return ticks / os.sysconf("SC_CLK_TCK")


def _fields(pid: int) -> list[int]:
    """The numbers of /proc/PID/stat behind the name and the state; from the twelfth: utime, stime, cutime, cstime."""
    behind = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *(int(number) for number in behind[1:])]


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
