"""The change data feed of one version: written before its commit, from what the transaction changed in all.

only whole files come and go ──▶ nothing: readers derive the feed from them
else  rows that were there and went ────▶ delete, update_preimage  ┐
      rows of the files that were added ▶ insert, update_postimage ├──▶ files in _change_data, and their cdc actions
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from deltars.data.arrow_change import ArrowChanges
from deltars.data.row_change import FeedRows
from deltars.data.scan import SCAN_COLUMNS
from deltars.errors import ValidationError, located
from deltars.log.snapshot import FILE_SCHEMA
from deltars.protocol import CdcFile
from deltars.protocol.change_feed import CHANGE_FEED, DELETE, INSERT, POSTIMAGE, PREIMAGE, has_feed
from deltars.transaction.staged_table import StagedTable
from deltars.transaction.view import View


def write_change_data(view: View, table: StagedTable) -> list[CdcFile]:
    """Write the feed of what is staged for a table, if its files alone do not show it, and return its files."""
    data, metadata = table.change_data, table.metadata
    if metadata is None or not has_feed(metadata.configuration):
        return []
    if data.has_untracked_changes or (data.needs_files and data.has_untracked_files):
        raise ValidationError(
            "the transaction turned the change data feed on after it had changed the table, so it cannot say which rows"
            " changed",
            table=table.name,
            field=CHANGE_FEED,
            hint="Turn the feed on first, or in its own transaction.",
        )
    if not data.needs_files:
        return []
    if data.has_restored:
        raise ValidationError(
            "a table with a change data feed is restored and changed in one transaction",
            table=table.name,
            field=CHANGE_FEED,
            hint="Restore it in its own transaction.",
        )
    files, rows = zip(*_selected(table), strict=True)
    schema = pa.schema([FILE_SCHEMA.field(name) for name in SCAN_COLUMNS])
    with located(table=table.name, txn_id=view.txn_id, stage="write data"):
        scan = view.scan_of(table, metadata, pa.Table.from_pylist(list(files), schema=schema))
        target = view.write_target(table, metadata, target_file_size=None, compression=None)
        written = (data.plane or ArrowChanges()).write_feed(scan, rows, target)
    return [
        CdcFile(path=file.add.path, partition_values=file.add.partition_values, size=file.add.size) for file in written
    ]


def _selected(table: StagedTable) -> Iterator[tuple[object, FeedRows]]:
    """Yield the files with changed rows, and which rows of each."""
    data = table.change_data
    before, after = (DELETE, INSERT) if data.is_plain else (PREIMAGE, POSTIMAGE)
    for gone in data.gone:
        yield gone.file, FeedRows(gone.rows, before if gone.is_update else DELETE)
    added = table.added()
    for file in added.filter(added["data_change"]).select(SCAN_COLUMNS).to_pylist():
        kind = data.kinds.get(file["path"], "inserted")
        if kind != "kept":
            yield file, FeedRows(None, INSERT if kind == "inserted" else after)
