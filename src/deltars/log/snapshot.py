"""A table at one version, as data.

    Snapshot ── version, timestamp, metadata, protocol      known from the start: opening costs one look-up
             ── txns, domains, totals, files                fetched on first use, then kept
             ── select_files, file_batches, row_groups      fetched on each call

A committed version never changes, so it does not matter when its contents are fetched.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias
from typing import Protocol as Interface
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from deltars.errors import ValidationError, brief
from deltars.predicate import Predicate, parse
from deltars.protocol import DomainMetadata, Metadata, Protocol, StructType, Txn, as_names
from deltars.protocol.actions import decode_deletion_vector

FILE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("partition_values", pa.string(), nullable=False),
        pa.field("stats", pa.string()),
        pa.field("modification_time", pa.int64(), nullable=False),
        pa.field("data_change", pa.bool_(), nullable=False),
        pa.field("deletion_vector", pa.string()),
        pa.field("tags", pa.string()),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("clustering_provider", pa.string()),
        pa.field("num_records", pa.int64()),
        pa.field("version", pa.int64(), nullable=False),
    ]
)
"""Columns of a live file: the fields of its add action, `numRecords` of its statistics, the version that added it.

Partition values, deletion vectors and tags are JSON text. Statistics are the writer's text, unchanged.
"""

ROW_GROUP_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("row_group", pa.int64(), nullable=False),
        pa.field("num_rows", pa.int64(), nullable=False),
        pa.field("total_bytes", pa.int64(), nullable=False),
        pa.field("file_offset", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("partition_values", pa.string(), nullable=False),
    ]
)
"""Columns of a row group of a live file, as its writer recorded it. `partition_values` are the file's."""

Where: TypeAlias = str | Predicate
"""A condition in Spark SQL, or a parsed one. Times without a time zone are in UTC."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the live files."""

    num_files: int
    size_bytes: int
    num_records: int | None
    """None if a file has no `numRecords` in its statistics."""


class Contents(Interface):
    """Source from which a snapshot fetches its files, totals, txns and domains."""

    def batches(self, columns: pa.Schema, where: Predicate | None) -> Iterator[pa.RecordBatch]: ...

    def row_groups(self, where: Predicate | None) -> Iterator[pa.RecordBatch]: ...

    def totals(self) -> Totals: ...

    def txns(self) -> dict[str, Txn]: ...

    def domains(self) -> dict[str, DomainMetadata]: ...


@dataclass(frozen=True)
class Snapshot:
    """A table at one version."""

    table_id: UUID
    version: int
    timestamp: datetime
    """The version's in-commit timestamp, which time travel uses, in deltars and in every Delta reader."""
    metadata: Metadata
    protocol: Protocol
    contents: Contents = field(repr=False, compare=False)
    commit: tuple[str, int] | None = field(default=None, repr=False, compare=False)
    """The id of the transaction that committed the version, and its `commit_ts`. After the database was restored,
    another commit may have the same version number."""

    @cached_property
    def schema(self) -> StructType:
        return self.metadata.schema

    @cached_property
    def files(self) -> pa.Table:
        """Return the live files with every column of `FILE_SCHEMA`; fetched once."""
        return self.select_files()

    def select_files(self, *, columns: Sequence[str] | None = None, where: Where | None = None) -> pa.Table:
        """Return the live files with these columns of `FILE_SCHEMA`, by default all.

        `where` omits files whose partition values or statistics show that no row matches.
        """
        return pa.Table.from_batches(self.file_batches(columns=columns, where=where), file_schema(columns))

    def file_batches(
        self, *, columns: Sequence[str] | None = None, where: Where | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the files of `select_files` as a stream, so that the whole list is never in memory."""
        return self.contents.batches(file_schema(columns), self._predicate(where))

    def row_groups(self, *, where: Where | None = None) -> pa.Table:
        """Return the row groups of the live files (`ROW_GROUP_SCHEMA`), as far as writers recorded them.

        `where` omits row groups as it omits files in `select_files`.
        """
        return pa.Table.from_batches(self.contents.row_groups(self._predicate(where)), ROW_GROUP_SCHEMA)

    @cached_property
    def totals(self) -> Totals:
        """Return the number of files, bytes and records, summed by the database."""
        return self.contents.totals()

    @cached_property
    def txns(self) -> Mapping[str, Txn]:
        """Return the latest committed `txn` action of each application, by its id."""
        return self.contents.txns()

    @cached_property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """Return the domain metadata in force, by domain, without removed domains."""
        return self.contents.domains()

    def _predicate(self, where: Where | None) -> Predicate | None:
        return where if where is None or isinstance(where, Predicate) else parse(where, self.schema)

    def __getstate__(self) -> dict[str, Any]:
        # Leave out what was fetched: the other process fetches it again.
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit of a table."""

    version: int
    committed_at: datetime
    txn_id: UUID
    operation: str
    committer: str | None = None
    operation_params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    read_version: int | None = None
    isolation: str | None = None
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    commit_ts: int = 0
    in_commit_timestamp: int = 0


def num_rows(files: pa.Table) -> int | None:
    """Return how many rows these live files hold; None if the statistics of one do not say.

    `num_records` includes deleted rows; a deletion vector says how many it deletes.
    """
    if files["num_records"].null_count:
        return None
    vectors = map(decode_deletion_vector, files["deletion_vector"].drop_null().to_pylist())
    return int(pc.sum(files["num_records"]).as_py() or 0) - sum(vector.cardinality for vector in vectors)


def file_schema(columns: Sequence[str] | None) -> pa.Schema:
    """Return these columns of `FILE_SCHEMA`, in this order."""
    if columns is None:
        return FILE_SCHEMA
    names = list(as_names(columns))
    if not names:
        raise ValidationError("columns is empty", field="columns", hint="Omit it for all columns.")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValidationError(f"duplicate column {name!r}", field="columns", hint="Name it once.")
        if name not in FILE_SCHEMA.names:
            raise ValidationError(
                f"a live file has no column {name!r}",
                field="columns",
                hint=f"It has: {', '.join(FILE_SCHEMA.names)}.",
            )
    return pa.schema([FILE_SCHEMA.field(name) for name in names])


def as_whole(value: Any, what: str, *, field: str, hint: str) -> int:
    """Return an integer of any library (such as NumPy) as `int`. Raise `ValidationError` unless it fits 64 bits."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number.bit_length() > 63:
        raise ValidationError(f"{what} is a whole number, not {brief(value)}", field=field, hint=hint)
    return number
