"""A table whose old commits are gone is read from its checkpoint, in each form that there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltars
from tests.support.handmade_log import (
    CHECKPOINT_HEAD,
    METADATA,
    PROTOCOL,
    HandmadeLog,
    add,
    checkpointed,
    sidecar,
)

AT = f"{4:020}.checkpoint"
UUID = "6374b053-df23-479b-b2cf-c9c550132b49"
FILES = [checkpointed("a.parquet"), checkpointed("b.parquet")]
V2 = {"checkpointMetadata": {"version": 4}}


def classic(log: HandmadeLog) -> None:
    log.checkpoint(f"{AT}.parquet", [*CHECKPOINT_HEAD, *FILES])


def several_parts(log: HandmadeLog) -> None:
    for number, rows in enumerate([[FILES[0]], [*CHECKPOINT_HEAD], [FILES[1]]], start=1):
        log.checkpoint(f"{AT}.{number:010}.{3:010}.parquet", rows)


def v2_in_parquet(log: HandmadeLog) -> None:
    log.checkpoint("_sidecars/one.parquet", [FILES[1]])
    log.checkpoint(f"{AT}.{UUID}.parquet", [*CHECKPOINT_HEAD, FILES[0], sidecar("one.parquet")])


def v2_in_json(log: HandmadeLog) -> None:
    for number, file in enumerate(FILES):
        log.checkpoint(f"_sidecars/{number}.parquet", [file])
    actions = [V2, PROTOCOL, METADATA, sidecar("0.parquet"), sidecar(f"{log.log.as_uri()}/_sidecars/1.parquet")]
    (log.log / f"{AT}.{UUID}.json").write_text("\n".join(map(json.dumps, actions)))


def v2_in_json_without_sidecars(log: HandmadeLog) -> None:
    actions = [V2, PROTOCOL, METADATA, *(add(path, stats='{"numRecords":3}') for path in ("a.parquet", "b.parquet"))]
    (log.log / f"{AT}.{UUID}.json").write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize(
    "write", [classic, several_parts, v2_in_parquet, v2_in_json, v2_in_json_without_sidecars], ids=lambda f: f.__name__
)
def test_every_form_of_checkpoint_is_where_a_table_begins(
    catalog: deltars.Catalog, tmp_path: Path, write: Callable[[HandmadeLog], None]
) -> None:
    log = HandmadeLog(tmp_path / "table")
    (log.log / f"{0:020}.json").unlink()
    for name, ids in (("b", [4, 5, 6]), ("c", [7])):
        pq.write_table(pa.table({"id": ids}), log.root / f"{name}.parquet")
    write(log)
    log.commit(5, add("c.parquet"), {"remove": {"path": "a.parquet", "dataChange": True}})
    (log.log / "_last_checkpoint").write_text('{"version":99,"parts":7')
    table = catalog.import_table(str(log.root))
    assert [entry.version for entry in table.history()] == [6, 5, 4]
    assert sorted(table.to_arrow(version=4)["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert sorted(table.to_arrow()["id"].to_pylist()) == [4, 5, 6, 7]
    catalog.write(table.name, pa.table({"id": [8]}))
    assert table.to_arrow(where="id > 6").num_rows == 2


def test_a_compacted_log_beside_its_commits_adds_nothing(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = HandmadeLog(tmp_path / "table")
    log.commit(1, add(size=(log.root / "a.parquet").stat().st_size))
    log.commit(2, {"txn": {"appId": "a", "version": 1}})
    compacted = log.log / f"{0:020}.{2:020}.compacted.json"
    compacted.write_text("\n".join(map(json.dumps, [PROTOCOL, METADATA, add(), add("never-there.parquet")])))
    table = catalog.import_table(str(log.root))
    assert (table.version, table.to_arrow().num_rows, table.snapshot().files.num_rows) == (3, 3, 1)
    assert compacted.exists()
    assert table.verify(deep=True).findings == ()
