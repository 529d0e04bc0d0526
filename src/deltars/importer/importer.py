"""Tables change hands: in from plain Delta, out to it, and in again.

    import   register, held ─▶ follow the log ─▶ put the fence ─▶ follow again ─▶ ours
    release  held ─▶ publish what waits ─▶ put the commit without the fence ─▶ follow ─▶ theirs
    adopt    follow what they committed ─▶ put the fence ─▶ follow ─▶ ours

While a table is held its log is the authority and the catalog follows it. Every step can be repeated, so whatever was
interrupted anywhere is finished by running it again.
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
from deltars.importer.handover import fence_commit, fence_id, release_commit
from deltars.importer.source import LogSource, PlacedActions, SourceVersion
from deltars.log.commit import NO_VERSION
from deltars.protocol import Metadata, Protocol
from deltars.protocol.log_files import commit_path
from deltars.store.database import Database
from deltars.store.imports.appender import TIMEOUT_S, Appender, HeldTable
from deltars.store.imports.import_writer import ImportWriter
from deltars.store.imports.table_hold import hold
from deltars.store.mirror.status import MirrorState

MAX_RACES = 1_000
"""How often somebody else may take the version that the fence should have had."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is."""

    version: int
    """The last version that was read to its end."""
    latest: int
    actions: int
    """How many actions were read so far, those of the version that is being read included."""


Report = Callable[[Progress], None]


class Importer:
    def __init__(self, database: Database, storage_options: Mapping[str, str] | None = None) -> None:
        self._database = database
        self._options = storage_options
        self.writer = ImportWriter(database)

    def take(self, table_id: UUID, *, take_over: bool = False, report: Report | None = None) -> int:
        """Follow the log of a held table, fence it, and make it ours.

        `take_over`: also from another catalog, which fenced it and will never write to it again.
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
            f"other writers committed {MAX_RACES} times while the table was being taken over",
            table=table.name,
            hint="Stop them for a moment, and run it again.",
        )

    def take_read_only(self, table_id: UUID, *, report: Report | None = None) -> int:
        """Follow the log of a table that stays others'."""
        table = self.follow(table_id, report=report)
        self._check_partitions(table, _known(table)[0])
        return self.writer.finish(table_id, MirrorState.READ_ONLY)

    def give(self, table_id: UUID) -> int:
        """Take the fence off a held table whose versions are all published."""
        table = self.follow(table_id)
        metadata, protocol = _known(table)
        if is_fenced(protocol):
            version = table.last_version + 1
            data = release_commit(table_id, version, metadata, protocol, **self._times(table))
            LogSource(table.location, self._options).storage.put_if_absent(commit_path(version), data)
            table = self.follow(table_id)
            if is_fenced(_known(table)[1]):
                raise LogDiverged("the table is fenced by somebody else", table=table.name, version=table.last_version)
        return self.writer.finish(table_id, MirrorState.RELEASED)

    def hold(self, table_id: UUID) -> None:
        """From here on nothing is committed to the table but by its log."""
        hold(self._database, table_id, timeout_s=TIMEOUT_S)

    def restore(self, table_id: UUID, *, report: Report | None = None) -> int:
        """Copy the log that a lost catalog published, with its transactions and their times."""
        table = self.follow(table_id, report=report, is_own=True)
        _, protocol = _known(table)
        is_ours = is_fenced(protocol) or not self.writer.ends_elsewhere(table_id)
        return self.writer.finish(table_id, MirrorState.ACTIVE if is_ours else MirrorState.RELEASED)

    def follow(self, table_id: UUID, *, report: Report | None = None, is_own: bool = False) -> HeldTable:
        """Copy every version of the log that the catalog does not have.

        `is_own`: it is this catalog's own log, so transactions keep their place in time. Others get theirs when they
        become visible here.
        """
        table = self.writer.read(table_id)
        if not table.is_held:
            raise TableHeld("the table is this catalog's own: there is nothing to follow", table=table.name)
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
        """Now, for readers and for a catalog that is rebuilt from the log."""
        now = self.writer.clock()
        return {"timestamp_ms": max(now // 1000, table.last_timestamp_ms + 1), "commit_ts": now}

    def _refuse_divergence(self, source: LogSource, table: HeldTable) -> None:
        """The last version that the catalog has must be the one that the log has."""
        if table.last_version == NO_VERSION or table.last_digest is None:
            return
        file = source.listing.commits.get(table.last_version)
        if file is None:
            raise LogDiverged(
                f"the log has no version {table.last_version} any more",
                table=table.name,
                version=table.last_version,
                hint="Drop the table here, and import it anew.",
            )
        if CommitFile(source.storage, file).read_digest() != table.last_digest:
            raise LogDiverged(
                f"version {table.last_version} of the log is another one than the catalog has",
                table=table.name,
                version=table.last_version,
            )

    def _check(self, table: HeldTable, metadata: Metadata, protocol: Protocol) -> None:
        """Refuse what a later write would stumble over, while the log is still as others left it."""
        check_writable(metadata, protocol)
        self._check_partitions(table, metadata)
        self.writer.next_row_id(table.table_id)

    def _check_partitions(self, table: HeldTable, metadata: Metadata) -> None:
        if metadata.partition_columns:
            with closing(self.writer.partition_values(table.table_id)) as values:
                check_partitions(metadata, values)


class _State:
    """Metadata and protocol as the versions go by."""

    def __init__(self, metadata: Metadata | None, protocol: Protocol | None) -> None:
        self.metadata = metadata
        self.protocol = protocol

    def check(self, version: int) -> Metadata:
        if self.metadata is None or self.protocol is None:
            missing = "metaData" if self.metadata is None else "protocol"
            raise DamagedLog(f"the log has no {missing} up to version {version}", version=version)
        return self.metadata


def _append(
    appender: Appender, version: SourceVersion, place: int, batch: PlacedActions | pa.Table, state: _State
) -> int:
    """Write a batch; where the next one's places begin."""
    if isinstance(batch, pa.Table):
        appender.add_files(version.version, place, batch)
        return place + len(batch)
    # The protocol first, in whichever order they stand: it says what the schema may hold.
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
    """A fence that another catalog put: two of them would both take themselves for the authority."""
    return UnsupportedFeature(
        "the table is fenced: another deltars catalog manages it",
        table=table.name,
        features=("deltars.sqlManaged",),
        hint="Release it there first; if that catalog is gone for good, import with take_over=True.",
    )


def _known(table: HeldTable) -> tuple[Metadata, Protocol]:
    if table.metadata is None or table.protocol is None:
        raise DamagedLog("the log is empty", table=table.name)
    return table.metadata, table.protocol
