"""The parts of one open catalog: its database, its settings, and what is built on them.

A `Catalog` is the public face of a session. Both can be pickled: the other process opens its own connections.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar
from uuid import UUID

from deltars.arguments import REMOVE, is_storable
from deltars.config import Isolation, Settings, check_isolation, default_catalog
from deltars.errors import (
    DeltarsError,
    MirrorFailure,
    TableNotFound,
    ValidationError,
    VersionConflict,
    VersionNotFound,
)
from deltars.log.commit import NO_VERSION, Commit, CommitOutcome, Committed, VersionTaken
from deltars.mirror.outcome import MirrorOutcome, Publication
from deltars.mirror.publisher import Publisher
from deltars.observe import Outcome, Stopwatch
from deltars.store.backends import backend_for
from deltars.store.commit.winner import lost_race
from deltars.store.commit.writer import LogWriter
from deltars.store.database import Database
from deltars.store.mirror.status import MirrorMode
from deltars.store.names import hint_for_missing
from deltars.store.read.as_of import AsOf, CutFinder
from deltars.store.read.cuts import Cut, Cuts
from deltars.store.read.reader import LogReader
from deltars.store.registry import Registry, TableRecord
from deltars.store.tags import Tags
from deltars.uri import CatalogUri, is_uri, parse_table_uri

_log = logging.getLogger(__name__)

Part = TypeVar("Part")

Settle: TypeAlias = Callable[[Commit, VersionTaken], Commit | VersionTaken]
"""Return the commit to try after a conflict that others caused by changing other rows, or the conflict if it stands."""


class _made_once(Generic[Part]):  # noqa: N801 — a decorator
    """Part of a session that is created on first use, once for all threads.

    `functools.cached_property` would create one for each thread that arrives before the first one is done.
    """

    def __init__(self, make: Callable[[Any], Part]) -> None:
        self._make = make
        self._name = make.__name__

    def __get__(self, session: CatalogSession, owner: type | None = None) -> Part:
        with session.making:
            if self._name not in session.__dict__:
                session.__dict__[self._name] = self._make(session)
            part: Part = session.__dict__[self._name]
            return part


class CatalogSession:
    """One open catalog: its database, and the registry, reader, writer and publisher that share it."""

    def __init__(self, uri: CatalogUri, settings: Settings) -> None:
        self.making = threading.RLock()
        self.uri = uri
        self.settings = settings
        self.database = Database(uri, pool_size=settings.pool_size, pool_timeout_s=settings.pool_timeout)

    @_made_once
    def isolation(self) -> Isolation:
        """Level of transactions that set none: the connection's setting, else the catalog's, else `strict`."""
        return self.settings.isolation or self.registry.default_isolation() or "strict"

    def set_default_isolation(self, level: Isolation) -> None:
        self.registry.set_default_isolation(check_isolation(level))
        with self.making:
            self.__dict__.pop("isolation", None)

    @_made_once
    def registry(self) -> Registry:
        return Registry(self.database, timeout_s=self.settings.timeout)

    @_made_once
    def reader(self) -> LogReader:
        return LogReader(self.database)

    @_made_once
    def cuts(self) -> Cuts:
        return Cuts(self.database)

    @_made_once
    def cut_finder(self) -> CutFinder:
        return CutFinder(self.database)

    @_made_once
    def tags(self) -> Tags:
        return Tags(self.database)

    @_made_once
    def writer(self) -> LogWriter:
        settings = self.settings
        return LogWriter(self.database, copy_threshold=settings.copy_threshold, allow_diverged=settings.allow_diverged)

    @_made_once
    def publisher(self) -> Publisher:
        return Publisher(
            self.database,
            self.settings.storage_options,
            mode=MirrorMode(self.settings.mirror),
            checkpoint_interval=self.settings.mirror_checkpoint_interval,
        )

    def cut(self, as_of: AsOf | None, *, timeout_s: float | None = None) -> Cut:
        """Return every table's version now, or as of a tag, a transaction or a time."""
        return self.cut_finder.find(as_of, timeout_s=self.settings.timeout if timeout_s is None else timeout_s)

    def version_as_of(self, table_id: UUID, as_of: AsOf) -> int:
        """Return a table's version in a cut. Raise `VersionNotFound` if the table was not there yet."""
        found = self.cut(as_of).find(table_id)
        if found is None or found.version == NO_VERSION:
            raise VersionNotFound(
                f"the table had no version as of {as_of}",
                table_id=table_id,
                field="as_of",
                hint="It was created later. history() lists its versions.",
            )
        return found.version

    def commit(
        self,
        commit: Commit,
        *,
        timeout_s: float | None = None,
        watch: Stopwatch | None = None,
        settle: Settle | None = None,
    ) -> Committed:
        """Commit, or raise VersionConflict or a subclass if another transaction came first. `watch` records the stages.

        `settle` is called without a lock for a conflict that rows may settle, and returns what to commit then.

        An exception that is no DeltarsError, such as an interrupt, gets a note with the transaction's id and whether it
        committed.
        """
        watch = watch or Stopwatch("validate")
        try:
            outcome = self._try(commit, self.settings.timeout if timeout_s is None else timeout_s, watch, settle)
        except DeltarsError:
            raise
        except BaseException as error:
            error.add_note(
                f"deltars: it is not known whether transaction {commit.txn_id} committed; to find out:"
                f" catalog.resolve('{commit.txn_id}')"
                if Outcome.of(error, watch.stage) is Outcome.UNKNOWN
                else f"deltars: transaction {commit.txn_id} did not commit"
            )
            raise
        if isinstance(outcome, VersionTaken):
            raise self.conflict(commit, outcome)
        return outcome

    def conflict(self, commit: Commit, taken: VersionTaken) -> VersionConflict:
        """Return the error for a lost race, with who won it."""
        race, conflict = lost_race(self.database, commit, taken), taken.conflict
        rule = VersionConflict if conflict is None else conflict.rule
        return rule(
            None if conflict is None else conflict.reason,
            winning_version=None if conflict is None else conflict.version,
            winner=race.winner,
            is_serializable=race.is_serializable,
            table_id=taken.table_id,
            table=taken.table,
            expected=taken.expected,
            actual=taken.actual,
            txn_id=commit.txn_id,
            stage="check",
        )

    def _try(self, commit: Commit, timeout_s: float, watch: Stopwatch, settle: Settle | None) -> CommitOutcome:
        deadline = time.monotonic() + timeout_s
        began: dict[UUID, int] = {}
        while True:
            outcome = self.writer.commit(commit, timeout_s=timeout_s, watch=watch)
            if isinstance(outcome, Committed):
                return outcome
            # The user began with the first version, whatever versions were settled since.
            outcome = replace(outcome, expected=began.setdefault(outcome.table_id, outcome.expected))
            if settle is None or not outcome.obstacles:
                return outcome
            watch.enter("settle")
            settled = settle(commit, outcome)
            watch.enter("validate")
            timeout_s = deadline - time.monotonic()
            if isinstance(settled, VersionTaken) or timeout_s <= 0:
                return settled if isinstance(settled, VersionTaken) else outcome
            commit = settled

    def publish(self, versions: Mapping[UUID, int], *, mirror: MirrorMode | None = None) -> dict[UUID, MirrorOutcome]:
        """Publish committed versions in the mirror mode that the caller, the table or the catalog sets."""
        try:
            return self.publisher.publish_all(
                versions, mode=mirror, concurrency=self.settings.mirror_concurrency, wait_s=self.settings.mirror_wait
            )
        except Exception as error:
            # The transaction is committed: an exception would make the caller write again.
            _log.exception("committed versions were not published; the next publisher publishes them")
            return {
                table_id: MirrorOutcome(
                    table_id,
                    Publication.FAILED,
                    failure=MirrorFailure(error=f"{type(error).__name__}: {error}", table_id=table_id, version=version),
                )
                for table_id, version in versions.items()
            }

    def publish_registration(self, table_id: UUID) -> None:
        """Publish a table's name and location for `rebuild`. A failure is logged, and the reconciler tries again."""
        self.publisher.publish_registration(table_id)

    def close(self) -> None:
        if "publisher" in self.__dict__:
            self.publisher.close()
        self.database.close()

    def find(self, table: str | UUID) -> TableRecord:
        """Return a table by its name, id or URI."""
        record = self.registry.find(self.name_or_id(table))
        if record is None:
            raise self.no_table(table)
        return record

    def no_table(self, table: str | UUID) -> TableNotFound:
        """Return the error for a table that does not exist, with the names that may have been meant."""
        known = (record.name for record in self.registry.tables())
        return TableNotFound(
            f"there is no table {str(table)!r} in {self.uri}",
            table=str(table),
            hint=hint_for_missing(self.name_or_id(table), known),
        )

    def name_or_id(self, table: object) -> str | UUID:
        """Return the name or the id of a table that is given by name, id, URI or as a `Table`."""
        if isinstance(table, UUID):
            return table
        if is_handle(table):
            self.refuse_other(table._session.uri, f"{table.name} of {table._session.uri}")
            return table.id
        if not isinstance(table, str):
            # The repr of a frame may be long, and may run a query.
            shown = f"a {type(table).__qualname__}" if hasattr(table, "columns") else f"{table!r:.100}"
            raise ValidationError(
                f"a table is a name, an id or a URI, got {shown}",
                field="table",
                hint='Write the table first, by its name: catalog.table("features"), tx.write("features", df).',
            )
        if not is_storable(table):
            raise ValidationError(
                f"{table!r:.100} is not a table name: it has a character that no database can store",
                field="name",
                hint=REMOVE,
            )
        if is_uri(table):
            uri, name = parse_table_uri(table)
            self.refuse_other(uri, table)
            return name
        try:
            return UUID(table)
        except ValueError:
            return table

    def refuse_other(self, uri: CatalogUri, table: str) -> None:
        if self._is_other(uri):
            raise ValidationError(
                f"the table {table.partition('?')[0]} is in another catalog than {self.uri}",
                hint="A transaction cannot span two catalogs: connect to the other one, and commit to each separately.",
            )

    def refuse_default_elsewhere(self, table: str | UUID) -> None:
        """Refuse a name without a URI in a session opened by URI if `$DELTARS_CATALOG` names another catalog."""
        if isinstance(self.name_or_id(table), UUID) or not isinstance(table, str) or is_uri(table):
            return
        default = default_catalog()
        if default is not None and self._is_other(default):
            raise ValidationError(
                f"the name {table!r} is ambiguous: this transaction belongs to {self.uri}, and $DELTARS_CATALOG is"
                f" {default}",
                table=table,
                hint="Give the table's full URI, or begin the transaction with deltars.connect(…).begin().",
            )

    def _is_other(self, uri: CatalogUri) -> bool:
        return uri.backend != self.uri.backend or backend_for(uri).place != self.database.backend.place

    def __reduce__(self) -> tuple[Callable[..., CatalogSession], tuple[CatalogUri, Settings]]:
        return CatalogSession, (self.uri, self.settings)


@contextmanager
def after_commit(txn_id: UUID) -> Iterator[None]:
    """Add a note that the transaction is committed to any exception raised in the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"deltars: transaction {txn_id} is committed; only its publication was interrupted")
        raise


class HasSession(Protocol):
    """Object that has a session, such as a `Catalog`."""

    @property
    def _session(self) -> CatalogSession: ...


class TableHandle(HasSession, Protocol):
    """Object that stands for a table of a session: a `Table`. It is taken where a table's name is."""

    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> str: ...


def is_handle(table: object) -> TypeGuard[TableHandle]:
    return isinstance(getattr(table, "_session", None), CatalogSession) and isinstance(getattr(table, "id", None), UUID)


def check_mirror_mode(mode: str | None) -> MirrorMode | None:
    if mode is not None and mode not in set(MirrorMode):
        raise ValidationError(
            f"unknown mirror mode {mode!r}", field="mirror", hint=f"Choose one of: {', '.join(MirrorMode)}."
        )
    return None if mode is None else MirrorMode(mode)
