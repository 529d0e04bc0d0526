"""Published tags: `<warehouse>/_deltars/tags/<name>.json`, each with the version of every table in its cut.

The database's row is written first, and deleted first. So a file without a row is one that `untag` left, and a row
without a file one that `tag` did not publish any more: the reconciler repairs both.

A tag is published at once, also if versions in it are not published yet.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from deltars.errors import StorageError
from deltars.mirror.warehouse import OpenStorage, Warehouse
from deltars.storage import Storage
from deltars.store.database import Database
from deltars.store.mirror.records import MirrorRecords
from deltars.store.read.cuts import Cuts
from deltars.store.tags import Tag, Tags

TAGS = "_deltars/tags"


class TaggedTable(msgspec.Struct, frozen=True, rename="camel"):
    """Table in the cut of a published tag."""

    table_id: UUID
    name: str
    location: str
    version: int


class PublishedTag(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Content of a tag's file, in the order of its fields."""

    name: str
    commit_ts: int
    created_at: datetime
    txn_id: UUID | None = None
    committer: str | None = None
    description: str | None = None
    tables: list[TaggedTable] = []

    @property
    def tag(self) -> Tag:
        return Tag(self.name, self.commit_ts, self.txn_id, self.created_at, self.committer, self.description)


class TagFiles:
    """The files of a catalog's tags."""

    def __init__(
        self, database: Database, records: MirrorRecords, warehouse: Warehouse, open_storage: OpenStorage
    ) -> None:
        self._tags = Tags(database)
        self._cuts = Cuts(database)
        self._records = records
        self._warehouse = warehouse
        self._open_storage = open_storage

    def publish(self, name: str) -> None:
        """Write the file of a tag, or delete it if there is no such tag."""
        storage = self._storage()
        if storage is None:
            return
        tag = self._tags.find(name)
        if tag is None:
            storage.delete([tag_path(name)])
        else:
            storage.put(tag_path(tag.name), self._render(tag))

    def repair(self) -> list[str]:
        """Write files that are missing or out of date, and delete those of deleted tags. Return their URLs."""
        storage = self._storage()
        if storage is None:
            return []
        # Listed before the tags are read: the row of a new tag is there before its file.
        listed = {file.path for file in storage.list(TAGS) if file.path.endswith(".json")}
        tags = {tag_path(tag.name): tag for tag in self._tags.all()}
        repaired = sorted(listed - tags.keys())
        storage.delete(repaired)
        for path, tag in tags.items():
            content = self._render(tag)
            if path not in listed or storage.get_or_none(path) != content:
                storage.put(path, content)
                repaired.append(path)
        return [storage.url_of(path) for path in repaired]

    def _storage(self) -> Storage | None:
        _, warehouse = self._records.catalog()
        if warehouse is None:
            return None
        self._warehouse.claim()
        return self._open_storage(warehouse)

    def _render(self, tag: Tag) -> bytes:
        entries = {entry.table_id: entry for entry in self._records.registrations()}
        tables = [
            TaggedTable(table.table_id, entries[table.table_id].name, entries[table.table_id].location, table.version)
            for table in sorted(self._cuts.sealed(tag.commit_ts).tables, key=lambda table: str(table.table_id))
        ]
        content = PublishedTag(
            tag.name, tag.commit_ts, tag.created_at, tag.txn_id, tag.committer, tag.description, tables
        )
        return msgspec.json.format(msgspec.json.encode(content)) + b"\n"


def published_tags(storage: Storage) -> list[PublishedTag]:
    """Return the tags in a warehouse, by name."""
    found = []
    for file in storage.list(TAGS):
        if not file.path.endswith(".json"):
            continue
        try:
            found.append(msgspec.json.decode(storage.get(file.path), type=PublishedTag))
        except msgspec.MsgspecError as error:
            raise StorageError(f"{file.path} does not describe a tag: {error}", path=file.path) from error
    return sorted(found, key=lambda tag: tag.name)


def tag_path(name: str) -> str:
    return f"{TAGS}/{name}.json"
