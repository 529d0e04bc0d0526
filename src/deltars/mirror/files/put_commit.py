"""A commit's file: put where there is none, and compared with what is there."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

from deltars.errors import StorageError
from deltars.mirror.files.commit import commit_path, is_same_commit, render_commit, render_pieces
from deltars.storage import Storage
from deltars.store.mirror.pending_versions import ManyActions
from deltars.store.read.committed_versions import CommittedVersion

MOVED = "Was the table's directory moved, deleted or not mounted? Nothing is written there until it is back."


class Diverged(Exception):
    """There is another commit where ours should be."""


def put_commit(storage: Storage, commit: CommittedVersion) -> tuple[bool, str]:
    """Whether there was none, and the digest of this one. Its name is not synced yet."""
    path = commit_path(commit.version)
    if not isinstance(commit.actions, ManyActions):
        data = render_commit(commit)
        return storage.put_if_absent(path, data, sync_name=False), sha256(data).hexdigest()
    digest = sha256()
    with storage.open_writer(path, if_absent=True) as sink:
        for piece in render_pieces(commit):
            digest.update(piece)
            sink.write(piece)
    return sink.created, digest.hexdigest()


def put_or_compare(storage: Storage, commit: CommittedVersion) -> str:
    """Put a commit where there is none, and return the digest of what is there. Raise where that is another commit."""
    is_put, digest = put_commit(storage, commit)
    if not is_put:
        path = commit_path(commit.version)
        there = storage.get(path)
        ours, digest = digest, sha256(there).hexdigest()
        if digest != ours and not is_same_commit(render_commit(commit), there):
            raise Diverged(f"{storage.url_of(path)} is there and is another commit")
    set_time(storage, commit)
    return digest


def see_published(storage: Storage, version: int) -> None:
    """A version is put only after the one before it was seen: a log that begins in the middle is nobody's table."""
    if version >= 0 and not storage.exists(commit_path(version)):
        raise StorageError(
            f"the published version {version} is not there: {storage.url_of(commit_path(version))}",
            path=commit_path(version),
            retryable=True,
            hint=MOVED,
        )


def set_time(storage: Storage, commit: CommittedVersion) -> None:
    # deltalake takes the file's time for the commit's. Only the file's owner may set it.
    with suppress(StorageError):
        storage.set_modified_ms(commit_path(commit.version), commit.in_commit_timestamp)
