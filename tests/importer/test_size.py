"""A large table is imported in bounded memory, from a checkpoint and from one large commit."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltars
from tests.support.handmade_log import HandmadeLog, add, metadata_of, schema_of
from tests.support.soak import record, scaled

MEMORY_LIMIT_MIB = 2048
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


def _with_checkpoint(root: Path, count: int) -> None:
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


def _with_one_commit(root: Path, count: int) -> None:
    log = HandmadeLog(root)
    with (log.log / f"{0:020}.json").open("w") as commit:
        # The metadata last: it is needed for the first file all the same.
        for action in (PROTOCOL, *_files(count), METADATA):
            commit.write(json.dumps(action, separators=(",", ":")) + "\n")


@pytest.mark.soak
@pytest.mark.parametrize("form", ["checkpoint", "commit"])
def test_a_large_table_is_imported_in_bounded_memory(
    catalog: deltars.Catalog, catalog_uri: str, tmp_path: Path, form: str
) -> None:
    count = scaled(700, soak=1_000_000)
    place = tmp_path / "large"
    (_with_checkpoint if form == "checkpoint" else _with_one_commit)(place, count)
    catalog.close()
    # In a process of its own, whose memory is the import's alone.
    program = "import sys; from tests.importer.test_size import import_and_measure; import_and_measure(*sys.argv[1:])"
    small = "" if count > 100_000 else "100"
    done = subprocess.run(
        [sys.executable, "-c", program, catalog_uri, str(place), small], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seconds, memory_mib = map(float, done.stdout.split())
    assert memory_mib < MEMORY_LIMIT_MIB
    detail = catalog.table("large").detail()
    assert (detail.num_files, detail.num_records) == (count, count * 1000)
    found = catalog.table("large").snapshot().select_files(where=f"id = {count * 1000 - 1}")
    assert found.num_rows == 1
    record(f"import of one table from a {form}", files=count, seconds=round(seconds, 1), memory_mib=round(memory_mib))


def import_and_measure(uri: str, place: str, small: str) -> None:
    if small:
        # The same way with few files: many batches, many transactions, a commit that is read twice.
        for module, name in (("importer.commits", "BATCH_ACTIONS"), ("importer.commits", "SMALL_BYTES"),
                             ("importer.checkpoints", "BATCH_ROWS"), ("store.appender", "FLUSH_ROWS")):  # fmt: skip
            __import__(f"deltars.{module}")
            setattr(sys.modules[f"deltars.{module}"], name, int(small))
    with deltars.connect(uri) as catalog:
        begun = time.monotonic()
        catalog.import_table(place)
        print(time.monotonic() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
