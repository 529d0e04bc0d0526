"""Everything that a commit writes, computed while its tables are locked.

Commit + locked rows + states ──▶ Plan.rows   {"dl_add_files": [{…}, …], "dl_table_versions": […], …}
                                  Plan.bulk   add actions, as columns, where there are many
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from deltars.log.bounds import Bounds
from deltars.log.commit import Commit, TableCommit
from deltars.log.conflicts import is_blind_append
from deltars.log.file_rules import num_records
from deltars.log.new_table import NO_VERSION
from deltars.log.read_description import condition_of, kind_of
from deltars.log.stages import to_microseconds
from deltars.log.table_rules import ROW_TRACKING_DOMAIN
from deltars.protocol import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile
from deltars.store import schema
from deltars.store.backends import Backend
from deltars.store.commit.bulk import AddBatches, Placement, columns_of
from deltars.store.commit.state_cache import KnownState, known_state
from deltars.store.commit.statements import READS, TRANSACTION, VERSIONS
from deltars.store.rows import TABLE_OF, Row, row_group_to_row, to_row

ROW_GROUPS = schema.dl_row_groups.name

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class LockedTable:
    """Row of `dl_tables`, locked by this transaction until it ends."""

    table_id: UUID
    name: str
    current_version: int
    metadata_version: int
    protocol_version: int
    last_commit_ts: int
    last_ict: int
    """In-commit timestamp of the current version."""
    next_row_id: int
    slot: int
    """Number of the table in the range index, which all tables share."""
    dropped_at: Any
    location: str
    state_key: str | None
    """Commit that last changed metadata or protocol (`statements.state_key`)."""
    mirror_state: str | None
    published_version: int | None
    """Last published version. It was read before the wait for the lock, so more may be published."""


class Plan:
    """Rows and files that a commit writes. `states` holds the state of each table after the commit."""

    def __init__(
        self,
        commit: Commit,
        locked: Mapping[UUID, LockedTable],
        states: Mapping[UUID, KnownState],
        *,
        backend: Backend,
        bulk_threshold: int,
        records_reads: bool = True,
    ) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.bulk: list[tuple[AddBatches, Placement]] = []
        self.removals = 0
        """Number of removed files that must be live; a missing one is an error."""
        self.tolerated = 0
        """Number of removed files that need not be live (`tolerate_missing`)."""
        self.states: dict[UUID, KnownState] = {}
        self.moved: dict[UUID, Bounds] = {}
        """New layout of each table whose files need their bounds rewritten; see `rewrite_bounds`."""
        self.versions = {table.table_id: locked[table.table_id].current_version + 1 for table in commit.tables}
        self._commit = commit
        self._backend = backend
        self._bulk_threshold = bulk_threshold
        self._records = records_reads
        for table in commit.tables:
            self._add_table(table, locked[table.table_id], states[table.table_id])
        self._put(TRANSACTION, transaction_row(commit, commit.committer))
        self.rows[TRANSACTION][0]["participants"] = {
            str(table_id): version for table_id, version in self.versions.items()
        }
        for row in read_rows(commit) if records_reads else ():
            self._put(READS, row)

    def note_stages(self, stages: Mapping[str, float]) -> None:
        """Record how long the transaction took so far: before its commit, and in these stages of it."""
        if self._records:
            self.rows[TRANSACTION][0]["stages"] = stages_row(self._commit, stages)

    def _put(self, table: str, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)

    def _add_table(self, table: TableCommit, row: LockedTable, known: KnownState) -> None:
        version = self.versions[table.table_id]
        key = {"table_id": str(table.table_id), "version": version}
        after = self.states[table.table_id] = _state_after(known, table, version)
        if after is not known and version > 0 and not after.bounds.continues(known.bounds):
            self.moved[table.table_id] = after.bounds
        next_row_id = _first_free(row.next_row_id, table) if after.state.tracks_rows else None

        adds = [action for action in table.actions if isinstance(action, AddFile)]
        is_bulk = table.adds is not None or len(adds) >= self._bulk_threshold
        ords: dict[str, int] = {}
        ord_ = 0
        for action in table.actions:
            if is_bulk and isinstance(action, AddFile):
                continue
            values = key | {"ord": ord_} | to_row(action, after.bounds)
            if isinstance(action, AddFile):
                values["slot"] = row.slot
                ords[action.path] = ord_
                next_row_id = _assign_row_ids(values, next_row_id)
            if isinstance(action, RemoveFile):
                if table.tolerate_missing:
                    self.tolerated += 1
                else:
                    self.removals += 1
            self._put(TABLE_OF[type(action)], values)
            ord_ += 1

        if is_bulk:
            columns = _joined(adds, table.adds)
            batches = AddBatches(columns, after.bounds, self._backend)
            ords |= {path: ord_ + i for i, path in enumerate(columns["path"].to_pylist())} if table.row_groups else {}
            self.bulk.append((batches, Placement(table.table_id, version, ord_, row.slot, next_row_id)))
            ord_ += columns.num_rows
            if next_row_id is not None:
                next_row_id += batches.ids_needed()

        if next_row_id is not None and next_row_id != row.next_row_id:
            mark = DomainMetadata(
                domain=ROW_TRACKING_DOMAIN,
                configuration=_encode({"rowIdHighWaterMark": next_row_id - 1}).decode(),
                removed=False,
            )
            self._put(TABLE_OF[DomainMetadata], key | {"ord": ord_} | to_row(mark, after.bounds))

        for group in table.row_groups:
            self._put(ROW_GROUPS, key | {"ord": ords[group.path]} | row_group_to_row(group))
        described = version_row(self._commit, table, self._commit.committer)
        self._put(VERSIONS, key | described | _table_row(row, after, version, next_row_id))


def transaction_row(commit: Commit, committer: str | None) -> Row:
    return {
        "txn_id": str(commit.txn_id),
        "outcome": "committed",
        "committer": committer,
        "user_metadata": commit.user_metadata,
    }


def stages_row(commit: Commit, stages: Mapping[str, float]) -> Row:
    return to_microseconds({**commit.spent, **stages})


def read_rows(commit: Commit) -> Iterator[Row]:
    """Yield a row for each table whose rows the transaction read."""
    recorded_at = time.time_ns() // 1000
    for table_id, read in commit.read.items():
        if (kind := kind_of(read.reads)) is not None:
            yield {
                "txn_id": str(commit.txn_id),
                "table_id": str(table_id),
                "version": read.version,
                "kind": kind.value,
                "condition": condition_of(read.reads),
                "recorded_at": recorded_at,
            }


def _state_after(known: KnownState, table: TableCommit, version: int) -> KnownState:
    metadata, protocol = known.state.metadata, known.state.protocol
    metadata_version, protocol_version = known.metadata_version, known.protocol_version
    for action in table.actions:
        if isinstance(action, Metadata):
            metadata, metadata_version = action, version
        elif isinstance(action, Protocol):
            protocol, protocol_version = action, version
    if (metadata_version, protocol_version) == (known.metadata_version, known.protocol_version):
        return known
    assert metadata is not None
    assert protocol is not None
    return known_state(metadata_version, metadata, protocol_version, protocol)


def version_row(commit: Commit, table: TableCommit, committer: str | None) -> Row:
    """Return what describes a version, whatever its number."""
    return {
        "txn_id": str(commit.txn_id),
        "committer": committer,
        "operation": table.operation,
        "operation_params": table.operation_params,
        "read_version": read_version(table),
        "isolation": commit.isolation,
        "is_blind_append": is_blind_append(table, [read.reads for read in commit.read.values()]),
        "metrics": table.metrics,
        "user_metadata": commit.user_metadata,
    }


def read_version(table: TableCommit) -> int | None:
    return None if table.expected_version == NO_VERSION else table.expected_version


def _table_row(row: LockedTable, after: KnownState, version: int, next_row_id: int | None) -> Row:
    """Return what becomes of the table's own row."""
    metadata, protocol = after.state.metadata, after.state.protocol
    assert metadata is not None
    assert protocol is not None
    values: Row = {
        "last_ict": row.last_ict,
        "next_row_id": row.next_row_id if next_row_id is None else next_row_id,
        "metadata_version": after.metadata_version,
        "protocol_version": after.protocol_version,
    }
    if after.metadata_version == version:
        values["properties"] = metadata.configuration
    if after.protocol_version == version:
        values["min_reader_version"] = protocol.min_reader_version
        values["min_writer_version"] = protocol.min_writer_version
        values["reader_features"] = protocol.reader_features
        values["writer_features"] = protocol.writer_features
    return values


def _assign_row_ids(values: Row, next_row_id: int | None) -> int | None:
    if next_row_id is None:
        return None
    if values["default_row_commit_version"] is None:
        values["default_row_commit_version"] = values["version"]
    if values["base_row_id"] is not None:
        return next_row_id
    values["base_row_id"] = next_row_id
    following: int = next_row_id + values["num_records"]
    return following


def _first_free(next_row_id: int, table: TableCommit) -> int:
    """Return the first row id above every id in use. Files that rewrite existing rows keep the ids they bring."""
    given = [(add.base_row_id, add.stats) for add in table.actions if isinstance(add, AddFile)]
    if table.adds is not None and {"base_row_id", "stats"} <= set(table.adds.column_names):
        given += zip(table.adds["base_row_id"].to_pylist(), table.adds["stats"].to_pylist(), strict=True)
    ends = [first + (num_records(stats) or 0) for first, stats in given if first is not None]
    return max([next_row_id, *ends])


def _joined(adds: Sequence[AddFile], columns: pa.Table | None) -> pa.Table:
    if columns is None:
        return columns_of(adds)
    return columns if not adds else pa.concat_tables([columns_of(adds), columns], promote_options="default")
