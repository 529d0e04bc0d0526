"""One behaviour, whatever holds the files."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltars.errors import StorageError, ValidationError
from deltars.storage import Storage, open_storage
from deltars.storage.arrow_stream import arrow_stream

LOG_FILE = "_delta_log/00000000000000000000.json"

AWKWARD = [
    "plain.parquet",
    "a b/c d.parquet",
    "day=2024-01-01 00%3A00%3A00/part.parquet",
    "a%20b",
    "a%2520b",
    "100%",
    "a#b?c&d+e=f",
    "naïve/東京/😀.parquet",
    "e\u0301",
    "quote'\"[x]{y}^~|<>",
    "back\\slash",
    ".hidden",
]


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(str(tmp_path / "lake of %20 files"))
    return open_storage(f"memory://{uuid.uuid4()}/lake of %20 files")


def test_file_written_once_is_read_back(storage: Storage) -> None:
    assert storage.put_if_absent(LOG_FILE, b"one")
    assert storage.get(LOG_FILE) == b"one"
    assert storage.exists(LOG_FILE)


def test_put_if_absent_never_overwrites(storage: Storage) -> None:
    storage.put_if_absent(LOG_FILE, b"one")
    assert not storage.put_if_absent(LOG_FILE, b"two")
    assert storage.get(LOG_FILE) == b"one"
    assert [info.path for info in storage.list()] == [LOG_FILE]


def test_of_many_writers_of_one_name_exactly_one_wins(storage: Storage) -> None:
    writers, rounds = 8, 25
    start = Barrier(writers)

    def write(writer: int, name: str) -> bool:
        start.wait()
        return storage.put_if_absent(name, str(writer).encode() * 10_000)

    with ThreadPoolExecutor(writers) as pool:
        for turn in range(rounds):
            name = f"_delta_log/{turn:020}.json"
            won = [w for w, ok in enumerate(pool.map(write, range(writers), [name] * writers)) if ok]
            assert len(won) == 1
            assert storage.get(name) == str(won[0]).encode() * 10_000


def test_put_replaces(storage: Storage) -> None:
    storage.put("_delta_log/_last_checkpoint", b"one")
    storage.put("_delta_log/_last_checkpoint", b"two")
    assert storage.get("_delta_log/_last_checkpoint") == b"two"


@pytest.mark.parametrize("path", AWKWARD)
def test_names_are_kept_exactly(storage: Storage, path: str) -> None:
    storage.put_if_absent(path, b"x")
    assert storage.get(path) == b"x"
    assert [info.path for info in storage.list()] == [path]
    if "/" not in path:
        assert storage.head(path) is not None


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a\nb", "a\x00b"])
def test_path_outside_or_not_a_path_is_refused(storage: Storage, path: str) -> None:
    with pytest.raises(ValidationError):
        storage.put_if_absent(path, b"x")
    with pytest.raises(ValidationError):
        storage.get(path)


def test_list_goes_down_from_a_directory_and_not_from_a_name_that_begins_alike(storage: Storage) -> None:
    for path in ("a/1", "a/b/2", "ab/3", "4"):
        storage.put(path, b"xyz")
    assert sorted(info.path for info in storage.list("a")) == ["a/1", "a/b/2"]
    assert sorted(info.path for info in storage.list("a/")) == ["a/1", "a/b/2"]
    assert sorted(info.path for info in storage.list()) == ["4", "a/1", "a/b/2", "ab/3"]
    assert {info.size for info in storage.list()} == {3}
    assert list(storage.list("nothing")) == []


def test_head_tells_size_and_time(storage: Storage) -> None:
    storage.put("a", b"12345")
    info = storage.head("a")
    assert info is not None
    assert (info.path, info.size) == ("a", 5)
    assert abs(datetime.now(UTC) - info.modified) < timedelta(minutes=1)


def test_missing_file_is_none_or_an_error_that_names_it(storage: Storage) -> None:
    assert storage.get_or_none("a b") is None
    assert storage.head("a b") is None
    assert not storage.exists("a b")
    for read in (storage.get, storage.open_reader):
        with pytest.raises(StorageError, match=r"a(%20| )b") as caught:
            read("a b")
        assert caught.value.path == "a b"
        assert not caught.value.retryable


def test_directory_is_not_a_file_and_a_file_no_directory(storage: Storage) -> None:
    storage.put("a/b", b"x")
    for path in ("a", "a/b/c"):
        assert storage.head(path) is None
        assert storage.get_or_none(path) is None
        storage.delete([path])
    assert storage.get("a/b") == b"x"


def test_deleting_what_is_not_there_is_no_error(storage: Storage) -> None:
    storage.put("a", b"x")
    storage.put("b", b"x")
    storage.delete(["missing", "a", "b"])
    assert list(storage.list()) == []


def test_parquet_is_streamed_out_and_read_back(storage: Storage) -> None:
    table = pa.table({"id": range(200_000), "name": [f"row {i}" for i in range(200_000)]})
    with storage.open_writer("p=a b/part.parquet") as writer:
        pq.write_table(table, writer, row_group_size=50_000)
        assert not storage.exists("p=a b/part.parquet")
    info = storage.head("p=a b/part.parquet")
    assert info is not None
    assert info.size == writer.tell()
    with storage.open_reader("p=a b/part.parquet") as reader:
        file = pq.ParquetFile(reader)
        assert file.num_row_groups == 4
        assert file.read_row_group(2, columns=["name"]).column("name")[0].as_py() == "row 100000"
        assert file.read() == table


def test_reader_seeks_and_stops_at_the_end(storage: Storage) -> None:
    storage.put("a", b"0123456789")
    with storage.open_reader("a") as reader:
        assert reader.seek(-3, os.SEEK_END) == 7
        assert reader.read(100) == b"789"
        assert reader.read(1) == b""
        assert reader.seek(2) == 2
        assert reader.read(2) == b"23"
        assert reader.tell() == 4


def test_writer_that_fails_leaves_nothing(storage: Storage) -> None:
    with pytest.raises(RuntimeError, match="half-way"), storage.open_writer("a") as writer:  # noqa: PT012
        writer.write(b"x" * 100_000)
        raise RuntimeError("half-way")
    assert list(storage.list()) == []
    assert not storage.exists("a")
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"more")


def test_stream_that_outlives_its_file_says_nothing(storage: Storage, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), storage.open_writer("t/a.parquet") as writer:  # noqa: PT012
        stream = arrow_stream(writer)
        stream.write(b"half of a file")
        raise ZeroDivisionError
    del stream
    assert capfd.readouterr().err == ""
    assert not storage.exists("t/a.parquet")


def test_large_write_is_never_seen_in_part(storage: Storage) -> None:
    data = os.urandom(8 << 20)
    seen: list[int] = []

    def watch(done: Callable[[], bool]) -> None:
        while not done():
            if (info := storage.head("a")) is not None:
                seen.append(info.size)

    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(storage.put_if_absent, "a", data)
        watch(writing.done)
    assert set(seen) <= {len(data)}
    assert storage.get("a") == data
