"""Changes of rows as changes of files: by deletion vectors, or by rewriting the files.

files that match whole ───────────────────────────────▶ removed, unopened
rows of other files ──vectors allowed, rows counted───▶ the same file with a larger vector
                    ├─no row left─────────────────────▶ removed
                    └─else────────────────────────────▶ removed, and written again without the rows
rows that come ───────────────────────────────────────▶ new files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from deltars.data.deletion_vectors import read_vector
from deltars.data.row_change import ChangePlane, Positions, RowChanges
from deltars.data.scan import SCAN_COLUMNS, Scan
from deltars.data.vector_writer import write_vectors
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.log.arrow_adds import file_keys
from deltars.protocol import AddFile, DeletionVector, Metadata, RemoveFile
from deltars.protocol.actions import decode_deletion_vector
from deltars.protocol.properties import boolean_property
from deltars.storage import open_storage
from deltars.transaction.change_data import ChangedRows, GoneRows
from deltars.transaction.staged_table import removes_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

VECTORS = "delta.enableDeletionVectors"

_decode_stats = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(slots=True)
class ChangedFiles:
    """File actions of one statement, and what they are counted as."""

    removes: list[RemoveFile] = field(default_factory=list)
    adds: list[AddFile] = field(default_factory=list)
    """Files that stay, with a larger vector."""
    written: list[WrittenFile] = field(default_factory=list)
    moved_from: dict[str, str] = field(default_factory=dict)
    """Path of the file whose rows each file of `written` holds."""
    rows_copied: int = 0
    vectors_added: int = 0
    vectors_removed: int = 0

    @property
    def vectors_updated(self) -> int:
        """Files whose vector was replaced by a larger one."""
        return min(self.vectors_added, self.vectors_removed)

    def remove(self, files: pa.Table) -> None:
        """Remove whole files."""
        removes = removes_of(files)
        self.removes += removes
        self.vectors_removed += sum(remove.deletion_vector is not None for remove in removes)

    def moved(self, files: pa.Table, written: Sequence[WrittenFile], *, data_change: bool = False) -> None:
        """Replace whole files by others that hold the same rows. `data_change`: the transaction changed them before."""
        self.removes += removes_of(files, data_change=data_change)
        self.vectors_removed += len(files) - files["deletion_vector"].null_count
        self.written += [
            replace(file, add=msgspec.structs.replace(file.add, data_change=data_change)) for file in written
        ]
        self.rows_copied += sum(group.num_rows for file in written for group in file.row_groups)


def uses_vectors(metadata: Metadata) -> bool:
    return boolean_property(metadata.configuration, VECTORS)


def without_rows(
    files: pa.Table, scan: Scan, positions: Positions, plane: ChangePlane, target: WriteTarget, *, by_vectors: bool
) -> ChangedFiles:
    """Delete rows of files. `files` has the columns of live files, in the order of the scan's files."""
    found = ChangedFiles()
    touched = {place: rows for place, rows in positions.items() if rows}
    places = sorted(touched)
    rows = dict(zip(places, files.take(pa.array(places, pa.int64())).to_pylist(), strict=True))
    olds = {place: _vector(row) for place, row in rows.items()}
    emptied = [place for place in places if _is_emptied(rows[place], olds[place], touched[place])]
    left = [place for place in places if place not in set(emptied)]
    found.remove(files.take(pa.array(emptied, pa.int64())))
    # The protocol demands the number of rows beside a vector.
    marked = [place for place in left if by_vectors and rows[place]["num_records"] is not None]
    if marked:
        _mark(found, files.take(pa.array(marked, pa.int64())), [touched[place] for place in marked], scan)
    again = [place for place in left if place not in set(marked)]
    if again:
        written = plane.purge(scan, {place: touched[place] for place in again}, target)
        found.remove(files.take(pa.array(again, pa.int64())))
        new = [file for place in again for file in written.get(place, ())]
        found.written += new
        found.moved_from |= {
            file.add.path: str(rows[place]["path"]) for place in again for file in written.get(place, ())
        }
        found.rows_copied += sum(group.num_rows for file in new for group in file.row_groups)
    return found


def changed_rows(
    files: pa.Table, changes: RowChanges, changed: ChangedFiles, updated: frozenset[str], plane: ChangePlane
) -> ChangedRows:
    """Return which rows a statement changes, for the change data feed. `updated` has the paths of updated rows."""
    assert sum(map(len, changes.replaced.values())) == changes.updated
    places = sorted(place for place, rows in changes.positions.items() if rows)
    touched = files.take(pa.array(places, pa.int64()))
    left = {add.path for add in changed.adds} | set(changed.moved_from.values())
    gone = []
    for place, file in zip(places, touched.select(SCAN_COLUMNS).to_pylist(), strict=True):
        replaced = changes.replaced.get(place)
        deleted = changes.positions[place] if replaced is None else changes.positions[place] - replaced
        is_whole = file["path"] not in left
        gone += [
            GoneRows(file, rows, is_update=is_update, is_whole=is_whole)
            for rows, is_update in ((replaced, True), (deleted, False))
            if rows
        ]
    return ChangedRows(tuple(gone), frozenset(file_keys(touched)), changed.moved_from, updated, plane)


def _mark(found: ChangedFiles, files: pa.Table, rows: Sequence[BitMap64], scan: Scan) -> None:
    """Give files a vector that holds their old one and these rows, in the order of the files."""
    storage = open_storage(scan.root, scan.storage_options)
    listed = files.to_pylist()
    olds = [_vector(file) for file in listed]
    united = {
        place: new if old is None else new | read_vector(storage, old)
        for place, (new, old) in enumerate(zip(rows, olds, strict=True))
    }
    vectors = write_vectors(storage, united)
    found.removes += removes_of(files)
    found.adds += [add_of(file, vectors[place]) for place, file in enumerate(listed)]
    found.vectors_added += len(listed)
    found.vectors_removed += sum(old is not None for old in olds)


def add_of(file: Mapping[str, Any], vector: DeletionVector) -> AddFile:
    """Return the action that gives a live file another vector."""
    return AddFile(
        path=file["path"],
        partition_values=msgspec.json.decode(file["partition_values"]),
        size=file["size"],
        modification_time=file["modification_time"],
        data_change=True,
        stats=loose_stats(file["stats"], file["num_records"]),
        tags=None if file["tags"] is None else msgspec.json.decode(file["tags"]),
        deletion_vector=vector,
        base_row_id=file["base_row_id"],
        default_row_commit_version=file["default_row_commit_version"],
        clustering_provider=file["clustering_provider"],
    )


def loose_stats(stats: str | None, num_records: int) -> str:
    """Return statistics of a file with a vector: its bounds may belong to deleted rows. Their text is kept exactly."""
    document = {} if stats is None else _decode_stats(stats)
    document.setdefault("numRecords", msgspec.Raw(str(num_records).encode()))
    document["tightBounds"] = msgspec.Raw(b"false")
    return msgspec.json.encode(document).decode()


def _vector(file: Mapping[str, Any]) -> DeletionVector | None:
    return None if file["deletion_vector"] is None else decode_deletion_vector(file["deletion_vector"])


def _is_emptied(file: Mapping[str, Any], old: DeletionVector | None, rows: BitMap64) -> bool:
    """Return whether no row is left. Unknown, if the file does not say how many it has, counts as no."""
    return file["num_records"] is not None and len(rows) + (old.cardinality if old else 0) >= file["num_records"]


__all__ = ["ChangedFiles", "changed_rows", "uses_vectors", "without_rows"]
