"""Logs of writers that do not keep to the letter: taken where nothing is lost by it, else refused before the fence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltars
from tests.support.handmade_log import HandmadeLog, add

on_sqlite = pytest.mark.backends("sqlite")


@pytest.fixture
def log(tmp_path: Path) -> HandmadeLog:
    return HandmadeLog(tmp_path / "table")


def size_of(log: HandmadeLog, name: str = "a.parquet") -> int:
    return os.path.getsize(log.root / name)


# -- statistics --------------------------------------------------------------------------------------------------------

ODD_STATISTICS = [
    "null",
    "",
    " ",
    "no JSON",
    "7",
    "[]",
    '"text"',
    "true",
    '{"numRecords": "3"}',
    '{"numRecords": "many"}',
    '{"numRecords": -1}',
    '{"numRecords": 3.5}',
    '{"numRecords": true}',
    '{"numRecords": 1e400}',
    '{"numRecords": 99999999999999999999}',
    '{"numRecords": 3, "minValues": "none", "maxValues": [], "nullCount": 0}',
    '{"numRecords": 3, "minValues": null, "nullCount": {"id": "0"}, "tightBounds": "yes"}',
    '{"nullCount": {"id": 99999999999999999999}}',
    '{"numRecords": NaN}',
    r'{"minValues": {"id": "\udc00"}}',
]


def test_odd_statistics_are_as_good_as_none_and_are_published_as_they_are(
    catalog: deltars.Catalog, log: HandmadeLog
) -> None:
    properties = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpointInterval": "2"}
    for version, text in enumerate(ODD_STATISTICS, start=1):
        path = f"{version}.parquet"
        os.link(log.root / "a.parquet", log.root / path)
        log.commit(version, add(path, stats=text, size=size_of(log)))
    table = catalog.import_table(str(log.root))
    files = len(ODD_STATISTICS)
    assert table.to_arrow().num_rows == 3 * files
    assert table.to_arrow(where="id = 2").num_rows == files
    assert table.to_arrow(where="id IS NULL").num_rows == 0
    assert table.detail().num_records is None
    catalog.set_properties(table.name, properties)
    for _ in range(3):
        catalog.write(table.name, pa.table({"id": [4]}))
    catalog.engine.publisher.close()
    assert list(log.log.glob("*.checkpoint.parquet"))
    assert table.verify(deep=True).findings == ()
    kept = table.snapshot().files
    texts = dict(zip(kept["path"].to_pylist(), kept["stats"].to_pylist(), strict=True))
    assert [texts[f"{version}.parquet"] for version in range(1, files + 1)] == ODD_STATISTICS


@on_sqlite
def test_odd_statistics_in_a_checkpoint_are_as_good_as_none(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    (log.log / f"{0:020}.json").unlink()
    actions: list[dict[str, Any]] = [
        {"checkpointMetadata": {"version": 4}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                      "configuration": {}, "schemaString": json.dumps(
                          {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True,
                                                         "metadata": {}}]})}},
        add(stats="null"),
    ]  # fmt: skip
    name = f"{4:020}.checkpoint.6374b053-df23-479b-b2cf-c9c550132b49.json"
    (log.log / name).write_text("\n".join(map(json.dumps, actions)))
    assert catalog.import_table(str(log.root)).to_arrow(where="id > 1").num_rows == 2
