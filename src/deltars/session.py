"""The parts of one open catalog: its database, its settings, and what is built on them.

A `Catalog` is the public face of a session. Both can be pickled: the other process opens its own connections.
"""

from __future__ import annotations

# Loaded here because Python refuses it once the main thread has ended, when another thread may still load late names.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar
from uuid import UUID

from deltars import log, mirror, storage, store
from deltars.arguments import is_storable
from deltars.config import Isolation, Settings, check_isolation, default_catalog
from deltars.errors import (
    DeltarsError,
    MirrorFailure,
    TableNotFound,
    ValidationError,
    VersionConflict,
    VersionNotFound,
    brief,
)
from deltars.log.moments import from_milliseconds
from deltars.log.new_table import NO_VERSION
from deltars.observe import Outcome, Stopwatch
from deltars.store.backends import backend_for
from deltars.store.database import Database
from deltars.store.names import check_name
from deltars.store.registry import Registry, TableRecord
from deltars.uri import CatalogUri, is_uri, parse_table_uri

if TYPE_CHECKING:
    from deltars.log import Commit, CommitOutcome, Committed, VersionTaken
    from deltars.mirror import MirrorOutcome, Publisher
    from deltars.store import AsOf, Cut, CutFinder, Cuts, Heartbeat, Identities, LogReader, LogWriter, MirrorMode, Tags
    from deltars.store.commit.next_version import NextVersion

_log = logging.getLogger(__name__)

_BY_PATH = re.compile(r"(?:delta|deltasql)\.(.*/.*)", re.IGNORECASE | re.DOTALL)

Part = TypeVar("Part")

Settle: TypeAlias = "Callable[[Commit, VersionTaken], Commit | VersionTaken]"
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
        self.publisher.publish_settings()

    @_made_once
    def registry(self) -> Registry:
        return Registry(self.database, timeout_s=self.settings.timeout)

    @_made_once
    def reader(self) -> LogReader:
        return store.LogReader(self.database)

    @_made_once
    def cuts(self) -> Cuts:
        return store.Cuts(self.database)

    @_made_once
    def cut_finder(self) -> CutFinder:
        return store.CutFinder(self.database)

    @_made_once
    def tags(self) -> Tags:
        return store.Tags(self.database)

    @_made_once
    def identities(self) -> Identities:
        return store.Identities(self.database)

    @_made_once
    def writer(self) -> LogWriter:
        return store.LogWriter(
            self.database,
            copy_threshold=self.settings.copy_threshold,
            allow_diverged=self.settings.allow_diverged,
            records_reads=self.settings.record_activity,
        )

    @_made_once
    def heartbeat(self) -> Heartbeat:
        return store.Heartbeat(store.Writers(self.database))

    @_made_once
    def publisher(self) -> Publisher:
        return mirror.Publisher(
            self.database,
            self.settings.storage_options,
            mode=store.MirrorMode(self.settings.mirror),
            checkpoint_interval=self.settings.mirror_checkpoint_interval,
        )

    def cut(self, as_of: AsOf | None, *, timeout_s: float | None = None) -> Cut:
        """Return every table's version now, or as of a tag, a transaction or a time."""
        return self.cut_finder.find(as_of, timeout_s=self.settings.timeout if timeout_s is None else timeout_s)

    def version_as_of(self, table_id: UUID, as_of: AsOf) -> int:
        """Return a table's version in a cut. Raise `VersionNotFound` if the table was not there yet."""
        cut = self.cut(as_of)
        self.refuse_expired(cut, table_id)
        found = cut.find(table_id)
        if found is None or found.version == NO_VERSION:
            raise VersionNotFound(
                f"the table had no version as of {as_of}",
                table_id=table_id,
                field="as_of",
                hint="It was created later. history() lists its versions.",
            )
        return found.version

    def refuse_expired(self, cut: Cut, table: str | UUID) -> None:
        """Raise `HistoryExpired` if the table's version in a past cut is expired."""
        table_id = cut.find_expired(table)
        if table_id is None:
            return
        assert cut.commit_ts is not None
        moment = from_milliseconds(cut.commit_ts // 1000).isoformat()
        with self.database.read() as connection:
            message = f"the table's version as of {moment} is expired"
            error = store.history_expired(connection, table_id, message, field="as_of")
        raise error.located(table=cut.expired[str(table_id)])

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
            _note_outcome(error, commit.txn_id, watch)
            raise
        if isinstance(outcome, log.VersionTaken):
            raise self.conflict(commit, outcome)
        self.reader.follow(commit, outcome)
        return outcome

    def commit_all(self, commits: Sequence[Commit]) -> list[Committed]:
        """Commit blind appends to one table together: all of them, or none. See `commit`.

        An error has the id of the first transaction. The others have the same outcome.
        """
        watch = Stopwatch("validate")
        try:
            outcome = self.writer.commit_all(commits, timeout_s=self.settings.timeout, watch=watch)
        except DeltarsError:
            raise
        except BaseException as error:
            _note_outcome(error, commits[0].txn_id, watch)
            raise
        if isinstance(outcome, log.VersionTaken):
            raise self.conflict(commits[0], outcome)
        return outcome

    def conflict(self, commit: Commit, taken: VersionTaken) -> VersionConflict:
        """Return the error for a lost race, with who won it."""
        race, conflict = store.lost_race(self.database, commit, taken), taken.conflict
        if self.settings.record_activity:
            store.record_conflict(self.database, commit, taken, race)
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
            if isinstance(outcome, log.Committed):
                return outcome
            # The user began with the first version, whatever versions were settled since.
            outcome = replace(outcome, expected=began.setdefault(outcome.table_id, outcome.expected))
            if settle is None or not outcome.obstacles:
                return outcome
            watch.enter("settle")
            settled = settle(commit, outcome)
            watch.enter("validate")
            timeout_s = deadline - time.monotonic()
            if isinstance(settled, log.VersionTaken) or timeout_s <= 0:
                return settled if isinstance(settled, log.VersionTaken) else outcome
            commit = settled

    def publish(
        self,
        versions: Mapping[UUID, int],
        *,
        mirror: MirrorMode | None = None,
        next_version: Callable[[], NextVersion] | None = None,
    ) -> dict[UUID, MirrorOutcome]:
        """Publish committed versions in the mirror mode that the caller, the table or the catalog sets.

        `next_version` is that of the commit, if it was made just now.
        """
        try:
            return self.publisher.publish_all(
                versions,
                mode=mirror,
                concurrency=self.settings.mirror_concurrency,
                wait_s=self.settings.mirror_wait,
                next_version=next_version,
            )
        except Exception as error:
            # The transaction is committed: an exception would make the caller write again.
            _log.exception("committed versions were not published; the next publisher publishes them")
            return {table_id: _failed(table_id, version, error) for table_id, version in versions.items()}

    def publish_registration(self, table_id: UUID) -> None:
        """Publish a table's name and location for `rebuild`. A failure is logged, and the reconciler tries again."""
        self.publisher.publish_registration(table_id)

    def close(self) -> None:
        if "publisher" in self.__dict__:
            self.publisher.close()
        if "heartbeat" in self.__dict__:
            self.heartbeat.close()
        self.database.close()

    def find(self, table: TableLike) -> TableRecord:
        """Return a table by its name, id or URI."""
        record = self.registry.find(self.name_or_id(table))
        if record is None:
            raise self.no_table(table)
        return record

    def find_all(self, tables: Sequence[TableLike] | None) -> list[TableRecord]:
        """Return these tables, or every table if None. One table alone is a list of one."""
        return self.registry.tables() if tables is None else [self.find(table) for table in as_tables(tables)]

    def find_ids(self, tables: Sequence[TableLike] | None) -> list[UUID] | None:
        """Return the ids of these tables. None, which means every table, stays None."""
        return None if tables is None else [record.table_id for record in self.find_all(tables)]

    def no_table(self, table: TableLike) -> TableNotFound:
        """Return the error for a table that does not exist."""
        return self.registry.missing(self.name_or_id(table))

    def name_or_id(self, table: object) -> str | UUID:
        """Return the name or the id of a table that is given by name, id, URI, path or as a `Table`.

        A path is written as in Spark's SQL, delta.`/lake/features`, here without its quotes.
        """
        if isinstance(table, UUID):
            return table
        if is_handle(table):
            self.refuse_other(table._session.uri, f"{table.name} of {table._session.uri}")
            return table.id
        if not isinstance(table, str):
            # The repr of a frame may be long, and may run a query.
            shown = f"a {type(table).__qualname__}" if hasattr(table, "columns") else f"{brief(table)}"
            raise ValidationError(
                f"a table is a name, an id or a URI, got {shown}",
                field="table",
                hint='Write the table first, by its name: catalog.table("features"), tx.write("features", df).',
            )
        if not is_storable(table):
            # No database can look it up, and no table can have it.
            check_name(table)
        if is_uri(table):
            uri, name = parse_table_uri(table)
            self.refuse_other(uri, table)
            return name
        location = path_in_name(table)
        if location is not None:
            found = self.registry.find_at(location)
            return table if found is None else found.table_id
        try:
            return UUID(table)
        except ValueError:
            return table

    def refuse_other(self, uri: CatalogUri, table: str) -> None:
        if self.is_other(uri):
            raise ValidationError(
                f"the table {table.partition('?')[0]} is in another catalog than {self.uri}",
                hint="A transaction cannot span two catalogs: connect to the other one, and commit to each separately.",
            )

    def refuse_default_elsewhere(self, table: TableLike) -> None:
        """Refuse a name without a URI in a session opened by URI if `$DELTARS_CATALOG` names another catalog."""
        if isinstance(self.name_or_id(table), UUID) or not isinstance(table, str) or is_uri(table):
            return
        default = default_catalog()
        if default is not None and self.is_other(default):
            raise ValidationError(
                f"the name {table!r} is ambiguous: this transaction belongs to {self.uri}, and $DELTARS_CATALOG is"
                f" {default}",
                table=table,
                hint="Give the table's full URI, or begin the transaction with deltars.connect(…).begin().",
            )

    def is_other(self, uri: CatalogUri) -> bool:
        """Return whether a URI names another catalog than this session's."""
        return uri.backend != self.uri.backend or backend_for(uri).place != self.database.backend.place

    def __reduce__(self) -> tuple[Callable[..., CatalogSession], tuple[CatalogUri, Settings]]:
        return CatalogSession, (self.uri, self.settings)


def path_in_name(name: str) -> str | None:
    """Return the location in a name such as delta./lake/features; None for other names, which have no slash."""
    match = _BY_PATH.fullmatch(name)
    return None if match is None else location_at(match[1])


def location_at(path: str | os.PathLike[str]) -> str:
    """Return the location of a path in its normal form. A relative path is in the working directory, as in Spark."""
    if not isinstance(path, str | os.PathLike):
        raise ValidationError(f"a path is a text, got {brief(path)}", field="path")
    text = os.fspath(path)
    is_relative = bool(text) and not text.startswith("/") and ":" not in text
    return str(storage.parse_location(os.path.abspath(text) if is_relative else text))


def _failed(table_id: UUID, version: int, error: Exception) -> MirrorOutcome:
    failure = MirrorFailure(error=f"{type(error).__name__}: {error}", table_id=table_id, version=version)
    return mirror.MirrorOutcome(table_id, mirror.Publication.FAILED, failure=failure)


def _note_outcome(error: BaseException, txn_id: UUID, watch: Stopwatch) -> None:
    """Add a note to an exception that ended a commit: whether the transaction committed."""
    error.add_note(
        f"deltars: it is not known whether transaction {txn_id} committed; to find out: catalog.resolve('{txn_id}')"
        if Outcome.of(error, watch.stage) is Outcome.UNKNOWN
        else f"deltars: transaction {txn_id} did not commit"
    )


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


TableLike: TypeAlias = str | UUID | TableHandle
"""A table: its name (in any case), its id, its whole `deltasql://` URI, or a `Table`."""


def as_tables(tables: object) -> list[TableLike]:
    """Return the tables of a list. One table alone is a list of one: a text is not read letter by letter."""
    if isinstance(tables, str | UUID) or is_handle(tables):
        return [tables]
    if isinstance(tables, Iterable) and not isinstance(tables, bytes):
        return list(tables)
    raise ValidationError(
        f"tables must be a list of tables, got {brief(tables)}",
        field="tables",
        hint='Write tables=["features", "labels"].',
    )


def is_handle(table: object) -> TypeGuard[TableHandle]:
    return isinstance(getattr(table, "_session", None), CatalogSession) and isinstance(getattr(table, "id", None), UUID)


def check_mirror_mode(mode: Any) -> MirrorMode | None:
    if mode is not None and (not isinstance(mode, str) or mode not in set(store.MirrorMode)):
        raise ValidationError(
            f"unknown mirror mode {brief(mode)}", field="mirror", hint=f"Choose one of: {', '.join(store.MirrorMode)}."
        )
    return None if mode is None else store.MirrorMode(mode)
