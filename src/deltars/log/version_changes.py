"""Rows that a version changed, as files: from its actions alone.

    cdc files                                      they hold the rows, with their change type; nothing else counts
    else a path in an add and in a remove          the rows in which the two deletion vectors differ
    else an added file, with dataChange            its rows are inserted
    else a removed file, with dataChange           its rows are deleted

Files that a commit wrote again hold rows that did not change. Without cdc files, such rows are inserted and deleted:
`data/net_changes.py` lets them cancel out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from deltars.log.file_rules import num_records
from deltars.protocol import Action, AddFile, CdcFile, DeletionVector, RemoveFile


class ChangedFile(NamedTuple):
    """A file whose rows a version changed, without the rows that its vector deletes."""

    path: str
    size: int | None
    """None if the log does not say it, as for removed files of some writers."""
    modification_time: int
    partition_values: Mapping[str, str | None] | None
    vector: DeletionVector | None = None


class VectorChange(NamedTuple):
    """A file that got another deletion vector."""

    file: ChangedFile
    """The file, with its vector before."""
    after: DeletionVector | None
    num_records: int | None
    """Rows of the file, deleted ones too; None if its writer did not record them."""


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """Files with the rows that one version changed."""

    rows: tuple[ChangedFile, ...] = ()
    """Files of the change data feed. If there are some, the other lists are empty."""
    inserted: tuple[ChangedFile, ...] = ()
    deleted: tuple[ChangedFile, ...] = ()
    vectors: tuple[VectorChange, ...] = ()


def version_changes(actions: Iterable[Action]) -> VersionChanges:
    """Return what a version changed."""
    adds: dict[str, AddFile] = {}
    removes: dict[str, RemoveFile] = {}
    rows = []
    for action in actions:
        match action:
            case CdcFile():
                rows.append(ChangedFile(action.path, action.size, 0, action.partition_values))
            case AddFile() if action.data_change:
                adds[action.path] = action
            case RemoveFile() if action.data_change:
                removes[action.path] = action
            case _:
                pass
    if rows:
        return VersionChanges(rows=tuple(rows))
    both = adds.keys() & removes.keys()
    return VersionChanges(
        inserted=tuple(_file(add) for path, add in adds.items() if path not in both),
        deleted=tuple(_file(remove) for path, remove in removes.items() if path not in both),
        vectors=tuple(_vector_change(removes[path], adds[path]) for path in adds if path in both),
    )


def _file(action: AddFile | RemoveFile) -> ChangedFile:
    time = action.modification_time if isinstance(action, AddFile) else 0
    return ChangedFile(action.path, action.size, time, action.partition_values, action.deletion_vector)


def _vector_change(before: RemoveFile, after: AddFile) -> VectorChange:
    file = ChangedFile(after.path, after.size, after.modification_time, after.partition_values, before.deletion_vector)
    return VectorChange(file, after.deletion_vector, num_records(after.stats))
