"""Deletion vectors that are written: read back here and by other implementations."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from deltars.data.deletion_vectors import read_vector
from deltars.data.vector_writer import MAX_INLINE_BYTES, write_vectors
from deltars.errors import StorageError
from deltars.storage import Storage, open_storage
from tests.mirror.test_readers import by_deltalake, by_duckdb
from tests.support.handmade_log import HandmadeLog, add, features, metadata_of, schema_of
from tests.support.soak import scaled

FEW = BitMap64([0, 3, 99])
RUN = BitMap64(range(5_000))
MANY = BitMap64(range(0, 100_000, 7))
HUGE = BitMap64([*range(0, 3_000, 11), 2**32 + 5, 2**40])


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "a b%20c") if request.param == "local" else f"memory://{uuid.uuid4()}/t")


def _files(storage: Storage) -> list[str]:
    return [info.path for info in storage.list()]


def test_vectors_of_one_write_share_one_file_and_small_ones_are_inline(storage: Storage) -> None:
    rows = {"few": FEW, "many": MANY, "run": RUN, "huge": HUGE}
    written = write_vectors(storage, rows)
    assert list(written) == list(rows)
    assert {key: vector.storage_type for key, vector in written.items()} == {
        "few": "i", "many": "u", "run": "i", "huge": "u",
    }  # fmt: skip
    assert len(_files(storage)) == 1
    assert written["many"].offset == 1
    assert {key: read_vector(storage, vector) for key, vector in written.items()} == rows
    assert {key: vector.cardinality for key, vector in written.items()} == {key: len(of) for key, of in rows.items()}


def test_small_vectors_need_no_file(storage: Storage) -> None:
    [vector] = write_vectors(storage, {0: FEW}).values()
    assert vector.size_in_bytes <= MAX_INLINE_BYTES
    assert _files(storage) == []
    assert write_vectors(storage, {}) == {}


def test_bitmap_of_the_caller_is_not_changed(storage: Storage) -> None:
    rows = BitMap64(range(1_000))
    before = rows.serialize()
    write_vectors(storage, {0: rows})
    assert rows.serialize() == before


@settings(max_examples=scaled(20, soak=2_000), deadline=None)
@given(st.dictionaries(st.integers(), st.sets(st.integers(0, 2**45)) | st.sets(st.integers(0, 500), min_size=100)))
def test_any_rows_are_read_back(rows: dict[int, set[int]]) -> None:
    storage = open_storage(f"memory://{uuid.uuid4()}/t")
    bitmaps = {key: BitMap64(of) for key, of in rows.items()}
    written = write_vectors(storage, bitmaps)
    assert {key: read_vector(storage, vector) for key, vector in written.items()} == bitmaps


def test_interrupted_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(str(tmp_path))

    def full(data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deltars.data.vector_writer.zlib.crc32", full)
    with pytest.raises((OSError, StorageError)):
        write_vectors(storage, {0: MANY})
    assert _files(storage) == []


@pytest.mark.parametrize("read", [by_deltalake, by_duckdb], ids=["deltalake", "duckdb"])
def test_other_implementations_leave_out_the_rows(tmp_path: Path, read: Callable[..., pa.Table]) -> None:
    schema = metadata_of(schema_of({"name": "id", "type": "long"}), {"delta.enableDeletionVectors": "true"})
    log = HandmadeLog(tmp_path / "t", features(reader=("deletionVectors",)), schema)
    deleted: Mapping[str, BitMap64] = {
        "few.parquet": FEW,
        "thirds.parquet": BitMap64(range(0, 20_000, 3)),
        "run.parquet": RUN,
        "odd.parquet": BitMap64(range(1, 20_000, 2)),
    }
    vectors = write_vectors(open_storage(str(log.root)), deleted)
    assert {vector.storage_type for vector in vectors.values()} == {"i", "u"}
    adds, expected = [], []
    for place, (path, gone) in enumerate(deleted.items()):
        first = place * 20_000
        pq.write_table(pa.table({"id": range(first, first + 20_000)}), log.root / path, row_group_size=3_000)
        stats = '{"numRecords":20000,"tightBounds":false}'
        size = (log.root / path).stat().st_size
        adds.append(add(path, size=size, stats=stats, deletionVector=msgspec.to_builtins(vectors[path])))
        expected += [first + row for row in range(20_000) if row not in gone]
    log.commit(1, *adds)
    assert sorted(read(log.root, None)["id"].to_pylist()) == expected
