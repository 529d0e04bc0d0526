"""The right kind of storage for a location."""

from __future__ import annotations

from collections.abc import Mapping

from deltars.storage.local import LocalStorage
from deltars.storage.location import parse_location
from deltars.storage.objects import ObjectStorage
from deltars.storage.storage import Storage


def open_storage(location: str, options: Mapping[str, str] | None = None) -> Storage:
    """The files below `location`: an absolute path, file://, s3://, gs://, az:// or (in this process) memory://.

    `options` are object_store's own keys (`aws_region`, `aws_endpoint`, `account_name`, …); what is missing
    comes from the store's usual environment variables. Local disk needs none.
    """
    place = parse_location(location)
    return LocalStorage(place) if place.is_local else ObjectStorage(place, options or {})
