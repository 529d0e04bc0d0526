"""Access to files on local disk and in object stores, behind one small interface."""

from __future__ import annotations

from deltars.storage.location import Location, parse_location
from deltars.storage.opening import open_storage
from deltars.storage.places import Places, Relation
from deltars.storage.put_probe import refuse_overwriting, try_storage
from deltars.storage.storage import ObjectInfo, Storage, Writer

__all__ = [
    "Location",
    "ObjectInfo",
    "Places",
    "Relation",
    "Storage",
    "Writer",
    "open_storage",
    "parse_location",
    "refuse_overwriting",
    "try_storage",
]
