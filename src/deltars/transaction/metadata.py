"""Changes of a table's metadata, as actions: with the protocol raised where they need a feature it does not list."""

from __future__ import annotations

from typing import Any

import msgspec

from deltars.protocol import Action, Metadata, Protocol, needed_features, protocol_of, supported_features


def metadata_actions(protocol: Protocol, metadata: Metadata) -> list[Action]:
    """New metadata, after the protocol that it needs."""
    had = supported_features(protocol)
    needed = needed_features(metadata.schema, metadata.configuration)
    return [metadata] if needed <= had else [protocol_of(had | needed), metadata]


def changed(metadata: Metadata, **fields: Any) -> Metadata:
    return msgspec.structs.replace(metadata, **fields)
