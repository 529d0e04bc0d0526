"""Checkpoints: a table's whole state at a version as one Parquet file (classic, V1), written in batches.

    CheckpointRows.at(table, v) ──batch by batch──▶ Parquet rows, one action each ──▶ <v>.checkpoint.parquet
      protocol, metaData, txn, domainMetadata    the first row group
      remove                                     tombstones that have not expired
      add                                        the live files

The checkpoint of a small table without removed files has one row group. Of a larger table only one batch is in memory
at a time, so a million files need no more than a few. commitInfo and cdc are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from deltars.mirror.files.checkpoint_schema import CheckpointSchema
from deltars.mirror.files.prefetch import prefetch
from deltars.protocol import Metadata
from deltars.protocol.log_files import checkpoint_path
from deltars.protocol.properties import deleted_file_retention_ms
from deltars.storage import Storage
from deltars.storage.arrow_stream import arrow_stream
from deltars.store.mirror.checkpoint_state import VersionState

INTERVAL = "delta.checkpointInterval"
STATS_AS_JSON = "delta.checkpoint.writeStatsAsJson"
STATS_AS_STRUCT = "delta.checkpoint.writeStatsAsStruct"

ROW_GROUP_ROWS = 50_000

OURS = "deltars.txnId"
"""Key in the footer of checkpoints that deltars wrote; its value is the id of the transaction."""


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """Result of `write_checkpoint`."""

    version: int
    num_actions: int
    num_adds: int
    size_bytes: int
    created: bool
    """False if the file existed already."""


def interval_of(metadata: Metadata, default: int) -> int:
    """Return every how many versions a checkpoint is due. Ignore a property that is no number of 1 or more."""
    text = metadata.configuration.get(INTERVAL, "")
    return int(text) if text.isdecimal() and int(text) > 0 else default


def is_due(before: int, after: int, interval: int) -> bool:
    """Return whether a multiple of the interval is among the versions after `before` up to `after`."""
    return after // interval > max(before, 0) // interval


def write_checkpoint(storage: Storage, state: VersionState, *, replace: bool = False) -> WrittenCheckpoint:
    """Write the checkpoint of a version. Keep an existing file unless `replace` is set."""
    schema = _schema_of(state.metadata)
    num_actions = num_adds = 0
    with storage.open_writer(checkpoint_path(state.version), if_absent=not replace) as sink:
        buffered = arrow_stream(sink)
        with _parquet(buffered, schema) as parquet:
            parquet.add_key_value_metadata({OURS: str(state.txn_id)})
            for rows, adds in _row_groups(state, schema):
                parquet.write_table(rows, row_group_size=ROW_GROUP_ROWS)
                num_actions += rows.num_rows
                num_adds += adds
        buffered.flush()
        size_bytes = sink.tell()
        sink.close()
    return WrittenCheckpoint(state.version, num_actions, num_adds, size_bytes, sink.created)


def is_ours(storage: Storage, version: int) -> bool:
    """Return whether this version has a checkpoint that deltars wrote."""
    path = checkpoint_path(version)
    if storage.head(path) is None:
        return False
    try:
        with storage.open_reader(path) as file:
            metadata = pq.read_metadata(file).metadata or {}
    except pa.ArrowException:
        return False
    return OURS.encode() in metadata


def _row_groups(state: VersionState, schema: CheckpointSchema) -> Iterator[tuple[pa.Table, int]]:
    """Yield the rows of each row group, and how many of them are add actions."""
    small = state.small_parts()
    first = schema.state(state.protocol, state.metadata, small.txns, small.domains)
    if small.files is not None and not small.has_removes:
        # One row group, because a second one costs more than its rows: it has some fifty columns.
        yield pa.Table.from_batches([first, schema.adds(small.files)]), small.files.num_rows
        return
    yield pa.Table.from_batches([first]), 0
    # Relative to the commit's timestamp, so that every process writes the same checkpoint.
    kept_after_ms = state.in_commit_timestamp - deleted_file_retention_ms(state.metadata.configuration)
    for removes in _gathered(state.removes(kept_after_ms)) if small.has_removes else ():
        yield _converted(removes, schema.removes), 0
    files = state.adds() if small.files is None else iter([small.files] if small.files.num_rows else [])
    for adds in _gathered(files):
        rows = _converted(adds, schema.adds)
        yield rows, rows.num_rows


def _schema_of(metadata: Metadata) -> CheckpointSchema:
    return _cached_schema(
        metadata.schema_string,
        tuple(metadata.partition_columns),
        _is_true(metadata.configuration, STATS_AS_JSON, default=True),
        _is_true(metadata.configuration, STATS_AS_STRUCT, default=False),
    )


@lru_cache(maxsize=100)
def _cached_schema(
    schema: str, partition_columns: tuple[str, ...], stats_as_json: bool, stats_as_struct: bool
) -> CheckpointSchema:
    # Only with what the schema depends on, so that other changes of the metadata do not need another one.
    metadata = Metadata(id="", schema_string=schema, partition_columns=list(partition_columns))
    return CheckpointSchema(metadata, stats_as_json=stats_as_json, stats_as_struct=stats_as_struct)


def _converted(batches: Sequence[pa.RecordBatch], convert: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches([convert(batch) for batch in batches])


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches that together fill a row group. The next ones are fetched in the background."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in prefetch(batches):
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= ROW_GROUP_ROWS:
            yield gathered
            gathered, rows = [], 0
    if gathered:
        yield gathered


def _parquet(sink: Any, schema: CheckpointSchema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema.arrow,
        compression="snappy",
        # Paths and statistics do not repeat: a dictionary for them would be built and then dropped.
        use_dictionary=cast(Any, schema.repeating_columns),
        write_statistics=cast(Any, schema.repeating_columns),
        store_schema=False,
    )


def _is_true(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return a boolean property. Ignore other values, so that a typo in an imported table cannot stop publication."""
    value = properties.get(name, "").strip().lower()
    return value == "true" if value in ("true", "false") else default
