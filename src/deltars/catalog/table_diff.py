"""Difference between two versions of a table. Versions in between are not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from deltars.log.snapshot import Snapshot
from deltars.protocol import supported_features
from deltars.transaction.html import html_table

_FILE = ("path", "deletion_vector", "size", "num_records")


@dataclass(frozen=True, slots=True)
class TableChange:
    """One column, property or table feature, before and after; None if it did not or does not exist."""

    kind: Literal["column", "partitioning", "property", "feature"]
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FileChange:
    """A data file that only one of the versions has. A new deletion vector makes it another file."""

    change: Literal["added", "removed"]
    path: str
    size_bytes: int
    num_records: int | None


@dataclass(frozen=True, slots=True)
class TableDiff:
    """Difference between two versions of a table."""

    table: str
    from_version: int
    to_version: int
    changes: tuple[TableChange, ...]
    files: tuple[FileChange, ...]

    def _repr_html_(self) -> str:
        changes = [(change.kind, change.name, change.before, change.after) for change in self.changes]
        files = [(file.change, file.path, file.size_bytes, file.num_records) for file in self.files]
        return html_table(
            f"{self.table}, version {self.from_version} to {self.to_version}",
            ("what", "name", "before", "after"),
            changes,
        ) + html_table("files", ("change", "path", "size_bytes", "num_records"), files)


def difference(table: str, old: Snapshot, new: Snapshot) -> TableDiff:
    changes = (
        *_changes("column", _columns(old), _columns(new)),
        *_changes("partitioning", _partitioning(old), _partitioning(new)),
        *_changes("property", old.metadata.configuration, new.metadata.configuration),
        *_changes("feature", _features(old), _features(new)),
    )
    before, after = (snapshot.select_files(columns=_FILE) for snapshot in (old, new))
    files = (*_only_in(after, before, "added"), *_only_in(before, after, "removed"))
    return TableDiff(table, old.version, new.version, changes, files)


def _changes(
    kind: Literal["column", "partitioning", "property", "feature"], old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[TableChange]:
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            yield TableChange(kind, name, old.get(name), new.get(name))


def _columns(snapshot: Snapshot) -> dict[str, str]:
    return {field.name: str(field).removeprefix(f"{field.name}: ") for field in snapshot.schema.fields}


def _partitioning(snapshot: Snapshot) -> dict[str, str]:
    columns = snapshot.metadata.partition_columns
    return {"partitioned by": ", ".join(columns)} if columns else {}


def _features(snapshot: Snapshot) -> dict[str, str]:
    return dict.fromkeys(sorted(supported_features(snapshot.protocol)), "supported")


def _only_in(files: pa.Table, others: pa.Table, change: Literal["added", "removed"]) -> list[FileChange]:
    known = pc.is_in(_identity(files), value_set=_identity(others))
    return [
        FileChange(change, row["path"], row["size"], row["num_records"])
        for row in files.filter(pc.invert(known)).sort_by("path").to_pylist()
    ]


def _identity(files: pa.Table) -> pa.ChunkedArray:
    """Return path and deletion vector as one text. A path never contains a line feed."""
    vectors = pc.fill_null(files["deletion_vector"], "")
    return pc.binary_join_element_wise(files["path"], vectors, "\n")
