"""Live files, removed."""

from __future__ import annotations

import time

import msgspec
import pyarrow as pa

from deltars.protocol import DeletionVector, RemoveFile

_decode_vector = msgspec.json.Decoder(DeletionVector).decode


def removes_of(files: pa.Table, *, data_change: bool = True) -> list[RemoveFile]:
    """The action that removes each of these files; `files` has the columns of live files."""
    now = int(time.time() * 1000)
    return [
        RemoveFile(
            path=file["path"],
            data_change=data_change,
            deletion_timestamp=now,
            extended_file_metadata=True,
            partition_values=msgspec.json.decode(file["partition_values"]),
            size=file["size"],
            deletion_vector=None if file["deletion_vector"] is None else _decode_vector(file["deletion_vector"]),
        )
        for file in files.select(["path", "partition_values", "size", "deletion_vector"]).to_pylist()
    ]
