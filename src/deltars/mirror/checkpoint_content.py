"""Content of a Parquet checkpoint of any writer: the files and schemas that `verify` compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from deltars.protocol import DeletionVector, StructType
from deltars.protocol.log_files import sidecar_path
from deltars.protocol.paths import is_absolute, local_path
from deltars.storage import Storage
from deltars.storage.table_files import open_path, relative_path

_COMPARED = ["add.path", "add.size", "add.deletionVector", "metaData.schemaString", "sidecar.path"]

LiveFile: TypeAlias = tuple[str, int, str | None]
"""Path, size, and id of the deletion vector."""


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    files: frozenset[LiveFile]
    schemas: tuple[StructType, ...]


def read_checkpoint(storage: Storage, path: str) -> CheckpointContent:
    """Read a checkpoint. A V2 checkpoint with a classic name is read together with its sidecars."""
    head = _read(storage, path)
    sidecars = [row["path"] for row in _structs(head, "sidecar") if row["path"] is not None]
    parts = [head, *(_read(storage, _sidecar_path(storage, sidecar)) for sidecar in sidecars)]
    files = (
        (local_path(row["path"]), row["size"], vector_id(_vector_in(row)))
        for part in parts
        for row in _structs(part, "add")
        if row["path"] is not None
    )
    # Like `Metadata.schema`: writers omit the schema of a table without columns.
    texts = (row["schemaString"] for row in _structs(head, "metaData"))
    return CheckpointContent(
        frozenset(files), tuple(StructType.from_json(text) if text else StructType() for text in texts)
    )


def vector_id(vector: DeletionVector | None) -> str | None:
    return None if vector is None else vector.unique_id


def _read(storage: Storage, path: str) -> pa.Table:
    with open_path(storage, path) as file:
        return pq.ParquetFile(file).read(columns=_COMPARED)


def _structs(checkpoint: pa.Table, name: str) -> list[dict[str, Any]]:
    """Return the actions of one kind; an empty list if the checkpoint has no column for them."""
    return [row for row in checkpoint[name].to_pylist() if row] if name in checkpoint.column_names else []


def _sidecar_path(storage: Storage, path: str) -> str:
    return relative_path(storage, path) if is_absolute(path) else sidecar_path(path)


def _vector_in(add: dict[str, Any]) -> DeletionVector | None:
    """Return the deletion vector of an add. Without one, writers omit the column, the value, or all of its fields."""
    vector = add.get("deletionVector") or {}
    return None if vector.get("storageType") is None else msgspec.convert(vector, DeletionVector)
