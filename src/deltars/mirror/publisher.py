"""Publishing: the committed versions of a table, in order, to its `_delta_log`.

    publish_all ──▶ drain each table ──▶ pending versions: put-if-absent, one by one ──▶ advance ──▶ checkpoint
                                           │
              there is a file already: the same commit ──▶ go on
                                       another ──▶ DIVERGED, nothing is touched

    one table on a local disk     the caller's own thread
    several, or an object store   threads, and the caller waits for `wait_s`; no thread to be had: the caller's own

The lease keeps publishers out of each other's way. What keeps the log right is that a version is put only
where there is none, and only after the one before it. So a lease that expires, or a process that dies between
any two steps, does no harm: the next drain finds the files, sees that they are the same commits, and goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import UUID

from deltars.errors import DatabaseError, DeltarsError, MirrorFailure
from deltars.mirror.background import Behind
from deltars.mirror.checkpoint_schedule import Checkpointer
from deltars.mirror.checksum_state import Checksums
from deltars.mirror.committers import Committers, Drain, Wish
from deltars.mirror.files.commit import Diverged, put_commit, put_or_compare, see_published, set_time
from deltars.mirror.outcome import SEE_WHAT_DIFFERS, MirrorOutcome, Publication, outcome_of
from deltars.mirror.warehouse import Warehouse
from deltars.observe import PublicationFailed, VersionPublished, emit
from deltars.protocol.log_files import LOG, checksum_path
from deltars.storage import Storage, open_storage, parse_location
from deltars.store.database import Database
from deltars.store.mirror.lease import new_owner
from deltars.store.mirror.pending_versions import ManyActions
from deltars.store.mirror.records import MirrorRecords
from deltars.store.mirror.status import Advance, MirrorMode, MirrorState, MirrorStatusStore, Target
from deltars.store.read.committed_versions import CommittedVersion

VERSIONS_AT_ONCE = 100
"""How many are put before the catalog is told."""

PUTTING_S = 0.1
"""And for how long: whoever waits for one of them hears of it then, and the lease is renewed."""

HAND_OVER_S = 30.0
"""For how long a publisher goes on with versions of others."""

_log = logging.getLogger(__name__)


class _Put(NamedTuple):
    """A commit that is there now."""

    commit: CommittedVersion
    digest: str
    began_ns: int
    took_s: float


class Publisher:
    def __init__(
        self,
        database: Database,
        storage_options: Mapping[str, str] | None = None,
        *,
        mode: MirrorMode = MirrorMode.INLINE,
        checkpoint_interval: int = 10,
    ) -> None:
        """`mode` and `checkpoint_interval` are for tables that say nothing of their own."""
        self.status = MirrorStatusStore(database)
        self._source = database.source
        self._options = storage_options
        self._mode = mode
        self.records = MirrorRecords(database)
        self.warehouse = Warehouse(self.status, self.records, self.storage_at)
        self.checkpointer = Checkpointer(database, self.status, interval=checkpoint_interval)
        self._checksums = Checksums(database)
        self._behind = Behind()
        self._committers = Committers(self.status, self._behind, self._drain, self._checkpoint_behind)

    def storage_at(self, location: str) -> Storage:
        return open_storage(location, self._options)

    def publish_all(
        self,
        versions: Mapping[UUID, int],
        *,
        mode: MirrorMode | None = None,
        concurrency: int = 5,
        wait_s: float = 5.0,
    ) -> dict[UUID, MirrorOutcome]:
        """Publish each table up to the version given, and say how far that got within `wait_s`.

        `mode` is the caller's wish, before the tables' own and the catalog's. What takes longer goes on behind the
        caller's back. No Exception is raised, whatever happens: the commits stand.
        """
        outcomes = {table_id: MirrorOutcome(table_id, Publication.PENDING) for table_id in versions}
        try:
            targets = self._targets(versions)
            modes = {key: mode or (targets[key].mode if key in targets else None) or self._mode for key in versions}
            if MirrorMode.ASYNC in modes.values():
                self.status.announce()
            inline = {key: version for key, version in versions.items() if modes[key] is MirrorMode.INLINE}
            is_quick = len(inline) == 1 and all(_is_local(targets.get(key)) for key in inline)
            outcomes |= self._committers.serve(inline, concurrency=concurrency, wait_s=wait_s, is_quick=is_quick)
        except Exception:
            with suppress(Exception):
                _log.exception("a defect stopped the mirror; the commits stand: %s", dict(versions))
        return outcomes

    def drain(
        self, table_id: UUID, *, stop: threading.Event | None = None, checkpoint_behind: bool = False
    ) -> MirrorOutcome:
        """Publish everything that is pending, in order, unless somebody else is at it; then the checkpoint, if due.

        `stop` ends it early, between two versions; the rest is left to whoever comes next. With `checkpoint_behind` a
        checkpoint is not waited for: what is committed meanwhile can be published.
        """
        outcome, run = self._drain(table_id, stop=stop)
        if run is not None and run.checkpoint is not None:
            (self._checkpoint_behind if checkpoint_behind else self._checkpoint)(run)
        return outcome

    def republish(self, table_id: UUID, location: str, version: int) -> bool:
        """Put a published commit back where its file is missing; False if there is one after all."""
        [commit] = self.status.pending(table_id, version - 1, 1)
        storage = self.storage_at(location)
        is_put, _ = put_commit(storage, commit)
        storage.sync_names(LOG)
        set_time(storage, commit)
        return is_put

    def publish_registration(self, table_id: UUID) -> None:
        """Publish a table's name and location as they are now: after it was created, renamed or dropped.

        No Exception is raised: the database has them, and a warehouse out of reach gets them from the reconciler.
        """
        try:
            self.warehouse.publish_registration(table_id)
        except DeltarsError as error:
            _log.warning("the registry entry of table %s was not published: %s", table_id, error)
        except Exception:
            _log.exception("a defect kept the registry entry of table %s from being published", table_id)

    def close(self) -> None:
        """Wait for what is being published or written behind the callers' backs."""
        self._behind.wait()

    def _drain(
        self,
        table_id: UUID,
        wish: Wish | None = None,
        stop: threading.Event | None = None,
        leave_at: float | None = None,
    ) -> tuple[MirrorOutcome, Drain | None]:
        """Return what became of it, and the run, if there was something to do and nobody else was at it.

        With a `wish` the outcome is about its version; versions of others that keep coming are published with it
        for a while, and then left to whoever commits next. With `leave_at`, the rest is left as soon as the wish is
        served, or at that time, or before a commit that takes long.
        """
        until = None if wish is None else wish.version
        owner = new_owner()
        claimed, status = self.status.claim(table_id, owner)
        if not claimed:
            return outcome_of(status, until), None
        run = Drain(status, owner, until, status.published_version, stop or threading.Event(), leave_at)
        try:
            outcome = self._publish(run, self.storage_at(status.location), wish)
        except Diverged as diverged:
            outcome = self._fail(run, MirrorState.DIVERGED, str(diverged))
        except Exception as error:
            # Whatever it is, the commit stands, and the failure must be noted.
            if not isinstance(error, DeltarsError):
                _log.exception("a defect stopped the mirror of table %s", status.name)
            outcome = self._fail(run, MirrorState.FAILED, str(error) or repr(error))
        except BaseException:
            # Ctrl-C, in the caller's thread: others need not wait for the lease to end.
            with suppress(Exception):
                self.status.release(table_id, owner)
            raise
        return outcome, run

    def _publish(self, run: Drain, storage: Storage, wish: Wish | None) -> MirrorOutcome:
        hand_over_at = time.monotonic() + HAND_OVER_S
        see_published(storage, run.published)
        while True:
            commits = self._next(run)
            if run.leave_at is not None and isinstance(commits[0].actions, ManyActions):
                return self._leave(run)
            there, problem = self._put_some(storage, commits, run)
            if there:
                # Once for all of them, and before the catalog is told: what it has as published outlasts a power cut.
                storage.sync_names(LOG)
                commits = [put.commit for put in there]
                checksum = self._checksums.after(storage, commits)
                with _told("the checksum of version %s of table %s", checksum.version, run.status.name):
                    storage.put_if_absent(checksum_path(checksum.version), checksum.to_json(), sync_name=False)
                noted = self.status.advance(
                    run.table_id, run.owner, [(put.commit.version, put.digest) for put in there]
                )
                for put in there:
                    # Another publisher, which took the lease over, has told of those that it noted.
                    if noted.before < put.commit.version <= noted.published:
                        self._tell(run, put, noted.now)
                if self.checkpointer.is_due(checksum.metadata, run.published, checksum.version):
                    run.checkpoint = checksum.version
                run.published = noted.published
                self.warehouse.publish_version_maps(commits)
                if wish is not None:
                    wish.note(run.published)
                if noted.step is Advance.LOST:
                    return outcome_of(self.status.read(run.table_id), run.until)
                if noted.step is Advance.DONE:
                    break
            if problem is not None:
                raise problem
            is_over = time.monotonic() > hand_over_at
            # A hot table never runs out of versions: let somebody else go on, and see to what is due.
            if run.stop.is_set() or (is_over and (run.is_served or run.checkpoint is not None)):
                self.status.release(run.table_id, run.owner)
                return outcome_of(self.status.read(run.table_id), run.until)
            if run.leave_at is not None and (run.is_served or time.monotonic() > run.leave_at):
                return self._leave(run)
        return MirrorOutcome(run.table_id, Publication.PUBLISHED, run.published)

    def _leave(self, run: Drain) -> MirrorOutcome:
        self.status.release(run.table_id, run.owner)
        run.is_left = True
        publication = Publication.PUBLISHED if run.is_served else Publication.PENDING
        return MirrorOutcome(run.table_id, publication, run.published)

    def _put_some(
        self, storage: Storage, commits: Sequence[CommittedVersion], run: Drain
    ) -> tuple[list[_Put], Exception | None]:
        """The first of these commits, which are there now; and what kept out the next one."""
        there: list[_Put] = []
        stop_at = time.monotonic() + PUTTING_S
        for commit in commits:
            run.putting = commit
            began_ns, began = time.time_ns(), time.perf_counter()
            try:
                digest = self._put(storage, commit)
            except (DeltarsError, Diverged) as problem:
                return there, problem
            there.append(_Put(commit, digest, began_ns, time.perf_counter() - began))
            if run.stop.is_set() or time.monotonic() > stop_at:
                break
        return there, None

    def _tell(self, run: Drain, put: _Put, now: int) -> None:
        commit = put.commit
        lag_s = max(0, now - commit.commit_ts) / 1_000_000
        name = run.status.name
        emit(VersionPublished(self._source, commit.txn_id, name, commit.version, put.began_ns, put.took_s, lag_s))

    def _put(self, storage: Storage, commit: CommittedVersion) -> str:
        digest = put_or_compare(storage, commit)
        if commit.version == 0:
            self.publish_registration(commit.table_id)
        return digest

    def _checkpoint_behind(self, run: Drain) -> None:
        """In a thread of its own: a large one must keep neither the committer nor the next table waiting.

        A table that is faster than its checkpoints gets the last that was due, and none of those between.
        """
        if not self._behind.start(run.table_id, self._checkpoint, run):
            _log.warning(
                "the checkpoint of version %s of table %s is left to the reconciler: no thread could be started for it",
                run.checkpoint,
                run.status.name,
            )

    def _checkpoint(self, run: Drain) -> None:
        """Write the checkpoint that is due; and what was committed while the lease was held for it."""
        due: Drain | None = run
        while due is not None and not due.stop.is_set():
            assert due.checkpoint is not None
            try:
                storage = self.storage_at(due.status.location)
                waits = self.checkpointer.try_write(storage, due.table_id, due.checkpoint, due.owner)
                after = self._drain(due.table_id, stop=due.stop)[1] if waits else None
                due = after if after is not None and after.checkpoint is not None else None
            except DeltarsError as error:
                _log.warning("table %s was not looked after, after its checkpoint: %s", run.status.name, error)
                return
            except Exception:
                _log.exception("a defect stopped the checkpoint of table %s", run.status.name)
                return

    def _targets(self, table_ids: Mapping[UUID, int]) -> Mapping[UUID, Target]:
        try:
            return self.status.targets(table_ids)
        except Exception as error:
            _log.warning("the mirror could not ask who publishes: %s", error)
            return {}

    def _next(self, run: Drain) -> list[CommittedVersion]:
        # What was pending at the claim is most often one version; what came since is not known.
        known = run.status.current_version - run.published
        limit = min(known, VERSIONS_AT_ONCE) if known > 0 else VERSIONS_AT_ONCE
        commits = self.status.pending(run.table_id, run.published, limit)
        if not commits or commits[-1].version != run.published + len(commits):
            raise DatabaseError(
                "versions are missing from the catalog", table_id=run.table_id, version=run.published + 1
            )
        return commits

    def _fail(self, run: Drain, state: MirrorState, error: str) -> MirrorOutcome:
        table_id, name = run.status.table_id, run.status.name
        version, at = run.published + 1, run.putting
        txn_id = at.txn_id if at is not None and at.version == version else None
        hint = SEE_WHAT_DIFFERS.format(name) if state is MirrorState.DIVERGED else None
        failure = MirrorFailure(error=error, table=name, table_id=table_id, version=version, txn_id=txn_id, hint=hint)
        emit(PublicationFailed(self._source, txn_id, name, version, state.value, failure))
        try:
            self.status.fail(table_id, run.owner, state, error)
        except Exception as unreachable:
            _log.warning("the failure could not be noted in the catalog: %s", unreachable)
        if run.is_served:
            return MirrorOutcome(table_id, Publication.PUBLISHED, run.published)
        return MirrorOutcome(table_id, Publication.FAILED, run.published, failure)


@contextmanager
def _told(what: str, *which: object) -> Iterator[None]:
    """What readers can do without: if it fails, that is said, and publishing goes on."""
    try:
        yield
    except DeltarsError as error:
        _log.warning(f"{what} was not written: %s", *which, error)


def _is_local(target: Target | None) -> bool:
    return target is not None and parse_location(target.location).is_local
