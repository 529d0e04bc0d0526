"""Logs of very many files: the data files themselves are not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.handmade_log import HandmadeLog, add, metadata_of, schema_of

METADATA = metadata_of(schema_of({"name": "id", "type": "long"}, {"name": "name", "type": "string"}))
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
TEXT = pa.string()
MAP = pa.map_(TEXT, TEXT)
CHECKPOINT = pa.schema(
    [
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", TEXT),
                    ("format", pa.struct([("provider", TEXT), ("options", MAP)])),
                    ("schemaString", TEXT),
                    ("partitionColumns", pa.list_(TEXT)),
                    ("configuration", MAP),
                ]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", TEXT),
                    ("partitionValues", MAP),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", TEXT),
                ]
            ),
        ),
    ]
)


def _files(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        stats = {
            "numRecords": 1000,
            "minValues": {"id": number * 1000, "name": f"a{number}"},
            "maxValues": {"id": number * 1000 + 999, "name": f"b{number}"},
            "nullCount": {"id": 0, "name": 0},
        }
        yield add(f"part-{number:08}-0123-4567-89ab.c000.snappy.parquet", stats=json.dumps(stats))


def log_with_checkpoint(root: Path, count: int) -> None:
    """Version 9, all of it in a checkpoint."""
    log = HandmadeLog(root)
    (log.log / f"{0:020}.json").unlink()
    head = METADATA["metaData"] | {"format": {"provider": "parquet", "options": []}, "configuration": []}
    with pq.ParquetWriter(log.log / f"{9:020}.checkpoint.parquet", CHECKPOINT) as writer:
        rows: list[dict[str, Any]] = [PROTOCOL, {"metaData": head}]
        for file in _files(count):
            rows.append({"add": file["add"] | {"partitionValues": []}})
            if len(rows) == 50_000:
                writer.write_table(pa.Table.from_pylist(rows, CHECKPOINT))
                rows = []
        writer.write_table(pa.Table.from_pylist(rows, CHECKPOINT))


def log_with_one_commit(root: Path, count: int) -> None:
    """Version 0, which adds every file."""
    log = HandmadeLog(root)
    with (log.log / f"{0:020}.json").open("w") as commit:
        # The metadata last: it is needed for the first file all the same.
        for action in (PROTOCOL, *_files(count), METADATA):
            commit.write(json.dumps(action, separators=(",", ":")) + "\n")


LARGE_LOGS = {"checkpoint": log_with_checkpoint, "commit": log_with_one_commit}
