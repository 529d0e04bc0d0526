"""Writer of the files of a change data feed.

    rows of data files, by position ──with their change type──▶ _change_data/col=value/cdc-00000-<uuid>.….parquet

Rows are copied from the files that they are, or were, in. So the feed has exactly what the table had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from deltars.data.purge import nullable, one_file
from deltars.data.reader import read_placed
from deltars.data.row_change import FeedRows
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.data.writer import write_table
from deltars.protocol import StructType
from deltars.protocol.change_feed import CHANGE_TYPE, FEED_FIELDS


def write_feed_rows(scan: Scan, rows: Sequence[FeedRows], target: WriteTarget, *, task: int = 0) -> list[WrittenFile]:
    """Write these rows of each file of the scan. `target` is that of the table's data files."""
    fields = nullable(target.schema).fields
    change_type = next(field for field in FEED_FIELDS if field.name == CHANGE_TYPE)
    place = target.with_options(
        schema=StructType((*fields, change_type)), is_change_data=True, max_files=None, cluster_by=()
    )
    return write_table(place, _batches(scan, rows), task=task)


def _batches(scan: Scan, rows: Sequence[FeedRows]) -> Iterator[pa.RecordBatch]:
    for place, selected in enumerate(rows):
        only = None if selected.rows is None else {0: selected.rows}
        for placed in read_placed(one_file(scan, place), only=only):
            types = pa.repeat(pa.scalar(selected.change_type, pa.string()), placed.rows.num_rows)
            yield placed.rows.append_column(CHANGE_TYPE, types)
