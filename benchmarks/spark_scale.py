"""A long history through Spark: as many versions as files, beside the same files from one commit.

    python -m benchmarks.spark_scale [--quick]

The log writer makes every version, one file each. What a reader pays for is the files that live, not the history:
opening, planning and reading are measured for both tables in turns of their own, each in a new process with a new
Spark, so that the driver's memory, Python's and Java's, is that table's.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

import deltars
from benchmarks.report import table, write_section
from benchmarks.rig import in_own_process
from deltars.data import WriteTarget, write_table
from deltars.protocol import AddFile, schema_from_ddl
from tests.support.memory import peak_mib
from tests.support.postgres import server_of_this_run
from tests.support.run_directory import RunDirectory
from tests.support.spark import local_session

SCHEMA = "id BIGINT, name STRING, value DOUBLE"
MAX_LINKS = 20_000


@dataclass(frozen=True)
class Sizes:
    files: int = 100_000
    rounds: int = 5


QUICK = Sizes(files=2_000, rounds=2)


@dataclass(frozen=True)
class Took:
    """Seconds of each round, and what the driver needed at most."""

    opened: list[float]
    planned: list[float]
    first_row: list[float]
    counted: list[float]
    python_mib: float
    java_mib: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written to the docs")
    arguments = parser.parse_args()
    run = RunDirectory()
    try:
        with tempfile.TemporaryDirectory() as directory:
            title, body = scale(QUICK if arguments.quick else Sizes(), Path(directory))
            print(f"\n{title}\n\n{body}", flush=True)
            if not arguments.quick:
                write_section(title, "make bench-spark", body)
    finally:
        run.close()


def scale(sizes: Sizes, directory: Path) -> tuple[str, str]:
    # Without the disk's promises: what is measured is reading, and a hundred thousand commits come first.
    server = server_of_this_run()
    uri = server.create_catalog_uri(server.create_database("scale"))
    history_s = in_own_process(fill, uri, str(directory), sizes.files)
    took = {name: in_own_process(measured, uri, name, str(directory), sizes) for name in ("at_once", "one_by_one")}
    alone, history = took["at_once"], took["one_by_one"]
    rows: list[list[object]] = [
        _row("open: version, schema, protocol", alone.opened, history.opened),
        _row("plan: `table.read(spark)`", alone.planned, history.planned),
        _row("first row, from the call on", alone.first_row, history.first_row),
        _row("all rows counted, from the call on", alone.counted, history.counted),
        [
            "memory of the driver's Python at most, MiB",
            f"{alone.python_mib:,.0f}",
            f"{history.python_mib:,.0f}",
            "",
            "",
        ],
        ["memory of the driver's Java at most, MiB", f"{alone.java_mib:,.0f}", f"{history.java_mib:,.0f}", "", ""],
    ]
    header = ["what", "1 version, s", f"{sizes.files:,} versions, s", "ratio of medians", "target"]
    note = (
        f"{sizes.files:,} live files of one row, from one commit and from {sizes.files:,} commits of the log writer "
        f"({history_s:.0f} s), one after the other. Java may use 1 GiB of heap."
    )
    return "A long history through Spark", f"{note}\n\n{table(header, rows)}"


def _row(name: str, alone: Sequence[float], history: Sequence[float]) -> list[object]:
    mine, theirs = statistics.median(history), statistics.median(alone)
    return [name, f"{theirs:.3f}", f"{mine:.3f}", f"{mine / theirs:.2f}", "at most 1.2"]


# -- the tables --------------------------------------------------------------------------------------------------------


def fill(uri: str, directory: str, files: int) -> float:
    """How long the versions took, one by one."""
    with deltars.connect(uri, warehouse=f"{directory}/lake", migrate=True, mirror="off", timeout=600) as catalog:
        writer = deltars.SqlTxnLogWriter(catalog)
        at_once, one_by_one = (catalog.create_table(name, SCHEMA) for name in ("at_once", "one_by_one"))
        writer.commit(at_once.id, 1, _as_columns(_linked(at_once, files)), operation="WRITE")
        adds = _linked(one_by_one, files)
        begun = time.perf_counter()
        for version, add in enumerate(adds, start=1):
            writer.commit(one_by_one.id, version, [add], operation="WRITE")
        return time.perf_counter() - begun


def _as_columns(adds: Sequence[AddFile]) -> pa.Table:
    return pa.table(
        {
            "path": [add.path for add in adds],
            "partition_values": pa.array(["{}"] * len(adds)),
            "size": pa.array([add.size for add in adds], pa.int64()),
            "modification_time": pa.array([add.modification_time for add in adds], pa.int64()),
            "data_change": [True] * len(adds),
            "stats": [add.stats for add in adds],
        }
    )


def _linked(made: deltars.Table, count: int) -> list[AddFile]:
    """Names of a few files, which cost the disk nothing; to whoever reads they are files of their own."""
    row = pa.record_batch({"id": [1], "name": ["ada"], "value": [0.5]})
    adds: list[AddFile] = []
    while len(adds) < count:
        [written] = write_table(WriteTarget(made.location, schema_from_ddl(SCHEMA)), [row])
        source = Path(made.location, written.add.path)
        paths = [f"part-{number:05}-{uuid4()}.c000.zstd.parquet" for number in range(min(MAX_LINKS, count - len(adds)))]
        for path in paths:
            os.link(source, Path(made.location, path))
        source.unlink()
        adds += [msgspec.structs.replace(written.add, path=path) for path in paths]
    return adds


# -- one table, in a process of its own --------------------------------------------------------------------------------


def measured(uri: str, name: str, directory: str, sizes: Sizes) -> Took:
    scratch = Path(directory, f"spark-{name}")
    scratch.mkdir()
    with local_session(scratch) as spark, deltars.connect(uri) as catalog:

        def count() -> None:
            assert catalog.table(name).read(spark=spark).count() == sizes.files

        opened = _seconds(lambda: catalog.table(name).snapshot().schema, sizes.rounds)
        planned = _seconds(lambda: catalog.table(name).read(spark=spark), sizes.rounds)
        first_row = _seconds(lambda: catalog.table(name).read(spark=spark).first(), sizes.rounds)
        counted = _seconds(count, 1)
        python_mib = peak_mib()
        return Took(opened, planned, first_row, counted, python_mib, _java_mib(spark))


def _seconds(work: Callable[[], object], rounds: int) -> list[float]:
    """The first round, which warms up, is not counted, unless it is the only one."""
    taken = []
    for _ in range(rounds + (rounds > 1)):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return taken[-rounds:]


def _java_mib(spark: SparkSession) -> float:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


if __name__ == "__main__":
    main()
