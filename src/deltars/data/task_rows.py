"""Rows that tasks of another engine write: planned in one process, written in others, committed in a third.

    TaskRows(schema, columns)         ── tx.write ──▶ PlannedError: the target and the conditions, checked on no rows
    TaskWrite(target, conditions)     ── in each task ──▶ WrittenFile, …
    TaskRows(schema, columns, files)  ── tx.write ──▶ staged, if the table still wants what the tasks wrote

So such a write has every mode and option of `tx.write`, and its tasks need no database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec
import pyarrow as pa

from deltars.data.conditions import Condition
from deltars.data.plane import ArrowPlane
from deltars.data.row_change import ChangePlane
from deltars.data.scan import Scan
from deltars.data.write_schema import empty_batch
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.errors import ValidationError
from deltars.predicate import Predicate
from deltars.protocol import StructType
from deltars.protocol.identity import counted


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """What a task needs to write rows of a table. It can be pickled."""

    target: WriteTarget
    conditions: tuple[Condition, ...]

    @property
    def digest(self) -> str:
        """Text that differs if files for the one target do not suit the other."""
        target, conditions = self.target, [(condition.name, condition.sql) for condition in self.conditions]
        parts = (target.root, target.schema.to_json(), target.partition_columns, sorted(target.properties.items()))
        return hashlib.sha256(msgspec.json.encode((*parts, conditions))).hexdigest()

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[WrittenFile]:
        """Write the rows of one task. Batches without rows make no file."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return []
        plane = ArrowPlane()
        rows = plane.from_batches(first.schema, chain([first], filled))
        return plane.write(plane.with_computed_columns(rows, self.target.schema), self.target, self.conditions)


class PlannedError(Exception):
    """The write is planned. It ends the transaction without a commit."""

    def __init__(self, write: TaskWrite) -> None:
        super().__init__("the write is planned")
        self.write = write


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Frame of a write whose rows are in tasks. Without files, the write is planned and ends with `PlannedError`."""

    schema: StructType
    """Schema of a table that is created from the rows."""
    columns: pa.Schema
    files: Sequence[WrittenFile] | None = None
    digest: str | None = None
    """Digest of the `TaskWrite` that wrote the files."""


class TaskPlane:
    """Data plane of `TaskRows`."""

    def accepts(self, frame: object) -> bool:
        return isinstance(frame, TaskRows)

    def opened(self, frame: object) -> object:
        return frame

    def schema(self, frame: object) -> StructType:
        assert isinstance(frame, TaskRows)
        return frame.schema

    def with_computed_columns(self, frame: object, table: StructType) -> object:
        # The tasks compute them.
        return frame

    def write(self, frame: object, target: WriteTarget, conditions: Sequence[Condition] = ()) -> list[WrittenFile]:
        plane = ArrowPlane()
        if not isinstance(frame, TaskRows):
            # Rows that stay of files that are replaced.
            return plane.write(frame, target, conditions)
        if names := counted(target.schema, frame.columns.names):
            # Each task would count from the same number.
            raise ValidationError(
                f"tasks cannot give numbers to the identity column {next(iter(names))}",
                field="df",
                hint="Write the frame with deltars.write(table, df), or each batch with deltars.each_batch(fn).",
            )
        planned = TaskWrite(target, tuple(conditions))
        if frame.files is None:
            # Nothing is written for no rows, but what does not fit or cannot be evaluated raises.
            empty = plane.from_batches(frame.columns, iter([empty_batch(frame.columns)]))
            plane.write(plane.with_computed_columns(empty, target.schema), target, conditions)
            raise PlannedError(planned)
        if frame.digest is not None and frame.digest != planned.digest:
            raise ValidationError(
                "the table's schema, properties or location changed while tasks wrote rows for it",
                field="df",
                hint="Run the query again. If the table is new, or maps its columns, create or alter it first.",
            )
        return list(frame.files)

    def condition(self, frame: object, where: str, schema: StructType) -> Predicate:
        return ArrowPlane().condition(frame, where, schema)

    def without(self, frame: object, scan: Scan, where: str) -> pa.RecordBatchReader:
        return ArrowPlane().without(frame, scan, where)

    def changes(self, frame: object) -> ChangePlane:
        # Rows that are replaced are deleted by this process.
        return ArrowPlane().changes(frame)
