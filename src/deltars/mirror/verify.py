"""Comparing a table's catalog with its `_delta_log` and its files, in both directions. Changes nothing.

| asked for | compared                                                                                           |
|-----------|----------------------------------------------------------------------------------------------------|
| always    | every published commit is there and is the file that was published; nothing else is; every live    |
|           | data file is there, with its size, and so is every deletion vector                                 |
| deep      | every commit's actions, checksum and checkpoint with the catalog's; rows of every live data file   |
| orphans   | files below the table that the log never named                                                     |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from deltars.errors import DeltarsError
from deltars.mirror.checkpoint import checkpoint_path
from deltars.mirror.checksum import checksum_path, sums_in
from deltars.mirror.commit_json import commit_path, is_same_commit, render_commit
from deltars.mirror.divergence import is_looked_at
from deltars.mirror.last_checkpoint import LAST_CHECKPOINT, LastCheckpoint, parse_last_checkpoint
from deltars.mirror.publisher import Publisher
from deltars.protocol import DeletionVector, uri_to_path
from deltars.protocol.deletion_vectors import relative_path
from deltars.protocol.paths import is_absolute
from deltars.storage import Storage
from deltars.store.audit_rows import AuditRows
from deltars.store.checkpoint_rows import CheckpointRows, FileSums
from deltars.store.database import Database
from deltars.store.mirror_status import MirrorState, MirrorStatus

AT_ONCE = 8

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_CHECKSUM = re.compile(r"_delta_log/(\d{20})\.crc")
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet")
_OF_OTHERS = re.compile(
    r"_delta_log/(?:\d{20}\.\d{20}\.compacted\.json|\d{20}\.checkpoint\.[^/]+|_sidecars/[^/]+\.parquet)"
)
"""What other writers put beside commits; an imported table still has it."""
_COMPARED = ["add.path", "add.size", "add.deletionVector", "metaData.schemaString"]
"""Of a checkpoint."""
_HADOOP = re.compile(r"(?P<directory>(?:.*/)?)\.(?P<name>[^/]+)\.crc")
"""The checksum that Hadoop keeps beside each file that it writes to local disk."""


class Problem(StrEnum):
    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    DIVERGED = "diverged"
    ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class Finding:
    problem: Problem
    file: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What was compared, and every difference."""

    table_id: UUID
    table: str
    current_version: int
    published_version: int
    commits: int
    data_files: int
    findings: tuple[Finding, ...]

    @property
    def is_ok(self) -> bool:
        """Files that nobody tracks take room, and are no difference."""
        return all(finding.problem is Problem.ORPHAN for finding in self.findings)


class Verifier:
    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._publisher = publisher
        self._rows = CheckpointRows(database)
        self._audit = AuditRows(database)

    def verify(self, table_id: UUID, *, deep: bool = False, orphans: bool = False) -> Verification:
        status = self._publisher.status.read(table_id)
        storage = self._publisher.storage_at(status.location)
        # Others may go on committing meanwhile. So what must be there is asked before the files are listed, and what
        # may be there after it.
        published = self._publisher.records.published(table_id)
        hint = storage.get_or_none(LAST_CHECKPOINT)
        sizes = {info.path: info.size for info in storage.list()}
        newest = self._publisher.status.read(table_id).current_version
        seen = _Seen(status, published, hint, sizes, newest)
        check = _Check(self._publisher, self._rows, self._audit, storage, seen)
        findings = [*check.state(), *check.commits(deep=deep), *check.hint()]
        if deep:
            findings += [*check.checksums(), *check.checkpoints()]
        findings += check.data_files(deep=deep)
        if orphans:
            findings += check.orphans()
        return Verification(
            table_id=table_id,
            table=status.name,
            current_version=status.current_version,
            published_version=status.published_version,
            commits=check.num_commits,
            data_files=check.num_data_files,
            findings=tuple(findings),
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """The table, in the order in which it was looked at."""

    status: MirrorStatus
    published: dict[int, str]
    hint: bytes | None
    sizes: dict[str, int]
    newest: int
    """The last version that the catalog had after the files were listed."""


class _Check:
    def __init__(
        self, publisher: Publisher, rows: CheckpointRows, audit: AuditRows, storage: Storage, seen: _Seen
    ) -> None:
        self._publisher = publisher
        self._rows = rows
        self._audit = audit
        self._storage = storage
        self._seen = seen
        self._status = seen.status
        self._sizes = seen.sizes
        self.num_commits = 0
        self.num_data_files = 0

    def state(self) -> Iterator[Finding]:
        if self._status.state is MirrorState.DIVERGED:
            path = commit_path(self._status.published_version + 1)
            yield self._finding(Problem.DIVERGED, path, self._status.last_error or "the log diverged")

    def commits(self, *, deep: bool) -> Iterator[Finding]:
        published = self._seen.published
        there = {int(match[1]) for path in self._sizes if (match := _COMMIT.fullmatch(path))}
        self.num_commits = len(published)
        missing = published.keys() - there
        if missing:
            # What was cleaned up meanwhile is not missing.
            missing &= self._publisher.records.published(self._status.table_id).keys()
        for version in sorted(missing):
            yield self._finding(Problem.MISSING, commit_path(version), "was published and is gone")
        unknown = sorted(version for version in there - published.keys() if version > self._status.published_version)
        for version in unknown:
            # One that is ours is about to be noted as published.
            content = self._storage.get_or_none(commit_path(version)) if version <= self._seen.newest else None
            if content is None or not self._is_as_committed(version, content):
                problem = Problem.DIVERGED if is_looked_at(self._status) else Problem.EXTRA
                yield self._finding(problem, commit_path(version), "is not a commit of the catalog")
        for path in sorted(self._sizes):
            if path.startswith("_delta_log/") and not _is_known(_checked_by(path)):
                yield self._finding(Problem.EXTRA, path, "is no file of a Delta log")

        def differs(version: int) -> str | None:
            content = self._storage.get_or_none(commit_path(version))
            if content is None:
                return None
            is_as_published = sha256(content).hexdigest() == published[version]
            if (is_as_published and not deep) or self._is_as_committed(version, content):
                return None
            return "does not say what the catalog says" if is_as_published else "is not what was published"

        yield from self._each(differs, sorted(published.keys() & there), commit_path)

    def hint(self) -> Iterator[Finding]:
        if self._seen.hint is None:
            return
        hint = parse_last_checkpoint(self._seen.hint)
        if hint is None or not (hint.is_ours or hint.version <= self._last_from_outside):
            yield self._finding(Problem.DIFFERENT, LAST_CHECKPOINT, "was written by another program")
        elif not self._has_checkpoint(hint):
            yield self._finding(Problem.MISSING, checkpoint_path(hint.version), "is what _last_checkpoint names")

    def checksums(self) -> Iterator[Finding]:
        def differs(version: int) -> str | None:
            if version not in self._sums:
                return "is of a version that was never committed"
            txn_id, sums = self._sums[version]
            found = sums_in(self._storage.get_or_none(checksum_path(version)), txn_id)
            return None if found == sums else f"should be of transaction {txn_id} and add up to {sums}"

        yield from self._each(differs, self._versions_of(_CHECKSUM), checksum_path)

    def checkpoints(self) -> Iterator[Finding]:
        for version in self._versions_of(_CHECKPOINT):
            if version > self._seen.newest:
                yield self._finding(Problem.EXTRA, checkpoint_path(version), "is of a version never committed")
            elif (reason := self._checkpoint_difference(version)) is not None:
                yield self._finding(Problem.DIFFERENT, checkpoint_path(version), reason)

    def data_files(self, *, deep: bool) -> Iterator[Finding]:
        if self._status.current_version < 0:
            return
        ends: dict[str, int] = {}
        for batch in self._rows.at(self._status.table_id, self._status.current_version).adds():
            columns = (batch[name].to_pylist() for name in ("path", "size", "stats"))
            # A file outside the table's directory is not ours to look at.
            inside = [
                (uri_to_path(path), size, stats)
                for path, size, stats in zip(*columns, strict=True)
                if not is_absolute(path)
            ]
            self.num_data_files += len(inside)
            yield from self._sizes_of(inside)
            if deep:
                yield from self._rows_of([(path, stats) for path, _, stats in inside if path in self._sizes])
            for vector in _vectors(batch):
                if vector is not None and (path := relative_path(vector)) is not None:
                    ends[path] = max(ends.get(path, 0), _end(vector))
        yield from self._ends_of(ends)

    def orphans(self) -> Iterator[Finding]:
        tracked: set[str] = set()
        for batch in self._audit.tracked(self._status.table_id):
            tracked.update(uri_to_path(path) for path in batch["path"].to_pylist())
            paths = (relative_path(vector) for vector in _vectors(batch) if vector is not None)
            tracked.update(path for path in paths if path is not None)
        for path in sorted(self._sizes):
            if not path.startswith("_delta_log/") and _checked_by(path) not in tracked:
                yield self._finding(Problem.ORPHAN, path, f"{self._sizes[path]} bytes that the log never named")

    @cached_property
    def _sums(self) -> dict[int, tuple[str, FileSums]]:
        return self._audit.sums(self._status.table_id)

    @property
    def _last_from_outside(self) -> int:
        """The last version that was imported, or cleaned up since; −1 where there is none."""
        versions = range(self._status.published_version, -1, -1)
        return next((version for version in versions if version not in self._seen.published), -1)

    def _has_checkpoint(self, hint: LastCheckpoint) -> bool:
        if hint.is_ours:
            return checkpoint_path(hint.version) in self._sizes
        # Others have more than one form of it.
        prefix = f"_delta_log/{hint.version:020}.checkpoint."
        return any(path.startswith(prefix) for path in self._sizes)

    def _versions_of(self, kind: re.Pattern[str]) -> list[int]:
        """The versions that there is such a file of; those from before an import began are nobody's by now."""
        first = min(self._sums, default=0)
        versions = (int(match[1]) for path in self._sizes if (match := kind.fullmatch(path)))
        return sorted(version for version in versions if version >= first)

    def _is_as_committed(self, version: int, content: bytes) -> bool:
        commits = self._publisher.status.pending(self._status.table_id, version - 1, 1)
        return bool(commits) and is_same_commit(render_commit(commits[0]), content)

    def _checkpoint_difference(self, version: int) -> str | None:
        try:
            with self._storage.open_reader(checkpoint_path(version)) as file:
                found = pq.ParquetFile(file).read(columns=_COMPARED)
            there = {
                (row["path"], row["size"], _vector_id(_vector_in(row)))
                for row in found["add"].to_pylist()
                if row and row["path"] is not None
            }
        except (pa.ArrowException, msgspec.MsgspecError, DeltarsError) as error:
            return f"cannot be read: {error}"
        state = self._rows.at(self._status.table_id, version)
        expected: set[tuple[str, int, str | None]] = set()
        for batch in state.adds():
            ids = map(_vector_id, _vectors(batch))
            expected.update(zip(batch["path"].to_pylist(), batch["size"].to_pylist(), ids, strict=True))
        if there != expected:
            return f"holds {len(there - expected)} files too many and {len(expected - there)} too few"
        if state.metadata.schema_string not in [row["schemaString"] for row in found["metaData"].to_pylist() if row]:
            return "holds another schema"
        return None

    def _sizes_of(self, files: Iterable[tuple[str, int, Any]]) -> Iterator[Finding]:
        for path, size, _ in files:
            there = self._sizes.get(path)
            if there is None:
                yield self._finding(Problem.MISSING, path, "is a live data file")
            elif there != size:
                yield self._finding(Problem.DIFFERENT, path, f"has {there} bytes, the log says {size}")

    def _ends_of(self, ends: Mapping[str, int]) -> Iterator[Finding]:
        for path, end in ends.items():
            there = self._sizes.get(path)
            if there is None:
                yield self._finding(Problem.MISSING, path, "holds deletion vectors of live data files")
            elif there < end:
                yield self._finding(Problem.DIFFERENT, path, f"has {there} bytes, and a deletion vector ends at {end}")

    def _rows_of(self, files: list[tuple[str, str | None]]) -> Iterator[Finding]:
        expected = {path: _num_records(stats) for path, stats in files}

        def differs(path: str) -> str | None:
            try:
                with self._storage.open_reader(path) as file:
                    rows = pq.read_metadata(file).num_rows
            except (pa.ArrowException, DeltarsError) as error:
                return f"cannot be read: {error}"
            wanted = expected[path]
            return None if wanted in (None, rows) else f"has {rows} rows, the log says {wanted}"

        yield from self._each(differs, list(expected), lambda path: path)

    def _each(
        self, differs: Callable[[Any], str | None], things: list[Any], path_of: Callable[[Any], str]
    ) -> Iterator[Finding]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for thing, reason in zip(things, pool.map(differs, things), strict=True):
                if reason is not None:
                    yield self._finding(Problem.DIFFERENT, path_of(thing), reason)

    def _finding(self, problem: Problem, path: str, detail: str) -> Finding:
        return Finding(problem, self._storage.url_of(path), detail)


def _is_known(path: str) -> bool:
    return path == LAST_CHECKPOINT or any(
        pattern.fullmatch(path) for pattern in (_COMMIT, _CHECKSUM, _CHECKPOINT, _OF_OTHERS)
    )


def _checked_by(path: str) -> str:
    """The file that a checksum of Hadoop's is of; any other file itself."""
    match = _HADOOP.fullmatch(path)
    return f"{match['directory']}{match['name']}" if match else path


def _vectors(batch: pa.RecordBatch) -> Iterator[DeletionVector | None]:
    for text in batch["deletion_vector"].to_pylist():
        yield None if text is None else _decode_vector(text)


def _vector_in(add: dict[str, Any]) -> DeletionVector | None:
    """Of a file in a checkpoint: where it has none, writers leave out the column, the value, or all of its parts."""
    vector = add.get("deletionVector") or {}
    return None if vector.get("storageType") is None else msgspec.convert(vector, DeletionVector)


def _vector_id(vector: DeletionVector | None) -> str | None:
    return None if vector is None else vector.unique_id


def _end(vector: DeletionVector) -> int:
    """Where it ends in its file: its size stands before it, and a check sum after it, of four bytes each."""
    return (vector.offset or 0) + 4 + vector.size_in_bytes + 4


def _num_records(stats: str | None) -> int | None:
    try:
        return _stats.decode(stats).numRecords if stats else None
    except msgspec.MsgspecError:
        return None


class _Stats(msgspec.Struct):
    numRecords: int | None = None  # noqa: N815


_stats = msgspec.json.Decoder(_Stats)
_decode_vector = msgspec.json.Decoder(DeletionVector).decode
