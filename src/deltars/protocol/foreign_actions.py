"""Lenient decoding of actions that deviate from the protocol, where their meaning is unambiguous.

an integer as a string, or with a decimal point            the integer
true and false as strings, 0 and 1                         true and false
null                                                       as if the field were missing
a number or a boolean in a map of strings                  its text: configuration, partition values, tags
`stats` as an object                                       its text; any other type: no statistics
`partitionValues` that is null or missing                  empty; a partitioned table still needs its values
`dataChange`, `modificationTime` missing                   true, 0
`deletionVector` without any field                         no deletion vector

Any other deviation raises an error that names the field. The `protocol` action is decoded strictly, because it states
what a reader must support.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from deltars.errors import ValidationError
from deltars.protocol.actions import Action, decode_action, loose_action

_FILES = ("add", "cdc")


def decode_foreign_action(line: bytes | str) -> Action | None:
    """Return the action of one line, or None if its kind is unknown."""
    try:
        return decode_action(line)
    except ValidationError:
        document = _object(line)
        if document is None or document.get("protocol") is not None:
            raise
        readable = {name: loosened(name, action) for name, action in document.items()}
        return loose_action(readable)


def loosened(name: str, action: Any) -> Any:
    """Return the fields of an action with the deviations above corrected."""
    if not isinstance(action, Mapping) or name == "commitInfo":
        return action
    fields = {key: value for key, value in action.items() if value is not None}
    for key, convert in _FIELDS.items():
        if key in fields:
            fields[key] = convert(fields[key])
    if name in _FILES:
        fields.setdefault("partitionValues", {})
    if name in ("add", "remove"):
        fields.setdefault("dataChange", True)
    if name == "add":
        fields.setdefault("modificationTime", 0)
    return {key: value for key, value in fields.items() if value is not None}


def _object(line: bytes | str) -> dict[str, Any] | None:
    try:
        document = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _texts(values: Any) -> Any:
    """Return a map with numbers and booleans replaced by their text. Nulls are kept."""
    if not isinstance(values, Mapping):
        return values
    return {key: _text(value) for key, value in values.items()}


def _text(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, bool | int | float) else value


def _properties(values: Any) -> Any:
    texts = _texts(values)
    return {key: value for key, value in texts.items() if value is not None} if isinstance(texts, dict) else texts


def _stats(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    return value if isinstance(value, str) else None


def _vector(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: part for key, part in value.items() if part is not None} or None
    return value


def _format(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    fields = {key: part for key, part in value.items() if part is not None}
    return fields | {"options": _properties(fields["options"])} if "options" in fields else fields


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "partitionValues": _texts,
    "tags": _texts,
    "stats": _stats,
    "deletionVector": _vector,
    "configuration": _properties,
    "format": _format,
    "id": _text,
    "appId": _text,
}
