"""Verification: compares a table's catalog with its `_delta_log` and its files, in both directions. Changes nothing.

| option    | compared                                                                                            |
|-----------|-----------------------------------------------------------------------------------------------------|
| always    | every published commit exists as it was published, and no other; every live data file exists with   |
|           | its size, and so does every deletion vector                                                         |
| deep      | actions, checksum and checkpoint of every commit with the catalog's; rows of every live data file   |
| orphans   | files that no version names, and unfinished files of killed writers (`mirror/orphans.py`)           |
| chain     | rows of the catalog with the hashes that sealed them (`store/chain`)                                |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from deltars.errors import DeltarsError, HistoryExpired, ValidationError, brief
from deltars.log.bounds import known_num_records
from deltars.mirror.checkpoint_content import LiveFile, read_checkpoint, vector_id
from deltars.mirror.divergence import is_log_ours
from deltars.mirror.files.checksum import sums_in
from deltars.mirror.files.commit import is_same_commit, render_commit
from deltars.mirror.files.last_checkpoint import LastCheckpoint, parse_last_checkpoint
from deltars.mirror.orphans import MIN_AGE, Orphans, check_min_age, find_orphans, unnamed_files, vectors_in
from deltars.mirror.publisher import Publisher
from deltars.protocol import DeletionVector, uri_to_path
from deltars.protocol.deletion_vectors import relative_path
from deltars.protocol.log_files import (
    CHECKPOINTS,
    LAST_CHECKPOINT,
    LOG,
    LogFileKind,
    checkpoint_path,
    checksum_path,
    commit_path,
    is_hidden,
    is_log_path,
    parse_log_path,
    versions_of,
)
from deltars.protocol.paths import is_absolute
from deltars.storage import ObjectInfo, Storage
from deltars.store.chain.check import ChainCheck, check_chain
from deltars.store.chain.property import CHAIN_PROPERTY
from deltars.store.chain.seal import Head
from deltars.store.database import Database
from deltars.store.mirror.audit import AuditRows
from deltars.store.mirror.checkpoint_state import CheckpointRows, FileSums
from deltars.store.mirror.status import MirrorState, MirrorStatus
from deltars.store.registry import Registry

AT_ONCE = 8
TIMEOUT_S = 30.0


class Problem(StrEnum):
    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    DIVERGED = "diverged"
    ORPHAN = "orphan"
    CHANGED = "changed"
    """Rows of the catalog that are not what was committed."""


@dataclass(frozen=True, slots=True)
class Discrepancy:
    problem: Problem
    file: str
    detail: str
    size_bytes: int | None = None
    """Only set for an orphan, like `age_s`."""
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of a verification: how much was compared, and every difference."""

    table_id: UUID
    table: str
    current_version: int
    published_version: int
    commits: int
    data_files: int
    findings: tuple[Discrepancy, ...]
    young_files: int = 0
    """Orphans left out because a running transaction may still commit them; `young_bytes` is their total size."""
    young_bytes: int = 0
    chain_head: str | None = None
    """Newest seal of the hash chain, if it was checked. Keep it elsewhere, and give it to a later `verify(chain=…)`."""
    unsealed_versions: int = 0
    """Committed versions that the hash chain does not cover yet."""

    @property
    def is_ok(self) -> bool:
        """Whether there is no difference. Orphans only take space, so they are none."""
        return all(finding.problem is Problem.ORPHAN for finding in self.findings)


class Verifier:
    def __init__(self, database: Database, publisher: Publisher) -> None:
        self._database = database
        self._publisher = publisher
        self._rows = CheckpointRows(database)
        self._audit = AuditRows(database)
        self._registry = Registry(database, timeout_s=TIMEOUT_S)

    def verify(
        self,
        table_id: UUID,
        *,
        deep: bool = False,
        orphans: bool = False,
        min_age: timedelta = MIN_AGE,
        chain: bool | str = False,
        report: Callable[[int], None] | None = None,
    ) -> Verification:
        """Compare. `report` is called with the number of files compared so far."""
        check_min_age(min_age)
        status = self._publisher.status.read(table_id)
        sealed = None if chain is False else self._check_chain(status, chain)
        storage = self._publisher.storage_at(status.location)
        # Other transactions may commit meanwhile. So read what must exist before listing the files, and what may exist
        # after it.
        published = self._publisher.records.published(table_id)
        hint = storage.get_or_none(LAST_CHECKPOINT)
        listed = list(storage.list())
        sizes = {info.path: info.size for info in listed}
        newest = self._publisher.status.read(table_id).current_version
        seen = _Seen(status, published, hint, sizes, newest)
        check = _Check(self._publisher, self._rows, self._audit, self._registry, storage, seen)
        check.report = report
        findings = [*check.state(), *check.commits(deep=deep), *check.hint()]
        if deep:
            findings += [*check.checksums(), *check.checkpoints()]
        findings += check.data_files(deep=deep)
        if sealed is not None:
            findings += [Discrepancy(Problem.CHANGED, one.place, one.detail) for one in sealed.problems]
        found = check.orphans(listed, min_age) if orphans else Orphans()
        findings += [
            Discrepancy(Problem.ORPHAN, storage.url_of(o.path), o.detail, o.size_bytes, o.age.total_seconds())
            for o in found.old
        ]
        return Verification(
            table_id=table_id,
            table=status.name,
            current_version=status.current_version,
            published_version=status.published_version,
            commits=check.num_commits,
            data_files=check.num_data_files,
            findings=tuple(findings),
            young_files=found.young_files,
            young_bytes=found.young_bytes,
            chain_head=None if sealed is None else str(sealed.head),
            unsealed_versions=0 if sealed is None else sealed.num_unsealed,
        )

    def _check_chain(self, status: MirrorStatus, chain: bool | str) -> ChainCheck:
        if not isinstance(chain, bool | str):
            raise ValidationError(f"chain must be true, false or a head, got {brief(chain)}", field="chain")
        checked = check_chain(self._database, status.table_id, Head.of(chain) if isinstance(chain, str) else None)
        if checked is None:
            raise ValidationError(
                "the table has no hash chain",
                table=status.name,
                field="chain",
                hint=f"Turn it on: catalog.set_properties({status.name!r}, {{'{CHAIN_PROPERTY}': 'true'}}).",
            )
        return checked


@dataclass(frozen=True, slots=True)
class _Seen:
    """State of the table, in the order in which it was read."""

    status: MirrorStatus
    published: dict[int, str]
    hint: bytes | None
    sizes: dict[str, int]
    newest: int
    """Last version of the catalog, read after the files were listed."""


class _Check:
    def __init__(
        self,
        publisher: Publisher,
        rows: CheckpointRows,
        audit: AuditRows,
        registry: Registry,
        storage: Storage,
        seen: _Seen,
    ) -> None:
        self._publisher = publisher
        self._rows = rows
        self._audit = audit
        self._registry = registry
        self._storage = storage
        self._seen = seen
        self._status = seen.status
        self._sizes = seen.sizes
        self.num_commits = 0
        self.num_data_files = 0
        self.report: Callable[[int], None] | None = None
        self._num_compared = 0

    def state(self) -> Iterator[Discrepancy]:
        if self._status.state is MirrorState.DIVERGED:
            path = commit_path(self._status.published_version + 1)
            yield self._finding(Problem.DIVERGED, path, self._status.last_error or "the log has diverged")

    def commits(self, *, deep: bool) -> Iterator[Discrepancy]:
        published = self._seen.published
        there = set(self._versions_of(LogFileKind.COMMIT, first=0))
        self.num_commits = len(published)
        missing = published.keys() - there
        if missing:
            # Commits that were cleaned up meanwhile are not missing.
            missing &= self._publisher.records.published(self._status.table_id).keys()
        for version in sorted(missing):
            yield self._finding(Problem.MISSING, commit_path(version), "is missing; it was published")
        unknown = sorted(version for version in there - published.keys() if version > self._status.published_version)
        if self._is_of_others:
            # Other writers may be ahead: the catalog follows them only on import or adopt.
            unknown = []
        for version in unknown:
            # A commit that equals the catalog's is about to be recorded as published: no finding.
            content = self._storage.get_or_none(commit_path(version)) if version <= self._seen.newest else None
            if content is None or not self._is_as_committed(version, content):
                problem = Problem.DIVERGED if is_log_ours(self._status) else Problem.EXTRA
                yield self._finding(problem, commit_path(version), "is not a commit of the catalog")
        for path in sorted(self._sizes):
            if is_log_path(path) and not _is_known(path):
                yield self._finding(Problem.EXTRA, path, "is not a file of a Delta log")

        def differs(version: int) -> str | None:
            content = self._storage.get_or_none(commit_path(version))
            if content is None:
                return None
            is_as_published = sha256(content).hexdigest() == published[version]
            if (is_as_published and not deep) or self._is_as_committed(version, content) or self._is_expired(version):
                return None
            return "differs from the catalog" if is_as_published else "differs from what was published"

        yield from self._each(differs, sorted(published.keys() & there), commit_path)

    def hint(self) -> Iterator[Discrepancy]:
        if self._seen.hint is None:
            return
        hint = parse_last_checkpoint(self._seen.hint)
        if self._is_of_others or (hint is None and not self._has_own_checkpoint):
            # Another program wrote the hint. Readers that cannot use it list the log.
            return
        if hint is None:
            yield self._finding(Problem.DIFFERENT, LAST_CHECKPOINT, "cannot be read")
        elif not (hint.is_ours or hint.version <= self._last_from_outside):
            yield self._finding(Problem.DIFFERENT, LAST_CHECKPOINT, "was written by another program")
        elif not self._has_checkpoint(hint):
            yield self._finding(Problem.MISSING, checkpoint_path(hint.version), "is missing; _last_checkpoint names it")

    def checksums(self) -> Iterator[Discrepancy]:
        def differs(version: int) -> str | None:
            if version not in self._sums:
                is_fine = self._is_of_others or self._is_expired(version)
                return None if is_fine else "belongs to a version that was never committed"
            txn_id, sums = self._sums[version]
            content = self._storage.get_or_none(checksum_path(version))
            if version not in self._seen.published:
                # Other writers need not write a transaction's id, or any sums.
                found = sums_in(content)
                return None if found in (None, sums) else f"should say {sums}"
            found = sums_in(content, txn_id)
            return None if found == sums else f"should say transaction {txn_id} and {sums}"

        yield from self._each(differs, self._versions_of(LogFileKind.CHECKSUM), checksum_path)

    def checkpoints(self) -> Iterator[Discrepancy]:
        for path in [] if self._is_of_others else sorted(self._sizes):
            name = parse_log_path(path)
            if name is not None and name.kind in CHECKPOINTS and (name.version or 0) > self._seen.newest:
                yield self._finding(Problem.EXTRA, path, "belongs to a version that was never committed")
        for version in self._versions_of(LogFileKind.CLASSIC_CHECKPOINT):
            if version <= self._seen.newest and (reason := self._checkpoint_difference(version)) is not None:
                yield self._finding(Problem.DIFFERENT, checkpoint_path(version), reason)

    def data_files(self, *, deep: bool) -> Iterator[Discrepancy]:
        if self._status.current_version < 0:
            return
        ends: dict[str, int] = {}
        for batch in self._rows.at(self._status.table_id, self._status.current_version).adds():
            columns = (batch[name].to_pylist() for name in ("path", "size", "stats"))
            # Files outside the table's directory are not checked.
            inside = [
                (uri_to_path(path), size, stats)
                for path, size, stats in zip(*columns, strict=True)
                if not is_absolute(path)
            ]
            self.num_data_files += len(inside)
            yield from self._sizes_of(inside)
            if not deep:
                self._compared(len(inside))
            else:
                yield from self._rows_of([(path, stats) for path, _, stats in inside if path in self._sizes])
            for vector in vectors_in(batch):
                if vector is not None and (path := relative_path(vector)) is not None:
                    ends[path] = max(ends.get(path, 0), _end(vector))
        yield from self._ends_of(ends)

    def orphans(self, listed: Sequence[ObjectInfo], min_age: timedelta) -> Orphans:
        found = unnamed_files(
            self._status,
            self._storage,
            listed,
            partition_columns=self._partition_columns,
            audit=self._audit,
            registry=self._registry,
        )
        return find_orphans(found.files, found.unfinished, now_us=self._status.now, min_age=min_age)

    @cached_property
    def _partition_columns(self) -> list[str]:
        if self._status.current_version < 0:
            return []
        metadata = self._rows.at(self._status.table_id, self._status.current_version).metadata
        return [metadata.schema[name].physical_name for name in metadata.partition_columns]

    @cached_property
    def _sums(self) -> dict[int, tuple[str, FileSums]]:
        return self._audit.sums(self._status.table_id)

    @property
    def _last_from_outside(self) -> int:
        """Last version that was imported or cleaned up; −1 if there is none."""
        versions = range(self._status.published_version, -1, -1)
        return next((version for version in versions if version not in self._seen.published), -1)

    def _has_checkpoint(self, hint: LastCheckpoint) -> bool:
        if hint.is_ours:
            return checkpoint_path(hint.version) in self._sizes
        # Other writers use several forms of checkpoints.
        names = map(parse_log_path, self._sizes)
        return any(name is not None and name.kind in CHECKPOINTS and name.version == hint.version for name in names)

    @property
    def _is_of_others(self) -> bool:
        """Whether other programs write the log. They may be ahead of the catalog, and write other files."""
        return self._status.state in (MirrorState.READ_ONLY, MirrorState.RELEASED)

    @property
    def _has_own_checkpoint(self) -> bool:
        return any(checkpoint_path(version) in self._sizes for version in self._seen.published)

    def _versions_of(self, kind: LogFileKind, first: int | None = None) -> list[int]:
        """Return the versions that have a file of this kind, from the first version of the history on."""
        first = self._audit.earliest(self._status.table_id) if first is None else first
        return [version for version in versions_of(kind, self._sizes) if version >= first]

    def _is_expired(self, version: int) -> bool:
        """Return whether a version was expired while it was compared."""
        return version < self._audit.earliest(self._status.table_id)

    def _is_as_committed(self, version: int, content: bytes) -> bool:
        commits = self._publisher.status.pending(self._status.table_id, version - 1, 1)
        return bool(commits) and is_same_commit(render_commit(commits[0]), content)

    def _checkpoint_difference(self, version: int) -> str | None:
        try:
            found = read_checkpoint(self._storage, checkpoint_path(version))
        except (pa.ArrowException, msgspec.MsgspecError, DeltarsError, KeyError) as error:
            return f"cannot be read: {error}"
        expected: set[LiveFile] = set()
        try:
            state = self._rows.at(self._status.table_id, version)
            for batch in state.adds():
                ids = map(vector_id, vectors_in(batch))
                expected.update(zip(batch["path"].to_pylist(), batch["size"].to_pylist(), ids, strict=True))
        except HistoryExpired:
            return None
        if found.files != expected:
            return f"has {len(found.files - expected)} files too many and {len(expected - found.files)} too few"
        return None if state.metadata.schema in found.schemas else "has another schema"

    def _sizes_of(self, files: Iterable[tuple[str, int, Any]]) -> Iterator[Discrepancy]:
        for path, size, _ in files:
            there = self._sizes.get(path)
            if there is None:
                yield self._finding(Problem.MISSING, path, "is missing; it is a live data file")
            elif there != size:
                yield self._finding(Problem.DIFFERENT, path, f"has {there} bytes, but {size} in the log")

    def _ends_of(self, ends: Mapping[str, int]) -> Iterator[Discrepancy]:
        for path, end in ends.items():
            there = self._sizes.get(path)
            if there is None:
                yield self._finding(Problem.MISSING, path, "is missing; it holds deletion vectors of live data files")
            elif there < end:
                yield self._finding(Problem.DIFFERENT, path, f"has {there} bytes, but a deletion vector ends at {end}")

    def _rows_of(self, files: list[tuple[str, str | None]]) -> Iterator[Discrepancy]:
        expected = {path: known_num_records(stats) for path, stats in files}

        def differs(path: str) -> str | None:
            try:
                with self._storage.open_reader(path) as file:
                    rows = pq.read_metadata(file).num_rows
            except (pa.ArrowException, DeltarsError) as error:
                return f"cannot be read: {error}"
            wanted = expected[path]
            return None if wanted in (None, rows) else f"has {rows} rows, but {wanted} in the log"

        yield from self._each(differs, list(expected), lambda path: path)

    def _each(
        self, differs: Callable[[Any], str | None], things: list[Any], path_of: Callable[[Any], str]
    ) -> Iterator[Discrepancy]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for thing, reason in zip(things, pool.map(differs, things), strict=True):
                self._compared(1)
                if reason is not None:
                    yield self._finding(Problem.DIFFERENT, path_of(thing), reason)

    def _compared(self, files: int) -> None:
        self._num_compared += files
        if self.report is not None:
            self.report(self._num_compared)

    def _finding(self, problem: Problem, path: str, detail: str) -> Discrepancy:
        return Discrepancy(problem, self._storage.url_of(path), detail)


def _is_known(path: str) -> bool:
    """Return whether a path in `_delta_log` is a log file, or one that readers ignore."""
    return parse_log_path(path) is not None or is_hidden(path.removeprefix(f"{LOG}/"))


def _end(vector: DeletionVector) -> int:
    """Return where a vector ends in its file, including its size (4 bytes before) and checksum (4 bytes after)."""
    return (1 if vector.offset is None else vector.offset) + 4 + vector.size_in_bytes + 4
