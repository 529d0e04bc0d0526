"""Add actions by the hundred thousand: Arrow columns in, batches of a database's own text forms out.

    adds (columns of `AddFile`) ──batch by batch──▶ rows of dl_add_files, ready for `Backend.load`

A batch at a time, so that a million files need memory for one batch beyond the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.log.add_columns import deletion_vectors
from deltars.log.bounds import Bounds
from deltars.protocol import AddFile, DeletionVector
from deltars.store.backends import Backend

BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the rows of a batch belong: what only the locked table can tell."""

    table_id: UUID
    version: int
    first_ord: int
    slot: int
    next_row_id: int | None
    """The first free row id, where the table tracks rows."""


def columns_of(adds: Sequence[AddFile]) -> pa.Table:
    """Add actions as columns."""
    return pa.table(
        {
            "path": pa.array([add.path for add in adds], pa.string()),
            "partition_values": _json([add.partition_values for add in adds]),
            "size": pa.array([add.size for add in adds], pa.int64()),
            "modification_time": pa.array([add.modification_time for add in adds], pa.int64()),
            "data_change": pa.array([add.data_change for add in adds], pa.bool_()),
            "stats": pa.array([add.stats for add in adds], pa.string()),
            "tags": _json([add.tags for add in adds]),
            "deletion_vector": _json([add.deletion_vector for add in adds]),
            "base_row_id": pa.array([add.base_row_id for add in adds], pa.int64()),
            "default_row_commit_version": pa.array([add.default_row_commit_version for add in adds], pa.int64()),
            "clustering_provider": pa.array([add.clustering_provider for add in adds], pa.string()),
        }
    )


class AddBatches:
    """The rows of `dl_add_files` for a table of add actions."""

    def __init__(self, adds: pa.Table, bounds: Bounds, backend: Backend) -> None:
        self._adds = adds
        self._bounds = bounds
        self._backend = backend

    def rows(self, place: Placement) -> Iterator[pa.RecordBatch]:
        """The batches, in order; `next_row_id` afterwards is what the last one left free."""
        self.next_row_id = place.next_row_id
        first = place.first_ord
        for batch in self._adds.to_batches(max_chunksize=BATCH_ROWS):
            yield self._batch(batch, place, first)
            first += batch.num_rows

    def ids_needed(self) -> int:
        """How many row ids these files are given: those that bring none."""
        given = self._adds["base_row_id"].to_pylist() if "base_row_id" in self._adds.column_names else repeat(None)
        counts = zip(given, self._adds["stats"].to_pylist(), strict=False)
        return sum(self._bounds.of(stats).num_records or 0 for first, stats in counts if first is None)

    def _batch(self, batch: pa.RecordBatch, place: Placement, first_ord: int) -> pa.RecordBatch:
        count = batch.num_rows
        known = [self._bounds.of(stats) for stats in _strings(batch, "stats").to_pylist()]
        vectors = _vectors(batch)
        columns: dict[str, Any] = {
            "table_id": _constant(str(place.table_id), count),
            "version": _constant(place.version, count),
            "ord": pa.array(range(first_ord, first_ord + count), pa.int32()),
            "path": batch["path"],
            "size": batch["size"].cast(pa.int64()),
            "partition_values": _partition_values(_documents(batch, "partition_values")),
            "stats": _strings(batch, "stats"),
            "modification_time": batch["modification_time"].cast(pa.int64()),
            "data_change": batch["data_change"],
            "deletion_vector": _json(vectors),
            "dv_id": pa.array([vector.unique_id if vector else "" for vector in vectors], pa.string()),
            "tags": _documents(batch, "tags"),
            "clustering_provider": _strings(batch, "clustering_provider"),
            "num_records": pa.array([numbers.num_records for numbers in known], pa.int64()),
            "slot": _constant(place.slot, count),
            "mins": self._numbers([numbers.mins for numbers in known]),
            "maxs": self._numbers([numbers.maxs for numbers in known]),
        }
        columns |= self._row_ids(batch, place, columns["num_records"])
        return pa.RecordBatch.from_pydict(columns)

    def _numbers(self, arrays: list[list[float | None] | None]) -> pa.Array:
        as_text = self._backend.array_text
        return pa.array([None if numbers is None else as_text(numbers) for numbers in arrays], pa.string())

    def _row_ids(self, batch: pa.RecordBatch, place: Placement, counts: pa.Array) -> dict[str, pa.Array]:
        ids, versions = _integers(batch, "base_row_id"), _integers(batch, "default_row_commit_version")
        if self.next_row_id is not None:
            needed = pc.if_else(pc.is_null(ids), counts, 0)
            ends = pc.add(pc.cumulative_sum(needed), self.next_row_id)
            ids = pc.coalesce(ids, pc.subtract(ends, needed))
            versions = pc.coalesce(versions, pa.scalar(place.version, pa.int64()))
            self.next_row_id = ends[-1].as_py() if len(ends) else self.next_row_id
        return {"base_row_id": ids, "default_row_commit_version": versions}


def _constant(value: Any, count: int) -> pa.Array:
    return pa.repeat(value, count)


def _json(values: list[Any]) -> pa.Array:
    encode = msgspec.json.encode
    return pa.array([None if value is None else encode(value).decode() for value in values], pa.string())


def _strings(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.string())
    return batch[name].cast(pa.string())


def _integers(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.int64())
    return batch[name].cast(pa.int64())


def _documents(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of documents as JSON text: it may come so, or as Arrow maps."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.string())
    column = batch[name]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    return _json([None if entries is None else dict(entries) for entries in column.to_pylist()])


def _partition_values(documents: pa.Array) -> pa.Array:
    """One text for one partition, as `rows` writes it: databases without a JSON type of their own compare the text."""
    distinct = documents.dictionary_encode()
    values = [msgspec.json.decode(text) for text in distinct.dictionary.to_pylist()]
    return _json([dict(sorted(value.items())) for value in values]).take(distinct.indices)


def _vectors(batch: pa.RecordBatch) -> list[DeletionVector | None]:
    if "deletion_vector" not in batch.schema.names:
        return [None] * batch.num_rows
    return deletion_vectors(batch["deletion_vector"])
