"""Which rows a transaction changes in a table, statement by statement, for the change data feed of its one version.

    rows that were in the table before     deleted, or updated: kept here, by file and position
    rows that the transaction inserted     inserted as they are at the end, or never there
    rows that it updated                   the old row as it was before, the new one as it is at the end

So the feed shows the net effect: a row that is inserted and deleted again is not in it, and a row that is updated twice
is in it once. Where a row's old and new values cannot be paired any more, updates of the version become deletes and
inserts (`is_plain`): a row that was updated is deleted, or one update meets inserted rows and others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from deltars.log.read_set import FileKey
from deltars.protocol import Action, AddFile, RemoveFile

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from deltars.data.row_change import ChangePlane

Kind: TypeAlias = Literal["kept", "inserted", "updated"]
"""What the rows of a file are that the transaction wrote: those of another file, new ones, or updated ones."""


@dataclass(frozen=True, slots=True)
class GoneRows:
    """Rows of one file that a statement deletes or replaces."""

    file: Mapping[str, object]
    """The file, with the columns of a scan."""
    rows: BitMap64 | None = None
    """Their positions; None for all rows."""
    is_update: bool = False
    is_whole: bool = False
    """Whether no other row of the file is left."""

    @property
    def path(self) -> str:
        return str(self.file["path"])


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """What one statement does to the rows of a table."""

    gone: tuple[GoneRows, ...] = ()
    rewritten: frozenset[FileKey] = frozenset()
    """Files whose rows that go are in `gone`, or that only move to another file."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Path of the file that rows come from, for each file that holds unchanged rows again."""
    updated: frozenset[str] = frozenset()
    """Paths of new files with updated rows."""
    plane: ChangePlane | None = None
    """The plane that writes the files of the feed."""


@dataclass(frozen=True, slots=True)
class ChangeData:
    """Changed rows of one table so far."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """Kind of each file that the transaction staged. Rows of other files were there before."""
    gone: tuple[GoneRows, ...] = ()
    """Rows that were there before the transaction, and are not any more or have other values."""
    plane: ChangePlane | None = None
    needs_files: bool = False
    """Whether the added and removed files alone do not show what changed."""
    is_plain: bool = False
    has_untracked_files: bool = False
    has_untracked_changes: bool = False
    """Whether files were added, or removed, while the table had no feed: nothing is collected then."""
    has_restored: bool = False

    def untracked(self, actions: Iterable[Action], *, restores: bool) -> ChangeData:
        """Return the changes after a step on the table while it has no feed."""
        removes = any(isinstance(action, RemoveFile) and action.data_change for action in actions)
        return replace(
            self,
            has_untracked_files=True,
            has_untracked_changes=self.has_untracked_changes or removes,
            has_restored=self.has_restored or restores,
        )

    def after(
        self, actions: Sequence[Action], more_adds: Iterable[str], changed: ChangedRows | None, *, restores: bool
    ) -> ChangeData:
        """Return the changes after one more step. `more_adds` has the paths of files that are added besides."""
        changed = changed or ChangedRows()
        kinds, gone = dict(self.kinds), list(self.gone)
        is_plain, needs_files = self.is_plain, self.needs_files
        removed = [
            GoneRows(_file_of(action), is_whole=True)
            for action in actions
            if isinstance(action, RemoveFile) and action.data_change and action.key not in changed.rewritten
        ]
        updates_inserted = updates_others = False
        for rows in (*changed.gone, *removed):
            kind = kinds.get(rows.path, "kept")
            updates_inserted |= rows.is_update and kind == "inserted"
            updates_others |= rows.is_update and kind != "inserted"
            if kind == "kept":
                gone.append(rows)
                needs_files |= not rows.is_whole
            is_plain |= kind == "updated" and not rows.is_update
        is_plain |= updates_inserted and updates_others
        needs_files |= updates_others
        stays = {path for path, _ in changed.rewritten}
        added = [action.path for action in actions if isinstance(action, AddFile) and action.data_change]
        new: Kind = "inserted" if updates_inserted and not updates_others else "updated"
        for path in (*added, *more_adds):
            source = changed.moved.get(path, path)
            if path in changed.updated:
                kinds[path] = new
            elif source in stays:
                # It holds rows of a file that is changed, or is that file with another vector.
                kinds[path] = kinds.get(source, "kept")
            else:
                kinds[path] = "inserted"
        return replace(
            self,
            kinds=kinds,
            gone=tuple(gone),
            plane=_larger(self.plane, changed.plane),
            needs_files=needs_files,
            is_plain=is_plain,
            has_restored=self.has_restored or restores,
        )


def _larger(one: ChangePlane | None, other: ChangePlane | None) -> ChangePlane | None:
    return other if one is None or (other is not None and other.is_distributed) else one


def _file_of(remove: RemoveFile) -> dict[str, object]:
    vector = remove.deletion_vector
    return {
        "path": remove.path,
        "size": remove.size or 0,
        "modification_time": 0,
        "partition_values": msgspec.json.encode(remove.partition_values or {}).decode(),
        "deletion_vector": None if vector is None else msgspec.json.encode(vector).decode(),
    }


__all__ = ["ChangeData", "ChangedRows", "GoneRows", "Kind"]
