"""The mirror on S3, as moto's server simulates it: conditional puts included, real latencies and failures not."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltars
from deltars.mirror import Publication
from deltars.storage import Storage, open_storage
from deltars.store.mirror.status import MirrorState
from tests.support.s3 import SECRET, new_bucket, options_for, s3_server

ROWS = pa.table({"id": [1]})


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as server:
        yield server


@pytest.fixture
def options(endpoint: str) -> dict[str, str]:
    return options_for(endpoint)


@pytest.fixture
def lake(endpoint: str) -> str:
    return f"s3://{new_bucket(endpoint)}/warehouse"


@pytest.fixture
def catalog(tmp_path: Path, lake: str, options: dict[str, str]) -> Iterator[deltars.Catalog]:
    uri = f"deltasql://sqlite/{tmp_path}/lake.db"
    with deltars.connect(uri, warehouse=lake, storage_options=options, mirror_checkpoint_interval=3) as opened:
        yield opened


def storage_of(catalog: deltars.Catalog, options: dict[str, str]) -> Storage:
    return open_storage(catalog.table("t").location, options)


def test_commits_and_checkpoints_on_s3_are_read_by_others(catalog: deltars.Catalog, options: dict[str, str]) -> None:
    for number in range(7):
        outcome = catalog.write("t", pa.table({"id": [number]})).mirror["t"]
        assert outcome.publication is Publication.PUBLISHED
    catalog._session.publisher.close()
    storage = storage_of(catalog, options)
    names = sorted(info.path.rpartition("/")[2] for info in storage.list("_delta_log"))
    assert [name for name in names if name.endswith("parquet")] == [f"{v:020}.checkpoint.parquet" for v in (3, 6)]
    assert [name for name in names if name.endswith("json")] == [f"{v:020}.json" for v in range(7)]
    location = storage.url_of("")
    assert DeltaTable(location, storage_options=options).version() == 6
    found = pl.scan_delta(location, storage_options=options).collect()
    assert sorted(found["id"]) == list(range(7))
    assert catalog.table("t").verify(deep=True, orphans=True, min_age=timedelta(0)).findings == ()
    assert catalog.reconciler().once().repairs == []


def test_conditional_put_refuses_a_taken_name_and_a_foreign_commit_stops_the_table(
    catalog: deltars.Catalog, options: dict[str, str]
) -> None:
    catalog.write("t", ROWS)
    storage = storage_of(catalog, options)
    path = f"_delta_log/{1:020}.json"
    assert storage.put_if_absent(path, b"foreign")
    assert not storage.put_if_absent(path, b"ours")
    with storage.open_writer(path, if_absent=True) as sink:
        sink.write(b"ours")
    assert not sink.created
    result = catalog.write("t", ROWS)
    assert result.mirror["t"].publication is Publication.FAILED
    with pytest.raises(deltars.MirrorFailure, match="exists and is another commit"):
        result.raise_for_mirror()
    assert catalog.mirror_status()[0].state is MirrorState.DIVERGED
    assert storage.get(path) == b"foreign"


def test_dropped_tables_objects_go_and_the_warehouse_belongs_to_one_catalog(
    catalog: deltars.Catalog, options: dict[str, str], lake: str, tmp_path: Path
) -> None:
    catalog.write("t", ROWS)
    catalog.write("u", ROWS)
    storage = storage_of(catalog, options)
    storage.put("nested/_delta_log/0.json", b"theirs")
    storage.put("stray.parquet", b"1")
    found = catalog.table("t").verify(orphans=True, min_age=timedelta(0)).findings
    assert [finding.file for finding in found] == [f"{lake}/t/stray.parquet"]
    for _ in range(2):
        catalog.drop_table("t", delete_data=True)
        assert [info.path for info in storage.list()] == ["nested/_delta_log/0.json"]
    assert catalog.table("u").verify(deep=True).is_ok
    with pytest.raises(deltars.WarehouseTaken):
        deltars.connect(f"deltasql://sqlite/{tmp_path}/other.db", warehouse=lake, storage_options=options)


def test_deleted_commits_are_written_again(catalog: deltars.Catalog, options: dict[str, str]) -> None:
    for _ in range(3):
        catalog.write("t", ROWS)
    storage = storage_of(catalog, options)
    storage.delete([f"_delta_log/{version:020}.json" for version in (0, 2)])
    assert len(catalog.reconciler().once().repairs) == 2
    assert DeltaTable(storage.url_of(""), storage_options=options).version() == 2


def test_bucket_out_of_reach_leaves_the_commit_standing_and_shows_no_secret(
    catalog: deltars.Catalog, endpoint: str
) -> None:
    catalog.write("t", ROWS)
    storage = storage_of(catalog, dict(catalog._session.settings.storage_options))
    storage.delete([info.path for info in storage.list()] + [])
    bucket = storage.location.authority
    warehouse = open_storage(str(catalog.warehouse), catalog._session.settings.storage_options)
    warehouse.delete([info.path for info in warehouse.list("_deltars")])
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="DELETE")).close()
    catalog.set_properties("t", {"k": "v"})
    [status] = catalog.mirror_status()
    assert (status.state, status.current_version, status.published_version) == (MirrorState.FAILED, 1, 0)
    assert status.last_error is not None
    assert SECRET not in status.last_error
