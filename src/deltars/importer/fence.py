"""The two commits that hand a table over: the fence, and the release that removes it. Pure.

Both are written as the next version of the log, if no other writer has written that version first. The catalog then
copies whichever commit the log has.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid5

import msgspec

from deltars.importer.admission import fenced_protocol, released_protocol
from deltars.protocol import Action, CommitInfo, Metadata, Protocol, encode_commit, is_true
from deltars.protocol.engine_info import ENGINE_INFO
from deltars.protocol.properties import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltars.store.imports.import_writer import RELEASE

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"


def fence_id(table_id: UUID, version: int) -> UUID:
    """Return the transaction id of a fence. It is predictable, so that a resumed import recognises its own fence."""
    return uuid5(table_id, f"fence {version}")


def fence_commit(
    table_id: UUID, version: int, metadata: Metadata, protocol: Protocol, *, timestamp_ms: int, commit_ts: int
) -> bytes:
    """Return the commit after which every other writer refuses the table."""
    actions: list[Action] = [fenced_protocol(protocol, metadata)]
    if not is_true(metadata.configuration.get(IN_COMMIT_TIMESTAMPS)):
        configuration = {
            **metadata.configuration,
            IN_COMMIT_TIMESTAMPS: "true",
            **({ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp_ms)} if version else {}),
        }
        actions.append(msgspec.structs.replace(metadata, configuration=configuration))
    return _commit("ADOPT TABLE", fence_id(table_id, version), version, actions, timestamp_ms, commit_ts)


def release_commit(
    table_id: UUID, version: int, metadata: Metadata, protocol: Protocol, *, timestamp_ms: int, commit_ts: int
) -> bytes:
    """Return the commit after which other writers accept the table again."""
    ours = (IN_COMMIT_TIMESTAMPS, ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    configuration = {key: value for key, value in metadata.configuration.items() if key not in ours}
    actions: list[Action] = [
        released_protocol(protocol),
        msgspec.structs.replace(metadata, configuration=configuration),
    ]
    return _commit(RELEASE, uuid5(table_id, f"release {version}"), version, actions, timestamp_ms, commit_ts)


def _commit(
    operation: str, txn_id: UUID, version: int, actions: Sequence[Action], timestamp_ms: int, commit_ts: int
) -> bytes:
    info = CommitInfo(
        in_commit_timestamp=timestamp_ms,
        timestamp=timestamp_ms,
        operation=operation,
        operation_parameters={},
        read_version=version - 1 if version else None,
        isolation_level="Serializable",
        is_blind_append=False,
        engine_info=ENGINE_INFO,
        txn_id=str(txn_id),
        extra={"commitTs": commit_ts},
    )
    return encode_commit([info, *actions])
