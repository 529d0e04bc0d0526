"""A commit's file, `_delta_log/<version>.json`: its content, and how it is written and compared.

{"commitInfo": …}      first, as in-commit timestamps require
{"add": …} …           the actions, in their order
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import islice, takewhile
from typing import Any

import msgspec

from deltars.errors import DeltarsError, StorageError, ValidationError
from deltars.protocol import Action, CommitInfo, decode_commit, encode_action, encode_commit
from deltars.protocol.engine_info import ENGINE_INFO
from deltars.protocol.log_files import commit_path as commit_path
from deltars.storage import Storage
from deltars.store.read.committed_versions import CommittedVersion, ManyActions

# `strict` is stronger than the strongest level that Delta has a name for.
_ISOLATION_LEVELS = {
    "strict": "Serializable",
    "serializable": "Serializable",
    "write_serializable": "WriteSerializable",
    "snapshot": "SnapshotIsolation",
}

_encode = msgspec.json.Encoder(order="deterministic").encode

ACTIONS_AT_ONCE = 10_000

MOVED = "Was the table's directory moved, deleted or unmounted? Nothing is written there until it is back."


class Diverged(Exception):
    """The log holds another commit where the catalog's belongs."""


def render_commit(commit: CommittedVersion) -> bytes:
    return b"".join(render_pieces(commit))


def render_pieces(commit: CommittedVersion) -> Iterator[bytes]:
    """Render a commit piece by piece, so that only `ACTIONS_AT_ONCE` of its actions are in memory."""
    yield encode_action(_commit_info(commit)) + b"\n"
    actions = iter(commit.actions)
    while some := list(islice(actions, ACTIONS_AT_ONCE)):
        yield encode_commit(some)


def is_same_commit(ours: bytes, theirs: bytes) -> bool:
    """Return whether two contents are the same commit, possibly written by another release of deltars.

    They are if the transaction's id and, in any order, all other actions are equal.
    """
    if ours == theirs:
        return True
    try:
        return _identity(ours) == _identity(theirs)
    except ValidationError:
        return False


def rendered(commits: Iterable[CommittedVersion]) -> dict[str, bytes]:
    """Return the contents of commits by their paths, up to the first one that is too large for memory or has a fault.

    `put_commit` of that one raises what is wrong with it, after those before it were put.
    """
    few = takewhile(lambda commit: not isinstance(commit.actions, ManyActions), commits)
    contents: dict[str, bytes] = {}
    with suppress(DeltarsError):
        for commit in few:
            contents[commit_path(commit.version)] = render_commit(commit)
    return contents


def put_commit(storage: Storage, commit: CommittedVersion, data: bytes | None = None) -> tuple[bool, str]:
    """Write a commit if its file does not exist. Return whether it was written, and its digest.

    The caller syncs the directory. `data` is the content, if the commit is rendered already.
    """
    path = commit_path(commit.version)
    if not isinstance(commit.actions, ManyActions):
        data = render_commit(commit) if data is None else data
        return storage.put_if_absent(path, data, sync_name=False), sha256(data).hexdigest()
    digest = sha256()
    with storage.open_writer(path, if_absent=True) as sink:
        for piece in render_pieces(commit):
            digest.update(piece)
            sink.write(piece)
    return sink.created, digest.hexdigest()


def put_or_compare(storage: Storage, commit: CommittedVersion, data: bytes | None = None) -> str:
    """Write a commit if its file does not exist. Return the file's digest. Raise Diverged if it is another commit."""
    is_put, digest = put_commit(storage, commit, data)
    if not is_put:
        path = commit_path(commit.version)
        there = storage.get(path)
        ours, digest = digest, sha256(there).hexdigest()
        if digest != ours and not is_same_commit(render_commit(commit), there):
            raise Diverged(f"{storage.url_of(path)} exists and is another commit")
    set_time(storage, commit)
    return digest


def require_published(storage: Storage, version: int) -> None:
    """Raise StorageError unless the file of the last published version exists, so that no log begins in the middle."""
    if version >= 0 and not storage.exists(commit_path(version)):
        raise StorageError(
            f"the file of the published version {version} is missing: {storage.url_of(commit_path(version))}",
            path=commit_path(version),
            retryable=True,
            hint=MOVED,
        )


def set_time(storage: Storage, commit: CommittedVersion) -> None:
    # deltalake uses the file's modification time as the commit's. Only the file's owner may set it.
    with suppress(StorageError):
        storage.set_modified_ms(commit_path(commit.version), commit.in_commit_timestamp)


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
    """Return values as delta-spark writes them: strings unchanged, other values as JSON, None omitted.

    They are sorted, because a database may return them in another order than they were committed in.
    """
    return {
        name: value if isinstance(value, str) else _encode(value).decode()
        for name, value in sorted(values.items())
        if value is not None
    }


def _identity(content: bytes) -> tuple[str | None, int, Counter[bytes]]:
    actions = decode_commit(content)
    infos = [action for action in actions if isinstance(action, CommitInfo)]
    others = Counter(_canonical(action) for action in actions if not isinstance(action, CommitInfo))
    # The number of lines counts too, because an action of an unknown kind is a difference.
    lines = sum(1 for line in content.splitlines() if line.strip())
    return infos[0].txn_id if infos else None, lines, others


def _canonical(action: Action) -> bytes:
    return type(action).__name__.encode() + _encode(action)
