"""Planning of a vacuum beside delta-spark's VACUUM … DRY RUN: a tenth of a table's files was removed.

    python -m benchmarks.vacuum [--quick]

Both sides have the same log. The peer's files exist, because delta-spark lists them; they are empty. deltars plans by
its catalog, so its own time does not depend on the directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import deltars
from benchmarks.report import table
from benchmarks.rig import add_table
from benchmarks.spark import HEADER, Bench, in_turns, line, run_parts
from deltars import RemoveFile, SqlTxnLogWriter

FILES = 1_000_000
QUICK_FILES = 20_000
REMOVED = 10
"""One file of so many was removed."""
TARGET = "20"
PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
UNCHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"


def planning(bench: Bench) -> tuple[str, str]:
    files = FILES if bench.sizes.rows > 1_000_000 else QUICK_FILES
    rounds = max(2, bench.sizes.append_rounds - 1)
    mine, peer = (_table(bench, name, files) for name in ("vacuumed", "vacuumed_peer"))
    bench.catalog.release(peer.id)
    for path in peer.files(1)["path"].to_pylist():
        (Path(peer.location) / path).touch()
    bench.spark.conf.set(UNCHECKED, "false")
    # By default delta-spark lists with 10,000 tasks, which would be most of its time on one machine.
    bench.spark.conf.set(PARALLELISM, "8")
    removed = files // REMOVED

    def ours() -> None:
        planned = mine.vacuum(retention=timedelta(0), force=True, dry_run=True)
        assert planned.num_files == removed

    def theirs() -> None:
        # The statement shows only some of the files that it would delete.
        shown = bench.spark.sql(f"VACUUM delta.`{peer.location}` RETAIN 0 HOURS DRY RUN").count()
        assert 0 < shown <= removed, shown

    begun = time.perf_counter()
    mine.vacuum(retention=timedelta(0), force=True)
    took_s = time.perf_counter() - begun
    mine = _table(bench, "vacuumed_again", files)
    seconds = in_turns(ours, theirs, rounds)
    rows = [line(f"plan a vacuum of {removed:,} removed files in {files:,}", *seconds, TARGET)]
    body = table(HEADER, rows)
    note = f"Planning, condemning and deleting {removed:,} files that do not exist took deltars {took_s:.1f} s."
    return "Vacuum", f"{body}\n\n{note}"


def _table(bench: Bench, name: str, files: int) -> deltars.Table:
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


PARTS: dict[str, Callable[[Bench], tuple[str, str]]] = {"planning": planning}

if __name__ == "__main__":
    run_parts(PARTS, __doc__ or "")
