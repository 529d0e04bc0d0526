"""Result of `optimize`: what it did to a table, also under the names of Delta's metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from deltars.errors import DeltarsError
from deltars.verbs_to_come import RefusesVerbs


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Sizes of some files, in bytes. All are 0 if there are none."""

    min: int = 0
    max: int = 0
    avg: float = 0.0
    total_files: int = 0
    total_size: int = 0

    @classmethod
    def of(cls, sizes: Iterable[int]) -> FileSizes:
        known = list(sizes)
        if not known:
            return cls()
        return cls(min(known), max(known), sum(known) / len(known), len(known), sum(known))

    @property
    def metrics(self) -> dict[str, Any]:
        return {
            "min": self.min,
            "max": self.max,
            "avg": self.avg,
            "totalFiles": self.total_files,
            "totalSize": self.total_size,
        }


@dataclass(frozen=True, slots=True)
class OptimizeStep:
    """One commit of a run."""

    version: int
    """The table's version that it made."""
    bins: int
    """Groups of files that were each written again together."""
    files_removed: int
    files_added: int
    attempts: int
    """Commits that were tried, the last one included."""


@dataclass(frozen=True, slots=True)
class SkippedFiles:
    """Files of one partition that were left as they are, though they were to be written again."""

    partition: Mapping[str, str | None]
    num_files: int
    reason: str


@dataclass(frozen=True, slots=True)
class Optimized(RefusesVerbs):
    """What one run of `optimize` did to a table. `metrics` has the same under Delta's names."""

    table: str
    table_id: UUID
    version: int
    """The table's version after the run; with nothing to do, the version that was looked at."""
    files_added: FileSizes = FileSizes()
    files_removed: FileSizes = FileSizes()
    partitions_optimized: int = 0
    num_batches: int = 0
    """Commits that were made."""
    num_bins: int = 0
    total_considered_files: int = 0
    total_files_skipped: int = 0
    """Files that were looked at and left as they are."""
    preserve_insertion_order: bool = True
    """Whether rows kept their order in each new file, as without Z-order and clustering."""
    zorder_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    target_size: int = 0
    num_deletion_vectors_removed: int = 0
    num_deletion_vector_rows_removed: int = 0
    start_time_ms: int = 0
    end_time_ms: int = 0
    steps: tuple[OptimizeStep, ...] = ()
    retried: int = 0
    """How often a step lost against a concurrent change and was tried again, whole or in part."""
    skipped: tuple[SkippedFiles, ...] = ()
    """Files that concurrent changes kept taking away. Run `optimize` again for them."""
    is_dry_run: bool = False
    """Whether nothing was changed: `files_removed` are those that a run would write again."""
    failure: DeltarsError | None = None
    """Why `catalog.optimize` could not finish the table. What it committed before stays."""

    @property
    def num_files_added(self) -> int:
        return self.files_added.total_files

    @property
    def num_files_removed(self) -> int:
        return self.files_removed.total_files

    @property
    def is_changed(self) -> bool:
        return bool(self.steps)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics as Delta's OPTIMIZE returns them, with its names."""
        return {
            "numFilesAdded": self.num_files_added,
            "numFilesRemoved": self.num_files_removed,
            "filesAdded": self.files_added.metrics,
            "filesRemoved": self.files_removed.metrics,
            "partitionsOptimized": self.partitions_optimized,
            "numBatches": self.num_batches,
            "numBins": self.num_bins,
            "totalConsideredFiles": self.total_considered_files,
            "totalFilesSkipped": self.total_files_skipped,
            "preserveInsertionOrder": self.preserve_insertion_order,
            "startTimeMs": self.start_time_ms,
            "endTimeMs": self.end_time_ms,
            "deletionVectorStats": {
                "numDeletionVectorsRemoved": self.num_deletion_vectors_removed,
                "numDeletionVectorRowsRemoved": self.num_deletion_vector_rows_removed,
            },
        }


def history_metrics(added: Sequence[int], removed: Sequence[int], vectors_removed: int) -> dict[str, str]:
    """Return the metrics that Delta's history has of one OPTIMIZE. `added` and `removed` are sizes of files."""
    ordered = sorted(added)

    def quantile(share: float) -> int:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0

    counts = {
        "numRemovedFiles": len(removed),
        "numAddedFiles": len(added),
        "numRemovedBytes": sum(removed),
        "numAddedBytes": sum(added),
        "minFileSize": quantile(0),
        "p25FileSize": quantile(0.25),
        "p50FileSize": quantile(0.5),
        "p75FileSize": quantile(0.75),
        "maxFileSize": quantile(1),
        "numDeletionVectorsRemoved": vectors_removed,
    }
    return {name: str(count) for name, count in counts.items()}
