"""OPTIMIZE of one table: write small files again as larger ones, in steps that each commit by themselves.

    snapshot ── plan ──▶ bins ── some bins ──▶ new files ── commit ──┬─▶ next step
        ▲                                                           └─ lost: keep the bins whose files are all live,
        │                                                              commit those; the others are planned again
        └──────────── until the plan is empty

A step only moves rows (dataChange=false), so it conflicts with no append and with no change of other files. A crash
leaves files that no version refers to, and the next run continues with what the crashed one committed.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa

from deltars.data.compaction import Rewrite, write_bins
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import (
    CommitUnknown,
    ConfigError,
    DeltarsError,
    StorageError,
    VersionConflict,
    located,
)
from deltars.log.arrow_adds import deletion_vectors, file_keys
from deltars.log.commit import NO_VERSION, Base, Commit, TableCommit
from deltars.log.compaction import (
    Bin,
    in_steps,
)
from deltars.log.stages import DATA
from deltars.protocol.clustering import CLUSTERING
from deltars.session import CatalogSession, after_commit
from deltars.store.imports.table_hold import check_writable
from deltars.store.registry import TableRecord
from deltars.transaction.optimize_plan import OPTIMIZE, OptimizePlan, OptimizeRequest, plan_optimize
from deltars.transaction.optimize_result import FileSizes, Optimized, OptimizeStep, SkippedFiles, history_metrics
from deltars.transaction.staged_table import removes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDER = "deltars"
"""Clustering provider of files that OPTIMIZE sorted."""

STEP_BYTES = 1 << 30
"""Files that one commit replaces, about. A crash or a lost conflict costs at most this much work."""

SPARK_BYTES = 512 << 20
"""Files to write again from which on Spark does it, where there is a session."""

MAX_ROUNDS = 20
MAX_LOSSES = 4
"""Rounds that lose bins against concurrent changes before those are skipped."""

MAX_COMMITS = 5
"""Tries to commit one step. Each has fewer bins than the one before, or follows a concurrent commit."""

_log = logging.getLogger(__name__)


class BinWriter(Protocol):
    """What writes the files of bins again: this process, or Spark's tasks."""

    def __call__(self, scan: Scan, bins: Sequence[Sequence[int]], rewrite: Rewrite) -> list[list[WrittenFile]]: ...


@dataclass(frozen=True, slots=True)
class _WrittenBin:
    bin: Bin
    files: pa.Table
    """The files that it replaces."""
    written: Sequence[WrittenFile]


def optimize_table(session: CatalogSession, table_id: UUID, name: str, request: OptimizeRequest) -> Optimized:
    """Write files of a table again, step by step, until nothing is left to do."""
    with located(table=name, table_id=str(table_id)):
        return _Run(session, table_id, name, request).result()


def optimize_or_report(session: CatalogSession, record: TableRecord, request: OptimizeRequest) -> Optimized:
    """Optimize a table. Return what prevents it as the result's `failure`."""
    if record.current_version == NO_VERSION:
        return Optimized(record.name, record.table_id, NO_VERSION)
    try:
        return optimize_table(session, record.table_id, record.name, request)
    except DeltarsError as error:
        return Optimized(record.name, record.table_id, record.current_version, failure=error)


@dataclass(frozen=True)
class _Step:
    """One step, as the heartbeat of writers sees it."""

    txn_id: UUID
    is_unfinished: bool = True


class _Run:
    """One run of OPTIMIZE over one table."""

    def __init__(self, session: CatalogSession, table_id: UUID, name: str, request: OptimizeRequest) -> None:
        self._session = session
        self._table_id = table_id
        self._name = name
        self._request = request
        self._location = session.find(table_id).location
        check_writable(session.database, table_id, allow_diverged=session.settings.allow_diverged)
        self._began_ms = time.time_ns() // 1_000_000
        self._steps: list[OptimizeStep] = []
        self._added: list[int] = []
        self._removed: list[int] = []
        self._partitions: set[object] = set()
        self._vectors = self._vector_rows = self._retried = 0
        self._lost: list[tuple[Bin, str]] = []

    def result(self) -> Optimized:
        plan = first = self._plan()
        if self._request.dry_run:
            return self._planned(first)
        losses = 0
        for _ in range(MAX_ROUNDS):
            if not plan.bins:
                break
            self._lost = []
            self._carry_out(plan)
            losses += bool(self._lost)
            if losses >= MAX_LOSSES:
                break
            plan = self._plan()
        considered = first.files.num_rows
        return replace(
            self._described(plan if self._steps else first),
            files_added=FileSizes.of(self._added),
            files_removed=FileSizes.of(self._removed),
            partitions_optimized=len(self._partitions),
            num_batches=len(self._steps),
            num_bins=sum(step.bins for step in self._steps),
            total_considered_files=considered,
            total_files_skipped=max(0, considered - len(self._removed)),
            num_deletion_vectors_removed=self._vectors,
            num_deletion_vector_rows_removed=self._vector_rows,
            steps=tuple(self._steps),
            retried=self._retried,
            skipped=tuple(
                SkippedFiles(dict(one.partition), len(one.places), reason)
                for one, reason in (self._lost if losses >= MAX_LOSSES else [])
            ),
        )

    def _plan(self) -> OptimizePlan:
        return plan_optimize(self._session.reader.snapshot(self._table_id), self._request)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _carry_out(self, plan: OptimizePlan) -> None:
        write, step_bytes = self._writer(plan)
        rewrite = self._rewrite(plan)
        scan = Scan.of(
            plan.snapshot.metadata,
            lambda: plan.files,
            root=self._location,
            table=self._name,
            version=plan.snapshot.version,
            storage_options=self._session.settings.storage_options,
        )
        for bins in in_steps(plan.bins, step_bytes):
            with self._announced() as step:
                began = time.perf_counter()
                try:
                    written = write(scan, [one.places for one in bins], rewrite)
                except StorageError as error:
                    # A file that another process replaced since may be deleted by now.
                    if not self._lose_changed(plan, bins, error):
                        raise
                    continue
                done = [_written(plan, one, files) for one, files in zip(bins, written, strict=True)]
                self._commit(plan, done, step.txn_id, time.perf_counter() - began)

    @contextmanager
    def _announced(self) -> Iterator[_Step]:
        """Announce a step as a writer of the table, so that no vacuum deletes its files before they are committed."""
        step, heartbeat, is_unknown = _Step(uuid4()), self._session.heartbeat, False
        heartbeat.begin(step, self._table_id)
        try:
            yield step
        except CommitUnknown:
            is_unknown = True  # The files may be committed.
            raise
        finally:
            heartbeat.end(step.txn_id, withdraw=not is_unknown)

    def _writer(self, plan: OptimizePlan) -> tuple[BinWriter, int]:
        """Return what writes the bins, and how many bytes one step has."""
        spark = self._spark()
        if spark is None or plan.size_bytes < SPARK_BYTES or len(plan.bins) == 1:
            return write_bins, STEP_BYTES
        from deltars.spark.change.compaction import SparkCompaction

        compaction = SparkCompaction(spark)
        return compaction.write_bins, max(STEP_BYTES, 4 * compaction.num_cores * plan.target_bytes)

    def _spark(self) -> SparkSession | None:
        """Return the given session, or the active one; None if there is none. None is started for this."""
        given = self._request.spark
        if given is not None or "pyspark" in sys.modules:
            try:
                from deltars.spark.session import running_session

                return running_session(given)
            except (ConfigError, ModuleNotFoundError):
                if given is not None:
                    raise
        return None

    def _rewrite(self, plan: OptimizePlan) -> Rewrite:
        metadata = plan.snapshot.metadata
        target = WriteTarget(
            root=self._location,
            schema=metadata.schema,
            partition_columns=tuple(metadata.partition_columns),
            properties=metadata.configuration,
            storage_options=self._session.settings.storage_options,
            target_file_size=plan.target_bytes,
        )
        return Rewrite(target, plan.sort_by, PROVIDER if plan.cluster_by else None)

    def _commit(self, plan: OptimizePlan, bins: list[_WrittenBin], txn_id: UUID, took_s: float) -> None:
        """Commit the bins, which took so long to write, or those that no concurrent commit has changed."""
        for attempt in range(1, MAX_COMMITS + 1):
            if not bins:
                return
            commit = replace(self._as_commit(plan, bins, txn_id), spent={DATA: took_s})
            try:
                committed = self._session.commit(commit)
            except VersionConflict as conflict:
                self._retried += 1
                kept = self._intact(plan, [one.bin for one in bins])
                lost = [one for one in bins if one.bin not in kept]
                _log.info("a step of OPTIMIZE of %s lost %d of %d bins: %s", self._name, len(lost), len(bins), conflict)
                self._lost += [(one.bin, str(conflict)) for one in lost]
                bins = [one for one in bins if one.bin in kept]
                continue
            with after_commit(committed.txn_id):
                self._record(bins, committed.versions[self._table_id], attempt)
                self._session.publish(
                    committed.versions, mirror=self._request.mirror, next_version=committed.next_version
                )
            return
        self._lost += [(one.bin, f"{MAX_COMMITS} commits were refused") for one in bins]

    def _lose_changed(self, plan: OptimizePlan, bins: Sequence[Bin], error: StorageError) -> bool:
        """Record the bins whose files were changed since. Return whether there are any."""
        kept = self._intact(plan, bins)
        lost = [one for one in bins if one not in kept]
        self._lost += [(one, str(error)) for one in lost]
        self._retried += bool(lost)
        return bool(lost)

    def _intact(self, plan: OptimizePlan, bins: Sequence[Bin]) -> list[Bin]:
        """Return the bins whose files are all live still, if the schema and the clustering columns are the same."""
        now, then = self._session.reader.snapshot(self._table_id), plan.snapshot
        if now.metadata != then.metadata or now.protocol != then.protocol:
            return []
        if now.domains.get(CLUSTERING) != then.domains.get(CLUSTERING):
            return []
        live = set(file_keys(now.select_files(columns=["path", "deletion_vector"])))
        keys = file_keys(plan.files)
        return [one for one in bins if all(keys[place] in live for place in one.places)]

    def _as_commit(self, plan: OptimizePlan, bins: Sequence[_WrittenBin], txn_id: UUID) -> Commit:
        snapshot, request = plan.snapshot, self._request
        adds = [msgspec.structs.replace(file.add, data_change=False) for one in bins for file in one.written]
        removes = [remove for one in bins for remove in removes_of(one.files, data_change=False)]
        vectors = sum(remove.deletion_vector is not None for remove in removes)
        params = {
            "predicate": _json([] if request.where is None else [f"({request.where})"]),
            "zOrderBy": _json([".".join(path) for path in plan.zorder_by]),
            "clusterBy": _json([".".join(path) for path in plan.cluster_by]),
            "auto": request.is_auto,
        }
        table = TableCommit(
            self._table_id,
            snapshot.version,
            [*removes, *adds],
            OPTIMIZE,
            params,
            row_groups=[group for one in bins for file in one.written for group in file.row_groups],
            metrics=history_metrics([add.size for add in adds], [one.size or 0 for one in removes], vectors),
        )
        bases = {} if snapshot.commit is None else {self._table_id: Base(snapshot.version, snapshot.commit[1])}
        return Commit(
            txn_id,
            (table,),
            committer=request.committer,
            isolation="snapshot",
            bases=bases,
            announced=self._session.heartbeat.pause(txn_id),
        )

    def _record(self, bins: Sequence[_WrittenBin], version: int, attempts: int) -> None:
        added = [file.add.size for one in bins for file in one.written]
        removed = [size for one in bins for size in one.files["size"].to_pylist()]
        vectors = [vector for one in bins for vector in deletion_vectors(one.files["deletion_vector"]) if vector]
        self._steps.append(OptimizeStep(version, len(bins), len(removed), len(added), attempts))
        self._added += added
        self._removed += removed
        self._partitions |= {one.bin.partition for one in bins}
        self._vectors += len(vectors)
        self._vector_rows += sum(vector.cardinality for vector in vectors)

    # -- the result ------------------------------------------------------------------------------------------------

    def _described(self, plan: OptimizePlan) -> Optimized:
        return Optimized(
            self._name,
            self._table_id,
            self._steps[-1].version if self._steps else plan.snapshot.version,
            preserve_insertion_order=not plan.sort_by,
            zorder_by=tuple(".".join(path) for path in plan.zorder_by),
            cluster_by=tuple(".".join(path) for path in plan.cluster_by),
            target_size=plan.target_bytes,
            start_time_ms=self._began_ms,
            end_time_ms=time.time_ns() // 1_000_000,
        )

    def _planned(self, plan: OptimizePlan) -> Optimized:
        places = pa.array([place for one in plan.bins for place in one.places], pa.int64())
        removed = plan.files["size"].take(places).to_pylist()
        return replace(
            self._described(plan),
            files_removed=FileSizes.of(removed),
            partitions_optimized=len({one.partition for one in plan.bins}),
            num_bins=len(plan.bins),
            total_considered_files=plan.files.num_rows,
            total_files_skipped=plan.files.num_rows - len(removed),
            is_dry_run=True,
        )


def _written(plan: OptimizePlan, one: Bin, written: Sequence[WrittenFile]) -> _WrittenBin:
    return _WrittenBin(one, plan.files.take(pa.array(one.places, pa.int64())), written)


def _json(names: list[str]) -> str:
    return msgspec.json.encode(names).decode()
