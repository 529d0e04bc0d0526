"""A table at one version, as data.

    Snapshot ── version, timestamp, metadata, protocol      known from the start: opening costs one look-up
             ── txns, domains, totals                       fetched when first asked for, and kept
             ── files, select_files, file_batches,
                row_groups                                  fetched when asked for

History never changes, so what is fetched late is what would have been fetched at once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias
from typing import Protocol as Interface
from uuid import UUID

import pyarrow as pa

from deltars.errors import ValidationError
from deltars.predicate import Predicate, parse
from deltars.protocol import DomainMetadata, Metadata, Protocol, StructType, Txn

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
"""A live file: the fields of its add action, how many records its statistics count, and the version that added it.

Partition values, deletion vectors and tags are JSON text; statistics are the text that the writer gave.
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
"""A row group of a live file, as its writer knew it. `partition_values` are the file's."""

Where: TypeAlias = str | Predicate
"""A condition in Spark SQL, its times in UTC where they name no zone; or one that is parsed already."""

Moment: TypeAlias = datetime | str
"""A time: with a zone, or in UTC. As text in ISO 8601."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Totals:
    """The live files, summed up."""

    num_files: int
    size_bytes: int
    num_records: int | None
    """None where some file has no statistics that count them."""


class Contents(Interface):
    """Where a snapshot gets what it does not hold itself."""

    def batches(self, columns: pa.Schema, where: Predicate | None) -> Iterator[pa.RecordBatch]: ...

    def row_groups(self, where: Predicate | None) -> Iterator[pa.RecordBatch]: ...

    def totals(self) -> Totals: ...

    def txns(self) -> dict[str, Txn]: ...

    def domains(self) -> dict[str, DomainMetadata]: ...


@dataclass(frozen=True)
class Snapshot:
    """What a table is at one version."""

    table_id: UUID
    version: int
    timestamp: datetime
    """The version's in-commit timestamp: the time that time travel goes by, here and for every reader."""
    metadata: Metadata
    protocol: Protocol
    contents: Contents = field(repr=False, compare=False)
    commit: tuple[str, int] | None = field(default=None, repr=False, compare=False)
    """The transaction that committed the version, and its time stamp: after a restore another one may have the same
    number."""

    @cached_property
    def schema(self) -> StructType:
        return self.metadata.schema

    @cached_property
    def files(self) -> pa.Table:
        """The live files, with every column of `FILE_SCHEMA`; fetched once."""
        return self.select_files()

    def select_files(self, *, columns: Sequence[str] | None = None, where: Where | None = None) -> pa.Table:
        """The live files with these columns of `FILE_SCHEMA`, by default all of them.

        `where` leaves out files that hold no matching row, as far as partition values and statistics tell.
        """
        return pa.Table.from_batches(self.file_batches(columns=columns, where=where), file_schema(columns))

    def file_batches(
        self, *, columns: Sequence[str] | None = None, where: Where | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same as a stream: at no time is the whole list in memory."""
        return self.contents.batches(file_schema(columns), self._predicate(where))

    def row_groups(self, *, where: Where | None = None) -> pa.Table:
        """The row groups of the live files (`ROW_GROUP_SCHEMA`), where their writers told; pruned in the same way."""
        return pa.Table.from_batches(self.contents.row_groups(self._predicate(where)), ROW_GROUP_SCHEMA)

    @cached_property
    def totals(self) -> Totals:
        """How much there is, summed up by the database."""
        return self.contents.totals()

    @cached_property
    def txns(self) -> Mapping[str, Txn]:
        """The progress of every application, by its id: the latest that was committed."""
        return self.contents.txns()

    @cached_property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The domain metadata in force, by domain; a removed one is not there."""
        return self.contents.domains()

    def _predicate(self, where: Where | None) -> Predicate | None:
        return where if where is None or isinstance(where, Predicate) else parse(where, self.schema)

    def __getstate__(self) -> dict[str, Any]:
        # Not what was fetched: the other process fetches for itself.
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


def file_schema(columns: Sequence[str] | None) -> pa.Schema:
    """These columns of `FILE_SCHEMA`, in this order."""
    if columns is None:
        return FILE_SCHEMA
    names = list(columns)
    if not names:
        raise ValidationError("no column is named", field="columns", hint="Leave it out for all of them.")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValidationError(f"the column {name!r} is named twice", field="columns", hint="Name it once.")
        if name not in FILE_SCHEMA.names:
            raise ValidationError(
                f"a live file has no column {name!r}",
                field="columns",
                hint=f"It has: {', '.join(FILE_SCHEMA.names)}.",
            )
    return pa.schema([FILE_SCHEMA.field(name) for name in names])


def as_whole(value: Any, what: str, *, field: str, hint: str) -> int:
    """A number of whatever library, if it is a whole one that a database can hold."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number.bit_length() > 63:
        raise ValidationError(f"{what} is a whole number, not {value!r:.100}", field=field, hint=hint)
    return number


def to_milliseconds(moment: Moment, *, up: bool = False) -> int:
    """A moment in milliseconds since 1970, rounded down or up."""
    since = _as_datetime(moment) - _EPOCH
    return -(-since // _MILLISECOND) if up else since // _MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    return _EPOCH + milliseconds * _MILLISECOND


def _as_datetime(moment: Moment) -> datetime:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise ValidationError(
                f"{moment!r} is not a time", field="timestamp", hint="Write it as 2026-01-31T12:00:00Z."
            ) from None
    if not isinstance(moment, datetime):
        raise ValidationError(
            f"a time is a datetime or its text, not {moment!r}", field="timestamp", hint="Versions go to version=."
        )
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
