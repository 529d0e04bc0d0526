"""A long history through Spark: as many versions as files, beside the same files from one commit.

The log writer makes every version, one file each. What a reader pays for is the files that live, not the history:
opening, planning and reading are measured for both tables one after the other, each in a new process with a new
Spark, so that the driver's memory, Python's and Java's, is that table's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import deltars
from benchmarks.figures import OURS, Figure, Side, Target
from benchmarks.lane import Lane
from benchmarks.maintenance import java_mib
from benchmarks.rig import Rig, in_own_process
from benchmarks.spark_bench import FILE_SCHEMA, as_columns, linked_files
from tests.support.memory import peak_mib
from tests.support.spark import local_session

PEER = "the same files from one commit"


@dataclass(frozen=True)
class Sizes:
    files: int = 100_000
    rounds: int = 5


@dataclass(frozen=True)
class Took:
    """Seconds of each round, and what the driver needed at most."""

    seconds: dict[str, list[float]]
    python_mib: float
    java_mib: float


def scale(rig: Rig, sizes: Sizes) -> list[Figure]:
    directory = rig.new_directory("scale")
    uri = rig.server.create_catalog_uri(rig.server.create_database("scale"))
    in_own_process(fill, uri, str(directory), sizes.files)
    names = {OURS: "one_by_one", PEER: "at_once"}
    took = {side: in_own_process(measured, uri, name, str(directory), sizes) for side, name in names.items()}
    return [
        Figure(
            what,
            "s",
            {side: Side(one.seconds[what], memory_mib=one.python_mib + one.java_mib) for side, one in took.items()},
            targets=[Target("cost", 1.2, PEER)],
        )
        for what in took[OURS].seconds
    ]


def fill(uri: str, directory: str, files: int) -> None:
    with deltars.connect(uri, warehouse=f"{directory}/lake", migrate=True, mirror="off", timeout=600) as catalog:
        writer = deltars.SqlTxnLogWriter(catalog)
        at_once, one_by_one = (catalog.create_table(name, FILE_SCHEMA) for name in ("at_once", "one_by_one"))
        writer.commit(at_once.id, 1, as_columns(linked_files(at_once, files)), operation="WRITE")
        for version, add in enumerate(linked_files(one_by_one, files), start=1):
            writer.commit(one_by_one.id, version, [add], operation="WRITE")


def measured(uri: str, name: str, directory: str, sizes: Sizes) -> Took:
    """One table, in its own process."""
    scratch = Path(directory, f"spark-{name}")
    scratch.mkdir()
    with local_session(scratch) as spark, deltars.connect(uri) as catalog:

        def count() -> None:
            assert catalog.table(name).read(spark=spark).count() == sizes.files

        seconds = {
            "open: version, schema, protocol": _seconds(lambda: catalog.table(name).snapshot().schema, sizes.rounds),
            "plan: `table.read(spark)`": _seconds(lambda: catalog.table(name).read(spark=spark), sizes.rounds),
            "first row": _seconds(lambda: catalog.table(name).read(spark=spark).first(), sizes.rounds),
            "all rows counted": _seconds(count, 1),
        }
        return Took(seconds, peak_mib(), java_mib(spark))


def _seconds(work: Callable[[], object], rounds: int) -> list[float]:
    """The first round, which warms up, is not counted, unless it is the only one."""
    taken = []
    for _ in range(rounds + (rounds > 1)):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return taken[-rounds:]


LANES = [
    Lane(
        "spark_scale",
        "A long history through Spark",
        "{sizes.files:,} live files of one row, from one commit and from {sizes.files:,} commits of the log writer. "
        "Java may use 1 GiB of heap. Memory is that of the driver, Python's and Java's.",
        scale,
        {"quick": Sizes(2_000, 2), "full": Sizes()},
        is_main=False,
    ),
]
