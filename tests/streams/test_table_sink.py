"""The sink of `format("deltasql")` without Spark: what its checkpoint remembers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from deltars.errors import VersionNotFound
from deltars.protocol import schema_from_arrow
from deltars.streams.options import Options
from deltars.streams.table_sink import TableSink
from tests.support.backup import take_backup

pytestmark = pytest.mark.backends("sqlite")

COLUMNS = pa.schema([("id", pa.int64())])


def sink_of(uri: str, checkpoint: Path) -> TableSink:
    """A sink as Spark makes one for each batch. In complete mode, a batch without rows is a version too."""
    options = Options.of({"path": f"{uri}/t", "checkpointLocation": str(checkpoint)})
    return TableSink(options, schema_from_arrow(COLUMNS), COLUMNS, overwrite=True)


def commit(uri: str, checkpoint: Path, batch_id: int) -> None:
    sink = sink_of(uri, checkpoint)
    write = sink.plan(is_stream=True)
    assert write is not None
    sink.commit_batch([], write.digest, batch_id)


def test_restored_database_is_an_error_also_after_a_restart(migrated_uri: str, tmp_path: Path) -> None:
    catalog = deltars.connect(migrated_uri, mirror="off")  # a published version would contradict the new one
    catalog.create_table("t", "id BIGINT")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id": "5a8c1d9e-0000-4000-8000-000000000001"}')
    commit(migrated_uri, checkpoint, 0)
    backup = take_backup(catalog, tmp_path / "backup", None)
    commit(migrated_uri, checkpoint, 1)
    commit(migrated_uri, checkpoint, 1)  # as Spark repeats it
    assert catalog.table("t").version == 2
    backup.restore()
    with pytest.raises(VersionNotFound, match=r"batch 1 of .*, which this query committed.* restored"):
        commit(migrated_uri, checkpoint, 2)
    assert catalog.table("t").version == 1


def test_checkpoint_that_says_nothing_stops_no_stream(migrated_uri: str, tmp_path: Path) -> None:
    catalog = deltars.connect(migrated_uri)
    catalog.create_table("t", "id BIGINT")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id": "5a8c1d9e-0000-4000-8000-000000000001"}')
    (checkpoint / "deltars-last-batch").write_text("half a fi")
    commit(migrated_uri, checkpoint, 0)
    commit(migrated_uri, checkpoint, 1)
    assert catalog.table("t").version == 2


def test_checkpoint_that_takes_no_file_fails_no_batch(
    migrated_uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = deltars.connect(migrated_uri)
    catalog.create_table("t", "id BIGINT")
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "deltars-last-batch").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "5a8c1d9e-0000-4000-8000-000000000001"}')
    for batch_id in range(2):
        commit(migrated_uri, checkpoint, batch_id)
    assert catalog.table("t").version == 2
    assert "a restored database will not be noticed" in caplog.text
