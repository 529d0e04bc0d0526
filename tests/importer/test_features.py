"""Tables with features that are rare: taken in with all they are, read-only, or not at all, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import deltars
from deltars.protocol import CdcFile
from tests.support.handmade_log import HandmadeLog, add, features, metadata_of, schema_of

pytestmark = pytest.mark.backends("sqlite")

STATS = '{"numRecords":3}'


def test_rows_written_before_their_column_was_widened_are_read(catalog: deltars.Catalog, tmp_path: Path) -> None:
    change = {"delta.typeChanges": [{"toType": "long", "fromType": "integer", "tableVersion": 1}]}
    log = HandmadeLog(
        tmp_path / "t",
        features(reader=("typeWidening",)),
        metadata_of(schema_of({"name": "id", "type": "integer"}), {"delta.enableTypeWidening": "true"}),
    )
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), log.root / "narrow.parquet")
    pq.write_table(pa.table({"id": pa.array([2**40], pa.int64())}), log.root / "wide.parquet")
    log.commit(1, add("narrow.parquet"))
    log.commit(
        2,
        metadata_of(
            schema_of({"name": "id", "type": "long", "metadata": change}), {"delta.enableTypeWidening": "true"}
        ),
    )
    log.commit(3, add("wide.parquet"))
    table = catalog.import_table(str(log.root))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2**40]
    assert table.to_arrow(version=1).schema.field("id").type == pa.int32()
    catalog.write(table.name, pa.table({"id": [5]}))
    assert table.to_arrow().num_rows == 3


def test_a_table_with_variants_is_read_encoded_and_left_to_its_writers(
    catalog: deltars.Catalog, tmp_path: Path
) -> None:
    log = HandmadeLog(
        tmp_path / "t", features(reader=("variantType",)), metadata_of(schema_of({"name": "v", "type": "variant"}))
    )
    encoded = pa.array(
        [{"value": b"\x0c\x01", "metadata": b"\x01\0\0"}, None],
        pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
    )
    pq.write_table(pa.table({"v": encoded}), log.root / "v.parquet")
    log.commit(1, add("v.parquet"))
    with pytest.raises(deltars.UnsupportedFeature, match="variantType"):
        catalog.import_table(str(log.root))
    rows = catalog.import_table(str(log.root), read_only=True).to_arrow()
    assert rows["v"].to_pylist() == [{"metadata": b"\x01\0\0", "value": b"\x0c\x01"}, None]


@pytest.mark.parametrize(
    ("protocol", "column", "feature"),
    [
        (features("checkpointProtection"), {}, "checkpointProtection"),
        (features("icebergCompatV1", "columnMapping"), {}, "icebergCompatV1"),
        (features("somebodysOwn"), {}, "somebodysOwn"),
    ],
)
def test_what_writers_here_cannot_honour_is_named_and_read_only(
    catalog: deltars.Catalog, tmp_path: Path, protocol: dict[str, Any], column: dict[str, Any], feature: str
) -> None:
    log = HandmadeLog(tmp_path / "t", protocol, metadata_of(schema_of({"name": "id", "type": "long"} | column)))
    log.commit(1, add())
    with pytest.raises(deltars.UnsupportedFeature, match=feature) as caught:
        catalog.import_table(str(log.root))
    assert feature in caught.value.features
    table = catalog.import_table(str(log.root), read_only=True)
    assert table.to_arrow().num_rows == 3
    with pytest.raises(deltars.ValidationError):
        catalog.write(table.name, pa.table({"id": [1]}))


def test_row_ids_go_on_where_the_table_left_off(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = HandmadeLog(
        tmp_path / "t",
        features("rowTracking", "domainMetadata"),
        metadata_of(schema_of({"name": "id", "type": "long"}), {"delta.enableRowTracking": "true"}),
    )
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":41}', "removed": False}
    log.commit(1, add(stats=STATS, baseRowId=39, defaultRowCommitVersion=1), {"domainMetadata": mark})
    table = catalog.import_table(str(log.root))
    catalog.write(table.name, pa.table({"id": [1]}))
    assert sorted(table.snapshot().files["base_row_id"].to_pylist()) == [39, 42]


def test_change_data_files_and_unknown_domains_come_along(catalog: deltars.Catalog, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": [1, 2, 3]}), configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(place).update(updates={"id": "id + 10"}, predicate="id = 2")
    table = catalog.import_table(place)
    [changed] = list(catalog._session.reader.changes(table.id, 1, 1))
    assert any(isinstance(action, CdcFile) for action in changed.actions)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3, 12]


def test_the_progress_of_applications_comes_along(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = HandmadeLog(tmp_path / "t")
    log.commit(1, {"txn": {"appId": "stream", "version": 7, "lastUpdated": 5}}, add())
    log.commit(2, {"txn": {"appId": "stream", "version": 3}})
    table = catalog.import_table(str(log.root))
    assert {app: txn.version for app, txn in table.snapshot().txns.items()} == {"stream": 3}
    assert table.snapshot(1).txns["stream"].version == 7


def test_times_go_forward_even_where_a_writers_clock_went_back(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = HandmadeLog(tmp_path / "t")
    log.commit(1, {"commitInfo": {"timestamp": 2_000_000, "operation": "WRITE"}}, add())
    log.commit(2, {"commitInfo": {"timestamp": 1_000_000, "operation": "WRITE"}})
    log.commit(3, {"commitInfo": {"inCommitTimestamp": 2**80, "operation": ["odd"]}})
    history = catalog.import_table(str(log.root)).history()
    times = [entry.in_commit_timestamp for entry in reversed(history)]
    assert times == sorted(set(times))
    assert [entry.operation for entry in reversed(history)][3] == "UNKNOWN"


def test_commit_information_is_kept(catalog: deltars.Catalog, tmp_path: Path) -> None:
    log = HandmadeLog(tmp_path / "t")
    info = {
        "timestamp": 1_700_000_000_000,
        "operation": "MERGE",
        "operationParameters": {"predicate": "a = b", "n": [1]},
        "operationMetrics": {"numOutputRows": "3"},
        "userName": "ada",
        "userMetadata": "nightly",
        "isolationLevel": "Serializable",
        "readVersion": 0,
        "isBlindAppend": False,
        "txnId": "00000000-0000-0000-0000-00000000002a",
    }
    log.commit(1, {"commitInfo": info}, add())
    entry = {entry.version: entry for entry in catalog.import_table(str(log.root)).history()}[1]
    assert (entry.operation, entry.committer, entry.user_metadata) == ("MERGE", "ada", "nightly")
    assert (entry.operation_params, entry.metrics) == (info["operationParameters"], info["operationMetrics"])
    assert (entry.read_version, entry.is_blind_append, str(entry.txn_id)) == (0, False, info["txnId"])
    assert (
        json.loads((log.log / f"{2:020}.json").read_text().splitlines()[0])["commitInfo"]["operation"] == "ADOPT TABLE"
    )
