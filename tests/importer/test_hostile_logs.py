"""Logs that somebody wrote to do harm, or that were damaged: refused, or read right. Nothing outside is ever opened."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltars
from tests.support.handmade_log import CHECKPOINT_HEAD, METADATA, PROTOCOL, HandmadeLog, checkpointed
from tests.support.handmade_log import add as _add


@pytest.fixture
def log(tmp_path: Path) -> HandmadeLog:
    return HandmadeLog(tmp_path / "table")


def _refused(catalog: deltars.Catalog, log: HandmadeLog, match: str) -> None:
    before = sorted(os.listdir(log.log))
    with pytest.raises(deltars.ImportRefused, match=match):
        catalog.import_table(str(log.root))
    assert not catalog.tables()
    assert sorted(os.listdir(log.log)) == before


pytestmark = pytest.mark.backends("sqlite")


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (_add("../b.parquet"), r"\.\. segment"),
        (_add("%2e%2e/b.parquet"), r"\.\. segment"),
        (_add("x/%2E./../b.parquet"), r"\.\. segment"),
        (_add("file:///a/../b.parquet"), r"\.\. segment"),
        (_add("a%00.parquet"), "control character"),
        (_add("a\nb.parquet"), "control character"),
        (_add("_delta_log/x.parquet"), "inside _delta_log"),
        (_add(""), "empty"),
        (_add("a%zz.parquet"), "not followed by two hex digits"),
        (_add(size=-1), "negative"),
        (_add(size=2**70), "line 1"),
        (_add(size="large"), "Expected `int`"),
        (_add(partitionValues=[]), "Expected `object`"),
        (_add(partitionValues={"p": "\0"}), r"U\+0000"),
        (_add(tags={"a": "b\0"}), r"U\+0000"),
        (_add(deletionVector={"storageType": "z", "pathOrInlineDv": "", "sizeInBytes": 1, "cardinality": 1}), "'z'"),
        ({"remove": {"path": "../../etc/passwd", "dataChange": True}}, r"\.\. segment"),
        ({"cdc": {"path": "../x", "partitionValues": {}, "size": 1, "dataChange": False}}, r"\.\. segment"),
        ({"txn": {"appId": "a", "version": 2**64}}, "line 1"),
        ({"metaData": {"id": "x", "schemaString": "{", "partitionColumns": [], "configuration": {}}}, "schema"),
        ({"protocol": {"minReaderVersion": 1, "minWriterVersion": "7"}}, "Expected `int`"),
        (b'{"add":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "line 1"),
        (b'{"add":{"path":"a.parq', "line 1"),
        (b"\xff\xfe\x00", "line 1"),
        (b"[]", "line 1"),
        (b'{"commitInfo":[]}', "line 1"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_an_action_that_cannot_be_trusted_refuses_the_table(
    catalog: deltars.Catalog, log: HandmadeLog, action: dict[str, Any] | bytes, reason: str
) -> None:
    log.commit(1, action)
    _refused(catalog, log, reason)


@pytest.mark.parametrize(
    "actions",
    [
        (_add(), _add()),
        (_add(), {"remove": {"path": "a.parquet", "dataChange": True}}),
        (METADATA, METADATA),
        (PROTOCOL, PROTOCOL),
        ({"txn": {"appId": "a", "version": 1}}, {"txn": {"appId": "a", "version": 2}}),
        (_add("file:///a/b.parquet"), _add("/a/b.parquet")),
    ],
    ids=("adds", "add and remove", "metadata", "protocols", "txns", "one file by two names"),
)
def test_actions_that_exclude_each_other_refuse_the_table(
    catalog: deltars.Catalog, log: HandmadeLog, actions: tuple[dict[str, Any], ...]
) -> None:
    log.commit(1, *actions)
    _refused(catalog, log, "occurs twice")


def test_a_line_without_end_is_not_read_to_its_end(
    catalog: deltars.Catalog, log: HandmadeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltars.importer.commits.MAX_LINE_BYTES", 10_000)
    log.commit(1, b'{"add":"' + b"x" * 20_000 + b'"}')
    _refused(catalog, log, "a line of more than")


def test_unknown_actions_and_fields_are_passed_over(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    log.commit(1, _add(novelty=[1]), {"somethingNew": {"a": 1}}, b"", b"{}")
    assert catalog.import_table(str(log.root)).to_arrow()["id"].to_pylist() == [1, 2, 3]


def test_a_file_added_again_is_live_once(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    log.commit(1, _add())
    log.commit(2, _add(stats='{"numRecords": 3}'))
    table = catalog.import_table(str(log.root))
    assert table.to_arrow().num_rows == 3
    assert table.to_arrow(version=1).num_rows == 3


@pytest.mark.parametrize("path", ["{out}", "file://{out}", "file:{out}", "s3://bucket/out.parquet", "http://h/x"])
def test_files_outside_the_table_are_never_opened(
    catalog: deltars.Catalog, log: HandmadeLog, tmp_path: Path, path: str
) -> None:
    outside = tmp_path / "out.parquet"
    pq.write_table(pa.table({"id": [99]}), outside)
    log.commit(1, _add(path.format(out=outside)))
    table = catalog.import_table(str(log.root))
    with pytest.raises(deltars.ValidationError):
        table.to_arrow()
    catalog.drop_table(table.name, delete_data=True)
    assert outside.exists()


def test_links_out_of_the_table_are_never_followed(catalog: deltars.Catalog, log: HandmadeLog, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [99]}), tmp_path / "out.parquet")
    (log.root / "link.parquet").symlink_to(tmp_path / "out.parquet")
    log.commit(1, _add("link.parquet"))
    with pytest.raises(deltars.ValidationError, match="leads out of the table"):
        catalog.import_table(str(log.root)).to_arrow()
    assert (tmp_path / "out.parquet").exists()


def test_a_commit_that_is_a_link_out_of_the_table_is_refused(
    catalog: deltars.Catalog, log: HandmadeLog, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere.json"
    log.commit(1, _add()).rename(moved)
    (log.log / f"{1:020}.json").symlink_to(moved)
    with pytest.raises(deltars.ValidationError, match="leads out of the table"):
        catalog.import_table(str(log.root))


# -- versions and checkpoints ------------------------------------------------------------------------------------------


def test_a_hole_in_the_log_is_named(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    log.commit(2, _add())
    _refused(catalog, log, "version 1 is missing")


@pytest.mark.parametrize("version", [2**63, 10**19, 99999999999999999999])
def test_a_version_beyond_all_versions_is_refused(catalog: deltars.Catalog, log: HandmadeLog, version: int) -> None:
    log.commit(version, _add())
    _refused(catalog, log, "larger than the maximum")


def test_a_far_version_is_a_hole_and_not_a_loop(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    log.commit(2**62, _add())
    _refused(catalog, log, "version 1 is missing")


@pytest.mark.parametrize(
    "name", ["00000000000000000001.checkpoint.parquet", "_last_checkpoint", "00000000000000000001.crc"]
)
def test_garbage_beside_the_commits_does_no_harm(catalog: deltars.Catalog, log: HandmadeLog, name: str) -> None:
    log.commit(1, _add())
    (log.log / name).write_bytes(b"PAR1 garbage")
    assert catalog.import_table(str(log.root)).to_arrow().num_rows == 3


def test_a_table_whose_old_commits_are_gone_begins_with_its_checkpoint(
    catalog: deltars.Catalog, log: HandmadeLog
) -> None:
    (log.log / f"{0:020}.json").unlink()
    log.checkpoint(f"{4:020}.checkpoint.parquet", [*CHECKPOINT_HEAD, checkpointed("a.parquet")])
    pq.write_table(pa.table({"id": [7]}), log.root / "b.parquet")
    log.commit(5, _add("b.parquet"))
    table = catalog.import_table(str(log.root))
    assert [entry.version for entry in table.history()] == [6, 5, 4]
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 7]
    assert sorted(table.to_arrow(version=4)["id"].to_pylist()) == [1, 2, 3]
    stats = [json.loads(text) for text in table.snapshot(4).files["stats"].to_pylist()]
    assert stats == [{"numRecords": 3, "minValues": {"id": 1}}]
    with pytest.raises(deltars.ValidationError):
        table.to_arrow(version=3)


def test_a_checkpoint_is_read_as_strictly_as_commits(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    (log.log / f"{0:020}.json").unlink()
    for rows, reason in (
        ([*CHECKPOINT_HEAD, checkpointed("../a.parquet")], r"\.\. segment"),
        ([*CHECKPOINT_HEAD, checkpointed("a.parquet"), checkpointed("a.parquet")], "occurs twice"),
        ([CHECKPOINT_HEAD[0], checkpointed("a.parquet")], "has no metaData"),
        ([CHECKPOINT_HEAD[1], checkpointed("a.parquet")], "has no protocol"),
    ):
        log.checkpoint(f"{4:020}.checkpoint.parquet", rows)
        _refused(catalog, log, reason)


def test_a_checkpoint_that_lacks_a_part_is_none(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    (log.log / f"{0:020}.json").unlink()
    log.checkpoint(f"{4:020}.checkpoint.{1:010}.{2:010}.parquet", [*CHECKPOINT_HEAD])
    with pytest.raises(deltars.NotADeltaTable):
        catalog.import_table(str(log.root))
    log.checkpoint(f"{4:020}.checkpoint.{2:010}.{2:010}.parquet", [checkpointed("a.parquet")])
    assert catalog.import_table(str(log.root)).to_arrow().num_rows == 3


@pytest.mark.parametrize("path", ["../../../out.parquet", "/out.parquet", "s3://bucket/out.parquet"])
def test_sidecars_outside_the_table_are_never_opened(catalog: deltars.Catalog, log: HandmadeLog, path: str) -> None:
    (log.log / f"{0:020}.json").unlink()
    uuid = "6374b053-df23-479b-b2cf-c9c550132b49"
    rows = [*CHECKPOINT_HEAD, {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}}]
    log.checkpoint(f"{4:020}.checkpoint.{uuid}.parquet", rows)
    with pytest.raises(deltars.ValidationError):
        catalog.import_table(str(log.root))
    assert not catalog.tables()


# -- features ----------------------------------------------------------------------------------------------------------


def test_features_that_readers_must_know_are_refused_by_name(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    features = ["deletionVectors", "fromTheFuture"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    log.commit(1, {"protocol": protocol})
    for read_only in (False, True):
        with pytest.raises(deltars.UnsupportedFeature, match="fromTheFuture") as caught:
            catalog.import_table(str(log.root), read_only=read_only)
        assert caught.value.features == ("fromTheFuture",)
        assert not catalog.tables()


def test_features_that_writers_cannot_honour_are_refused_by_name_or_imported_read_only(
    catalog: deltars.Catalog, log: HandmadeLog
) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["icebergCompatV2", "columnMapping"]}
    log.commit(1, {"protocol": protocol}, _add())
    _refused(catalog, log, "icebergCompatV2")
    table = catalog.import_table(str(log.root), read_only=True)
    assert table.to_arrow().num_rows == 3
    with pytest.raises(deltars.TableHeld, match="read-only"):
        catalog.write(table.name, pa.table({"id": [1]}))
    with pytest.raises(deltars.UnsupportedFeature, match="icebergCompatV2"):
        catalog.adopt(table.name)


def test_an_old_writer_version_stands_for_its_features(catalog: deltars.Catalog, log: HandmadeLog) -> None:
    log.commit(1, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}}, _add())
    features = catalog.import_table(str(log.root)).snapshot().protocol.writer_features or ()
    legacy = {"appendOnly", "invariants", "checkConstraints", "generatedColumns", "changeDataFeed"}
    assert {*legacy, "identityColumns"} <= set(features)
