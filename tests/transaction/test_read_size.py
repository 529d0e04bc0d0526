"""Which changes this process carries out, by the size of what they read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from deltars.protocol import schema_from_ddl
from deltars.transaction import read_size
from deltars.transaction.read_size import is_small

LARGE = read_size.SMALL_BYTES


def _files(*, sizes: Sequence[int] = (LARGE, 1), records: Sequence[int | None] = (10, 10)) -> pa.Table:
    return pa.table({"size": pa.array(sizes, pa.int64()), "num_records": pa.array(records, pa.int64())})


def _is_small(files: pa.Table, columns: str, root: str = "/lake/t", source_bytes: int = 0) -> bool:
    return is_small(files, root=root, searched=schema_from_ddl(columns).fields, source_bytes=source_bytes)


def test_few_bytes_are_small_whatever_is_read() -> None:
    assert is_small(_files(sizes=(LARGE - 1, 1), records=(None, 10**12)))
    assert is_small(_files(sizes=(LARGE - 1, 0)), source_bytes=1)
    assert is_small(_files(sizes=(), records=()))
    assert not is_small(_files())
    assert not is_small(_files(sizes=(LARGE, 0)), source_bytes=1)


def test_few_values_are_small_whatever_else_the_files_hold() -> None:
    most = read_size.MAX_VALUES
    assert _is_small(_files(records=(most - 1, 1)), "id BIGINT")
    assert not _is_small(_files(records=(most, 1)), "id BIGINT")
    assert _is_small(_files(records=(most // 2, 0)), "id BIGINT, d DECIMAL(20, 2)")
    assert not _is_small(_files(records=(most // 2, 1)), "id BIGINT, day DATE")


def test_strings_count_more_and_only_in_files_of_some_size() -> None:
    assert _is_small(_files(records=(read_size.MAX_VALUES // 4, 0)), "name STRING")
    assert not _is_small(_files(records=(read_size.MAX_VALUES // 4, 1)), "name STRING")
    assert not _is_small(_files(sizes=(read_size.MAX_TEXT_BYTES, 1)), "name STRING")
    assert _is_small(_files(sizes=(read_size.MAX_TEXT_BYTES, 1)), "id BIGINT")


@pytest.mark.parametrize("column", ["a ARRAY<INT>", "s STRUCT<x: INT>", "m MAP<STRING, INT>"])
def test_nested_values_may_be_of_any_size(column: str) -> None:
    assert not _is_small(_files(), f"id BIGINT, {column}")


def test_unknown_rows_remote_files_and_a_large_source_are_not_small() -> None:
    assert not _is_small(_files(records=(10, None)), "id BIGINT")
    assert not _is_small(_files(), "id BIGINT", root="s3://bucket/t")
    assert not _is_small(_files(), "id BIGINT", source_bytes=LARGE + 1)
    assert _is_small(_files(), "id BIGINT", source_bytes=LARGE)
