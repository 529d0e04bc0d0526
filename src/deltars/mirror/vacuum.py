"""Vacuum of one table: deletes files that no version within the retention, no tag and no writer needs.

    check: the log is this catalog's, and agrees with it
    plan ──▶ condemn, in one short transaction ──▶ delete, in parallel ──▶ record that it is done
      ▲           │ a tag, or another vacuum, came first       └ interrupted: run it again, nothing is forgotten
      └───────────┘

A file is condemned before it is deleted. From then on no restore and no tag can need it again (`store.vacuum_marks`),
and no commit can have it (`store.writers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from deltars.errors import DatabaseError, LogDiverged, TableHeld, TableNotFound, ValidationError
from deltars.log.moments import from_microseconds, to_microseconds
from deltars.mirror.divergence import Divergence, is_log_ours
from deltars.mirror.orphans import MIN_AGE, find_orphans, unnamed_files
from deltars.mirror.other_tables import others_files, path_below
from deltars.mirror.outcome import SEE_WHAT_DIFFERS
from deltars.mirror.publisher import Publisher
from deltars.mirror.vacuum_plan import (
    KeptReason,
    VacuumFile,
    VacuumPlan,
    VacuumReason,
    add_orphans,
    amounts,
    keep_added,
    keep_links,
    keep_matching,
    keep_of_writers,
    plan_removals,
    vector_files,
)
from deltars.protocol.log_files import LOG
from deltars.protocol.properties import DELETED_FILE_RETENTION, deleted_file_retention_ms, parse_span, span_text
from deltars.storage import ObjectInfo, Places, Relation, Storage
from deltars.store.database import Database
from deltars.store.imports.table_hold import why_held
from deltars.store.mirror.audit import AuditRows
from deltars.store.mirror.checkpoint_state import CheckpointRows
from deltars.store.mirror.status import MirrorState, MirrorStatus
from deltars.store.registry import Registry
from deltars.store.vacuum_rows import Horizon, VacuumAmount, VacuumRows

LEAST_RETENTION = timedelta(days=7)
"""Least retention without `force`, unless the table's own is shorter."""
DELETED_AT_ONCE = 1_000
"""Files that one request deletes: as many as S3 takes."""
REQUESTS_AT_ONCE = 8
PLANS = 5
"""How often a plan is made again because tags or another vacuum changed what it was made for."""

_MANIFESTS = "_symlink_format_manifest/"
_SPARK_WRITES = "write-"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What a vacuum deleted of one table, or with `dry_run` would delete, and what it kept."""

    table: str
    table_id: UUID
    retention: timedelta
    version: int
    """Last version whose removals are deleted. Versions from this one on are whole."""
    files: tuple[VacuumFile, ...]
    kept: Mapping[KeptReason, VacuumAmount]
    """Files that were removed, or that no log names, and that stay, by reason."""
    tags: tuple[str, ...]
    """Tags for which files are kept."""
    dry_run: bool
    full: bool

    @property
    def num_files(self) -> int:
        return len(self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def deleted(self) -> Mapping[VacuumReason, VacuumAmount]:
        """Files and bytes by reason."""
        return amounts(self.files)


class Vacuum:
    def __init__(self, database: Database, publisher: Publisher, registry: Registry) -> None:
        self._database = database
        self._publisher = publisher
        self._registry = registry
        self._rows = VacuumRows(database)
        self._audit = AuditRows(database)
        self._states = CheckpointRows(database)

    def run(
        self,
        table_id: UUID,
        *,
        retention: timedelta | str | None = None,
        dry_run: bool = False,
        full: bool = False,
        force: bool = False,
        report: Callable[[int, int], None] | None = None,
    ) -> Vacuumed:
        """Vacuum a table. `report` is called with the number of files deleted so far, and of all."""
        span = as_retention(retention)
        for _ in range(PLANS):
            status = self._checked(table_id)
            kept_for = self._retention(status, span, force=force)
            storage = self._publisher.storage_at(status.location)
            # Files that no writer of Delta makes need no age: a forced retention is theirs too.
            foreign_age = min(MIN_AGE, kept_for) if force else MIN_AGE
            made = self._plan(status, storage, kept_for, foreign_age if full else None)
            if dry_run or self._condemn(made, storage):
                break
        else:
            raise DatabaseError(
                "the table's tags changed, or it was vacuumed, each time that this vacuum was planned",
                retryable=True,
                table=status.name,
                table_id=table_id,
                hint="Run it again.",
            )
        files = tuple(sorted(made.plan.files.values(), key=lambda file: file.path))
        if not dry_run:
            self._delete(made, storage, files, report)
            self._rows.finish(table_id, made.horizon, status.now)
        tags = sorted({tag for tags in made.horizon.pins.values() for tag in tags})
        return Vacuumed(
            status.name,
            table_id,
            kept_for,
            made.horizon.version,
            files,
            dict(made.plan.kept),
            tuple(tags) if KeptReason.TAG in made.plan.kept else (),
            dry_run=dry_run,
            full=full,
        )

    # -- check -----------------------------------------------------------------------------------------------------

    def _checked(self, table_id: UUID) -> MirrorStatus:
        """Return the status of a table whose files this catalog may delete. Raise for any other table."""
        status = self._publisher.status.read(table_id)
        if status.is_dropped:
            raise TableNotFound(
                "the table was dropped",
                table=status.name,
                table_id=table_id,
                hint="catalog.drop_table(table_id, delete_data=True) deletes the files of a dropped table.",
            )
        if not is_log_ours(status):
            raise TableHeld(
                f"the table {why_held(self._database, table_id)}: this catalog does not own its files and deletes none",
                table=status.name,
                table_id=table_id,
                hint="Vacuum it with the programs that write it, or adopt it first: catalog.adopt().",
            )
        storage = self._publisher.storage_at(status.location)
        # The log is listed and compared each time: a restored database does not know which files newer versions need.
        status = Divergence(self._publisher).check(storage, status, [info.path for info in storage.list(LOG)])
        if status.state is MirrorState.DIVERGED:
            raise LogDiverged(
                f"the table's log contradicts the catalog, so no file is deleted: {status.last_error}",
                table=status.name,
                table_id=table_id,
                hint=SEE_WHAT_DIFFERS.format(status.name),
            )
        return status

    def _retention(self, status: MirrorStatus, given: timedelta | None, *, force: bool) -> timedelta:
        properties: Mapping[str, str] = {}
        if status.current_version >= 0:
            properties = self._states.at(status.table_id, status.current_version).metadata.configuration
        own = timedelta(milliseconds=deleted_file_retention_ms(properties))
        least = min(own, LEAST_RETENTION)
        chosen = own if given is None else given
        if chosen < least and not force:
            raise ValidationError(
                f"a retention of {span_text(chosen)} is less than {span_text(least)}: readers of older versions,"
                " and other engines that read _delta_log late, would miss files",
                table=status.name,
                field="retention",
                hint="If no one needs them: force=True."
                f" To change the table's own retention, set {DELETED_FILE_RETENTION}.",
            )
        return chosen

    # -- plan ------------------------------------------------------------------------------------------------------

    def _plan(
        self, status: MirrorStatus, storage: Storage, retention: timedelta, foreign_age: timedelta | None
    ) -> _Planned:
        """Plan the files to delete. Without `foreign_age`, files that no log names are left alone."""
        listed = [] if foreign_age is None else list(storage.list())
        # The earlier of both clocks: a file may seem younger than it is, but never older.
        now = min(datetime.now(UTC), from_microseconds(status.now))
        # A retention longer than the time since 1970 keeps everything.
        before_us = max(0, to_microseconds(now) - retention // timedelta(microseconds=1))
        removals = self._rows.plan(status.table_id, before_us)
        plan = plan_removals(removals, storage)
        if foreign_age is not None:
            self._plan_untracked(plan, status, storage, listed, now, foreign_age)
            keep_of_writers(plan, self._rows.living_writers(status.table_id, status.now))
        if plan.files:
            names = [info.path for info in listed]
            others = others_files(status, storage, names, registry=self._registry, audit=self._audit)
            keep_matching(plan, KeptReason.OTHER_TABLE, others.has)
            keep_matching(plan, KeptReason.TAG, self._tagged_by_predecessors(status, storage).__contains__)
            keep_links(plan, storage)
        return _Planned(status, removals.horizon, plan, foreign_age is not None)

    def _plan_untracked(
        self,
        plan: VacuumPlan,
        status: MirrorStatus,
        storage: Storage,
        listed: Sequence[ObjectInfo],
        now: datetime,
        foreign_age: timedelta,
    ) -> None:
        """Plan files that no log names: orphans, and lists of files for other engines that are out of date."""
        columns: Sequence[str] = ()
        if status.current_version >= 0:
            metadata = self._states.at(status.table_id, status.current_version).metadata
            columns = [metadata.schema[name].physical_name for name in metadata.partition_columns]
        unnamed = unnamed_files(
            status, storage, listed, partition_columns=columns, audit=self._audit, registry=self._registry
        )
        orphans = find_orphans(
            unnamed.files, unnamed.unfinished, now_us=status.now, min_age=MIN_AGE, foreign_age=foreign_age
        )
        plan.keep(KeptReason.YOUNG, VacuumAmount(orphans.young_files, orphans.young_bytes))
        add_orphans(plan, orphans.old, now)
        old = [info for info in listed if info.path.startswith(_MANIFESTS) and now - info.modified >= MIN_AGE]
        for info in self._stale(status, storage, old):
            plan.files[info.path] = VacuumFile(info.path, info.size, VacuumReason.MANIFEST)

    def _stale(self, status: MirrorStatus, storage: Storage, manifests: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        """Yield the manifests that list a file which is not the table's now."""
        live: set[str] | None = None
        places = Places()
        for info in manifests:
            if live is None:
                adds = self._states.at(status.table_id, status.current_version).adds()
                paths = (path_below(storage, path, places) for batch in adds for path in batch["path"].to_pylist())
                live = {path for path in paths if path is not None}
            content = (storage.get_or_none(info.path) or b"").decode(errors="replace")
            if any(path_below(storage, line, places) not in live for line in content.split()):
                yield info

    def _tagged_by_predecessors(self, status: MirrorStatus, storage: Storage) -> set[str]:
        """Return the files that tags need of dropped tables which had this directory before it was imported again."""
        places, found = Places(), set[str]()
        for other in self._registry.neighbours(status.location, but=status.table_id):
            if other.relation is Relation.SAME:
                pinned = self._rows.pinned_files(other.table_id)
                paths = (path_below(storage, uri, places) for uri in pinned["path"].to_pylist())
                found.update(path for path in paths if path is not None)
                found.update(vector_files(pinned, storage, places))
        return found

    # -- delete ----------------------------------------------------------------------------------------------------

    def _condemn(self, made: _Planned, storage: Storage) -> bool:
        """Claim the planned files. Return False if the plan must be made again."""
        claim = self._rows.condemn(made.status.table_id, made.horizon, now_us=made.status.now, full=made.full)
        if claim is None:
            return False
        paths, vectors, writers = claim
        keep_added(made.plan, storage, paths, vectors)
        keep_of_writers(made.plan, writers)
        return True

    def _delete(
        self,
        made: _Planned,
        storage: Storage,
        files: Sequence[VacuumFile],
        report: Callable[[int, int], None] | None,
    ) -> None:
        status = made.status
        is_local = storage.location.is_local

        def delete(batch: Sequence[VacuumFile]) -> int:
            if not self._is_still_ours(status):
                raise TableHeld(
                    "the table was dropped or handed over while its files were deleted: the rest is kept",
                    table=status.name,
                    table_id=status.table_id,
                )
            paths = [file.path for file in batch]
            _log.info("table %s: deleting %s files from %s", status.name, len(paths), status.location)
            for file in batch:
                _log.debug("table %s: deleting %s (%s)", status.name, storage.url_of(file.path), file.reason)
            # Hadoop's checksums first: without its data file, one would be found by no later vacuum.
            storage.delete(_checksum_of(path) for path in paths if is_local)
            storage.delete(paths)
            return len(paths)

        done = 0
        with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="deltars-vacuum") as pool:
            batches = [files[start : start + DELETED_AT_ONCE] for start in range(0, len(files), DELETED_AT_ONCE)]
            for count in pool.map(delete, batches):
                done += count
                if report is not None:
                    report(done, len(files))
        if is_local:
            storage.remove_directories({path for file in files if (path := file.path.rpartition("/")[0])})
        if made.full and KeptReason.WRITER not in made.plan.kept:
            self._remove_directories_of_dead_writes(storage)

    def _remove_directories_of_dead_writes(self, storage: Storage) -> None:
        """Remove empty directories that killed Spark writes left."""
        now = datetime.now(UTC)
        storage.remove_directories(
            (
                info.path
                for info in storage.list_directories()
                if info.path.startswith(_SPARK_WRITES) and now - info.modified >= MIN_AGE
            ),
            with_empty_ones=True,
        )

    def _is_still_ours(self, status: MirrorStatus) -> bool:
        now = self._publisher.status.read(status.table_id)
        return is_log_ours(now) and not now.is_dropped and now.state is not MirrorState.DIVERGED


@dataclass(frozen=True, slots=True)
class _Planned:
    status: MirrorStatus
    horizon: Horizon
    plan: VacuumPlan
    full: bool


def as_retention(retention: timedelta | str | None) -> timedelta | None:
    """Return a retention that was given as a timedelta or as a text like "7 days"."""
    if retention is None:
        return None
    span = parse_span(retention)
    if span is not None and span >= timedelta(0):
        return span
    raise ValidationError(
        f"retention must be a timedelta of 0 or more, or a text like '7 days', got {retention!r:.100}",
        field="retention",
        hint='Examples: timedelta(days=14), "14 days", "1 day 12 hours".',
    )


def _checksum_of(path: str) -> str:
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.crc"
