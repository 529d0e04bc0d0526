"""The exact content of a published commit."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest

from deltars.mirror.files.commit import is_same_commit, render_commit
from deltars.protocol import (
    AddFile,
    CommitInfo,
    DeletionVector,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    decode_commit,
)
from deltars.protocol.engine_info import ENGINE_INFO
from deltars.protocol.log_files import commit_path
from deltars.store.read.committed_versions import CommittedVersion

TABLE = UUID("00000000-0000-0000-0000-00000000000a")
OTHER = UUID("00000000-0000-0000-0000-00000000000b")
TXN = UUID("11111111-1111-1111-1111-111111111111")

ADD = AddFile(
    path="day=a%20b/part-0.parquet",
    partition_values={"day": None},
    size=10,
    modification_time=7,
    data_change=True,
    stats='{"numRecords":1,"minValues":{"x":-0.0},"maxValues":{"x":1.797e308}}',
)
REMOVE = RemoveFile(path="part-1.parquet", deletion_timestamp=8, data_change=True)

COMMIT = CommittedVersion(
    table_id=TABLE,
    version=3,
    commit_ts=1_700_000_000_123_456,
    in_commit_timestamp=1_700_000_000_123,
    txn_id=TXN,
    operation="WRITE",
    operation_params={
        "mode": "Append",
        "partitionBy": ["day"],
        "overwrite": False,
        "n": 1,
        "predicate": None,
    },
    metrics={"numFiles": 1, "numOutputRows": "5"},
    committer="etl",
    read_version=2,
    isolation="strict",
    is_blind_append=True,
    user_metadata='{"run":1}',
    actions=(REMOVE, ADD),
)


def info_of(commit: CommittedVersion) -> dict[str, object]:
    document: dict[str, object] = json.loads(render_commit(commit).splitlines()[0])["commitInfo"]
    return document


def test_file_is_named_by_twenty_digits() -> None:
    assert commit_path(3) == "_delta_log/00000000000000000003.json"


def test_commit_is_rendered_to_the_byte() -> None:
    assert render_commit(COMMIT).decode().splitlines() == [
        '{"commitInfo":{"inCommitTimestamp":1700000000123,"timestamp":1700000000123,"operation":"WRITE",'
        '"operationParameters":{"mode":"Append","n":"1","overwrite":"false","partitionBy":"[\\"day\\"]"},'
        '"readVersion":2,"isolationLevel":"Serializable","isBlindAppend":true,'
        '"operationMetrics":{"numFiles":"1","numOutputRows":"5"},"userMetadata":"{\\"run\\":1}",'
        f'"engineInfo":"{ENGINE_INFO}","txnId":"{TXN}","commitTs":1700000000123456,"userName":"etl"}}}}',
        '{"remove":{"path":"part-1.parquet","deletionTimestamp":8,"dataChange":true}}',
        '{"add":{"path":"day=a%20b/part-0.parquet","partitionValues":{"day":null},"size":10,'
        '"modificationTime":7,"dataChange":true,'
        '"stats":"{\\"numRecords\\":1,\\"minValues\\":{\\"x\\":-0.0},\\"maxValues\\":{\\"x\\":1.797e308}}"}}',
    ]
    assert render_commit(COMMIT).endswith(b"}\n")


def test_engine_names_itself() -> None:
    assert ENGINE_INFO.partition("/")[0] == "deltars"


def test_transaction_over_several_tables_names_its_participants() -> None:
    several = replace(COMMIT, participants={str(OTHER): 7, str(TABLE): 3})
    assert info_of(several)["participants"] == {str(TABLE): 3, str(OTHER): 7}
    assert "participants" not in info_of(replace(COMMIT, participants={str(TABLE): 3}))


def test_first_version_read_nothing() -> None:
    assert "readVersion" not in info_of(replace(COMMIT, version=0, read_version=-1))


@pytest.mark.parametrize(
    ("isolation", "name"),
    [
        ("strict", "Serializable"),
        ("serializable", "Serializable"),
        ("write_serializable", "WriteSerializable"),
        ("snapshot", "SnapshotIsolation"),
    ],
)
def test_isolation_has_the_name_that_delta_gives_it(isolation: str, name: str) -> None:
    assert info_of(replace(COMMIT, isolation=isolation))["isolationLevel"] == name


def test_actions_come_back_as_they_were() -> None:
    actions = (
        Protocol(min_reader_version=1, min_writer_version=7, writer_features=["appendOnly"]),
        Metadata(id="x", schema_string="{}", configuration={"k": "ü\u2028"}),
        Txn(app_id="app", version=5),
        replace_dv(ADD),
    )
    decoded = decode_commit(render_commit(replace(COMMIT, actions=actions)))
    assert isinstance(decoded[0], CommitInfo)
    assert tuple(decoded[1:]) == actions


def replace_dv(add: AddFile) -> AddFile:
    vector = DeletionVector(storage_type="u", path_or_inline_dv="ab^-a", offset=1, size_in_bytes=4, cardinality=2)
    return AddFile(
        path=add.path,
        partition_values=add.partition_values,
        size=1,
        modification_time=1,
        data_change=True,
        deletion_vector=vector,
    )


def test_same_commit_in_another_order_by_another_release_is_the_same() -> None:
    ours = render_commit(COMMIT)
    info, remove, add = ours.splitlines()
    newer = info.replace(ENGINE_INFO.encode(), b"deltars/99")
    spaced = json.dumps(json.loads(add)).encode()
    assert is_same_commit(ours, b"\n".join([newer, spaced, remove]) + b"\n\n")


@pytest.mark.parametrize(
    "theirs",
    [
        render_commit(replace(COMMIT, txn_id=TABLE)),
        render_commit(replace(COMMIT, actions=(REMOVE,))),
        render_commit(replace(COMMIT, actions=(REMOVE, ADD, ADD))),
        render_commit(COMMIT).replace(b'"size":10', b'"size":11'),
        render_commit(COMMIT).replace(b"1.797e308", b"1.797E308"),
        render_commit(COMMIT) + b'{"somethingNew":{}}\n',
        b"".join(render_commit(COMMIT).splitlines(keepends=True)[1:]),
        render_commit(COMMIT)[:-20],
        b"",
        b"not json",
    ],
    ids=[
        "another transaction",
        "an action less",
        "an action more",
        "another size",
        "other statistics",
        "an unknown action",
        "no commitInfo",
        "cut off",
        "empty",
        "not json",
    ],
)
def test_another_commit_is_told_apart(theirs: bytes) -> None:
    assert not is_same_commit(render_commit(COMMIT), theirs)
