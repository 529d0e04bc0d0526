"""Published settings of a catalog: `<warehouse>/_deltars/settings.json`, so that `rebuild` restores them.

The file is never deleted: a catalog that stores no level may be one whose rebuild has not restored it yet.
"""

from __future__ import annotations

import msgspec

from deltars.config import Isolation
from deltars.errors import StorageError
from deltars.mirror.warehouse import OpenStorage, Warehouse
from deltars.storage import Storage
from deltars.store.mirror.records import MirrorRecords

SETTINGS = "_deltars/settings.json"


class PublishedSettings(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Content of the file."""

    isolation: Isolation | None = None


class SettingsFile:
    """The file of a catalog's settings."""

    def __init__(self, records: MirrorRecords, warehouse: Warehouse, open_storage: OpenStorage) -> None:
        self._records = records
        self._warehouse = warehouse
        self._open_storage = open_storage

    def publish(self) -> str | None:
        """Write the file if it is missing or out of date. Return its URL if it was."""
        isolation = self._records.isolation()
        _, warehouse = self._records.catalog()
        if isolation is None or warehouse is None:
            return None
        self._warehouse.claim()
        storage = self._open_storage(warehouse)
        content = msgspec.json.format(msgspec.json.encode(PublishedSettings(isolation))) + b"\n"
        if storage.get_or_none(SETTINGS) == content:
            return None
        storage.put(SETTINGS, content)
        return storage.url_of(SETTINGS)


def published_settings(storage: Storage) -> PublishedSettings:
    """Return the settings in a warehouse."""
    content = storage.get_or_none(SETTINGS)
    if content is None:
        return PublishedSettings()
    try:
        return msgspec.json.decode(content, type=PublishedSettings)
    except msgspec.MsgspecError as error:
        raise StorageError(
            f"{storage.url_of(SETTINGS)} does not hold the settings of a catalog: {error}",
            path=SETTINGS,
            hint="Correct the file, or delete it: then the rebuilt catalog stores no isolation level.",
        ) from error
