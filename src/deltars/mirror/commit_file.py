"""A commit's file, put where there is none."""

from __future__ import annotations

from hashlib import sha256

from deltars.mirror.commit_json import commit_path, render_commit, render_pieces
from deltars.storage import Storage
from deltars.store.changes import CommittedVersion
from deltars.store.unpublished import ManyActions


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
