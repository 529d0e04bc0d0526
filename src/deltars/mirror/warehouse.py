"""What the mirror keeps beside the tables, in `<warehouse>/_deltars`: registry and version maps.

- `catalog.json`: the id of the one catalog that the warehouse belongs to;
- `tables/<table_id>.json`: name and location of a table, so that the catalog can be rebuilt from its files;
- `txns/<txn_id>.json`: the versions that one transaction made, so that any reader can read them as one cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from deltars.errors import DeltarsError, StorageError, WarehouseTaken
from deltars.observe import TransactionPublished, emit, is_watched
from deltars.storage import Storage, refuse_overwriting
from deltars.store.mirror.records import MirrorRecords, Registration, TransactionTables
from deltars.store.mirror.status import MirrorMode, MirrorStatus, MirrorStatusStore
from deltars.store.read.committed_versions import CommittedVersion

SETTLED_US = 600_000_000

FEW_MAPS = 20
"""So many version maps are asked for one by one; for more, all are listed."""

MARKER = "_deltars/catalog.json"

OpenStorage: TypeAlias = Callable[[str], Storage]

_log = logging.getLogger(__name__)


class Warehouse:
    def __init__(self, status: MirrorStatusStore, records: MirrorRecords, open_storage: OpenStorage) -> None:
        self._status = status
        self._records = records
        self._open_storage = open_storage
        self._claimed: set[tuple[UUID, str]] = set()

    def claim(self, warehouse: str | None = None, *, take_over: bool = False) -> None:
        """Mark a warehouse, by default the catalog's own, as this catalog's; refuse one that another catalog marked.

        `take_over` replaces the mark of a catalog that is lost. A warehouse that was claimed once is not looked at
        again by this process.
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
                hint="Give this catalog a warehouse of its own. If the other catalog is lost, `deltars rebuild` brings"
                f" its tables back; if nothing of it is needed, delete {storage.url_of(MARKER)}.",
            )
        self._claimed.add((catalog_id, warehouse))

    def publish_registration(self, table_id: UUID) -> None:
        """A table's name and location as they are now: after it was created, renamed or dropped."""
        entry = self._records.registration(table_id)
        if entry.warehouse is not None:
            self._claim(entry.catalog_id, entry.warehouse)
            self._open_storage(entry.warehouse).put(registration_path(table_id), render_registration(entry))

    def publish_version_maps(self, commits: Sequence[CommittedVersion]) -> None:
        """The maps of those transactions whose last table was published just now. What fails is done later."""
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
                participants = [tables[key] for key in sorted(commit.participants)]
                if not is_published(commit.participants, participants):
                    continue
                path, content = version_map_path(commit.txn_id), render_version_map(commit, participants)
                # Two may find that theirs was the last table: one of them puts the map.
                if storage is None or storage.put_if_absent(path, content):
                    self._tell(commit)
        except DeltarsError as error:
            _log.warning("the version map of transaction %s was not published: %s", several[0].txn_id, error)

    def _tell(self, commit: CommittedVersion) -> None:
        if not is_watched():
            return
        try:
            skew_s = self._records.skew_us(commit.participants) / 1_000_000
        except DeltarsError as error:
            _log.debug("the skew of transaction %s is not known: %s", commit.txn_id, error)
        else:
            emit(TransactionPublished(self._status.source, commit.txn_id, len(commit.participants), skew_s))

    def mend_registrations(self) -> list[str]:
        """Publish again what a crash, or somebody's hand, left missing or out of date; the paths."""
        mended = []
        for entry in self._records.registrations():
            if entry.warehouse is None:
                break
            self._claim(entry.catalog_id, entry.warehouse)
            path = registration_path(entry.table_id)
            storage = self._open_storage(entry.warehouse)
            if storage.get_or_none(path) != render_registration(entry):
                # What the catalog says by now, in case the table was just renamed.
                self.publish_registration(entry.table_id)
                mended.append(storage.url_of(path))
        return mended

    def mend_version_maps(self, since: int = 0) -> tuple[list[str], int]:
        """Publish the maps that are missing, of transactions from `since` (µs) on; the paths, and where to go on."""
        transactions = self._records.transactions_over_several(since)
        entries = self._records.registrations() if transactions else []
        if not entries or entries[0].warehouse is None:
            return [], since
        self._claim(entries[0].catalog_id, entries[0].warehouse)
        storage = self._open_storage(entries[0].warehouse)
        tables = {str(status.table_id): status for status in self._status.overview(with_dropped=True)}
        # Nobody is to publish more of these: whatever waits for them would wait for ever.
        stopped = {str(entry.table_id) for entry in entries if entry.dropped_at is not None}
        stopped.update(key for key, status in tables.items() if status.mode is MirrorMode.OFF)
        published, unfinished = {}, transactions[-1].commit_ts
        for transaction in transactions:
            # A rebuilt catalog lacks the tables whose logs were gone, and nobody can read their cuts.
            if not transaction.participants.keys() <= tables.keys():
                continue
            behind = {
                key for key, version in transaction.participants.items() if tables[key].published_version < version
            }
            if not behind:
                published[version_map_path(transaction.txn_id)] = transaction
            elif behind.isdisjoint(stopped):
                unfinished = min(unfinished, transaction.commit_ts)
        mended = []
        for path in _missing(storage, published):
            participants = [tables[key] for key in sorted(published[path].participants)]
            if storage.put_if_absent(path, render_version_map(published[path], participants)):
                mended.append(storage.url_of(path))
        # A commit with a smaller time may still be on its way when one with a larger time is there.
        return mended, max(since, unfinished - SETTLED_US)


def is_published(participants: Mapping[str, int], tables: Iterable[MirrorStatus]) -> bool:
    """Whether every table of a transaction is published as far as the transaction took it."""
    return all(table.published_version >= participants[str(table.table_id)] for table in tables)


def registration_path(table_id: UUID) -> str:
    return f"_deltars/tables/{table_id}.json"


def version_map_path(txn_id: UUID) -> str:
    return f"_deltars/txns/{txn_id}.json"


def render_registration(entry: Registration) -> bytes:
    document: dict[str, Any] = {
        "tableId": entry.table_id,
        "name": entry.name,
        "location": entry.location,
        "catalogId": entry.catalog_id,
        "createdAt": entry.created_at,
    }
    if entry.dropped_at is not None:
        document["droppedAt"] = entry.dropped_at
    return _encode(document)


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


def _encode(document: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"
