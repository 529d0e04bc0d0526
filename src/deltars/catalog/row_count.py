"""Count the rows of a table: from the log where it is exact, else by reading."""

from __future__ import annotations

from deltars.data.frames import stream
from deltars.data.scan import Scan
from deltars.log.snapshot import Snapshot, num_rows
from deltars.protocol import supported_features


def recorded_rows(snapshot: Snapshot) -> int | None:
    """Return the number of rows as the writers recorded it; None if a live file has no `numRecords`."""
    if "deletionVectors" not in supported_features(snapshot.protocol):
        return snapshot.totals.num_records
    return num_rows(snapshot.select_files(columns=("num_records", "deletion_vector")))


def count_rows(scan: Scan) -> int:
    """Return the number of rows that match the scan's condition, by reading one column."""
    narrow = scan.partition_columns[:1] or scan.schema.names[:1]
    return sum(batch.num_rows for batch in stream(scan, narrow))
