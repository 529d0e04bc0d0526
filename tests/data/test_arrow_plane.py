"""Frames of other libraries, written through Arrow."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltars import progress_bar
from deltars.data import ArrowPlane, WriteTarget
from deltars.errors import SchemaMismatch, ValidationError
from deltars.protocol import schema_from_ddl

PLANE = ArrowPlane()
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def frames() -> dict[str, Any]:
    table = pa.Table.from_pylist(ROWS)
    return {
        "table": table,
        "batch": table.to_batches()[0],
        "reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        "pandas": pd.DataFrame(ROWS),
        "filtered pandas": pd.DataFrame([{"id": 0, "name": "z"}, *ROWS]).query("id > 0"),
        "polars": pl.DataFrame(ROWS),
        "duckdb": duckdb.sql("select 1::bigint as id, 'a' as name union all select 2, null order by id"),
    }


def written(frame: object, root: Path) -> list[dict[str, Any]]:
    target = WriteTarget(str(root), schema_from_ddl("id BIGINT, name STRING"))
    files = PLANE.write(frame, target)
    rows: list[dict[str, Any]] = pa.concat_tables(pq.read_table(root / file.add.path) for file in files).to_pylist()
    return rows


@pytest.mark.parametrize("kind", frames())
def test_frames_of_each_library_are_written(kind: str, tmp_path: Path) -> None:
    frame = frames()[kind]
    assert PLANE.accepts(frame)
    schema = PLANE.schema(frame)
    assert [(field.name, str(field.type)) for field in schema.fields] == [("id", "long"), ("name", "string")]
    assert written(frame, tmp_path) == ROWS


@pytest.mark.parametrize("frame", [None, [{"id": 1}], {"id": [1]}, "id"], ids=repr)
def test_what_is_no_frame_is_not_accepted(frame: object) -> None:
    assert not PLANE.accepts(frame)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(ROWS).set_index("id"),
        pd.DataFrame(ROWS, index=["x", "y"]),
        pd.DataFrame(ROWS, index=pd.RangeIndex(2, name="row")),
        pd.DataFrame(ROWS, index=pd.MultiIndex.from_tuples([(1, 2), (3, 4)])),
    ],
    ids=["named", "text", "named range", "levels"],
)
def test_a_pandas_index_that_holds_data_is_refused_and_not_dropped(frame: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"reset_index\(\)"):
        PLANE.write(frame, WriteTarget(str(tmp_path), schema_from_ddl("id BIGINT, name STRING")))


def test_a_pandas_column_of_mixed_objects_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="cannot convert the pandas frame to Arrow"):
        written(pd.DataFrame({"id": [1, 2], "name": ["a", 1]}), tmp_path)


def test_nan_of_pandas_is_null_and_nan_of_arrow_is_nan(tmp_path: Path) -> None:
    target = WriteTarget(str(tmp_path), schema_from_ddl("x DOUBLE"))
    nan = float("nan")
    for frame, expected in ((pd.DataFrame({"x": [nan]}), "None"), (pa.table({"x": [nan]}), "nan")):
        (file,) = PLANE.write(frame, target)
        assert str(pq.read_table(tmp_path / file.add.path)["x"][0].as_py()) == expected


def test_a_frame_that_does_not_fit_is_refused_before_its_rows_are_read(tmp_path: Path) -> None:
    batches = iter(pa.table({"id": ["1"]}).to_batches())
    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.string())]), batches)
    with pytest.raises(SchemaMismatch, match="column id is string in the data, long in the table"):
        written(reader, tmp_path)
    assert len(list(batches)) == 1


def test_long_write_shows_how_many_rows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Another test of this process may have loaded it.
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(progress_bar, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress_bar, "_EVERY_S", 0.01)
    monkeypatch.setattr("deltars.data.plane.WATCHED_ROWS", 1)

    def rows(is_shown: bool) -> Iterator[pa.RecordBatch]:
        yield from pa.Table.from_pylist(ROWS).to_batches()
        deadline = time.monotonic() + (30 if is_shown else 0.2)
        while time.monotonic() < deadline and progress_bar.THE_SCREEN.acquire(blocking=False):
            progress_bar.THE_SCREEN.release()
            time.sleep(0.01)

    def write(number: int, *, is_shown: bool = False) -> str:
        reader = pa.RecordBatchReader.from_batches(pa.Table.from_pylist(ROWS).schema, rows(is_shown))
        assert written(reader, tmp_path / str(number)) == ROWS
        return capsys.readouterr().err

    assert write(0) == ""
    monkeypatch.setenv("DELTARS_PROGRESS", "1")
    assert "writing" in (shown := write(1, is_shown=True))
    assert "rows" in shown
    with progress_bar.THE_SCREEN:  # a bar of a command is there
        assert write(2) == ""
    monkeypatch.setenv("DELTARS_PROGRESS", "0")
    assert write(3) == ""
