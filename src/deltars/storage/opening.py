"""Choice of the storage and its options for a location."""

from __future__ import annotations

import json
from collections.abc import Mapping

from deltars.errors import ConfigError
from deltars.storage.local import LocalStorage
from deltars.storage.location import Location, parse_location
from deltars.storage.objects import ObjectStorage
from deltars.storage.storage import Storage


def open_storage(location: str, options: Mapping[str, str] | None = None) -> Storage:
    """Open the storage at an absolute path, file://, s3://, gs://, az:// or (within this process) memory://.

    `options` are object_store's keys (`aws_region`, `aws_endpoint`, `account_name`, …). Missing ones come from the
    store's usual environment variables. Local disk needs none. A key that is itself a location holds, as a JSON
    object, the options that differ below it: those of one table or of one bucket.
    """
    place = parse_location(location)
    return LocalStorage(place) if place.is_local else ObjectStorage(place, options_for(place, options or {}))


def options_for(place: Location, options: Mapping[str, str]) -> dict[str, str]:
    """Return the general options, overridden by those of every location that contains this one, the closest last."""
    chosen = {name: value for name, value in options.items() if not _is_location(name)}
    above = [name for name in options if _is_location(name) and _contains(str(parse_location(name)), str(place))]
    for name in sorted(above, key=len):
        chosen |= _decoded(name, options[name])
    return chosen


def _is_location(name: str) -> bool:
    return "://" in name


def _contains(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")


def _decoded(name: str, text: str) -> dict[str, str]:
    try:
        return {str(key): str(value) for key, value in dict(json.loads(text)).items()}
    except (TypeError, ValueError):
        # The text may be a secret, so it is not shown.
        raise ConfigError(f"the storage options of {name} must be a JSON object of strings") from None
