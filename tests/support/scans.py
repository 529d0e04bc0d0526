"""Scans of data files that a test wrote itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

import deltars
from deltars.data.deletion_vectors import MAGIC
from deltars.data.scan import SCAN_COLUMNS, Scan
from deltars.protocol import ColumnMapping, StructType, path_to_uri, schema_from_ddl
from deltars.protocol.z85 import encode_z85


@dataclass(frozen=True)
class TestFile:
    __test__ = False
    path: str
    size: int
    values: Mapping[str, str | None]
    vector: str | None


def write_file(
    root: Path,
    path: str,
    rows: pa.Table | Mapping[str, Any],
    values: Mapping[str, str | None] | None = None,
    deleted: Sequence[int] = (),
) -> TestFile:
    """A Parquet file at this path below the root; `deleted`: the rows that a deletion vector names."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(dict(rows)), place)
    return TestFile(path, place.stat().st_size, values or {}, vector_of(deleted) if deleted else None)


def vector_of(deleted: Sequence[int]) -> str:
    data = MAGIC + BitMap64(deleted).serialize()
    text = encode_z85(data + b"\0" * (-len(data) % 4))
    return json.dumps(
        {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(deleted)}
    )


def without_first_rows(catalog: deltars.Catalog, name: str) -> Scan:
    """A table in which each file has lost its first row."""
    table = catalog.table(name)
    snapshot = table.snapshot()
    files = snapshot.select_files(columns=SCAN_COLUMNS)
    vectors = pa.array([vector_of([0])] * files.num_rows, pa.string())
    return Scan.of(
        snapshot.metadata,
        files.set_column(files.column_names.index("deletion_vector"), "deletion_vector", vectors),
        root=table.location,
        table=table.name,
        version=snapshot.version,
        storage_options=catalog._session.settings.storage_options,
    )


def scan_of_files(
    root: Path,
    schema: StructType | str,
    files: Sequence[TestFile],
    partition_by: Sequence[str] = (),
    mapping: ColumnMapping = "none",
) -> Scan:
    return Scan(
        str(root),
        schema_from_ddl(schema) if isinstance(schema, str) else schema,
        tuple(partition_by),
        pa.table(
            {
                "path": pa.array([path_to_uri(file.path) for file in files], pa.string()),
                "size": pa.array([file.size for file in files], pa.int64()),
                "modification_time": pa.array([1_700_000_000_000] * len(files), pa.int64()),
                "partition_values": pa.array([json.dumps(file.values) for file in files], pa.string()),
                "deletion_vector": pa.array([file.vector for file in files], pa.string()),
            }
        ),
        "features",
        3,
        column_mapping=mapping,
    )
