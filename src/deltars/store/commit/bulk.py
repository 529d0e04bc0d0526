"""Conversion of many add actions: Arrow columns in, batches in the database's formats out.

    adds (columns of `AddFile`) ──batch by batch──▶ rows of dl_add_files, ready for `Backend.load`

Batches are converted one at a time, so a million files need memory for one batch beyond the input.
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

from deltars.log.arrow_adds import deletion_vectors
from deltars.log.bounds import Bounds, Number
from deltars.log.bounds_columns import bounds_columns
from deltars.log.file_rules import num_records
from deltars.protocol import AddFile, DeletionVector
from deltars.store.backends import Backend

BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Placement:
    """Position of a commit's files, taken from the locked row of the table."""

    table_id: UUID
    version: int
    first_ord: int
    slot: int
    next_row_id: int | None
    """First free row id if the table tracks rows, otherwise None."""

    def columns(self, start: int, count: int) -> dict[str, pa.Array]:
        first = self.first_ord + start
        return {
            "version": _constant(self.version, count),
            "ord": pa.array(range(first, first + count), pa.int32()),
        }


@dataclass(frozen=True, slots=True)
class PastPlacement:
    """Position of imported files, which belong to several commits: their versions and order are known."""

    table_id: UUID
    slot: int
    versions: Sequence[int]
    ords: Sequence[int]
    removed_versions: Sequence[int | None]
    next_row_id: None = None

    def columns(self, start: int, count: int) -> dict[str, pa.Array]:
        rows = slice(start, start + count)
        return {
            "version": pa.array(self.versions[rows], pa.int64()),
            "ord": pa.array(self.ords[rows], pa.int32()),
            "removed_version": pa.array(self.removed_versions[rows], pa.int64()),
        }


def columns_of(adds: Sequence[AddFile]) -> pa.Table:
    """Return add actions as Arrow columns."""
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
    """Rows of `dl_add_files` for an Arrow table of add actions."""

    def __init__(self, adds: pa.Table, bounds: Bounds, backend: Backend) -> None:
        self._adds = adds
        self._bounds = bounds
        self._backend = backend

    def rows(self, place: Placement | PastPlacement) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order. Afterwards `next_row_id` is the first row id still free."""
        self.next_row_id = place.next_row_id
        start = 0
        for batch in self._adds.to_batches(max_chunksize=BATCH_ROWS):
            yield self._batch(batch, place, start)
            start += batch.num_rows

    def ids_needed(self) -> int:
        """Return the number of row ids to assign: the records of files without a base row id."""
        given = self._adds["base_row_id"].to_pylist() if "base_row_id" in self._adds.column_names else repeat(None)
        counts = zip(given, self._adds["stats"].to_pylist(), strict=False)
        return sum(num_records(stats) or 0 for first, stats in counts if first is None)

    def _batch(self, batch: pa.RecordBatch, place: Placement | PastPlacement, start: int) -> pa.RecordBatch:
        count = batch.num_rows
        stats = _strings(batch, "stats")
        known = bounds_columns(self._bounds, stats.to_pylist())
        vectors = _vectors(batch)
        columns: dict[str, Any] = {
            "table_id": _constant(str(place.table_id), count),
            **place.columns(start, count),
            "path": batch["path"],
            "size": batch["size"].cast(pa.int64()),
            "partition_values": _partition_values(_documents(batch, "partition_values")),
            "stats": stats,
            "modification_time": batch["modification_time"].cast(pa.int64()),
            "data_change": batch["data_change"],
            "deletion_vector": _json(vectors),
            "dv_id": pa.array([vector.unique_id if vector else "" for vector in vectors], pa.string()),
            "tags": _documents(batch, "tags"),
            "clustering_provider": _strings(batch, "clustering_provider"),
            "num_records": known.num_records,
            "slot": _constant(place.slot, count),
            "mins": self._numbers(known.mins, stats, self._bounds.unknown.mins),
            "maxs": self._numbers(known.maxs, stats, self._bounds.unknown.maxs),
        }
        columns |= self._row_ids(batch, columns["version"], columns["num_records"])
        return pa.RecordBatch.from_pydict(columns)

    def _numbers(self, columns: Sequence[pa.Array], stats: pa.Array, unknown: list[Number] | None) -> pa.Array:
        if not columns:
            return pa.nulls(len(stats), pa.string())
        arrays = self._backend.arrays(columns)
        if not stats.null_count or unknown is None:
            return arrays
        [of_unknown] = self._backend.arrays([pa.array([number], pa.float64()) for number in unknown])
        return pc.if_else(stats.is_valid(), arrays, of_unknown)

    def _row_ids(self, batch: pa.RecordBatch, of_commit: pa.Array, counts: pa.Array) -> dict[str, pa.Array]:
        ids, versions = _integers(batch, "base_row_id"), _integers(batch, "default_row_commit_version")
        if self.next_row_id is not None:
            needed = pc.if_else(pc.is_null(ids), counts, 0)
            ends = pc.add(pc.cumulative_sum(needed), self.next_row_id)
            ids = pc.coalesce(ids, pc.subtract(ends, needed))
            versions = pc.coalesce(versions, of_commit)
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
    """Return a column of documents as JSON text; the input may be JSON text or Arrow maps."""
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.string())
    column = batch[name]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    return _json([None if entries is None else dict(entries) for entries in column.to_pylist()])


def _partition_values(documents: pa.Array) -> pa.Array:
    """Return one canonical text per partition, as `rows` writes it: databases without a JSON type compare the text."""
    distinct = documents.dictionary_encode()
    values = [msgspec.json.decode(text) for text in distinct.dictionary.to_pylist()]
    return _json([dict(sorted(value.items())) for value in values]).take(distinct.indices)


def _vectors(batch: pa.RecordBatch) -> list[DeletionVector | None]:
    if "deletion_vector" not in batch.schema.names:
        return [None] * batch.num_rows
    return deletion_vectors(batch["deletion_vector"])
