"""The right kind of storage for a location."""

from __future__ import annotations

import json
from collections.abc import Mapping

from deltars.errors import ConfigError
from deltars.storage.local import LocalStorage
from deltars.storage.location import Location, parse_location
from deltars.storage.objects import ObjectStorage
from deltars.storage.storage import Storage


def open_storage(location: str, options: Mapping[str, str] | None = None) -> Storage:
    """The files below `location`: an absolute path, file://, s3://, gs://, az:// or (in this process) memory://.

    `options` are object_store's own keys (`aws_region`, `aws_endpoint`, `account_name`, …); what is missing
    comes from the store's usual environment variables. Local disk needs none. A key that is a location itself
    holds, as a JSON object, the options that differ below it: those of one table, or of one bucket.
    """
    place = parse_location(location)
    return LocalStorage(place) if place.is_local else ObjectStorage(place, options_for(place, options or {}))


def options_for(place: Location, options: Mapping[str, str]) -> dict[str, str]:
    """The general options, and over them those of every location that holds this one, the closest last."""
    chosen = {name: value for name, value in options.items() if not _is_location(name)}
    above = [name for name in options if _is_location(name) and _holds(str(parse_location(name)), str(place))]
    for name in sorted(above, key=len):
        chosen |= _decoded(name, options[name])
    return chosen


def _is_location(name: str) -> bool:
    return "://" in name


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")


def _decoded(name: str, text: str) -> dict[str, str]:
    try:
        return {str(key): str(value) for key, value in dict(json.loads(text)).items()}
    except (TypeError, ValueError):
        # What it holds may be a secret, and is not shown.
        raise ConfigError(f"the storage options of {name} are not an object of strings") from None
