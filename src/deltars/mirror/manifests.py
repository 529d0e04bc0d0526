"""Symlink manifests: lists of a table's data files, for engines that do not read Delta.

    _symlink_format_manifest/manifest           of a table without partitions
    _symlink_format_manifest/day=…/manifest     of each partition

They are as of the moment of the call: write them again after a change.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from deltars.errors import ValidationError
from deltars.log.snapshot import Snapshot
from deltars.protocol import column_mapping, partition_directory, uri_to_path
from deltars.protocol.paths import is_absolute
from deltars.storage import Storage

MODE = "symlink_format_manifest"
DIRECTORY = "_symlink_format_manifest"


def write_manifests(storage: Storage, snapshot: Snapshot) -> list[str]:
    """Write the manifests of a snapshot, delete those of partitions that are gone, and return the paths written."""
    if column_mapping(snapshot.metadata.configuration) != "none":
        raise ValidationError(
            "manifests cannot be written for a table with column mapping: its files have other column names",
            field="delta.columnMapping.mode",
        )
    files = snapshot.select_files(columns=("path", "partition_values", "deletion_vector"))
    if files.num_rows and files["deletion_vector"].null_count < files.num_rows:
        raise ValidationError(
            "manifests cannot be written for a table with deletion vectors: other engines would show deleted rows",
            field="delta.enableDeletionVectors",
            hint="Purge the table first: that writes the files again without the deleted rows.",
        )
    columns = snapshot.metadata.partition_columns
    listed: dict[str, list[str]] = defaultdict(list)
    if not columns:
        listed[DIRECTORY] = []
    for file in files.to_pylist():
        values = msgspec.json.decode(file["partition_values"])
        directory = f"{DIRECTORY}/{partition_directory(columns, values)}" if columns else DIRECTORY
        listed[directory.rstrip("/")].append(_location(storage, file["path"]))
    paths = {f"{directory}/manifest": sorted(lines) for directory, lines in listed.items()}
    gone = [info.path for info in storage.list(DIRECTORY) if info.path.endswith("/manifest") and info.path not in paths]
    for path, lines in paths.items():
        storage.put(path, "".join(f"{line}\n" for line in lines).encode())
    storage.delete(gone)
    return sorted(paths)


def _location(storage: Storage, path: str) -> str:
    """Return where a file is, not percent-encoded: what reads manifests does not decode."""
    decoded = uri_to_path(path)
    whole = decoded if is_absolute(path) else f"{storage.root.rstrip('/')}/{decoded}"
    return f"file:{whole}" if whole.startswith("/") else whole
