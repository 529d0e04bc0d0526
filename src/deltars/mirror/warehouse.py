"""The mirror's own files in `<warehouse>/_deltars`: registry entries and version maps.

- `catalog.json`: the id of the one catalog that the warehouse belongs to;
- `tables/<table_id>.json`: name and location of a table, so that the catalog can be rebuilt from the warehouse;
- `txns/<txn_id>.json`: the versions that one transaction created, so that any reader can read them together;
- `tags/<name>.json`: a tag and the versions in its cut (`tag_files`);
- `settings.json`: the isolation level that the catalog stores (`settings_file`);
- `copies/<table_id>.json`: a copy of a table that is being made (`catalog.unfinished_copies`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import msgspec

from deltars.errors import DeltarsError, StorageError, TableNotFound, WarehouseTaken
from deltars.observe import TransactionPublished, emit, is_watched
from deltars.storage import Storage, refuse_overwriting
from deltars.store.mirror.records import MirrorRecords, Registration, TransactionTables
from deltars.store.mirror.status import MirrorMode, MirrorStatus, MirrorStatusStore
from deltars.store.read.committed_versions import CommittedVersion

SETTLED_US = 600_000_000
"""How long after its commit timestamp a transaction may still become visible, in microseconds."""

FEW_MAPS = 20
"""Up to this many version maps are checked one by one; for more, the directory is listed."""

MARKER = "_deltars/catalog.json"

OpenStorage: TypeAlias = Callable[[str], Storage]


class Registered(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Registry entry of a table: the content of `_deltars/tables/<table_id>.json`, in the order of its fields."""

    table_id: UUID
    name: str
    location: str
    catalog_id: UUID | None = None
    created_at: datetime | None = None
    dropped_at: datetime | None = None


_log = logging.getLogger(__name__)


class Warehouse:
    def __init__(self, status: MirrorStatusStore, records: MirrorRecords, open_storage: OpenStorage) -> None:
        self._status = status
        self._records = records
        self._open_storage = open_storage
        self._claimed: set[tuple[UUID, str]] = set()

    def claim(self, warehouse: str | None = None, *, take_over: bool = False) -> None:
        """Mark a warehouse, by default the catalog's, as this catalog's. Raise WarehouseTaken if another catalog did.

        `take_over` replaces the mark of a lost catalog. A process checks a warehouse that it claimed only once.
        """
        catalog_id, known = self._records.catalog()
        place = known if warehouse is None else warehouse
        if place is not None:
            self._claim(catalog_id, place, take_over=take_over)

    def _claim(self, catalog_id: UUID, warehouse: str, *, take_over: bool = False) -> None:
        if (catalog_id, warehouse) in self._claimed and not take_over:
            return
        storage = self._open_storage(warehouse)
        mark = _encode({"catalogId": catalog_id})
        if take_over:
            storage.put(MARKER, mark)
        elif storage.get_or_none(MARKER) is None:
            refuse_overwriting(storage)
            storage.put_if_absent(MARKER, mark)
        owner = _owner_in(storage.get(MARKER), storage)
        if owner != catalog_id:
            raise WarehouseTaken(
                f"the warehouse {warehouse} belongs to another catalog, {owner}; this one is {catalog_id}",
                hint="Give this catalog another warehouse. If the other catalog is lost, `deltars rebuild` restores its"
                f" tables; if you need none of them, delete {storage.url_of(MARKER)}.",
            )
        self._claimed.add((catalog_id, warehouse))

    def publish_registration(self, table_id: UUID) -> None:
        """Write a table's current name and location, after the table was created, renamed or dropped."""
        entry = self._records.registration(table_id)
        if entry.warehouse is not None:
            self._claim(entry.catalog_id, entry.warehouse)
            self._open_storage(entry.warehouse).put(registration_path(table_id), render_registration(entry))

    def publish_version_maps(self, commits: Sequence[CommittedVersion]) -> None:
        """Write the maps of transactions whose last table was just published. The reconciler writes those that fail."""
        several = [commit for commit in commits if len(commit.participants) > 1]
        if not several:
            return
        try:
            ids = sorted({UUID(key) for commit in several for key in commit.participants})
            tables = {str(status.table_id): status for status in self._status.read_all(ids)}
            entry = self._records.registration(several[0].table_id)
            storage = None
            if entry.warehouse is not None:
                self._claim(entry.catalog_id, entry.warehouse)
                storage = self._open_storage(entry.warehouse)
            for commit in several:
                # A table that was purged meanwhile cannot be read any more.
                if not commit.participants.keys() <= tables.keys():
                    continue
                participants = [tables[key] for key in sorted(commit.participants)]
                if not is_published(commit.participants, participants):
                    continue
                path, content = version_map_path(commit.txn_id), render_version_map(commit, participants)
                # Two publishers may each find that theirs was the last table: one of them writes the map.
                if storage is None or storage.put_if_absent(path, content):
                    self._report(commit)
        except DeltarsError as error:
            _log.warning("the version map of transaction %s was not published: %s", several[0].txn_id, error)

    def _report(self, commit: CommittedVersion) -> None:
        if not is_watched():
            return
        try:
            skew_s = self._records.skew_us(commit.participants) / 1_000_000
        except DeltarsError as error:
            _log.debug("the skew of transaction %s is not known: %s", commit.txn_id, error)
        else:
            emit(TransactionPublished(self._status.source, commit.txn_id, len(commit.participants), skew_s))

    def repair_registrations(self) -> list[str]:
        """Rewrite registry entries that are missing or out of date. Return their URLs."""
        repaired = []
        for entry in self._records.registrations():
            if entry.warehouse is None:
                break
            self._claim(entry.catalog_id, entry.warehouse)
            path = registration_path(entry.table_id)
            storage = self._open_storage(entry.warehouse)
            if storage.get_or_none(path) != render_registration(entry):
                # Read the entry again, in case the table was just renamed, or purged.
                with suppress(TableNotFound):
                    self.publish_registration(entry.table_id)
                    repaired.append(storage.url_of(path))
        return repaired

    def repair_version_maps(self, since: int = 0) -> tuple[list[str], int]:
        """Write missing maps of transactions from `since` (µs) on. Return their URLs, and `since` for the next call."""
        transactions = self._records.transactions_over_several(since)
        entries = self._records.registrations() if transactions else []
        if not entries or entries[0].warehouse is None:
            return [], since
        self._claim(entries[0].catalog_id, entries[0].warehouse)
        storage = self._open_storage(entries[0].warehouse)
        tables = {str(status.table_id): status for status in self._status.overview(with_dropped=True)}
        # No further version of these tables will be published: do not wait for them.
        stopped = {str(entry.table_id) for entry in entries if entry.dropped_at is not None}
        stopped.update(key for key, status in tables.items() if status.mode is MirrorMode.OFF)
        published, unfinished = {}, transactions[-1].commit_ts
        for transaction in transactions:
            # A rebuilt catalog lacks tables whose logs were gone, so their transactions can no longer be read.
            if not transaction.participants.keys() <= tables.keys():
                continue
            behind = {
                key for key, version in transaction.participants.items() if tables[key].published_version < version
            }
            if not behind:
                published[version_map_path(transaction.txn_id)] = transaction
            elif behind.isdisjoint(stopped):
                unfinished = min(unfinished, transaction.commit_ts)
        repaired = []
        for path in _missing(storage, published):
            participants = [tables[key] for key in sorted(published[path].participants)]
            if storage.put_if_absent(path, render_version_map(published[path], participants)):
                repaired.append(path)
        # The map of a transaction that was expired meanwhile would stay for ever.
        gone = {path for path in repaired if not self._records.has_transaction(published[path].txn_id)}
        storage.delete(sorted(gone))
        repaired = [storage.url_of(path) for path in repaired if path not in gone]
        # A commit may become visible after another one with a later timestamp.
        return repaired, max(since, unfinished - SETTLED_US)


def is_published(participants: Mapping[str, int], tables: Iterable[MirrorStatus]) -> bool:
    """Return whether every table of a transaction is published up to the transaction's version."""
    return all(table.published_version >= participants[str(table.table_id)] for table in tables)


def registration_path(table_id: UUID) -> str:
    return f"_deltars/tables/{table_id}.json"


def version_map_path(txn_id: UUID) -> str:
    return f"_deltars/txns/{txn_id}.json"


def render_registration(entry: Registration) -> bytes:
    return _encode(
        Registered(entry.table_id, entry.name, entry.location, entry.catalog_id, entry.created_at, entry.dropped_at)
    )


def render_version_map(transaction: TransactionTables | CommittedVersion, tables: Iterable[MirrorStatus]) -> bytes:
    return _encode(
        {
            "txnId": transaction.txn_id,
            "commitTs": transaction.commit_ts,
            "tables": [
                {
                    "tableId": table.table_id,
                    "name": table.name,
                    "location": table.location,
                    "version": transaction.participants[str(table.table_id)],
                }
                for table in tables
            ],
        }
    )


class _Marker(msgspec.Struct, rename="camel"):
    catalog_id: UUID


def _owner_in(content: bytes, storage: Storage) -> UUID:
    try:
        return msgspec.json.decode(content, type=_Marker).catalog_id
    except msgspec.MsgspecError as error:
        raise StorageError(f"{storage.url_of(MARKER)} does not name a catalog: {error}", path=MARKER) from error


def _missing(storage: Storage, maps: Collection[str]) -> list[str]:
    if len(maps) <= FEW_MAPS:
        return [path for path in maps if not storage.exists(path)]
    there = {info.path for info in storage.list("_deltars/txns")}
    return [path for path in maps if path not in there]


def _encode(document: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"
