"""Names below a table: what is of the log, and what readers pass over."""

from __future__ import annotations

import pytest

from deltars.protocol.log_files import LogFileKind, LogFileName, is_hidden, parse_log_path

SEVEN = f"_delta_log/{7:020}"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"{SEVEN}.json", LogFileName(LogFileKind.COMMIT, 7)),
        (f"{SEVEN}.crc", LogFileName(LogFileKind.CHECKSUM, 7)),
        (f"{SEVEN}.checkpoint.parquet", LogFileName(LogFileKind.CLASSIC_CHECKPOINT, 7)),
        (f"{SEVEN}.checkpoint.{1:010}.{3:010}.parquet", LogFileName(LogFileKind.CHECKPOINT_PART, 7, 1, 3)),
        (f"{SEVEN}.checkpoint.7d0f2c0e-3f0a-4c9e-9a53-6a3b1a0c9d11.json", LogFileName(LogFileKind.UUID_CHECKPOINT, 7)),
        (f"{SEVEN}.{9:020}.compacted.json", LogFileName(LogFileKind.COMPACTED, 7)),
        ("_delta_log/_last_checkpoint", LogFileName(LogFileKind.LAST_CHECKPOINT)),
        ("_delta_log/_sidecars/a.parquet", LogFileName(LogFileKind.SIDECAR)),
        (f"{7:020}.json", None),
        (f"sub/{SEVEN}.json", None),
        ("_delta_log/7.json", None),
        (f"{SEVEN}.json.tmp", None),
        (f"_delta_log/.tmp/{7:020}.json", None),
        (f"_delta_log/_staged_commits/{7:020}.json", None),
        ("_delta_log/notes.txt", None),
    ],
)
def test_path_is_what_its_name_says(path: str, name: LogFileName | None) -> None:
    assert parse_log_path(path) == name


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("_delta_log/x", True),
        (".tmp/part-0.parquet", True),
        ("a/_b/part-0.parquet", True),
        ("a/.b.crc", True),
        ("x_$folder$", True),
        ("part-0.parquet.tmp", True),
        ("part-0.parquet~", True),
        ("part-0.parquet", False),
        ("a_b/part-0.parquet", False),
        ("_change_data/p=1/cdc-0.parquet", False),
        ("_delta_index/x", False),
        ("_p=1/part-0.parquet", False),
        (".p=1/part-0.parquet", False),
        ("_q=1/part-0.parquet", True),
        ("_p", True),
    ],
)
def test_hidden_names_are_those_that_readers_pass_over(path: str, hidden: bool) -> None:
    assert is_hidden(path, partition_columns=("_p", ".p")) is hidden
