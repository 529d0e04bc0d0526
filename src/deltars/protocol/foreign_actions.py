"""Actions of writers that do not keep to the letter, read where only one thing can be meant.

a number as text, or with a point and nothing behind it    the number
true and false as text, 0 and 1                            true and false
null                                                       as if the field were not there
a number or a truth value in a map of strings              its text: configuration, partition values, tags
`stats` as an object                                       its text; anything else that is no text: none
`partitionValues` that is null or missing                  empty; a partitioned table needs them all the same
`dataChange`, `modificationTime` missing                   true, 0
`deletionVector` without any part                          none

Everything else is refused by the field's name. A protocol is read to the letter: it says what a reader must know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from deltars.errors import ValidationError
from deltars.protocol.actions import Action, decode_action, loose_action

_FILES = ("add", "cdc")


def decode_foreign_action(line: bytes | str) -> Action | None:
    """The action of one line; `None` where it is one that is not known here."""
    try:
        return decode_action(line)
    except ValidationError:
        document = _object(line)
        if document is None or document.get("protocol") is not None:
            raise
        readable = {name: loosened(name, action) for name, action in document.items()}
        return loose_action(readable)


def loosened(name: str, action: Any) -> Any:
    """The fields of an action as the protocol has them, as far as they can be told."""
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
    """A map of strings: what else stands there as its text, nulls as they are."""
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
