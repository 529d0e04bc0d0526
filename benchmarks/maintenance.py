"""Maintenance beside delta-spark, in one session.

Both sides do the same work on tables of the same rows, in turns. Before each round both tables are brought
back to what they were. After each part they are compared.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from benchmarks.figures import OURS, Figure
from benchmarks.lane import Lane
from benchmarks.rig import Rig, in_own_process
from benchmarks.spark_bench import PEER, SparkBench, beside, prepared_in_turns
from tests.support.memory import peak_mib

Z_ORDER = ("k", "r")


@dataclass(frozen=True)
class Sizes:
    rows: int = 5_000_000
    files: int = 1_000
    rounds: int = 3


def compaction(rig: Rig, sizes: Sizes) -> list[Figure]:
    """Many small files become one."""
    mine, peer = _pair(rig.spark, "small_files", rig.spark.source(sizes.rows).repartition(sizes.files))
    what = f"compaction of {sizes.files:,} files"
    figure = _optimized(rig.spark, what, mine, peer, 1.5, {}, "OPTIMIZE {table}", sizes.rounds)
    assert mine.files().num_rows == 1
    return [figure]


def z_order(rig: Rig, sizes: Sizes) -> list[Figure]:
    """All rows are sorted by two columns."""
    mine, peer = _pair(rig.spark, "unsorted", rig.spark.source(sizes.rows).repartition(20))
    columns = ", ".join(Z_ORDER)
    theirs = f"OPTIMIZE {{table}} ZORDER BY ({columns})"
    what = f"Z-order of {sizes.rows:,} rows by {columns}"
    return [_optimized(rig.spark, what, mine, peer, 1, {"zorder_by": Z_ORDER}, theirs, sizes.rounds)]


# -- what the parts share ----------------------------------------------------------------------------------------------


def _pair(bench: SparkBench, name: str, frame: DataFrame) -> tuple[deltars.Table, str]:
    """The same rows in as many files on both sides."""
    bench.catalog.write(name, frame)
    bench.append_peer(frame, name)
    return bench.catalog.table(name), bench.peer(name)


def _optimized(
    bench: SparkBench,
    what: str,
    mine: deltars.Table,
    peer: str,
    faster: float,
    options: dict[str, Any],
    statement: str,
    rounds: int,
) -> Figure:
    """Time both sides. `statement` has {table} where the peer's table belongs."""
    version, numbers = mine.version, count()

    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        mine.restore(version)
        copy = f"{peer}-{next(numbers)}"
        shutil.copytree(peer, copy)
        theirs = statement.format(table=f"delta.`{copy}`")
        return lambda: mine.optimize(spark=bench.session, **options), lambda: bench.session.sql(theirs).collect()

    taken = prepared_in_turns(prepare, rounds)
    _compare(bench, mine, f"{peer}-{next(numbers) - 1}")
    mine.restore(version)
    memory = {
        OURS: in_own_process(_memory, bench.catalog, mine.name, options),
        PEER: java_mib(bench.session),
    }
    figure = beside(what, *taken, faster)
    sides = {name: msgspec.structs.replace(side, memory_mib=memory[name]) for name, side in figure.sides.items()}
    return msgspec.structs.replace(figure, sides=sides)


def _memory(catalog: deltars.Catalog, name: str, options: dict[str, Any]) -> float:
    with catalog:
        assert catalog.table(name).optimize(**options).is_changed
        return peak_mib()


def java_mib(spark: SparkSession) -> float:
    jvm: Any = spark.sparkContext._jvm
    status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def _compare(bench: SparkBench, mine: deltars.Table, peer: str) -> None:
    sums = [F.count("*"), F.sum("id"), F.sum(F.hash("id", "name", "k", "r"))]
    ours = mine.read(spark=bench.session).agg(*sums).first()
    theirs = bench.read_peer(peer).agg(*sums).first()
    assert ours == theirs, (ours, theirs)


_NOTE = (
    " After it both tables had equal counts and sums. Memory is the most that a process had (VmHWM): of deltars in its "
    "own process without Spark, of delta-spark the JVM of the session."
)

LANES = [
    Lane(
        "compaction",
        "Compaction",
        "{sizes.rows:,} rows of eight columns in {sizes.files:,} files." + _NOTE,
        compaction,
        {"quick": Sizes(500_000, 100, 2), "full": Sizes()},
        is_main=False,
    ),
    Lane(
        "z_order",
        "Z-order",
        "{sizes.rows:,} rows of eight columns in 20 files." + _NOTE,
        z_order,
        {"quick": Sizes(500_000, 100, 2), "full": Sizes()},
        is_main=False,
    ),
]
