"""A table with a past: every type, awkward partitions, schema changes, removed files, a checkpoint; and its rows at
every version, kept beside it in plain Python."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltars
from deltars.protocol import Metadata, RemoveFile, schema_from_ddl, schema_to_arrow

DDL = (
    "id BIGINT, yes BOOLEAN, b TINYINT, s SMALLINT, i INT, f FLOAT, d DOUBLE, n DECIMAL(20,4), day DATE, t TIMESTAMP,"
    " text STRING, raw BINARY, list ARRAY<INT>, map MAP<STRING, INT>, inner STRUCT<x: INT, y: STRING>"
)
LATER = f"{DDL}, p STRING, q INT, more STRING"
AWKWARD = [None, "a b", "a/b", "..", "a:c", "100%", "%20", "it's", "a=b&c", "größe 😀", "#?{[^]}", "x\\y"]


@dataclass
class History:
    location: Path
    rows: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    """By version and id."""
    times_ms: dict[int, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.rows)

    def expected(self, version: int) -> list[dict[str, Any]]:
        return [self.rows[version][key] for key in sorted(self.rows[version])]


def row(number: int, partition: str | None) -> dict[str, Any]:
    return {
        "id": number,
        "yes": number % 2 == 0,
        "b": number - 100,
        "s": -number,
        "i": number * 1000,
        "f": number / 2,
        "d": number / 3,
        "n": Decimal(number) / 8,
        "day": date(1990 + number, 2, 3),
        "t": datetime(2020, 1, 1, 12, 30, number, 123456, tzinfo=UTC),
        "text": f"{number} \u2028 \"quoted\" \\ 'single' 🎈",
        "raw": bytes([0, 255, number]),
        "list": [number, None],
        "map": [("k", number)],
        "inner": {"x": number, "y": None if number % 3 else "y"},
        "p": partition,
        "q": None if number % 4 == 0 else number,
    }


def build(catalog: deltars.Catalog, name: str = "t") -> History:
    """One file a version, so that a file's rows are those of one id."""
    table = catalog.create_table(
        name,
        f"{DDL}, p STRING, q INT",
        partition_by=["p", "q"],
        properties={"delta.checkpointInterval": "8"},
    )
    history = History(Path(table.location))
    writer = deltars.SqlTxnLogWriter(catalog)
    live: dict[int, dict[str, Any]] = {}

    def note() -> None:
        version = table.version
        catalog._session.publish({table.id: version})
        catalog._session.publisher.close()
        history.rows[version] = {key: dict(values) for key, values in live.items()}
        history.times_ms[version] = table.history(1)[0].in_commit_timestamp
        time.sleep(0.002)

    def append(number: int, partition: str | None, **more: Any) -> None:
        columns = schema_to_arrow(table.schema)
        catalog.write(name, pa.Table.from_pylist([row(number, partition) | more], schema=columns))
        live[number] = row(number, partition) | more
        note()

    def remove(number: int) -> None:
        files = table.snapshot().files.to_pylist()
        [path] = [file["path"] for file in files if f'"minValues":{{"id":{number},' in file["stats"]]
        action = RemoveFile(path=path, data_change=True, deletion_timestamp=int(time.time() * 1000))
        writer.commit(table.id, table.version + 1, [action], operation="DELETE")
        del live[number]
        note()

    note()
    for number, partition in enumerate(AWKWARD[:6]):
        append(number, partition)
    remove(2)
    remove(0)
    before = table.snapshot().metadata
    after = Metadata(
        id=before.id,
        schema_string=schema_from_ddl(LATER).to_json(),
        partition_columns=before.partition_columns,
        configuration=before.configuration,
    )
    writer.commit(table.id, table.version + 1, [after], operation="ADD COLUMNS")
    for values in live.values():
        values["more"] = None
    note()
    for number, partition in enumerate(AWKWARD[6:], 6):
        append(number, partition, more=f"more {number}")
    remove(4)
    # Two files in one partition: something to compact, for those who try.
    for number in (16, 20):
        append(number, "same", more=None)
    return history
