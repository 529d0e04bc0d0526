"""Row-level changes at the edges: threads, streams read once, killed processes, vectors of other writers."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import deltars
from deltars.errors import ConcurrentDeleteDelete, SourceConsumed, VersionConflict
from tests.support.golden import golden_tables
from tests.support.soak import record, scaled, seed

pytestmark = pytest.mark.backends("sqlite")

VECTORS = {"delta.enableDeletionVectors": "true"}
STORAGES = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "vectors"])


@STORAGES
def test_threads_of_one_transaction_change_one_table(catalog: deltars.Catalog, properties: dict[str, str]) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT", properties=properties)
    table.write(pa.table({"id": list(range(40)), "v": [0] * 40}))
    with catalog.begin() as tx:

        def change(number: int) -> None:
            ids = [number, 100 + number]
            source = pa.table({"id": ids, "v": [number] * 2})
            tx.merge("t", source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
            tx.delete("t", f"id = {number + 20}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(change, range(8)))
    assert table.version == 2
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert sorted(found) == [*range(20), *range(28, 40), *range(100, 108)]
    assert all(found[number] == found[100 + number] == number for number in range(8))


def test_a_stream_is_merged_once_and_refused_the_second_time(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1, 2], "v": [1, 2]})

    stream = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64(), "v": pa.int64()}), batches())
    assert table.merge(stream, "t.id = s.id").when_not_matched_insert_all().execute().rows_inserted == 2
    with pytest.raises(SourceConsumed):
        table.merge(stream, "t.id = s.id").when_not_matched_insert_all().execute()


class _Exporter:
    """A frame that only has `__arrow_c_stream__`."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", [pl.from_arrow, pa.Table.to_pandas, pa.Table.to_reader, _Exporter])
def test_frames_of_every_kind_are_merged(catalog: deltars.Catalog, kind: Callable[[pa.Table], Any]) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT")
    table.write(pa.table({"id": [1], "v": [1]}))
    merge = table.merge(kind(pa.table({"id": [1, 2], "v": [5, 6]})), "t.id = s.id")
    metrics = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (metrics.rows_updated, metrics.rows_inserted) == (1, 1)
    assert sorted(table.to_arrow()["v"].to_pylist()) == [5, 6]


def test_a_source_that_is_nothing_but_an_arrow_stream_is_merged(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT")
    source = _Stream(pa.table({"id": [1, 2], "v": [1, 2]}))
    assert table.merge(source, "t.id = s.id").when_not_matched_insert_all().execute().rows_inserted == 2


class _Stream:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.backends("sqlite", "postgres")
def test_changes_of_disjoint_rows_of_one_file_both_commit(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT", properties=VECTORS)
    table.write(pa.table({"id": list(range(100)), "v": [0] * 100}))
    first, second = catalog.begin(isolation="serializable"), catalog.begin(isolation="serializable")
    first.delete("t", "id < 10")
    second.update("t", {"v": 1}, "id >= 90")
    first.commit()
    second.commit()
    rows = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert sorted(rows) == list(range(10, 100))
    assert [key for key, value in rows.items() if value == 1] == list(range(90, 100))
    query = QueryBuilder().register("t", DeltaTable(table.location)).execute("SELECT count(*) AS n FROM t")
    assert pa.table(query.read_all())["n"].to_pylist() == [90]


@pytest.mark.backends("sqlite", "postgres")
def test_changes_of_one_row_conflict_and_name_the_file(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT", properties=VECTORS)
    table.write(pa.table({"id": list(range(100)), "v": [0] * 100}))
    first, second = catalog.begin(isolation="serializable"), catalog.begin(isolation="serializable")
    first.update("t", {"v": 1}, "id = 5")
    second.delete("t", "id IN (5, 6)")
    first.commit()
    with pytest.raises(VersionConflict) as refused:
        second.commit()
    assert isinstance(refused.value, ConcurrentDeleteDelete)
    [path] = table.files(1)["path"].to_pylist()
    assert path in str(refused.value)
    assert refused.value.winning_version == 2


def test_disjoint_partitions_never_conflict(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, p STRING", partition_by="p")
    table.write(pa.table({"id": [1, 2, 3, 4], "p": ["a", "a", "b", "b"]}))
    for level in ("serializable", "write_serializable"):
        first, second = catalog.begin(isolation=level), catalog.begin(isolation=level)
        first.update("t", {"id": "id + 10"}, "p = 'a'")
        second.update("t", {"id": "id + 10"}, "p = 'b'")
        first.commit()
        second.commit()
    assert sorted(table.to_arrow()["id"].to_pylist()) == [21, 22, 23, 24]


def test_interleaved_absent_keys_both_commit(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT")
    table.write(pa.table({"id": [1]}))
    first, second = catalog.begin(isolation="serializable"), catalog.begin(isolation="serializable")
    for tx, ids in ((first, [2000, 2010, 2020]), (second, [2005, 2015])):
        tx.merge("t", pa.table({"id": ids}), "t.id = s.id").when_not_matched_insert_all().execute()
    first.commit()
    second.commit()
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2000, 2005, 2010, 2015, 2020]


def test_retries_lose_no_update(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT, v BIGINT", properties=VECTORS)
    table.write(pa.table({"id": [1, 2], "v": [0, 0]}))
    rounds = 5

    def count_up(_: int) -> None:
        for _ in range(rounds):
            catalog.run(lambda tx: tx.update("t", {"v": "v + 1"}, "id = 1"), retries=100, isolation="serializable")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(count_up, range(3)))
    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == {1: 3 * rounds, 2: 0}


PROGRAM = """
import sys
import deltars
import pyarrow as pa

catalog = deltars.connect(sys.argv[1])
number = 0
while True:
    # Moves one unit from `left` to `right`, by three kinds of statements; never one without the other.
    number += 1
    with catalog.begin(isolation="serializable") as tx:
        tx.update("left", {"v": "v - 1"}, f"id = {number % 5}")
        source = pa.table({"id": [number % 5], "v": [1]})
        merge = tx.merge("right", source, "t.id = s.id").when_matched_update({"v": "t.v + s.v"})
        merge.when_not_matched_insert_all().execute()
        tx.delete("right", "v < 0")
    print(number, flush=True)
"""


@pytest.mark.soak
@STORAGES
def test_a_killed_process_leaves_all_tables_or_none_changed(
    catalog: deltars.Catalog, migrated_uri: str, properties: dict[str, str]
) -> None:
    left = catalog.create_table("left", "id BIGINT, v BIGINT", properties=properties)
    right = catalog.create_table("right", "id BIGINT, v BIGINT", properties=properties)
    left.write(pa.table({"id": list(range(5)), "v": [1000] * 5}))
    draw = random.Random(seed())
    acknowledged = 0
    for _ in range(scaled(2, soak=40)):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, migrated_uri], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
        acknowledged += 1 + len(process.stdout.read().splitlines())
        process.wait()
        total = [sum(table.to_arrow()["v"].to_pylist()) for table in (left, right)]
        assert sum(total) == 5000, total
        assert total[1] >= acknowledged
        assert left.version - 1 == right.version
    for table in (left, right):
        assert not table.verify(deep=True).findings
    record("row changes, killed", acknowledged=acknowledged)


@pytest.mark.parametrize("name", ["dv-partitioned-with-checkpoint/delta", "dv-with-columnmapping/delta"])
def test_vectors_of_other_writers_are_extended(catalog: deltars.Catalog, tmp_path: Path, name: str) -> None:
    found = [golden for golden in golden_tables() if golden.name == name]
    if not found:
        pytest.skip("the golden tables are not beside the repository")
    shutil.copytree(found[0].root, tmp_path / "table")
    table = catalog.import_table(str(tmp_path / "table"), "t")
    before = table.to_arrow().to_pylist()
    column = next(field.name for field in table.schema.fields if str(field.type) in ("integer", "long"))
    middle = sorted(row[column] for row in before if row[column] is not None)[len(before) // 2]
    metrics = table.delete(f"`{column}` >= {middle}")
    left = [row for row in before if row[column] is None or row[column] < middle]
    assert metrics.rows_deleted == len(before) - len(left)
    assert sorted(map(str, table.to_arrow().to_pylist())) == sorted(map(str, left))
    assert sorted(map(str, table.to_arrow(version=table.version - 1).to_pylist())) == sorted(map(str, before))
    assert table.purge().files_with_vector == 0
    assert sorted(map(str, table.to_arrow().to_pylist())) == sorted(map(str, left))


def test_a_purge_of_rows_that_the_transaction_deleted_is_a_change_of_data(catalog: deltars.Catalog) -> None:
    table = catalog.create_table("t", "id BIGINT", properties=VECTORS)
    table.write(pa.table({"id": [1, 2, 3]}))
    table.write(pa.table({"id": [11, 12, 13]}))
    table.delete("id = 11")
    with catalog.begin() as tx:
        tx.delete("t", "id = 2")
        tx.purge("t")
    log = Path(table.location, "_delta_log", f"{table.version:020}.json").read_text().splitlines()
    files = [action for line in log for name, action in json.loads(line).items() if name in ("add", "remove")]
    assert sorted(file["dataChange"] for file in files) == [False, False, True, True]
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3, 12, 13]
