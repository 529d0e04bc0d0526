"""A commit and a checkpoint of many files are written as they are read: the memory for one batch is enough."""

from __future__ import annotations

import multiprocessing
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import deltars
from deltars.mirror import Publication, Publisher
from deltars.mirror.files.checkpoint import write_checkpoint
from deltars.store.mirror.checkpoint_state import CheckpointRows
from tests.support.memory import peak_mib
from tests.support.soak import record, scaled

LIMIT_MIB = 1_024


def written_by_itself(uri: str, table_id: UUID) -> tuple[int, float]:
    """In a process of its own: how many files the checkpoint holds, and the most memory that it took."""
    with deltars.connect(uri) as catalog:
        storage = catalog._session.publisher.storage_at(catalog.table(table_id).location)
        checkpoint = write_checkpoint(storage, CheckpointRows(catalog._session.database).at(table_id, 1))
        return checkpoint.num_adds, peak_mib()


def published_by_itself(uri: str, table_id: UUID) -> float:
    """In a process of its own: the most memory that publishing the commit took."""
    with deltars.connect(uri) as catalog:
        outcome = Publisher(catalog._session.database, checkpoint_interval=1_000).publish_pending(table_id)
        assert outcome.publication is Publication.PUBLISHED
        return peak_mib()


@pytest.mark.soak
@pytest.mark.backends("postgres")
@pytest.mark.timeout(1800)
def test_commit_and_checkpoint_of_many_files_need_less_than_a_gibibyte(
    catalog: deltars.Catalog, catalog_uri: str
) -> None:
    files = scaled(20_000, soak=1_000_000)
    stats = '{"numRecords":1000,"minValues":{"id":%d},"maxValues":{"id":%d},"nullCount":{"id":0}}'
    adds = pa.table(
        {
            "path": [f"part-{number:08d}-0b5e1a52-9f6c-4a36-8f0e-8c3d4a2b1c00.parquet" for number in range(files)],
            "partition_values": pa.array(["{}"] * files),
            "size": pa.array([1_000_000] * files, pa.int64()),
            "modification_time": pa.array([1_767_225_600_000] * files, pa.int64()),
            "data_change": [True] * files,
            "stats": [stats % (number, number + 999) for number in range(files)],
        }
    )
    with deltars.connect(catalog_uri, timeout=1200, mirror="off") as writing:
        table_id = writing.create_table("big", "id BIGINT").id
        deltars.SqlTxnLogWriter(writing).commit(table_id, 1, adds, operation="WRITE")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        num_adds, memory = pool.apply(written_by_itself, (catalog_uri, table_id))
        to_publish = pool.apply(published_by_itself, (catalog_uri, table_id))
    assert num_adds == files
    assert memory < LIMIT_MIB
    assert to_publish < LIMIT_MIB
    assert len(DeltaTable(catalog.table("big").location).file_uris()) == files
    record("checkpoint of many files", files=files, memory_mib=round(memory))
    record("commit of many files", files=files, memory_mib=round(to_publish))
