"""The change feed of a table as a stream: the rows of a snapshot as inserted ones, then what each version changed.

Offsets are those of `TableSource`, but a version is never divided: rows of its files may cancel each other out.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from deltars.catalog.changes import initial_version
from deltars.data.changes import ChangedVersion, ChangePart, change_scans
from deltars.data.scan import files_of
from deltars.log.snapshot import Snapshot
from deltars.log.version_changes import version_changes
from deltars.protocol import AddFile, Metadata, StructType
from deltars.protocol.change_feed import FEED_FIELDS
from deltars.store.read.committed_versions import CommittedVersion
from deltars.streams.schema_change import refuse_unreadable
from deltars.streams.table_source import Offset, TableSource


class FeedSource(TableSource):
    """Source of what versions of a table changed."""

    is_divisible = False

    @staticmethod
    def schema_of(snapshot: Snapshot) -> StructType:
        """Return the columns of the rows."""
        return StructType((*snapshot.schema.fields, *FEED_FIELDS))

    def scans(self, start: Offset, end: Offset) -> list[ChangePart]:
        found = change_scans(
            self._changed(start, end),
            self._opened.metadata,
            root=self._table.location,
            table=self._table.name,
            version=end.version,
            storage_options=self._session.settings.storage_options,
        )
        return list(found.parts)

    def _changed(self, start: Offset, end: Offset) -> Iterator[ChangedVersion]:
        if start.snapshot and not start.complete:
            yield initial_version(self._session.reader.snapshot(self._table.id, start.version))
        first = start.version + (1 if start.complete or start.snapshot else 0)
        if first > end.version:
            return
        metadata = self._metadata_before(first)
        for version in self._session.reader.changes(self._table.id, first, end.version):
            actions = list(version.actions)
            metadata = next((action for action in actions if isinstance(action, Metadata)), metadata)
            refuse_unreadable(metadata, self._opened, version.version)
            yield ChangedVersion(version.version, version.in_commit_timestamp, metadata, version_changes(actions))

    def _files_of(self, version: CommittedVersion, metadata: Metadata) -> pa.Table:
        """Return files whose number and size stand for what the version changed."""
        refuse_unreadable(metadata, self._opened, version.version)
        return files_of([action for action in version.actions if isinstance(action, AddFile) and action.data_change])
