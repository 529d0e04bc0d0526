"""A log as a stream of its versions, oldest first.

    LogSource ──versions(after)──> SourceVersion, …     each a stream of batches, and after the last one its commitInfo

If the log has every commit since version 0, the stream begins there. If old commits were deleted, it begins with the
oldest checkpoint that has every commit after it: that version holds the table's whole state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa

from deltars.errors import DamagedLog, ImportRefused, LogDiverged, ValidationError
from deltars.importer.checkpoints import CheckpointFiles
from deltars.importer.commits import BATCH_ACTIONS, CommitFile
from deltars.importer.file_actions import canonical, check_add_columns, check_imported
from deltars.importer.listing import LogListing, list_log, refuse_holes
from deltars.log.foreign_version import ForeignVersion, foreign_version
from deltars.log.new_table import NO_VERSION
from deltars.protocol import (
    Action,
    CheckpointMetadata,
    CommitInfo,
    Metadata,
    Protocol,
    Sidecar,
    StructType,
)
from deltars.protocol.column_mapping import COLUMN_MAPPING
from deltars.protocol.schema import COLUMN_ID
from deltars.storage import ObjectInfo, open_storage

PlacedActions: TypeAlias = list[tuple[int, Action]]


class SourceVersion:
    """One version of a log. Read its batches to the end before calling `about`."""

    def __init__(
        self, source: LogSource, version: int, commit: ObjectInfo | None, start: CheckpointFiles | None
    ) -> None:
        self.version = version
        self._source = source
        self._commit = commit
        self._start = start
        self._reader = CommitFile(source.storage, commit) if commit is not None else None

    def batches(self) -> Iterator[PlacedActions | pa.Table]:
        """Yield actions with their positions in the commit, or files as columns."""
        if self._start is not None:
            yield from self._checkpoint(self._start)
        elif self._reader is not None:
            yield from self._reader.batches()

    def place_of(self, place: int) -> str:
        """Return where an action is in the log, for an error message."""
        if self._start is not None or self._commit is None:
            return f"the checkpoint of version {self.version}"
        return f"{self._commit.path}, line {place + 1}"

    def about(self, table_id: UUID) -> ForeignVersion:
        """Return the transaction, times and digest of this version."""
        if self._reader is None:
            assert self._start is not None
            info, digest, file = CommitInfo(operation="CHECKPOINT"), None, self._start.checkpoint.files[0]
        else:
            if self._start is not None:
                for _ in self._reader.batches():
                    pass
            assert self._commit is not None
            info, file = self._reader.info or CommitInfo(), self._commit
            # No digest for a checkpoint: the catalog has its state, not the actions of the commit.
            digest = self._reader.digest if self._start is None else None
        modified_ms = max(0, int(file.modified.timestamp() * 1000))
        return foreign_version(table_id, self.version, info, modified_ms=modified_ms, digest=digest)

    def _checkpoint(self, start: CheckpointFiles) -> Iterator[PlacedActions | pa.Table]:
        seen: set[tuple[str, ...]] = set()
        metadata, protocol = start.head()
        batch: PlacedActions = [(0, protocol), (1, metadata)]
        place = 2
        for action in start.others():
            if isinstance(action, Metadata | Protocol | CheckpointMetadata | Sidecar):
                continue
            batch.append((place, self._checked(action, seen)))
            place += 1
            if len(batch) >= BATCH_ACTIONS:
                yield batch
                batch = []
        yield batch
        for adds in start.adds():
            try:
                check_add_columns(adds, seen)
            except ValidationError as error:
                raise DamagedLog(
                    f"the checkpoint of version {self.version}: {error.message}", version=self.version
                ) from error
            yield adds

    def _checked(self, action: Action, seen: set[tuple[str, ...]]) -> Action:
        try:
            action = canonical(action)
            check_imported(action, seen, has_null=True)
        except ValidationError as error:
            raise DamagedLog(
                f"the checkpoint of version {self.version}: {error.message}", version=self.version
            ) from error
        return action


@dataclass(frozen=True, slots=True)
class CheckpointHead:
    """Metadata in a checkpoint."""

    version: int
    path: str
    metadata: Metadata

    def refuse_contradiction(self, metadata: Metadata) -> None:
        """Raise DamagedLog if the commits up to its version have other metadata: readers would see two tables.

        The protocol is not compared, because the fence writes one that is newer than any checkpoint.
        """
        for what, here, there in (
            ("another schema", _shape(self.metadata.schema), _shape(metadata.schema)),
            ("other partition columns", self.metadata.partition_columns, metadata.partition_columns),
            ("another column mapping", _mapping(self.metadata), _mapping(metadata)),
        ):
            if here != there:
                raise DamagedLog(
                    f"the checkpoint {self.path} has {what} than the commits up to version {self.version}",
                    version=self.version,
                    path=self.path,
                    hint="Delete the checkpoint, or rewrite it with the engine that owns the table.",
                )


def _shape(schema: StructType) -> tuple[str, list[tuple[str, Any]]]:
    """Return names and types of all columns, and their physical names and ids, without comments and other metadata."""
    known_by = [(field.physical_name, field.metadata.get(COLUMN_ID)) for _, field in schema.walk()]
    return str(schema).replace(" not null", ""), known_by


def _mapping(metadata: Metadata) -> str:
    return metadata.configuration.get(COLUMN_MAPPING, "none").lower()


class LogSource:
    def __init__(self, location: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.storage = open_storage(location, storage_options)

    @cached_property
    def listing(self) -> LogListing:
        """Content of the log, listed once on first use."""
        return list_log(self.storage)

    def versions(self, after: int = NO_VERSION) -> Iterator[SourceVersion]:
        """Yield every version after `after`. With `NO_VERSION`, begin with the first one that can be read."""
        listing = self.listing
        if after != NO_VERSION:
            if listing.latest < after:
                raise LogDiverged(f"the log ends at version {listing.latest}, but the catalog has version {after}")
            missing = listing.first_missing(after + 1)
            if missing is not None:
                raise DamagedLog(f"version {missing} is missing from the log", version=missing)
            first = after + 1
        else:
            self.newest_head()
            start = None if 0 in listing.commits and listing.first_missing(0) is None else self._start(listing)
            first = 0
            if start is not None:
                version = start.checkpoint.version
                yield SourceVersion(self, version, listing.commits.get(version), start)
                first = version + 1
        for version in range(first, listing.latest + 1):
            yield SourceVersion(self, version, listing.commits[version], None)

    def _start(self, listing: LogListing) -> CheckpointFiles:
        """Return the oldest readable checkpoint that has every commit after it."""
        refused: ImportRefused | None = None
        for checkpoint in listing.starts():
            found = CheckpointFiles(self.storage, checkpoint)
            try:
                found.head()
                return found
            except ImportRefused as error:
                refused = error
        if refused is not None:
            raise refused
        refuse_holes(listing, 0)
        raise DamagedLog("the log has neither version 0 nor a checkpoint", version=0)

    def newest_head(self, after: int = NO_VERSION) -> CheckpointHead | None:
        """Return the metadata of the newest checkpoint. Raise DamagedLog if it has none.

        Other readers begin with this checkpoint, even if the commits alone suffice for an import. A file that is no
        checkpoint is ignored, as other readers do. A checkpoint of version `after` or older is known, and not read.
        """
        newest = next(iter(self.listing.newest_first()), None)
        return self._newest_head if newest is not None and newest.version > after else None

    @cached_property
    def _newest_head(self) -> CheckpointHead | None:
        checkpoint = self.listing.newest_first()[0]
        found = CheckpointFiles(self.storage, checkpoint)
        if not found.is_readable():
            return None
        metadata, _ = found.head()
        return CheckpointHead(checkpoint.version, checkpoint.files[0].path, metadata)
