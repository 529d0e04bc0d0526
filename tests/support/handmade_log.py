"""A Delta table written line by line: for logs that no writer at hand would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def schema_of(*columns: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": [{"nullable": True, "metadata": {}} | column for column in columns]})


def metadata_of(schema: str, configuration: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "x",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": configuration or {},
        }
    }


def features(*names: str, reader: tuple[str, ...] = ()) -> dict[str, Any]:
    """The protocol action that lists these."""
    known: dict[str, Any] = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7}
    return {
        "protocol": known | {"writerFeatures": [*names, *reader]} | ({"readerFeatures": [*reader]} if reader else {})
    }


def add(path: str = "a.parquet", **fields: Any) -> dict[str, Any]:
    known = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": known | fields}


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = metadata_of(schema_of({"name": "id", "type": "long"}))


class HandmadeLog:
    """A table's directory. It begins with one file, `a.parquet`, that no commit names."""

    def __init__(self, root: Path, *first: dict[str, Any]) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self.log.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2, 3]}), root / "a.parquet")
        self.commit(0, *(first or (PROTOCOL, METADATA)))

    def commit(self, version: int, *actions: dict[str, Any] | bytes) -> Path:
        lines = [action if isinstance(action, bytes) else json.dumps(action).encode() for action in actions]
        file = self.log / f"{version:020}.json"
        file.write_bytes(b"\n".join(lines) + b"\n")
        return file

    def checkpoint(self, name: str, rows: list[dict[str, Any]]) -> Path:
        """A checkpoint, a part of one, or a sidecar; the statistics of its files stand there as columns only."""
        file = self.log / name
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, _CHECKPOINT), file)
        return file


_TEXT = pa.string()
_MAP = pa.map_(_TEXT, _TEXT)
_CHECKPOINT = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct(
            {
                "id": _TEXT,
                "format": pa.struct({"provider": _TEXT, "options": _MAP}),
                "schemaString": _TEXT,
                "partitionColumns": pa.list_(_TEXT),
                "configuration": _MAP,
            }
        ),
        "add": pa.struct(
            {
                "path": _TEXT,
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats_parsed": pa.struct({"numRecords": pa.int64(), "minValues": pa.struct({"id": pa.int64()})}),
            }
        ),
        "sidecar": pa.struct({"path": _TEXT, "sizeInBytes": pa.int64(), "modificationTime": pa.int64()}),
    }
)

CHECKPOINT_HEAD: list[dict[str, Any]] = [
    PROTOCOL,
    {"metaData": METADATA["metaData"] | {"format": {"provider": "parquet", "options": []}, "configuration": []}},
]


def checkpointed(path: str) -> dict[str, Any]:
    """A file as a row of a checkpoint."""
    known = add(path)["add"] | {"partitionValues": [], "stats_parsed": {"numRecords": 3, "minValues": {"id": 1}}}
    return {"add": known}


def sidecar(path: str) -> dict[str, Any]:
    return {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}}
