"""A version of a table as the content of `_delta_log/<version>.json`. Pure.

{"commitInfo": …}      first, as in-commit timestamps demand
{"add": …} …           the actions, in their order
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from typing import Any

import msgspec

from deltars.errors import ValidationError
from deltars.protocol import Action, CommitInfo, decode_commit, encode_commit
from deltars.store.read.committed_versions import CommittedVersion

try:
    ENGINE_INFO = f"deltars/{version('deltars')}"
except PackageNotFoundError:  # run from a source tree that was not installed
    ENGINE_INFO = "deltars"

# `strict` is stronger than the strongest level that Delta has a name for.
_ISOLATION_LEVELS = {
    "strict": "Serializable",
    "serializable": "Serializable",
    "write_serializable": "WriteSerializable",
    "snapshot": "SnapshotIsolation",
}

_encode = msgspec.json.Encoder(order="deterministic").encode


LOG = "_delta_log"

ACTIONS_AT_ONCE = 10_000


def commit_path(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def render_commit(commit: CommittedVersion) -> bytes:
    return b"".join(render_pieces(commit))


def render_pieces(commit: CommittedVersion) -> Iterator[bytes]:
    """The same bit by bit: of a million files only some thousand are in memory."""
    actions = chain([_commit_info(commit)], commit.actions)
    while some := list(islice(actions, ACTIONS_AT_ONCE)):
        yield encode_commit(some)


def is_same_commit(ours: bytes, theirs: bytes) -> bool:
    """Whether a file that is already there is this commit, perhaps written by another release of ours.

    It is if the transaction's id and, in any order, all other actions are equal.
    """
    if ours == theirs:
        return True
    try:
        return _identity(ours) == _identity(theirs)
    except ValidationError:
        return False


def _commit_info(commit: CommittedVersion) -> CommitInfo:
    extra: dict[str, Any] = {"commitTs": commit.commit_ts}
    if len(commit.participants) > 1:
        extra["participants"] = dict(sorted(commit.participants.items()))
    if commit.committer is not None:
        extra["userName"] = commit.committer
    return CommitInfo(
        in_commit_timestamp=commit.in_commit_timestamp,
        timestamp=commit.in_commit_timestamp,
        operation=commit.operation,
        operation_parameters=_as_strings(commit.operation_params),
        read_version=commit.read_version if commit.read_version is not None and commit.read_version >= 0 else None,
        isolation_level=_ISOLATION_LEVELS.get(commit.isolation or "", commit.isolation),
        is_blind_append=commit.is_blind_append,
        operation_metrics=_as_strings(commit.metrics),
        user_metadata=commit.user_metadata,
        engine_info=ENGINE_INFO,
        txn_id=str(commit.txn_id),
        extra=extra,
    )


def _as_strings(values: Mapping[str, Any]) -> dict[str, str]:
    """As delta-spark writes them: text as it is, everything else as JSON text, what is absent not at all."""
    return {
        name: value if isinstance(value, str) else _encode(value).decode()
        for name, value in values.items()
        if value is not None
    }


def _identity(content: bytes) -> tuple[str | None, int, Counter[bytes]]:
    actions = decode_commit(content)
    infos = [action for action in actions if isinstance(action, CommitInfo)]
    others = Counter(_canonical(action) for action in actions if not isinstance(action, CommitInfo))
    # The number of lines: an action that is not known here is a difference too.
    lines = sum(1 for line in content.splitlines() if line.strip())
    return infos[0].txn_id if infos else None, lines, others


def _canonical(action: Action) -> bytes:
    return type(action).__name__.encode() + _encode(action)
