"""Metrics of one row-level change, for the caller and, under Delta's names, for the table's history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class ChangeMetrics:
    """What one `delete`, `update`, `merge`, `apply_changes` or `purge` changed."""

    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int | None = 0
    """None if whole files were removed whose number of rows is not known."""
    rows_copied: int = 0
    """Unchanged rows that were written again, because they shared a file with changed ones."""
    files_added: int = 0
    files_removed: int = 0
    files_with_vector: int = 0
    """Files that stay and got a deletion vector, or a larger one."""
    bytes_added: int = 0
    bytes_removed: int = 0
    scan_s: float = 0.0
    """Seconds spent finding the rows."""
    rewrite_s: float = 0.0
    """Seconds spent writing files."""
    skipped: bool = False
    """Whether the statement was skipped: its `app_id` and `app_version`, or its transaction, were committed before."""
    operation_metrics: Mapping[str, str] = field(default_factory=dict)
    """The metrics as the table's history shows them, under Delta's names."""

    @property
    def rows_changed(self) -> int | None:
        """Rows inserted, updated and deleted."""
        return None if self.rows_deleted is None else self.rows_inserted + self.rows_updated + self.rows_deleted


_FILES = {
    "files_added": "numAddedFiles",
    "files_removed": "numRemovedFiles",
    "bytes_added": "numAddedBytes",
    "bytes_removed": "numRemovedBytes",
    "vectors_added": "numDeletionVectorsAdded",
    "vectors_removed": "numDeletionVectorsRemoved",
    "vectors_updated": "numDeletionVectorsUpdated",
    "rows_copied": "numCopiedRows",
}
_DELTAS_NAMES: Mapping[str, Mapping[str, str]] = {
    "DELETE": {**_FILES, "rows_deleted": "numDeletedRows"},
    "UPDATE": {**_FILES, "rows_updated": "numUpdatedRows"},
    "REORG": _FILES,
    "MERGE": {
        "files_added": "numTargetFilesAdded",
        "files_removed": "numTargetFilesRemoved",
        "bytes_added": "numTargetBytesAdded",
        "bytes_removed": "numTargetBytesRemoved",
        "vectors_added": "numTargetDeletionVectorsAdded",
        "vectors_removed": "numTargetDeletionVectorsRemoved",
        "vectors_updated": "numTargetDeletionVectorsUpdated",
        "rows_inserted": "numTargetRowsInserted",
        "rows_updated": "numTargetRowsUpdated",
        "rows_deleted": "numTargetRowsDeleted",
        "rows_copied": "numTargetRowsCopied",
        "rows_written": "numOutputRows",
    },
}
_CHANGE_FILES = {"MERGE": "numTargetChangeFilesAdded"}


def measured(
    operation: str, counts: Mapping[str, int | None], more: Mapping[str, int], scan_s: float, rewrite_s: float
) -> ChangeMetrics:
    """Return the metrics of an operation. `more` has metrics under Delta's names already."""
    named = {name: counts[key] for key, name in _DELTAS_NAMES[operation].items()}
    named[_CHANGE_FILES.get(operation, "numAddedChangeFiles")] = 0
    times = {"executionTimeMs": scan_s + rewrite_s, "scanTimeMs": scan_s, "rewriteTimeMs": rewrite_s}
    named |= {name: round(seconds * 1000) for name, seconds in times.items()}
    return ChangeMetrics(
        rows_inserted=counts["rows_inserted"] or 0,
        rows_updated=counts["rows_updated"] or 0,
        rows_deleted=counts["rows_deleted"],
        rows_copied=counts["rows_copied"] or 0,
        files_added=counts["files_added"] or 0,
        files_removed=counts["files_removed"] or 0,
        files_with_vector=counts["vectors_added"] or 0,
        bytes_added=counts["bytes_added"] or 0,
        bytes_removed=counts["bytes_removed"] or 0,
        scan_s=scan_s,
        rewrite_s=rewrite_s,
        operation_metrics={name: str(count) for name, count in {**named, **more}.items() if count is not None},
    )


def with_files_of(metrics: ChangeMetrics, companion: ChangeMetrics) -> ChangeMetrics:
    """Return the metrics with the files, bytes and seconds of a companion table. The rows stay those of the table."""
    names = ("files_added", "files_removed", "files_with_vector", "bytes_added", "bytes_removed", "scan_s", "rewrite_s")
    return replace(metrics, **{name: getattr(metrics, name) + getattr(companion, name) for name in names})


__all__ = ["ChangeMetrics", "measured", "with_files_of"]
