"""Real logs: every line of the golden tables is read, written again, and means the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltars.protocol import (
    AddFile,
    CommitInfo,
    Metadata,
    PrimitiveType,
    StructType,
    decode_action,
    decode_checkpoint,
    decode_commit,
    decode_stats,
    encode_action,
    encode_commit,
    encode_stats,
    is_absolute,
    parse_partition_value,
    partition_directory,
    path_to_uri,
    serialize_partition_value,
    uri_to_path,
)


def _lines(commits: list[Path]) -> Iterator[tuple[Path, str]]:
    for commit in commits:
        for line in commit.read_text().splitlines():
            if line.strip():
                yield commit, line


def _adds_with_metadata(commits: list[Path]) -> Iterator[tuple[Path, Metadata, AddFile]]:
    """Every file with the metadata in force when it was added."""
    metadata: dict[Path, Metadata] = {}
    for commit in commits:
        actions = decode_commit(commit.read_bytes())
        for action in actions:
            if isinstance(action, Metadata):
                metadata[commit.parent] = action
        for action in actions:
            if isinstance(action, AddFile) and commit.parent in metadata:
                yield commit, metadata[commit.parent], action


def test_every_action_is_written_again_as_it_was(golden_commits: list[Path]) -> None:
    count = 0
    for commit, line in _lines(golden_commits):
        action = decode_action(line)
        assert action is not None, f"{commit}: {line:.200}"
        assert json.loads(encode_action(action)) == json.loads(line), commit
        count += 1
    assert count > 1000


def test_every_commit_is_read_as_a_whole(golden_commits: list[Path]) -> None:
    for commit in golden_commits:
        actions = decode_commit(commit.read_bytes())
        assert decode_commit(encode_commit(actions)) == actions


def test_known_fields_of_every_commit_info_are_understood(golden_commits: list[Path]) -> None:
    beyond: set[str] = set()
    for _, line in _lines(golden_commits):
        action = decode_action(line)
        if isinstance(action, CommitInfo):
            assert action.timestamp is not None
            assert action.operation is not None
            beyond |= action.extra.keys()
    assert beyond == {"userId", "userName", "job", "notebook", "clusterId"}


def test_every_schema_is_written_again_letter_for_letter(golden_commits: list[Path]) -> None:
    count = 0
    for commit, line in _lines(golden_commits):
        action = decode_action(line)
        if isinstance(action, Metadata) and action.schema_string:
            assert action.schema.to_json() == action.schema_string, commit
            count += 1
    assert count > 90


def test_every_partition_value_is_written_again_as_it_was(golden_commits: list[Path]) -> None:
    seen = set()
    for commit, metadata, add in _adds_with_metadata(golden_commits):
        types = {column.physical_name: column.type for column in metadata.schema}
        for name, text in add.partition_values.items():
            value = parse_partition_value(text, types[name])
            again = serialize_partition_value(value, types[name])
            # A timestamp is written in UTC, where these tables have their writer's zone.
            if types[name] == PrimitiveType("timestamp") and text:
                assert parse_partition_value(again, types[name]) == value
            else:
                assert again == (text or None), commit
            seen.add(str(types[name]))
    assert len(seen) > 10


def test_partition_directories_are_made_as_spark_makes_them(golden_commits: list[Path]) -> None:
    count = 0
    for commit, metadata, add in _adds_with_metadata(golden_commits):
        directory, _, _ = add.path.rpartition("/")
        if "=" in directory and not is_absolute(add.path):
            names = [metadata.schema[column].physical_name for column in metadata.partition_columns]
            made = partition_directory(names, add.partition_values)
            assert path_to_uri(made) == directory, commit
            assert uri_to_path(directory) == made
            count += 1
    assert count > 50


def test_every_statistic_is_written_again_as_it_was(golden_commits: list[Path]) -> None:
    count = 0
    for commit, metadata, add in _adds_with_metadata(golden_commits):
        if add.stats is None:
            continue
        written = json.loads(add.stats, parse_float=Decimal)
        again = json.loads(encode_stats(decode_stats(add.stats, metadata.schema), metadata.schema), parse_float=Decimal)
        for part in ("minValues", "maxValues", "nullCount"):
            assert again[part] == _expected(written.get(part, {}), metadata.schema), commit
        assert again.get("numRecords") == written.get("numRecords")
        assert again.get("tightBounds") == written.get("tightBounds")
        count += 1
    assert count > 150


def _expected(values: dict[str, Any], schema: StructType) -> dict[str, Any]:
    """What Delta wrote, with moments in UTC and without columns that the schema does not have."""
    expected: dict[str, Any] = {}
    for column in schema:
        value = values.get(column.physical_name)
        if isinstance(column.type, StructType):
            value = _expected(value or {}, column.type) or None
        elif column.type == PrimitiveType("timestamp") and isinstance(value, str):
            moment = parse_partition_value(value, column.type)
            value = moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        if value is not None:
            expected[column.physical_name] = value
    return expected


def test_json_checkpoint_is_read(golden_commits: list[Path]) -> None:
    root = golden_commits[0].parents[3]
    checkpoints = list(root.rglob("_delta_log/*.checkpoint.*.json"))
    assert checkpoints
    for checkpoint in checkpoints:
        content = checkpoint.read_bytes()
        assert [json.loads(encode_action(action)) for action in decode_checkpoint(content)] == [
            json.loads(line) for line in content.splitlines()
        ]
