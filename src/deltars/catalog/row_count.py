"""Count the rows of a table: from the log where it is exact, else by reading."""

from __future__ import annotations

import msgspec
import pyarrow.compute as pc

from deltars.data.frames import stream
from deltars.data.scan import Scan
from deltars.log.snapshot import Snapshot
from deltars.protocol import DeletionVector, supported_features

_decode_vector = msgspec.json.Decoder(DeletionVector).decode


def recorded_rows(snapshot: Snapshot) -> int | None:
    """Return the number of rows as the writers recorded it; None if a live file has no `numRecords`.

    `numRecords` includes deleted rows; a deletion vector says how many it deletes.
    """
    if "deletionVectors" not in supported_features(snapshot.protocol):
        return snapshot.totals.num_records
    files = snapshot.select_files(columns=("num_records", "deletion_vector"))
    if files["num_records"].null_count:
        return None
    deleted = sum(_decode_vector(vector).cardinality for vector in files["deletion_vector"].drop_null().to_pylist())
    return (pc.sum(files["num_records"]).as_py() or 0) - deleted


def count_rows(scan: Scan) -> int:
    """Return the number of rows that match the scan's condition, by reading one column."""
    narrow = scan.partition_columns[:1] or scan.schema.names[:1]
    return sum(batch.num_rows for batch in stream(scan, narrow))
