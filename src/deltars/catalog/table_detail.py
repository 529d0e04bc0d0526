"""Description of a table: its columns, its partitions, its size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltars.log.snapshot import Snapshot
from deltars.protocol import StructType, supported_features
from deltars.store.registry import TableRecord
from deltars.transaction.html import html_table


@dataclass(frozen=True, slots=True)
class ColumnDetail:
    name: str
    type: str
    nullable: bool
    comment: str | None


@dataclass(frozen=True, slots=True)
class PartitionDetail:
    """Live files that share their partition values."""

    values: Mapping[str, str | None]
    num_files: int
    size_bytes: int
    num_records: int | None
    """None if a file has no statistics that count its rows."""
    last_version: int
    """Version that added the newest of the files."""


@dataclass(frozen=True, slots=True)
class TableDetail:
    """Description of a table at one version, made without reading its rows."""

    id: UUID
    name: str
    location: str
    description: str | None
    created_at: datetime
    version: int
    last_modified: datetime
    columns: tuple[ColumnDetail, ...]
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    table_features: tuple[str, ...]
    num_files: int
    size_bytes: int
    num_records: int | None
    """None if a file has no statistics that count its rows."""
    partitions: tuple[PartitionDetail, ...] | None = None
    """None unless `detail(partitions=True)` was called."""

    def _repr_html_(self) -> str:
        shown = [
            (field.name, getattr(self, field.name))
            for field in fields(self)
            if field.name not in ("columns", "partitions")
        ]
        columns = [(column.name, column.type, column.nullable, column.comment) for column in self.columns]
        partitions = [
            (*part.values.values(), part.num_files, part.size_bytes, part.num_records, part.last_version)
            for part in self.partitions or ()
        ]
        heads = (*self.partition_columns, "num_files", "size_bytes", "num_records", "last_version")
        return (
            html_table(f"{self.name}, version {self.version}", ("field", "value"), shown)
            + html_table("columns", ("name", "type", "nullable", "comment"), columns)
            + (html_table("partitions", heads, partitions) if partitions else "")
        )


def detail_of(table: TableRecord, snapshot: Snapshot, *, partitions: bool) -> TableDetail:
    totals = snapshot.totals
    return TableDetail(
        id=table.table_id,
        name=table.name,
        location=table.location,
        description=snapshot.metadata.description,
        created_at=table.created_at,
        version=snapshot.version,
        last_modified=snapshot.timestamp,
        columns=_columns_of(snapshot.schema),
        partition_columns=tuple(snapshot.metadata.partition_columns),
        properties=dict(snapshot.metadata.configuration),
        min_reader_version=snapshot.protocol.min_reader_version,
        min_writer_version=snapshot.protocol.min_writer_version,
        table_features=tuple(sorted(supported_features(snapshot.protocol))),
        num_files=totals.num_files,
        size_bytes=totals.size_bytes,
        num_records=totals.num_records,
        partitions=_partitions_of(snapshot) if partitions else None,
    )


def _columns_of(schema: StructType) -> tuple[ColumnDetail, ...]:
    return tuple(
        ColumnDetail(field.name, str(field.type), field.nullable, field.metadata.get("comment"))
        for field in schema.fields
    )


def _partitions_of(snapshot: Snapshot) -> tuple[PartitionDetail, ...]:
    """Return the partitions, ordered by their values; none for a table that is not partitioned."""
    columns = snapshot.metadata.partition_columns
    if not columns:
        return ()
    files = snapshot.select_files(columns=("partition_values", "size", "num_records", "version"))
    files = files.append_column("uncounted", pc.cast(pc.is_null(files["num_records"]), pa.int64()))
    aggregates = [("size", "count"), ("size", "sum"), ("num_records", "sum"), ("uncounted", "sum"), ("version", "max")]
    logical = {snapshot.schema[name].physical_name: name for name in columns}
    details = [
        PartitionDetail(
            {logical.get(key, key): value for key, value in msgspec.json.decode(row["partition_values"]).items()},
            row["size_count"],
            row["size_sum"],
            None if row["uncounted_sum"] else row["num_records_sum"],
            row["version_max"],
        )
        for row in files.group_by("partition_values").aggregate(aggregates).to_pylist()
    ]
    return tuple(sorted(details, key=lambda detail: [detail.values.get(name) or "" for name in columns]))
