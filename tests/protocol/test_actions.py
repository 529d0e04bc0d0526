"""Actions and their JSON."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.errors import ValidationError
from deltars.protocol import (
    Action,
    AddFile,
    CdcFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    StructType,
    Txn,
    check_action,
    decode_action,
    decode_checkpoint,
    decode_commit,
    encode_action,
    encode_commit,
)
from tests.protocol import strategies

ADD = AddFile(path="p", partition_values={}, size=1, modification_time=2, data_change=True)
VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
)

EXACT: list[tuple[Any, str]] = [
    (
        ADD,
        '{"add":{"path":"p","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}}',
    ),
    (
        AddFile(
            path="a=%2520/p",
            partition_values={"a": "%20", "b": None},
            size=0,
            modification_time=0,
            data_change=False,
            stats='{"numRecords":1}',
            tags={"k": None, "l": ""},
            deletion_vector=VECTOR,
            base_row_id=0,
            default_row_commit_version=0,
            clustering_provider="liquid",
        ),
        '{"add":{"path":"a=%2520/p","partitionValues":{"a":"%20","b":null},"size":0,"modificationTime":0,'
        '"dataChange":false,"stats":"{\\"numRecords\\":1}","tags":{"k":null,"l":""},"deletionVector":{'
        '"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6},'
        '"baseRowId":0,"defaultRowCommitVersion":0,"clusteringProvider":"liquid"}}',
    ),
    (RemoveFile(path="p", data_change=True), '{"remove":{"path":"p","dataChange":true}}'),
    (
        RemoveFile(
            path="p",
            data_change=False,
            deletion_timestamp=5,
            extended_file_metadata=True,
            partition_values={},
            size=0,
        ),
        '{"remove":{"path":"p","deletionTimestamp":5,"dataChange":false,"extendedFileMetadata":true,'
        '"partitionValues":{},"size":0}}',
    ),
    (
        CdcFile(path="_change_data/c", partition_values={"a": None}, size=3),
        '{"cdc":{"path":"_change_data/c","partitionValues":{"a":null},"size":3,"dataChange":false}}',
    ),
    (
        Metadata(id="x", schema_string='{"type":"struct","fields":[]}'),
        '{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},'
        '"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[]}","partitionColumns":[],"configuration":{}}}',
    ),
    (
        Protocol(min_reader_version=1, min_writer_version=2),
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}',
    ),
    (
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=[], writer_features=["x"]),
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":["x"]}}',
    ),
    (Txn(app_id="a", version=0), '{"txn":{"appId":"a","version":0}}'),
    (Txn(app_id="a", version=-1, last_updated=0), '{"txn":{"appId":"a","version":-1,"lastUpdated":0}}'),
    (
        DomainMetadata(domain="d", configuration="", removed=False),
        '{"domainMetadata":{"domain":"d","configuration":"","removed":false}}',
    ),
    (CommitInfo(), '{"commitInfo":{}}'),
    (
        CommitInfo(
            timestamp=2,
            in_commit_timestamp=1,
            operation="WRITE",
            operation_parameters={},
            is_blind_append=False,
            operation_metrics={"numFiles": "1"},
            txn_id="t",
            extra={"commitTs": 3},
        ),
        '{"commitInfo":{"inCommitTimestamp":1,"timestamp":2,"operation":"WRITE","operationParameters":{},'
        '"isBlindAppend":false,"operationMetrics":{"numFiles":"1"},"txnId":"t","commitTs":3}}',
    ),
    (CheckpointMetadata(version=3), '{"checkpointMetadata":{"version":3}}'),
    (
        Sidecar(path="s", size_in_bytes=1, modification_time=2),
        '{"sidecar":{"path":"s","sizeInBytes":1,"modificationTime":2}}',
    ),
]


@pytest.mark.parametrize(("action", "line"), EXACT)
def test_action_is_written_exactly_as_delta_writes_it(action: Any, line: str) -> None:
    assert encode_action(action).decode() == line
    assert decode_checkpoint(line.encode()) == [action]


@given(strategies.actions)
def test_every_action_survives_the_round_trip(action: Action) -> None:
    line = encode_action(action)
    assert decode_action(line) == action
    assert decode_action(line.decode()) == action
    assert b"\n" not in line
    assert check_action(action) is None


@given(strategies.actions)
def test_absent_fields_are_not_written_and_required_ones_always_are(action: Action) -> None:
    ((name, body),) = json.loads(encode_action(action)).items()
    required = {
        "add": {"path", "partitionValues", "size", "modificationTime", "dataChange"},
        "remove": {"path", "dataChange"},
        "cdc": {"path", "partitionValues", "size", "dataChange"},
        "metaData": {"id", "format", "partitionColumns", "configuration"},
        "protocol": {"minReaderVersion", "minWriterVersion"},
        "txn": {"appId", "version"},
        "domainMetadata": {"domain", "configuration", "removed"},
        "commitInfo": set(),
    }
    assert required[name] <= body.keys()
    known = body if not isinstance(action, CommitInfo) else {k: body[k] for k in body.keys() - action.extra.keys()}
    assert None not in known.values()


@given(st.lists(strategies.actions, max_size=5))
def test_commit_is_one_action_a_line_in_order(actions: list[Action]) -> None:
    content = encode_commit(actions)
    *lines, end = content.split(b"\n")
    assert end == b""
    # Keys of maps are sorted in a commit.
    assert [json.loads(line) for line in lines] == [json.loads(encode_action(action)) for action in actions]
    assert decode_commit(content) == actions


@given(st.lists(strategies.actions | strategies.checkpoint_actions, max_size=5))
def test_json_checkpoint_keeps_its_own_actions_which_a_commit_ignores(actions: list[Any]) -> None:
    content = encode_commit(actions)
    assert decode_checkpoint(content) == actions
    assert decode_commit(content) == [
        action for action in actions if not isinstance(action, CheckpointMetadata | Sidecar)
    ]


@given(strategies.actions)
def test_actions_pickle(action: Action) -> None:
    assert pickle.loads(pickle.dumps(action)) == action


def test_actions_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ADD.path = "other"  # type: ignore[misc]


def test_unknown_fields_are_ignored() -> None:
    line = (
        b'{"add":{"future":{"a":[1]},"path":"p","partitionValues":{},"size":1,"modificationTime":2,'
        b'"dataChange":true,"stats":null}}'
    )
    assert decode_action(line) == ADD


def test_unknown_actions_are_ignored() -> None:
    assert decode_action(b'{"futureAction":{"x":1}}') is None
    assert decode_action(b"{}") is None
    assert decode_commit(b'{"futureAction":{}}\n' + encode_action(ADD) + b"\n") == [ADD]


def test_blank_lines_and_carriage_returns_are_tolerated() -> None:
    line = encode_action(ADD)
    assert decode_commit(b"\r\n".join([line, b"", line]) + b"\n\n") == [ADD, ADD]
    assert decode_commit(b"") == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"add":{"path":"p","partitionValues":{},"modificationTime":2,"dataChange":true}}', "size"),
        (b'{"add":{"path":"p","size":1,"modificationTime":2,"dataChange":true}}', "partitionValues"),
        (b'{"add":{"path":1,"partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}}', "path"),
        (
            b'{"add":{"path":"p","partitionValues":{"a":1},"size":1,"modificationTime":2,"dataChange":true}}',
            "str",
        ),
        (b'{"remove":{"path":"p"}}', "dataChange"),
        (b'{"protocol":{"minReaderVersion":"1","minWriterVersion":2}}', "minReaderVersion"),
        (b'{"txn":{"appId":"a"}}', "version"),
        (b'{"commitInfo":[]}', "commitInfo"),
        (b"[]", "object"),
        (b'{"add":', "truncated"),
        (b'{"txn":{"appId":"\xff","version":1}}', "utf-8"),
        (b"", "truncated"),
    ],
)
def test_malformed_line_is_refused_and_says_why(line: bytes, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        decode_action(line)


def test_malformed_commit_says_which_line() -> None:
    good = encode_action(ADD)
    with pytest.raises(ValidationError) as caught:
        decode_commit(b"\n".join([good, good, b'{"txn":{"appId":"a"}}', good]))
    assert caught.value.action == 2


@given(strategies.texts)
def test_stats_are_a_string_that_is_never_looked_into(text: str) -> None:
    action = msgspec.structs.replace(ADD, stats=text)
    assert json.loads(encode_action(action))["add"]["stats"] == text
    decoded = decode_action(encode_action(action))
    assert isinstance(decoded, AddFile)
    assert decoded.stats == text


def test_text_that_is_no_unicode_cannot_be_written() -> None:
    action = msgspec.structs.replace(ADD, path="half \ud83d")
    with pytest.raises(ValidationError, match="surrogates"):
        encode_action(action)
    with pytest.raises(ValidationError, match="surrogates"):
        encode_commit([action])


def test_what_is_no_action_cannot_be_written() -> None:
    with pytest.raises(ValidationError, match="dict is not an action"):
        encode_action({"add": {}})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="str is not an action"):
        encode_commit(["x"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        (msgspec.structs.replace(ADD, size="1"), "size"),
        (msgspec.structs.replace(ADD, path=None), "path"),
        (msgspec.structs.replace(ADD, partition_values={"a": 1}), "partitionValues"),
        (msgspec.structs.replace(ADD, tags=object()), "JSON"),
        (Txn(app_id="a", version=None), "version"),  # type: ignore[arg-type]
    ],
)
def test_field_of_the_wrong_type_is_found(action: Action, problem: str) -> None:
    found = check_action(action)
    assert found is not None
    assert problem in found


class TestCommitInfo:
    @given(
        st.dictionaries(
            strategies.texts | st.sampled_from(["timestamp", "operation", "tags", "userMetadata", "extra"]),
            strategies.json_values,
            max_size=4,
        )
    )
    def test_any_object_survives(self, document: dict[str, Any]) -> None:
        action = decode_action(msgspec.json.encode({"commitInfo": document}))
        assert isinstance(action, CommitInfo)
        assert json.loads(encode_action(action)) == {"commitInfo": document}

    def test_unknown_keys_are_kept_beside_the_known_fields(self) -> None:
        action = decode_action('{"commitInfo":{"clientVersion":"1","timestamp":5,"operation":"WRITE"}}')
        assert action == CommitInfo(timestamp=5, operation="WRITE", extra={"clientVersion": "1"})

    def test_unusual_known_field_does_not_lose_anything(self) -> None:
        document = {
            "timestamp": "yesterday",
            "operation": "WRITE",
            "operationMetrics": {"num_added_files": 1},
        }
        action = decode_action(msgspec.json.encode({"commitInfo": document}))
        assert isinstance(action, CommitInfo)
        assert json.loads(encode_action(action)) == {"commitInfo": document}

    def test_extra_cannot_replace_a_known_field(self) -> None:
        info = CommitInfo(txn_id="ours", extra={"txnId": "theirs", "note": 1})
        assert json.loads(encode_action(info)) == {"commitInfo": {"txnId": "ours", "note": 1}}

    def test_metrics_may_be_numbers(self) -> None:
        action = decode_action('{"commitInfo":{"operationMetrics":{"num_added_files":1}}}')
        assert action == CommitInfo(operation_metrics={"num_added_files": 1})


class TestFileIdentity:
    def test_file_without_deletion_vector_is_known_by_its_path(self) -> None:
        assert ADD.key == ("p", "")
        assert RemoveFile(path="p", data_change=True).key == ADD.key

    def test_deletion_vector_is_part_of_the_identity(self) -> None:
        add = msgspec.structs.replace(ADD, deletion_vector=VECTOR)
        assert add.dv_id == "uab^-aqEH.-t@S}K{vb[*k^@4"
        assert RemoveFile(path="p", data_change=True, deletion_vector=VECTOR).key == add.key != ADD.key

    def test_inline_deletion_vector_has_no_offset(self) -> None:
        inline = DeletionVector(storage_type="i", path_or_inline_dv="wi5b", size_in_bytes=4, cardinality=1)
        assert inline.unique_id == "iwi5b"

    def test_offset_zero_is_an_offset(self) -> None:
        assert msgspec.structs.replace(VECTOR, offset=0).unique_id.endswith("@0")


class TestMetadataSchema:
    def test_schema_is_parsed(self) -> None:
        text = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
        assert Metadata(id="x", schema_string=text).schema.names == ("a",)

    def test_missing_schema_is_one_without_columns(self) -> None:
        action = decode_action(
            '{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"partitionColumns":[],"configuration":{}}}'
        )
        assert isinstance(action, Metadata)
        assert action.schema == StructType()
        assert b"schemaString" not in encode_action(action)
