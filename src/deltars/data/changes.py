"""Rows that versions of a table changed, as scans.

    version ──cdc files───────────────▶ rows     `_change_type` is a column of the files
            ──added, removed files────▶ files    `_change_type` is the same for all rows of a file
            ──the same, without the feed and both added and removed──▶ net    equal rows cancel out

`_commit_version` and `_commit_timestamp`, and mostly `_change_type` too, are the same for all rows of a file. So they
are partition columns of the scans, and whatever reads a table reads its changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from deltars.data.deletion_vectors import read_vector
from deltars.data.net_changes import net_rows
from deltars.data.read_schema import arrow_schema
from deltars.data.reader import read_scan
from deltars.data.scan import SCAN_COLUMNS, Scan, missing_file
from deltars.data.vector_writer import inline_vector
from deltars.errors import SchemaMismatch, ValidationError
from deltars.log.moments import from_milliseconds
from deltars.log.snapshot import FILE_SCHEMA
from deltars.log.version_changes import ChangedFile, VectorChange, VersionChanges
from deltars.protocol import DeletionVector, Metadata, PrimitiveType, StructType, serialize_partition_value
from deltars.protocol.change_feed import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    FEED_FIELDS,
    INSERT,
    has_feed,
    reserved_column,
)
from deltars.protocol.evolution import unreadable_column
from deltars.storage import Storage, open_storage
from deltars.storage.table_files import open_file, relative_path

Kind: TypeAlias = Literal["rows", "files", "net"]


class ChangedVersion(NamedTuple):
    """One version, and what it changed."""

    version: int
    timestamp_ms: int
    metadata: Metadata
    """Metadata of the table at this version."""
    changes: VersionChanges


class ChangePart(NamedTuple):
    """Files that are read alike."""

    kind: Kind
    scan: Scan


class _Row(NamedTuple):
    """A row of a scan's table of files."""

    file: ChangedFile
    change_type: str | None = None


@dataclass(frozen=True)
class ChangeScans:
    """Changed rows of some versions of a table, in the schema of the last one."""

    parts: tuple[ChangePart, ...]
    """In the order of the versions. A part that is net has one version."""
    nothing: Scan
    """A scan without files, of the same table."""

    @property
    def schema(self) -> StructType:
        return self.nothing.schema

    def merged(self) -> list[ChangePart]:
        """Return as few parts as possible: one for each kind and partitioning."""
        files: dict[tuple[Kind, tuple[str, ...]], list[ChangePart]] = {}
        for part in self.parts:
            files.setdefault((part.kind, part.scan.partition_columns), []).append(part)
        return [
            ChangePart(kind, replace(parts[0].scan, source=pa.concat_tables([part.scan.files for part in parts])))
            for (kind, _), parts in files.items()
        ]

    def read(self) -> pa.RecordBatchReader:
        """Return the rows in the order of the versions. One batch is in memory, or the rows of one net version."""
        return pa.RecordBatchReader.from_batches(arrow_schema(self.schema), self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for part in self.parts:
            rows = read_scan(part.scan)
            yield from net_rows(rows.read_all()) if part.kind == "net" else rows


def change_scans(
    versions: Iterable[ChangedVersion],
    last: Metadata,
    *,
    root: str,
    table: str,
    version: int,
    storage_options: Mapping[str, str],
) -> ChangeScans:
    """Return the changed rows of these versions, in the schema of `last`, the metadata of the last one.

    Raise SchemaMismatch if the rows of a version do not fit that schema.
    """
    reserved = reserved_column(last.schema)
    if reserved is not None:
        raise ValidationError(
            f"the table has the column {reserved}, and changed rows have a column of this name",
            field=reserved,
            table=table,
            hint="Rename the column to read the table's changes.",
        )
    empty = Scan.of(
        last,
        pa.table({name: [] for name in SCAN_COLUMNS}, schema=_FILES),
        root=root,
        table=table,
        version=version,
        storage_options=storage_options,
    )
    planner = _Planner(replace(empty, schema=StructType((*last.schema.fields, *FEED_FIELDS))), last)
    parts: list[tuple[Kind, tuple[str, ...], list[dict[str, object]]]] = []
    for each in versions:
        for kind, columns, files in planner.files(each):
            if kind != "net" and parts and parts[-1][:2] == (kind, columns):
                parts[-1][2].extend(files)
            else:
                parts.append((kind, columns, files))
    scans = (
        ChangePart(
            kind,
            replace(planner.empty, partition_columns=columns, source=pa.Table.from_pylist(files, schema=_FILES)),
        )
        for kind, columns, files in parts
    )
    return ChangeScans(tuple(scans), planner.empty)


_FILES = pa.schema([FILE_SCHEMA.field(name) for name in SCAN_COLUMNS])


class _Planner:
    """Turns versions into rows of tables of files."""

    def __init__(self, empty: Scan, last: Metadata) -> None:
        self.empty = empty
        self._last = last
        self._storage: Storage = open_storage(empty.root, empty.storage_options)
        self._columns: tuple[Metadata, tuple[str, ...]] | None = None

    def files(self, version: ChangedVersion) -> Iterator[tuple[Kind, tuple[str, ...], list[dict[str, object]]]]:
        """Yield the files of a version, with the partition columns of the scan that reads them."""
        partitions = self._partition_columns(version)
        at = (*partitions, COMMIT_VERSION, COMMIT_TIMESTAMP)
        changes = version.changes
        if changes.rows:
            yield "rows", at, [self._row(version, partitions, _Row(file)) for file in changes.rows]
            return
        inserted = [_Row(file, INSERT) for file in changes.inserted]
        deleted = [_Row(file, DELETE) for file in changes.deleted]
        for change in changes.vectors:
            for_insert, for_delete = self._difference(change)
            inserted += for_insert
            deleted += for_delete
        rows = [self._row(version, partitions, row) for row in (*deleted, *inserted)]
        if rows:
            is_net = bool(inserted and deleted) and not has_feed(version.metadata.configuration)
            yield "net" if is_net else "files", (*at, CHANGE_TYPE), rows

    def _partition_columns(self, version: ChangedVersion) -> tuple[str, ...]:
        """Return the partition columns of a version, as the last version names them."""
        metadata = version.metadata
        if self._columns is None or self._columns[0] is not metadata:
            changed = unreadable_column(metadata.schema, self._last.schema)
            if changed is not None:
                raise SchemaMismatch(
                    f"the column {changed} had another type in version {version.version}, so its rows cannot be read"
                    f" with the schema of version {self.empty.version}",
                    field=changed,
                    table=self.empty.table,
                    version=version.version,
                    hint="Read the changes before the type changed and those after it in two calls.",
                )
            now = {field.physical_name: field.name for field in self._last.schema.fields}
            fields = (metadata.schema[name] for name in metadata.partition_columns)
            found = tuple(now[field.physical_name] for field in fields if field.physical_name in now)
            self._columns = metadata, found
        return self._columns[1]

    def _row(self, version: ChangedVersion, partitions: tuple[str, ...], row: _Row) -> dict[str, object]:
        file, type_ = row
        if file.partition_values is None and partitions:
            raise ValidationError(
                f"the log does not say which partition the removed file {file.path} belonged to",
                table=self.empty.table,
                version=version.version,
                hint="The writer of that version left it out. Start after it.",
            )
        values: dict[str, str | None] = dict(file.partition_values or {})
        values[COMMIT_VERSION] = str(version.version)
        values[COMMIT_TIMESTAMP] = _timestamp(version.timestamp_ms)
        if type_ is not None:
            values[CHANGE_TYPE] = type_
        return {
            "path": file.path,
            # Spark trusts the size of a file in a long list.
            "size": self._size(file) if file.size is None else file.size,
            "modification_time": file.modification_time,
            "partition_values": msgspec.json.encode(values).decode(),
            "deletion_vector": None if file.vector is None else msgspec.json.encode(file.vector).decode(),
        }

    def _size(self, file: ChangedFile) -> int:
        found = self._storage.head(relative_path(self._storage, file.path))
        if found is None:
            raise missing_file(self.empty, file.path)
        return found.size

    def _difference(self, change: VectorChange) -> tuple[list[_Row], list[_Row]]:
        """Return the rows that a new vector brings back, and those that it deletes: a file with all others deleted."""
        before, after = self._deleted(change.file.vector), self._deleted(change.after)
        count = self._count(change) if change.num_records is None else change.num_records
        every = BitMap64(range(count))

        def only(rows: BitMap64, type_: str) -> list[_Row]:
            return [_Row(change.file._replace(vector=inline_vector(every - rows)), type_)] if rows else []

        return only(before - after, INSERT), only(after - before, DELETE)

    def _deleted(self, vector: DeletionVector | None) -> BitMap64:
        return BitMap64() if vector is None else read_vector(self._storage, vector)

    def _count(self, change: VectorChange) -> int:
        with open_file(self._storage, change.file.path) as source:
            return int(pq.read_metadata(source).num_rows)


def _timestamp(milliseconds: int) -> str:
    text = serialize_partition_value(from_milliseconds(milliseconds), PrimitiveType("timestamp"))
    assert text is not None
    return text


__all__ = ["ChangePart", "ChangeScans", "ChangedVersion", "change_scans"]
