"""What a transaction needs of a catalog: its database, its settings, and the parts built on them.

A `Catalog` is what a user holds; this is what is inside. Both pickle: another process opens connections of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol
from uuid import UUID

from deltars.config import Settings
from deltars.errors import DeltarsError, TableNotFound, ValidationError, VersionConflict
from deltars.log.commit import Commit, Committed, VersionTaken
from deltars.mirror.outcome import MirrorOutcome
from deltars.mirror.publisher import Publisher
from deltars.store.backends import backend_for
from deltars.store.cuts import Cuts
from deltars.store.database import Database
from deltars.store.mirror_status import MirrorMode
from deltars.store.reader import LogReader
from deltars.store.registry import Registry, TableRecord
from deltars.store.writer import LogWriter
from deltars.uri import CatalogUri, is_uri, parse_table_uri

_log = logging.getLogger(__name__)


class Engine:
    def __init__(self, uri: CatalogUri, settings: Settings) -> None:
        self.uri = uri
        self.settings = settings
        self.database = Database(uri, pool_size=settings.pool_size, pool_timeout_s=settings.pool_timeout)

    @cached_property
    def registry(self) -> Registry:
        return Registry(self.database, timeout_s=self.settings.timeout)

    @cached_property
    def reader(self) -> LogReader:
        return LogReader(self.database)

    @cached_property
    def cuts(self) -> Cuts:
        return Cuts(self.database)

    @cached_property
    def writer(self) -> LogWriter:
        settings = self.settings
        return LogWriter(self.database, copy_threshold=settings.copy_threshold, allow_diverged=settings.allow_diverged)

    @cached_property
    def publisher(self) -> Publisher:
        return Publisher(
            self.database,
            self.settings.storage_options,
            mode=MirrorMode(self.settings.mirror),
            checkpoint_interval=self.settings.mirror_checkpoint_interval,
        )

    def commit(self, commit: Commit, *, timeout_s: float | None = None) -> Committed:
        """The commit, or the exception that a lost race becomes at the edge."""
        outcome = self.writer.commit(commit, timeout_s=self.settings.timeout if timeout_s is None else timeout_s)
        if isinstance(outcome, VersionTaken):
            conflict = outcome.conflict
            rule = VersionConflict if conflict is None else conflict.rule
            raise rule(
                None if conflict is None else conflict.reason,
                winning_version=None if conflict is None else conflict.version,
                table_id=outcome.table_id,
                table=outcome.table,
                expected=outcome.expected,
                actual=outcome.actual,
                txn_id=commit.txn_id,
                stage="check",
            )
        return outcome

    def publish(self, versions: Mapping[UUID, int], *, mirror: MirrorMode | None = None) -> dict[UUID, MirrorOutcome]:
        """Publish committed versions, or leave it to others, as the caller, the table or the catalog says."""
        return self.publisher.publish_all(
            versions, mode=mirror, concurrency=self.settings.mirror_concurrency, wait_s=self.settings.mirror_wait
        )

    def publish_registration(self, table_id: UUID) -> None:
        """Name and location, for `rebuild`. The database has them; a warehouse out of reach now gets them later."""
        try:
            self.publisher.publish_registration(table_id)
        except DeltarsError as error:
            _log.warning("the registry entry of table %s was not published: %s", table_id, error)

    def close(self) -> None:
        if "publisher" in self.__dict__:
            self.publisher.close()
        self.database.close()

    def find(self, table: str | UUID) -> TableRecord:
        """A table by name, by id or by its whole URI."""
        record = self.registry.find(self.name_or_id(table))
        if record is None:
            raise TableNotFound(
                f"there is no table {str(table)!r} in {self.uri}",
                table=str(table),
                hint="catalog.tables() lists those there are.",
            )
        return record

    def name_or_id(self, table: str | UUID) -> str | UUID:
        if isinstance(table, UUID):
            return table
        if is_uri(table):
            uri, name = parse_table_uri(table)
            self.refuse_other(uri, table)
            return name
        try:
            return UUID(table)
        except ValueError:
            return table

    def refuse_other(self, uri: CatalogUri, table: str) -> None:
        if uri.backend != self.uri.backend or backend_for(uri).place != self.database.backend.place:
            raise ValidationError(
                f"the table {table.partition('?')[0]} lives in another catalog than {self.uri}",
                hint="One transaction is one transaction of one database: connect to the other one, and commit to each"
                " by itself.",
            )

    def __reduce__(self) -> tuple[Callable[..., Engine], tuple[CatalogUri, Settings]]:
        return Engine, (self.uri, self.settings)


class HasEngine(Protocol):
    """A catalog, as far as a writer or a reader needs to know it."""

    @property
    def engine(self) -> Engine: ...


def check_mirror_mode(mode: str | None) -> MirrorMode | None:
    if mode is not None and mode not in set(MirrorMode):
        raise ValidationError(
            f"unknown mirror mode {mode!r}", field="mirror", hint=f"Known are: {', '.join(MirrorMode)}."
        )
    return None if mode is None else MirrorMode(mode)
