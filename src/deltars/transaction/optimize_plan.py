"""Request and plan of an OPTIMIZE: which files of a snapshot are written again together, and how.

arguments ── optimize_request ──▶ OptimizeRequest ─┐
                                      snapshot ────┴─ plan_optimize ──▶ OptimizePlan: bins, size, columns
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltars.arguments import check_flags, check_texts
from deltars.data.z_order import CURVE
from deltars.errors import ValidationError, brief
from deltars.log.compaction import PLAN_COLUMNS, Bin, Sizing, automatic_target, plan_compaction, plan_sorting
from deltars.log.snapshot import Snapshot
from deltars.log.table_state import tracks_rows
from deltars.predicate import parse
from deltars.protocol import as_names, check_protocol, column_mapping
from deltars.protocol.clustering import clustering_columns, column_paths
from deltars.protocol.column_path import ColumnPath
from deltars.protocol.properties import LARGEST_SIZE, parse_size_bytes
from deltars.protocol.row_tracking import materialized_names
from deltars.store.mirror.status import MirrorMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIMIZE = "OPTIMIZE"
TARGET_SIZE = "delta.targetFileSize"


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """What to optimize of a table, and how."""

    where: str | None = None
    target_bytes: int | None = None
    zorder_by: tuple[str, ...] = ()
    is_auto: bool = False
    min_files: int = 2
    dry_run: bool = False
    spark: Any = None
    committer: str | None = None
    mirror: MirrorMode | None = None


def optimize_request(
    where: str | None,
    *,
    target_size: int | str | None,
    zorder_by: str | Sequence[str],
    dry_run: bool,
    committer: str | None,
    spark: SparkSession | None,
) -> OptimizeRequest:
    """Return the request of a call. Raise `ValidationError` for a wrong argument."""
    check_flags(dry_run=dry_run)
    if where is not None and not isinstance(where, str):
        raise ValidationError(
            f"where must be a condition as SQL text, got {brief(where)}",
            field="where",
            hint="Write it as Spark SQL, such as \"day = '2026-01-01' AND id > 5\".",
        )
    check_texts(where=where, committer=committer)
    return OptimizeRequest(
        where,
        _as_target_bytes(target_size),
        tuple(as_names(zorder_by)),
        dry_run=dry_run,
        spark=spark,
        committer=committer,
    )


@dataclass(frozen=True, slots=True)
class OptimizePlan:
    """The bins of one snapshot, and how they are written."""

    snapshot: Snapshot
    files: pa.Table
    bins: list[Bin]
    target_bytes: int
    zorder_by: tuple[ColumnPath, ...]
    cluster_by: tuple[ColumnPath, ...]

    @property
    def sort_by(self) -> tuple[ColumnPath, ...]:
        return self.zorder_by or self.cluster_by

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.bins)


def plan_optimize(snapshot: Snapshot, request: OptimizeRequest) -> OptimizePlan:
    """Return the bins of a table that are to be written again. Raise `ValidationError` if it cannot be optimized."""
    metadata = snapshot.metadata
    problem = check_protocol(snapshot.protocol)
    if problem is not None:
        raise ValidationError(f"the table cannot be optimized: {problem}", field="protocol")
    zorder_by, cluster_by = _columns(snapshot, request)
    target = request.target_bytes or _table_target(snapshot)
    sizing = Sizing(target, min_files=request.min_files)
    where = None if request.where is None else parse(request.where, snapshot.schema)
    files = snapshot.select_files(columns=PLAN_COLUMNS, where=where)
    columns = [".".join(path) for path in zorder_by or cluster_by]
    bins = plan_sorting(files, sizing, columns, CURVE) if columns else plan_compaction(files, sizing)
    if bins and tracks_rows(metadata) and not materialized_names(metadata.configuration):
        raise ValidationError(
            f"{OPTIMIZE} would move rows to other files, and the table names no columns for their row ids",
            field="delta.enableRowTracking",
            hint="Turn row tracking off and on again, which names them.",
        )
    return OptimizePlan(snapshot, files, bins, target, zorder_by, cluster_by)


def _columns(snapshot: Snapshot, request: OptimizeRequest) -> tuple[tuple[ColumnPath, ...], tuple[ColumnPath, ...]]:
    """Return the columns of the Z-order, and the clustering columns of the table."""
    metadata = snapshot.metadata
    is_mapped = column_mapping(metadata.configuration) != "none"
    clustered = clustering_columns(snapshot.domains, metadata.schema, is_mapped=is_mapped)
    if request.zorder_by and clustered:
        columns = ", ".join(".".join(path) for path in clustered)
        raise ValidationError(
            f"the table is clustered by {columns}, which excludes zorder_by",
            field="zorder_by",
            hint="Leave zorder_by out: optimize clusters the table by its own columns.",
        )
    given = column_paths(
        request.zorder_by,
        metadata.schema,
        metadata.partition_columns,
        metadata.configuration,
        field="zorder_by",
    )
    # Automatic compaction after a write is cheap: it leaves sorting to a separate run.
    return given, () if request.is_auto else clustered


def _table_target(snapshot: Snapshot) -> int:
    text = snapshot.metadata.configuration.get(TARGET_SIZE)
    if text is None:
        return automatic_target(snapshot.totals.size_bytes)
    size = parse_size_bytes(text)
    if not size:
        raise ValidationError(
            f"the table's property {TARGET_SIZE} is no size: {text!r}", field=TARGET_SIZE, hint="Write 128mb."
        )
    return size


def _as_target_bytes(size: int | str | None) -> int | None:
    """Return a target size in bytes. Raise `ValidationError` unless it is a whole number, or a text such as 128mb."""
    found = parse_size_bytes(size) if isinstance(size, str) else size
    if size is not None and (type(found) is not int or not 0 < found <= LARGEST_SIZE):
        raise ValidationError(
            f"target_size is a number of bytes or a text such as '128mb', got {brief(size)}", field="target_size"
        )
    return found
