"""`_delta_log/<version>.crc`: number and size of a table's files at a version, with metadata and protocol. Pure.

    Checksum at v ── after(commit v + 1, removed files) ──▶ Checksum at v + 1

The sums of a version follow from those before it and the commit. So they cost the same for a table of ten files and
for one of ten million.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from deltars.protocol import AddFile, Metadata, Protocol
from deltars.store.mirror.checkpoint_state import FileSums, VersionState
from deltars.store.read.committed_versions import CommittedVersion


class _Document(msgspec.Struct, rename="camel", omit_defaults=True):
    """Fields of the file, in the order in which they are written."""

    txn_id: str
    table_size_bytes: int
    num_files: int
    num_metadata: int
    num_protocol: int
    in_commit_timestamp_opt: int
    metadata: Metadata
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class Checksum:
    version: int
    txn_id: str
    in_commit_timestamp: int
    sums: FileSums
    metadata: Metadata
    protocol: Protocol

    @classmethod
    def of(cls, state: VersionState, sums: FileSums) -> Checksum:
        return cls(state.version, str(state.txn_id), state.in_commit_timestamp, sums, state.metadata, state.protocol)

    @classmethod
    def first(cls, commit: CommittedVersion) -> Checksum:
        """Return the checksum of version 0, whose commit has metadata and protocol."""
        metadata = next(action for action in commit.actions if isinstance(action, Metadata))
        protocol = next(action for action in commit.actions if isinstance(action, Protocol))
        nothing = cls(-1, "", 0, FileSums(0, 0), metadata, protocol)
        return nothing.after(commit, FileSums(0, 0))

    def after(self, commit: CommittedVersion, gone: FileSums) -> Checksum:
        """Return the checksum after the next commit, which removed files with the sums `gone`."""
        metadata, protocol = self.metadata, self.protocol
        count, size = self.sums.num_files - gone.num_files, self.sums.size_bytes - gone.size_bytes
        for action in commit.actions:
            match action:
                case AddFile():
                    count, size = count + 1, size + action.size
                case Metadata():
                    metadata = action
                case Protocol():
                    protocol = action
        return replace(
            self,
            version=commit.version,
            txn_id=str(commit.txn_id),
            in_commit_timestamp=commit.in_commit_timestamp,
            sums=FileSums(count, size),
            metadata=metadata,
            protocol=protocol,
        )

    def to_json(self) -> bytes:
        document = _Document(
            txn_id=self.txn_id,
            table_size_bytes=self.sums.size_bytes,
            num_files=self.sums.num_files,
            num_metadata=1,
            num_protocol=1,
            in_commit_timestamp_opt=self.in_commit_timestamp,
            metadata=self.metadata,
            protocol=self.protocol,
        )
        return msgspec.json.encode(document) + b"\n"


def sums_in(content: bytes | None, txn_id: str | None = None) -> FileSums | None:
    """Return the sums in a checksum file. Return None if it is unreadable or belongs to another transaction.

    Without `txn_id` it may belong to any transaction: other writers need not name theirs.
    """
    if content is None:
        return None
    try:
        found = _decoder.decode(content)
    except msgspec.MsgspecError:
        return None
    return FileSums(found.num_files, found.table_size_bytes) if txn_id in (None, found.txn_id) else None


class _Sums(msgspec.Struct, rename="camel", kw_only=True):
    """Fields that are read from the file of any writer."""

    txn_id: str | None = None
    table_size_bytes: int
    num_files: int


_decoder = msgspec.json.Decoder(_Sums)
