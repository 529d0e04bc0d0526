"""Maintenance beside delta-spark, in one session.

    python -m benchmarks.maintenance [--quick] [--only compaction,z_order]

Both sides do the same work on tables of the same rows, in turns. Before each round both tables are brought
back to what they were. After each part they are compared.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import deltars
from benchmarks.report import table
from benchmarks.rig import in_own_process
from benchmarks.row_changes import prepared_in_turns
from benchmarks.spark import HEADER, Bench, line, run_parts
from tests.support.delta_spark import DELTA
from tests.support.memory import peak_mib

Z_ORDER = ("k", "r")


def compaction(bench: Bench) -> tuple[str, str]:
    """Many small files become one."""
    files = bench.sizes.selective_files
    frame = bench.source().repartition(files)
    mine, peer = _pair(bench, "small_files", frame)
    theirs = "OPTIMIZE {table}"
    row = _lane(bench, f"compaction of {files:,} files", mine, peer, "1.5", {}, theirs)
    assert mine.files().num_rows == 1
    return _section(bench, "Compaction", [row], f"{bench.sizes.rows:,} rows of eight columns in {files:,} files.")


def z_order(bench: Bench) -> tuple[str, str]:
    """All rows are sorted by two columns."""
    mine, peer = _pair(bench, "unsorted", bench.source().repartition(20))
    columns = ", ".join(Z_ORDER)
    theirs = f"OPTIMIZE {{table}} ZORDER BY ({columns})"
    name = f"Z-order of {bench.sizes.rows:,} rows by {columns}"
    row = _lane(bench, name, mine, peer, "1", {"zorder_by": Z_ORDER}, theirs)
    return _section(bench, "Z-order", [row], f"{bench.sizes.rows:,} rows of eight columns in 20 files.")


# -- what the parts share ----------------------------------------------------------------------------------------------


def _pair(bench: Bench, name: str, frame: DataFrame) -> tuple[deltars.Table, str]:
    """The same rows in as many files on both sides."""
    bench.catalog.write(name, frame)
    bench.append_peer(frame, name)
    return bench.catalog.table(name), bench.peer(name)


def _lane(
    bench: Bench, name: str, mine: deltars.Table, peer: str, target: str, options: dict[str, Any], statement: str
) -> list[object]:
    """Time both sides. `statement` has {table} where the peer's table belongs."""
    version, numbers = mine.version, count()

    def prepare() -> tuple[Callable[[], object], Callable[[], object]]:
        mine.restore(version)
        copy = f"{peer}-{next(numbers)}"
        shutil.copytree(peer, copy)
        theirs = statement.format(table=f"delta.`{copy}`")
        return lambda: mine.optimize(spark=bench.spark, **options), lambda: bench.spark.sql(theirs).collect()

    taken = prepared_in_turns(prepare, max(2, bench.sizes.append_rounds - 1))
    _compare(bench, mine, f"{peer}-{next(numbers) - 1}")
    mine.restore(version)
    ours = in_own_process(_memory, bench.catalog, mine.name, options)
    return [*line(name, *taken, target), f"{ours:,.0f} / {_jvm_mib(bench):,.0f}"]


def _memory(catalog: deltars.Catalog, name: str, options: dict[str, Any]) -> float:
    with catalog:
        assert catalog.table(name).optimize(**options).is_changed
        return peak_mib()


def _jvm_mib(bench: Bench) -> float:
    jvm: Any = bench.spark.sparkContext._jvm
    status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def _compare(bench: Bench, mine: deltars.Table, peer: str) -> None:
    sums = [F.count("*"), F.sum("id"), F.sum(F.hash("id", "name", "k", "r"))]
    ours = mine.read(spark=bench.spark).agg(*sums).first()
    theirs = bench.read_peer(peer).agg(*sums).first()
    assert ours == theirs, (ours, theirs)


def _section(bench: Bench, title: str, rows: list[list[object]], note: str) -> tuple[str, str]:
    note += (
        " After it both tables had equal counts and sums. Memory is the most that a process had (VmHWM): of deltars in"
        " its own process without Spark, of delta-spark the JVM of the session."
    )
    return f"{title}, beside delta-spark {DELTA}", f"{note}\n\n{table([*HEADER, 'memory, MiB: ours / theirs'], rows)}"


PARTS: dict[str, Callable[[Bench], tuple[str, str]]] = {
    "compaction": compaction,
    "z_order": z_order,
}

if __name__ == "__main__":
    run_parts(PARTS, __doc__ or "")
