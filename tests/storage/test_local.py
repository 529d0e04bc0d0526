"""What is special about local disk."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from deltars.errors import StorageError, ValidationError
from deltars.storage import open_storage
from tests.storage.forking import is_true_in_forked_child


@pytest.mark.parametrize("path", ["a b/c%20d.parquet", "x=%3A/ü.parquet", "a#b", "100%"])
def test_file_on_disk_has_exactly_that_name(tmp_path: Path, path: str) -> None:
    storage = open_storage(str(tmp_path))
    storage.put_if_absent(path, b"1")
    assert (tmp_path / path).read_bytes() == b"1"
    with storage.open_writer(f"w/{path}") as writer:
        writer.write(b"2")
    assert (tmp_path / "w" / path).read_bytes() == b"2"
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted([tmp_path / path, tmp_path / "w" / path])


def test_file_url_and_path_open_the_same_files(tmp_path: Path) -> None:
    directory = tmp_path / "a b%20ü#"
    open_storage(str(directory)).put("x", b"1")
    again = open_storage(directory.as_uri())
    assert again.get("x") == b"1"
    assert again.root == str(directory)
    assert open_storage(again.url_of("")).root == str(directory)


def test_opening_and_reading_creates_no_directory(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "new"))
    assert list(storage.list()) == []
    assert storage.get_or_none("x") is None
    assert not (tmp_path / "new").exists()


def test_modification_time_is_set_to_the_millisecond(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.put("x", b"1")
    storage.set_modified_ms("x", 1_700_000_000_123)
    assert (tmp_path / "x").stat().st_mtime_ns == 1_700_000_000_123_000_000
    info = storage.head("x")
    assert info is not None
    assert round(info.modified.timestamp() * 1000) == 1_700_000_000_123


def test_unfinished_files_are_not_listed_and_their_names_not_accepted(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    (tmp_path / "00000000000000000000.json#1234").write_bytes(b"half")
    assert list(storage.list()) == []
    with pytest.raises(ValidationError, match="unfinished"):
        storage.put("x#12", b"1")


def test_log_file_and_its_name_are_synced_before_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order, or a power cut could leave an empty file under the final name."""
    steps: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def note_fsync(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append(("sync", Path(name).name.partition("#")[0]))
        fsync(descriptor)

    def note_link(source: str, target: str) -> None:
        steps.append(("link", Path(target).name))
        link(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    open_storage(str(tmp_path)).put_if_absent("_delta_log/0.json", b"1")
    assert steps == [("sync", tmp_path.name), ("sync", "0.json"), ("link", "0.json"), ("sync", "_delta_log")]


def test_several_files_have_their_names_synced_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(str(tmp_path))
    storage.put_if_absent("_delta_log/0.json", b"1")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    for version in (1, 2):
        assert storage.put_if_absent(f"_delta_log/{version}.json", b"1", sync_name=False)
    storage.sync_names("_delta_log")
    assert [Path(name).name.partition("#")[0] for name in synced] == ["1.json", "2.json", "_delta_log"]


def test_works_in_a_forked_child(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.put_if_absent("parent", b"1")
    assert is_true_in_forked_child(lambda: storage.put_if_absent("child", b"2") and storage.get("parent") == b"1")
    assert storage.get("child") == b"2"


def test_full_disk_is_retryable_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    storage = open_storage(str(tmp_path))
    with pytest.raises(StorageError, match="No space left") as caught:
        storage.put_if_absent("x", b"1")
    assert caught.value.retryable
    with pytest.raises(StorageError, match="No space left"), storage.open_writer("y") as writer:
        writer.write(b"1")
    assert list(tmp_path.iterdir()) == []


def test_message_names_the_file_as_it_is(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "why?because"))
    with pytest.raises(StorageError, match=r"No such file.*why\?because/x"):
        storage.open_reader("x")


def test_put_over_a_directory_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    (tmp_path / "x").mkdir()
    with pytest.raises(StorageError):
        storage.put("x", b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_file_where_a_directory_should_be_is_not_retryable(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.put("x", b"1")
    with pytest.raises(StorageError) as caught:
        storage.put_if_absent("x/y", b"1")
    assert not caught.value.retryable
    assert caught.value.path == "x/y"


def test_checksum_that_hadoop_left_goes_before_the_file_it_would_contradict(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    checksums = [tmp_path / f".{name}.crc" for name in ("created", "replaced", "streamed")]
    for checksum in checksums:
        checksum.write_bytes(b"crc")
    storage.put_if_absent("created", b"1")
    storage.put("replaced", b"2")
    with storage.open_writer("streamed") as writer:
        writer.write(b"3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["created", "replaced", "streamed"]


@pytest.mark.filterwarnings("error")
def test_file_that_cannot_be_closed_leaves_nothing_and_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    storage = open_storage(str(tmp_path))
    writer = storage.open_writer("x", if_absent=True)
    writer.write(b"1")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StorageError):
        writer.close()
    assert writer.closed
    del writer
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_staged_files_are_synced_together_and_appear_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, synced, fsync = open_storage(str(tmp_path)), [], os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2].partition("#")[0])
        fsync(descriptor)

    storage.put_if_absent("_delta_log/0.json", b"0")
    files = {f"_delta_log/{version}.json": str(version).encode() * 5000 for version in range(1, 5)}
    monkeypatch.setattr(os, "fsync", note)
    with storage.staged(files):
        assert synced == ["1.json", "2.json", "3.json", "4.json"]
        assert [info.path for info in storage.list()] == ["_delta_log/0.json"]
        for path in list(files)[:2]:
            assert storage.put_if_absent(path, files[path], sync_name=False)
        assert sorted(info.path for info in storage.list()) == [f"_delta_log/{version}.json" for version in range(3)]
        # Another content than was staged is the one that counts.
        assert storage.put_if_absent("_delta_log/3.json", b"other", sync_name=False)
        assert synced[4:] == ["3.json"]
        assert storage.get("_delta_log/3.json") == b"other"
    # The fourth was not put: nothing of it is left.
    assert sorted(path.name for path in (tmp_path / "_delta_log").iterdir()) == [f"{v}.json" for v in range(4)]
    assert storage.get("_delta_log/2.json") == files["_delta_log/2.json"]


def test_staging_that_fails_or_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, fsync, calls = open_storage(str(tmp_path)), os.fsync, []
    files = {"a.json": b"a", "b.json": b"b"}

    def second_fails(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", second_fails)
    with storage.staged(files):
        # Nothing that was not synced is used.
        assert list(tmp_path.iterdir()) == []
        assert storage.put_if_absent("a.json", b"a")
    assert len(calls) == 4  # the file again, and its name
    with pytest.raises(KeyboardInterrupt), storage.staged(files):
        raise KeyboardInterrupt
    with storage.staged({}):
        assert not storage.put_if_absent("a.json", b"b")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_staged_file_that_another_program_put_meanwhile_stays(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    with storage.staged({"a.json": b"ours"}):
        (tmp_path / "a.json").write_bytes(b"theirs")
        assert not storage.put_if_absent("a.json", b"ours")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"theirs"]
