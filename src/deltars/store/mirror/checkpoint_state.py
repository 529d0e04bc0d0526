"""Content of a checkpoint: a table's whole state at a version, streamed from the log.

    state = CheckpointRows(database).at(table_id, version)
    state.metadata, state.protocol
    state.small_parts()                    in one round trip: the last txn of each application, the domains, and the
                                           files of a small table
    state.removes(…), state.adds()         Arrow, some ten thousand rows at a time

History does not change, so every reader gets the same state of a version at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    exists,
    func,
    literal_column,
    select,
)

from deltars.log.arrow_values import batch_of
from deltars.log.snapshot import file_schema
from deltars.protocol import DomainMetadata, Metadata, Protocol, Txn
from deltars.store.backends import Backend, Prepared
from deltars.store.cursor_rows import PlainRows
from deltars.store.database import Database
from deltars.store.read.live_files import TableContents, live_files
from deltars.store.read.version_header import VersionHeaders, version_not_found
from deltars.store.rows import from_row
from deltars.store.schema import (
    dl_add_files,
    dl_domain_metadata,
    dl_remove_files,
    dl_table_versions,
    dl_txn_actions,
)

ADD_COLUMNS = (
    "path",
    "partition_values",
    "size",
    "modification_time",
    "stats",
    "tags",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
)
REMOVES = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("deletion_timestamp", pa.int64()),
        pa.field("extended_file_metadata", pa.bool_()),
        pa.field("partition_values", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("deletion_vector", pa.string()),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
    ]
)
_DOCUMENTS = ("partition_values", "deletion_vector")

SMALL_FILES = 1000
"""Largest number of live files that are read with the small parts. More are worth a COPY or a second session."""

CLOCK_SLACK_US = 86_400_000_000
"""Deletion times come from the clock of the deleting client, which may differ by up to a day from the commit's."""

_TXNS, _DOMAINS = PlainRows(dl_txn_actions.c), PlainRows(dl_domain_metadata.c)
_add, _remove, _versions = dl_add_files.c, dl_remove_files.c, dl_table_versions.c


def _same_file(other: Any) -> Any:
    return and_(other.c.table_id == _remove.table_id, other.c.path == _remove.path, other.c.dv_id == _remove.dv_id)


# Built once: creating an alias of a wide table takes longer than running the query.
_later, _added = dl_remove_files.alias("later"), dl_add_files.alias("added")
_LATER_SAME, _ADDED_SAME = _same_file(_later), _same_file(_added)


@dataclass(frozen=True, slots=True)
class FileSums:
    """Number of files and their total size."""

    num_files: int
    size_bytes: int


class SmallParts(NamedTuple):
    """What a checkpoint has besides metadata, protocol and files."""

    txns: list[Txn]
    """Last transaction identifier of each application."""
    domains: list[DomainMetadata]
    """Last configuration of each domain that was not removed."""
    has_removes: bool
    """Whether a version up to this one removed files."""
    files: pa.RecordBatch | None
    """Live files, with the columns of `ADD_COLUMNS`; None if there are more than `SMALL_FILES`."""


@dataclass(frozen=True, slots=True)
class VersionState:
    """State of a table at a version; its files are fetched on demand."""

    database: Database
    table_id: UUID
    version: int
    txn_id: UUID
    in_commit_timestamp: int
    metadata: Metadata
    protocol: Protocol
    rows: CheckpointRows

    def small_parts(self) -> SmallParts:
        """Read all but the files, in one round trip. Raise `HistoryExpired` if the version was expired meanwhile."""
        return self.rows.small_parts(self.table_id, self.version)

    def sums(self) -> FileSums:
        totals = self._contents.totals()
        return FileSums(totals.num_files, totals.size_bytes)

    def adds(self) -> Iterator[pa.RecordBatch]:
        """Yield the live files, with the columns of `ADD_COLUMNS`."""
        return self._contents.batches(file_schema(ADD_COLUMNS), None)

    def removes(self, deleted_after_ms: int) -> Iterator[pa.RecordBatch]:
        """Yield the files deleted after a time and not added again: readers of older versions may still need them."""
        key, version = self.table_id, self.version
        since = (
            select(func.coalesce(func.min(_versions.version), version + 1))
            .where(_versions.table_id == key, _versions.commit_ts >= deleted_after_ms * 1000 - CLOCK_SLACK_US)
            .scalar_subquery()
        )
        query = select(*(_column(dl_remove_files, field) for field in REMOVES)).where(
            _remove.table_id == key,
            _remove.version.between(since, version),
            _remove.deletion_timestamp > deleted_after_ms,
            ~exists().where(_ADDED_SAME, _added.c.version.between(_remove.version, version)),
            ~exists().where(_LATER_SAME, _later.c.version.between(_remove.version + 1, version)),
        )
        return self.database.fetch(query, REMOVES)

    @property
    def _contents(self) -> TableContents:
        # The slot and the metadata's version only serve pruning, which is not used here.
        return TableContents(self.database, self.table_id, self.version, 0, self.metadata, self.version)


class _Statements:
    """Statements that read what a checkpoint needs; each is compiled on first use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @cached_property
    def txns(self) -> Prepared:
        return self._newest(dl_txn_actions, "app_id", _TXNS)

    @cached_property
    def domains(self) -> Prepared:
        return self._newest(dl_domain_metadata, "domain", _DOMAINS)

    @cached_property
    def removed(self) -> Prepared:
        query: Select[Any] = select(literal_column("1")).where(
            self._is_of_table(dl_remove_files), self._is_up_to(dl_remove_files)
        )
        return self._backend.prepare(query.limit(literal_column("1")))

    @cached_property
    def files(self) -> Prepared:
        table_id = self._backend.id_of(bindparam("table", type_=Text()))
        query = live_files(table_id, _bound("version"), ADD_COLUMNS)
        return self._backend.prepare(query.limit(_bound("most")))

    def _newest(self, table: Table, key: str, rows: PlainRows) -> Prepared:
        """Return the query for the newest action of each key."""
        seen = (
            select(table.c[key], func.max(table.c.version).label("version"))
            .where(self._is_of_table(table), self._is_up_to(table))
            .group_by(table.c[key])
            .subquery()
        )
        is_newest = and_(table.c[key] == seen.c[key], table.c.version == seen.c.version)
        query = select(*rows.columns).join_from(table, seen, is_newest).where(self._is_of_table(table))
        return self._backend.prepare(query.order_by(table.c[key]))

    def _is_up_to(self, table: Table) -> ColumnElement[bool]:
        return table.c.version <= _bound("version")

    @cached_property
    def commit(self) -> Prepared:
        query = select(cast(_versions.txn_id, Text), _versions.in_commit_timestamp)
        is_version = _versions.version == _bound("version")
        return self._backend.prepare(query.where(self._is_of_table(dl_table_versions), is_version))

    @cached_property
    def gone(self) -> Prepared:
        query = (
            select(_add.removed_version, func.count(), func.sum(_add.size))
            .where(self._is_of_table(dl_add_files), _add.removed_version.between(_bound("first"), _bound("last")))
            .group_by(_add.removed_version)
        )
        return self._backend.prepare(query)

    def _is_of_table(self, table: Table) -> ColumnElement[bool]:
        return table.c.table_id == self._backend.id_of(bindparam("table", type_=Text()))


class CheckpointRows:
    """Reader of checkpoint contents of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._headers = VersionHeaders(database)
        self._statements = database.backend.shared(_Statements)

    def at(self, table_id: UUID, version: int) -> VersionState:
        found = self._headers.at(table_id, version)
        return VersionState(
            self._database,
            table_id,
            version,
            UUID(found.txn_id),
            found.in_commit_timestamp,
            found.metadata,
            found.protocol,
            self,
        )

    def small_parts(self, table_id: UUID, version: int) -> SmallParts:
        values = {"table": str(table_id), "version": version, "most": SMALL_FILES + 1}
        of = self._statements
        statements = (of.txns, of.domains, of.removed, of.commit, of.files)
        txns, domains, removed, commits, files = self._database.look_up_each([(one, values) for one in statements])
        if not commits:
            with self._database.read() as connection:
                raise version_not_found(connection, table_id, version)
        last_txns, last_domains = (
            [from_row(table.name, rows.read(row)) for row in found]
            for table, rows, found in ((dl_txn_actions, _TXNS, txns), (dl_domain_metadata, _DOMAINS, domains))
        )
        return SmallParts(
            [txn for txn in last_txns if isinstance(txn, Txn)],
            [entry for entry in last_domains if isinstance(entry, DomainMetadata) and not entry.removed],
            bool(removed),
            batch_of(files, file_schema(ADD_COLUMNS)) if len(files) <= SMALL_FILES else None,
        )

    def gone(self, table_id: UUID, first: int, last: int) -> tuple[dict[int, FileSums], tuple[str, int] | None]:
        """Return the live files that each of these versions ended, by removing them or adding them again.

        Also return the transaction id and in-commit timestamp of the commit before them, if there is one.
        """
        values = {"table": str(table_id), "first": first, "last": last}
        before = {"table": str(table_id), "version": first - 1}
        of = self._statements
        rows, commits = self._database.look_up_each([(of.gone, values), (of.commit, before)])
        gone = {version: FileSums(int(count), int(size)) for version, count, size in rows}
        return gone, (str(commits[0][0]), int(commits[0][1])) if commits else None


def _bound(name: str) -> BindParameter[int]:
    return bindparam(name, type_=BigInteger())


def _column(table: Table, field: pa.Field) -> Any:
    column = table.c[field.name]
    return cast(column, Text).label(field.name) if field.name in _DOCUMENTS else column
