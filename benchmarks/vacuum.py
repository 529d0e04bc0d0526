"""Planning of a vacuum beside delta-spark's VACUUM … DRY RUN: a tenth of a table's files was removed.

Both sides have the same log. The peer's files exist, because delta-spark lists them; they are empty. deltars plans by
its catalog, so its own time does not depend on the directory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import deltars
from benchmarks.figures import OURS, Figure, Side
from benchmarks.lane import Lane
from benchmarks.rig import Rig, add_table
from benchmarks.spark_bench import SparkBench, beside, in_turns
from deltars import RemoveFile, SqlTxnLogWriter

REMOVED = 10
"""One file of so many was removed."""
PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
UNCHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True)
class Sizes:
    files: int = 1_000_000
    rounds: int = 3


def planning(rig: Rig, sizes: Sizes) -> list[Figure]:
    bench, files = rig.spark, sizes.files
    mine, peer = (_table(bench, name, files) for name in ("vacuumed", "vacuumed_peer"))
    bench.catalog.release(peer.id)
    for path in peer.files(1)["path"].to_pylist():
        (Path(peer.location) / path).touch()
    bench.session.conf.set(UNCHECKED, "false")
    # By default delta-spark lists with 10,000 tasks, which would be most of its time on one machine.
    bench.session.conf.set(PARALLELISM, "8")
    removed = files // REMOVED

    def ours() -> None:
        planned = mine.vacuum(retention=timedelta(0), force=True, dry_run=True)
        assert planned.num_files == removed

    def theirs() -> None:
        # The statement shows only some of the files that it would delete.
        shown = bench.session.sql(f"VACUUM delta.`{peer.location}` RETAIN 0 HOURS DRY RUN").count()
        assert 0 < shown <= removed, shown

    plan = beside(f"plan a vacuum of {removed:,} removed files in {files:,}", *in_turns(ours, theirs, sizes.rounds), 20)
    begun = time.perf_counter()
    mine.vacuum(retention=timedelta(0), force=True)
    took_s = time.perf_counter() - begun
    what = f"plan, condemn and delete {removed:,} files that do not exist"
    return [plan, Figure(what, "s", {OURS: Side([took_s])})]


def _table(bench: SparkBench, name: str, files: int) -> deltars.Table:
    """A table of which version 1 added files and version 2 removed a tenth of them."""
    made = bench.catalog.create_table(name, "id BIGINT")
    writer = SqlTxnLogWriter(bench.catalog)
    adds = add_table(files)
    writer.commit(made.id, 1, adds, operation="WRITE")
    now_ms = int(time.time() * 1000) - 3_600_000
    removes = [
        RemoveFile(path=path, data_change=True, deletion_timestamp=now_ms, size=1_000_000, partition_values={})
        for path in adds["path"].to_pylist()[::REMOVED]
    ]
    writer.commit(made.id, 2, removes, operation="DELETE")
    bench.catalog.reconciler().once()
    return made


LANES = [
    Lane(
        "vacuum",
        "Vacuum",
        "Of a table of {sizes.files:,} files a tenth was removed. delta-spark's is VACUUM … DRY RUN.",
        planning,
        {"quick": Sizes(50_000, 2), "full": Sizes()},
        is_main=False,
    ),
]
