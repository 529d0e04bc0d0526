"""Import, release and adoption of tables.

    import   register, hold ─▶ follow the log ─▶ write the fence ─▶ follow again ─▶ owned by the catalog
    release  hold ─▶ publish pending versions ─▶ write the release ─▶ follow ─▶ owned by other writers
    adopt    follow what others committed ─▶ write the fence ─▶ follow ─▶ owned by the catalog

"Follow" copies new versions from the log into the catalog. While a table is held, its log is the authority. Every step
can be repeated, so run an interrupted operation again to finish it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from uuid import UUID

import pyarrow as pa

from deltars.errors import DamagedLog, LogDiverged, TableHeld, UnsupportedFeature
from deltars.importer.admission import check_partitions, check_readable, check_schema, check_writable, is_fenced
from deltars.importer.commits import CommitFile
from deltars.importer.fence import fence_commit, fence_id, release_commit
from deltars.importer.source import LogSource, PlacedActions, SourceVersion
from deltars.log.new_table import NO_VERSION
from deltars.protocol import Metadata, Protocol
from deltars.protocol.log_files import commit_path
from deltars.store.database import Database
from deltars.store.imports.appender import TIMEOUT_S, Appender, HeldTable
from deltars.store.imports.import_writer import ImportWriter
from deltars.store.imports.table_hold import hold
from deltars.store.mirror.status import MirrorState

MAX_RACES = 1_000
"""How often another writer may commit the version that the fence should have had."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an import."""

    version: int
    """Last version that was read completely."""
    latest: int
    actions: int
    """Number of actions read so far, including those of the version being read."""


Report = Callable[[Progress], None]


class Importer:
    def __init__(self, database: Database, storage_options: Mapping[str, str] | None = None) -> None:
        self._database = database
        self._options = storage_options
        self.writer = ImportWriter(database)

    def take(self, table_id: UUID, *, take_over: bool = False, report: Report | None = None) -> int:
        """Follow the log of a held table, write the fence, and let the catalog own the table. Return its version.

        `take_over` accepts the fence of another catalog, which must never write to the table again.
        """
        for _ in range(MAX_RACES):
            table = self.follow(table_id, report=report)
            metadata, protocol = _known(table)
            if is_fenced(protocol):
                is_own = table.last_txn_id == fence_id(table_id, table.last_version)
                if not is_own:
                    if not take_over:
                        raise _foreign_fence(table)
                    self._check(table, metadata, protocol)
                return self.writer.finish(table_id, MirrorState.ACTIVE)
            self._check(table, metadata, protocol)
            version = table.last_version + 1
            data = fence_commit(table_id, version, metadata, protocol, **self._times(table))
            LogSource(table.location, self._options).storage.put_if_absent(commit_path(version), data)
        raise LogDiverged(
            f"other writers committed {MAX_RACES} times while the fence was being written",
            table=table.name,
            hint="Stop the other writers, and run it again.",
        )

    def take_read_only(self, table_id: UUID, *, report: Report | None = None) -> int:
        """Follow the log of a table that other writers keep. Return its version."""
        table = self.follow(table_id, report=report)
        self._check_partitions(table, _known(table)[0])
        return self.writer.finish(table_id, MirrorState.READ_ONLY)

    def give(self, table_id: UUID) -> int:
        """Remove the fence of a held table whose versions are all published. Return its version."""
        table = self.follow(table_id)
        metadata, protocol = _known(table)
        if is_fenced(protocol):
            version = table.last_version + 1
            data = release_commit(table_id, version, metadata, protocol, **self._times(table))
            LogSource(table.location, self._options).storage.put_if_absent(commit_path(version), data)
            table = self.follow(table_id)
            if is_fenced(_known(table)[1]):
                raise LogDiverged(
                    "another catalog fenced the table while it was being released",
                    table=table.name,
                    version=table.last_version,
                )
        return self.writer.finish(table_id, MirrorState.RELEASED)

    def hold(self, table_id: UUID) -> None:
        """Refuse commits to the table until its import, release or adoption has ended."""
        hold(self._database, table_id, timeout_s=TIMEOUT_S)

    def restore(self, table_id: UUID, *, report: Report | None = None) -> int:
        """Copy the log that a lost catalog published, with its transactions and their commit times."""
        table = self.follow(table_id, report=report, is_own=True)
        _, protocol = _known(table)
        is_ours = is_fenced(protocol) or not self.writer.ends_elsewhere(table_id)
        return self.writer.finish(table_id, MirrorState.ACTIVE if is_ours else MirrorState.RELEASED)

    def follow(self, table_id: UUID, *, report: Report | None = None, is_own: bool = False) -> HeldTable:
        """Copy every version of the log that the catalog does not have.

        `is_own` says that this catalog wrote the log, so transactions keep their commit times. Other transactions get
        the time at which they become visible in the catalog.
        """
        table = self.writer.read(table_id)
        if not table.is_held:
            raise TableHeld("this catalog owns the table: there is nothing to follow", table=table.name)
        source = LogSource(table.location, self._options)
        self._refuse_divergence(source, table)
        latest = source.listing.latest
        state = _State(table.metadata, table.protocol)
        checkpoint = source.newest_head(after=table.last_version)
        actions = 0

        def tell(version: int) -> None:
            if report is not None:
                report(Progress(version, max(latest, version), actions))

        with self.writer.appender(table) as appender:
            for version in source.versions(after=table.last_version):
                place = 0
                for batch in version.batches():
                    actions += len(batch)
                    place = _append(appender, version, place, batch, state)
                    tell(version.version - 1)
                metadata = state.check(version.version)
                if checkpoint is not None and checkpoint.version == version.version:
                    checkpoint.refuse_contradiction(metadata)
                about = version.about(table_id)
                appender.complete(about if is_own else replace(about, commit_ts=None))
                tell(version.version)
            appender.flush()
        return self.writer.read(table_id)

    def _times(self, table: HeldTable) -> dict[str, int]:
        """Return the current time as the timestamp for readers, and for a catalog that is rebuilt from the log."""
        now = self.writer.clock()
        return {"timestamp_ms": max(now // 1000, table.last_timestamp_ms + 1), "commit_ts": now}

    def _refuse_divergence(self, source: LogSource, table: HeldTable) -> None:
        """Raise LogDiverged unless the log has the catalog's last version."""
        if table.last_version == NO_VERSION or table.last_digest is None:
            return
        file = source.listing.commits.get(table.last_version)
        if file is None:
            raise LogDiverged(
                f"version {table.last_version} is in the catalog but no longer in the log",
                table=table.name,
                version=table.last_version,
                hint="Drop the table from the catalog, and import it again.",
            )
        if CommitFile(source.storage, file).read_digest() != table.last_digest:
            raise LogDiverged(
                f"version {table.last_version} in _delta_log differs from version {table.last_version} in the catalog",
                table=table.name,
                version=table.last_version,
            )

    def _check(self, table: HeldTable, metadata: Metadata, protocol: Protocol) -> None:
        """Refuse a table that a later write would fail on, before the fence changes its log."""
        check_writable(metadata, protocol)
        self._check_partitions(table, metadata)
        self.writer.next_row_id(table.table_id)

    def _check_partitions(self, table: HeldTable, metadata: Metadata) -> None:
        if metadata.partition_columns:
            with closing(self.writer.partition_values(table.table_id)) as values:
                check_partitions(metadata, values)


class _State:
    """Metadata and protocol up to the version being read."""

    def __init__(self, metadata: Metadata | None, protocol: Protocol | None) -> None:
        self.metadata = metadata
        self.protocol = protocol

    def check(self, version: int) -> Metadata:
        if self.metadata is None or self.protocol is None:
            missing = "metaData" if self.metadata is None else "protocol"
            raise DamagedLog(f"the log has no {missing} action up to version {version}", version=version)
        return self.metadata


def _append(
    appender: Appender, version: SourceVersion, place: int, batch: PlacedActions | pa.Table, state: _State
) -> int:
    """Append a batch. Return the position at which the next one begins."""
    if isinstance(batch, pa.Table):
        appender.add_files(version.version, place, batch)
        return place + len(batch)
    # Read the protocol first, wherever it is in the batch: it decides what the schema may contain.
    for _, action in batch:
        if isinstance(action, Protocol):
            check_readable(action)
            state.protocol = action
    for at, action in batch:
        if isinstance(action, Metadata):
            check_schema(action, state.protocol, version.place_of(at))
            state.metadata = action
    appender.add(version.version, batch)
    return max([place, *(at + 1 for at, _ in batch)])


def _foreign_fence(table: HeldTable) -> UnsupportedFeature:
    """Return the error for a table that another catalog fenced: only one catalog may own a table."""
    return UnsupportedFeature(
        "the table is fenced: another deltars catalog manages it",
        table=table.name,
        features=("deltars.sqlManaged",),
        hint="Release it from that catalog first. If that catalog is lost, import with take_over=True"
        " (deltars import --take-over).",
    )


def _known(table: HeldTable) -> tuple[Metadata, Protocol]:
    if table.metadata is None or table.protocol is None:
        raise DamagedLog("the log is empty", table=table.name)
    return table.metadata, table.protocol
