"""Parsers of foreign input, each as a function of bytes: it returns, or raises an error of deltars.

`make fuzz` searches for inputs that break this, by the branches that they reach (atheris). `make test` tries the seeds,
inputs that were found before (`found/`), and random changes of both.
"""

from __future__ import annotations

import io
import json
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from deltars.data.deletion_vectors import MAGIC, read_vector
from deltars.data.foreign_files import describe_file
from deltars.errors import DeltarsError
from deltars.importer.checkpoints import CheckpointFiles
from deltars.importer.commits import CommitFile
from deltars.importer.listing import Checkpoint, CheckpointKind
from deltars.log.bounds import known_stats
from deltars.predicate import parse
from deltars.predicate.expression import parse_expression
from deltars.predicate.query import Query
from deltars.predicate.statements.parser import is_complete, parse_script
from deltars.protocol.actions import DeletionVector
from deltars.protocol.ddl import schema_from_ddl
from deltars.protocol.schema import StructType
from deltars.protocol.stats import decode_stats
from deltars.protocol.z85 import encode_z85
from deltars.storage.opening import open_storage
from deltars.storage.storage import ObjectInfo, Storage
from deltars.uri import parse_catalog_uri, parse_table_uri, parse_uri, redacted

FOUND = Path(__file__).with_name("found")
SCHEMA = schema_from_ddl(
    "id BIGINT, b BOOLEAN, f FLOAT, d DOUBLE, n DECIMAL(10, 2), s STRING, x BINARY, day DATE, at TIMESTAMP,"
    " local TIMESTAMP_NTZ, inner STRUCT<a: INT, b: STRING>, list ARRAY<INT>, map MAP<STRING, INT>"
)


@dataclass(frozen=True, slots=True)
class Target:
    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]


def survives(target: Target, data: bytes) -> bool:
    """Return whether the parser accepted the input. An exception that is not of deltars leaves this function."""
    try:
        target.run(data)
    except DeltarsError:
        return False
    return True


# -- what each reads -------------------------------------------------------------------------------------------------


@cache
def _place() -> Storage:
    return open_storage(tempfile.mkdtemp(prefix="deltars-fuzz-"))


def _stored(name: str, data: bytes) -> ObjectInfo:
    path = Path(_place().location.path, name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return ObjectInfo(name, len(data), datetime(2026, 1, 1, tzinfo=UTC))


def commit(data: bytes) -> None:
    file = CommitFile(_place(), _stored("_delta_log/00000000000000000000.json", data))
    for _ in file.batches():
        pass


def checkpoint(data: bytes) -> None:
    _read_checkpoint("_delta_log/00000000000000000001.checkpoint.parquet", CheckpointKind.CLASSIC, data)


def manifest(data: bytes) -> None:
    name = "_delta_log/00000000000000000001.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    _read_checkpoint(name, CheckpointKind.V2, data)


def _read_checkpoint(name: str, kind: CheckpointKind, data: bytes) -> None:
    files = CheckpointFiles(_place(), Checkpoint(1, kind, (_stored(name, data),)))
    files.is_readable()
    files.head()
    for _ in files.others():
        pass
    for _ in files.adds():
        pass


def parquet(data: bytes) -> None:
    describe_file(_place(), _stored("foreign.parquet", data))


def vector(data: bytes) -> None:
    """A stored vector. Its size and checksum are right, so that the bitmap is reached."""
    check = zlib.crc32(data).to_bytes(4, "big")
    _stored("vector.bin", b"\x01" + len(data).to_bytes(4, "big") + data + check)
    path = f"{_place().location.path}/vector.bin"
    found = DeletionVector(storage_type="p", path_or_inline_dv=path, size_in_bytes=len(data), cardinality=3, offset=1)
    read_vector(_place(), found)


def inline_vector(data: bytes) -> None:
    text = data.decode("latin-1")
    size = len(text) * 4 // 5
    found = DeletionVector(storage_type="i", path_or_inline_dv=text, size_in_bytes=size, cardinality=3)
    read_vector(_place(), found)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def condition(data: bytes) -> None:
    parse(_text(data), SCHEMA)


def expression(data: bytes) -> None:
    parse_expression(_text(data), SCHEMA)


def statements(data: bytes) -> None:
    is_complete(_text(data))
    parse_script(_text(data))


def query(data: bytes) -> None:
    read = Query(_text(data))
    read.check_columns([SCHEMA] * len(read.tables))
    read.predicates([SCHEMA] * len(read.tables), UTC)
    read.columns([SCHEMA] * len(read.tables))


def ddl(data: bytes) -> None:
    schema_from_ddl(_text(data))


def schema(data: bytes) -> None:
    StructType.from_json(_text(data))


def stats(data: bytes) -> None:
    known_stats(_text(data))
    decode_stats(data, SCHEMA)


def uri(data: bytes) -> None:
    text = _text(data)
    redacted(text)
    for read in (parse_uri, parse_catalog_uri, parse_table_uri):
        try:
            read(text)
        except DeltarsError as error:
            str(error)


# -- where each begins -----------------------------------------------------------------------------------------------


def _lines(*actions: Mapping[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, actions)).encode()


_PROTOCOL: dict[str, Any] = {
    "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}
}
_METADATA: dict[str, Any] = {
    "metaData": {
        "id": "4f2a5d6e-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA.to_json(),
        "partitionColumns": ["day"],
        "configuration": {"delta.checkpointInterval": "10"},
        "createdTime": 1,
    }
}
_ADD: dict[str, Any] = {
    "add": {
        "path": "day=2026-01-01/part%201.parquet",
        "partitionValues": {"day": "2026-01-01"},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
        "stats": '{"numRecords":3,"minValues":{"id":1,"s":"a"},"maxValues":{"id":9,"s":"z"},"nullCount":{"id":0}}',
        "deletionVector": {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 40,
                           "cardinality": 3, "offset": 1},
    }
}  # fmt: skip
_OTHERS: tuple[dict[str, Any], ...] = (
    {"remove": {"path": "b.parquet", "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": False}},
    {"txn": {"appId": "a", "version": 1, "lastUpdated": 1}},
    {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": {"mode": "Append"}}},
    {"cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 1, "dataChange": False}},
    {"checkpointMetadata": {"version": 1}},
    {"sidecar": {"path": "s.parquet", "sizeInBytes": 1, "modificationTime": 1}},
)


def _checkpoint_seed() -> bytes:
    add = {key: value for key, value in _ADD["add"].items() if key != "deletionVector"}
    add["partitionValues"] = list(add["partitionValues"].items())
    fields = [(key, pa.map_(pa.string(), pa.string())) if key == "partitionValues" else (key, pa.scalar(value).type)
              for key, value in add.items()]  # fmt: skip
    metadata = {**_METADATA["metaData"], "configuration": [("a", "b")], "format": {"provider": "parquet"}}
    rows = pa.table(
        {
            "protocol": [_PROTOCOL["protocol"], None, None],
            "metaData": pa.array(
                [None, metadata, None],
                pa.struct(
                    [
                        ("id", pa.string()),
                        ("format", pa.struct([("provider", pa.string())])),
                        ("schemaString", pa.string()),
                        ("partitionColumns", pa.list_(pa.string())),
                        ("configuration", pa.map_(pa.string(), pa.string())),
                        ("createdTime", pa.int64()),
                    ]
                ),
            ),
            "add": pa.array([None, None, add], pa.struct(fields)),
        }
    )
    written = io.BytesIO()
    pq.write_table(rows, written, compression="none")
    return written.getvalue()


def _parquet_seeds() -> list[bytes]:
    """A file with the schema that Spark notes, and one without."""
    written = io.BytesIO(), io.BytesIO()
    rows = pa.table({"id": [1], "s": ["a"], "day": [date(2026, 1, 1)], "inner": [{"a": [1.5]}]})
    spark = {"org.apache.spark.sql.parquet.row.metadata": SCHEMA.to_json()}
    for file, table in zip(written, (rows, rows.replace_schema_metadata(spark)), strict=True):
        pq.write_table(table, file, compression="none")
    return [file.getvalue() for file in written]


_BITMAP = MAGIC + BitMap64([1, 7, 9]).serialize()

TARGETS = {
    "commit": Target(commit, lambda: [_lines(_PROTOCOL, _METADATA, _ADD, *_OTHERS)]),
    "checkpoint": Target(checkpoint, lambda: [_checkpoint_seed()]),
    "manifest": Target(manifest, lambda: [_lines(_PROTOCOL, _METADATA, *_OTHERS[:3], _OTHERS[-2])]),
    "parquet": Target(parquet, _parquet_seeds),
    "vector": Target(vector, lambda: [_BITMAP]),
    "inline_vector": Target(inline_vector, lambda: [encode_z85(_BITMAP).encode()]),
    "condition": Target(
        condition,
        lambda: [
            b"id > 1 AND (s LIKE 'a%' OR day BETWEEN '2026-01-01' AND DATE '2026-02-01') AND n IN (1, 2.5) IS NOT NULL",
            b"NOT b <=> true AND inner.a = -1 AND at < TIMESTAMP '2026-01-01 00:00:00+01' AND x = X'FF' AND d = 1e400",
        ],
    ),
    "expression": Target(expression, lambda: [b"CAST(id + 1 AS STRING) || coalesce(s, 'x')", b"-n", b"inner.b"]),
    "statements": Target(
        statements,
        lambda: [
            b"BEGIN ATOMIC INSERT INTO t VALUES (1, 'a'); UPDATE t SET s = 'b' WHERE id = 1; END",
            b"MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.b THEN DELETE WHEN NOT MATCHED THEN INSERT *",
            b"CREATE OR REPLACE TABLE a.t (id BIGINT NOT NULL COMMENT 'k', v ARRAY<INT>) PARTITIONED BY (id)"
            b" TBLPROPERTIES ('a' = 'b'); ALTER TABLE t RENAME COLUMN a TO b; VACUUM t RETAIN 7 HOURS DRY RUN",
        ],
    ),
    "query": Target(
        query,
        lambda: [
            b"WITH a AS (SELECT id FROM t VERSION AS OF 3) SELECT t.id, sum(d) FROM t JOIN a USING (id) WHERE t.id > 1"
            b" GROUP BY 1 ORDER BY 2 LIMIT 3",
        ],
    ),
    "ddl": Target(
        ddl, lambda: [b"id BIGINT NOT NULL COMMENT 'k', s STRUCT<a: ARRAY<MAP<STRING, DECIMAL(3, 1)>>, `b c`: INT>"]
    ),
    "schema": Target(schema, lambda: [SCHEMA.to_json().encode()]),
    "stats": Target(stats, lambda: [str(_ADD["add"]["stats"]).encode()]),
    "uri": Target(uri, lambda: [b"deltasql://postgres/lake/public/t?host=a&password=b%20c", b"deltasql://sqlite//a/b.db/t"]),
}  # fmt: skip


def corpus(name: str) -> list[bytes]:
    """Return the seeds of a target and the inputs that once broke it."""
    return [*TARGETS[name].seeds(), *(path.read_bytes() for path in sorted((FOUND / name).glob("*")))]
