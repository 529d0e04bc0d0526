"""Bins of files written again: order, spilled sorts, and how much memory they take."""

from __future__ import annotations

import multiprocessing
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltars
from deltars.data.compaction import Rewrite, files_of, write_bin, write_bins
from deltars.data.scan import Scan
from deltars.data.write_target import WriteTarget, WrittenFile
from deltars.log.compaction import PLAN_COLUMNS
from deltars.protocol import uri_to_path
from tests.support.memory import peak_mib

pytestmark = pytest.mark.backends("sqlite")


def scanned(table: deltars.Table) -> tuple[Scan, WriteTarget]:
    snapshot = table.snapshot()
    scan = Scan.of(
        snapshot.metadata,
        lambda: snapshot.select_files(columns=PLAN_COLUMNS).sort_by("modification_time"),
        root=table.location, table=table.name, version=snapshot.version, storage_options={},
    )  # fmt: skip
    return scan, WriteTarget(table.location, snapshot.schema, properties=snapshot.metadata.configuration)


def read(table: deltars.Table, files: list[WrittenFile]) -> pa.Table:
    paths = [Path(table.location) / uri_to_path(file.add.path) for file in files]
    return pa.concat_tables([pq.ParquetFile(path).read() for path in paths])


@pytest.fixture
def table(catalog: deltars.Catalog) -> deltars.Table:
    table = catalog.create_table("t", "id BIGINT, a DOUBLE, s STRING", properties={"delta.enableRowTracking": "true"})
    rng = random.Random(3)
    for number in range(5):
        ids = range(1000 * number, 1000 * number + 1000)
        table.write(pa.table({"id": ids, "a": [rng.random() for _ in ids], "s": [f"{i % 17}" for i in ids]}))
    return table


def test_rows_of_a_bin_keep_the_order_of_its_files(table: deltars.Table) -> None:
    scan, target = scanned(table)
    [written] = write_bin(scan, Rewrite(target.with_options(target_file_size=1)))
    assert read(table, [written])["id"].to_pylist() == list(range(5000)), "one file, whatever the target"
    [first], [second] = write_bins(scan, [(3, 1), (0,)], Rewrite(target))
    assert read(table, [first])["id"].to_pylist() == [*range(3000, 4000), *range(1000, 2000)]
    assert sum(group.num_rows for group in second.row_groups) == 1000


def test_spilled_sort_gives_the_rows_of_one_in_memory(table: deltars.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    scan, target = scanned(table)
    by = (("a",), ("s",))
    here = read(table, write_bin(scan, Rewrite(target, by)))
    made: list[str] = []
    directory = tempfile.TemporaryDirectory

    def noted(**options: str) -> tempfile.TemporaryDirectory[str]:
        opened = directory(**options)  # type: ignore[call-overload]
        made.append(opened.name)
        return opened  # type: ignore[no-any-return]

    monkeypatch.setattr("deltars.data.compaction.TemporaryDirectory", noted)
    spilled = read(table, write_bin(scan, Rewrite(target, by, memory_bytes=50_000)))
    assert sorted(spilled["id"].to_pylist()) == list(range(5000))
    assert spilled == here, "the same order, and hidden columns of row ids too"
    assert not Path(made[0]).exists()


def test_failed_sort_leaves_no_file_behind(table: deltars.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    scan, target = scanned(table)
    before = set(Path(table.location).rglob("*.parquet"))
    monkeypatch.setattr("deltars.data.compaction.in_order", lambda rows, keys: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_bin(scan, Rewrite(target, (("a",),), memory_bytes=50_000))
    assert set(Path(table.location).rglob("*.parquet")) == before
    assert not list(Path(tempfile.gettempdir()).glob("deltars-sort-*/*.arrow"))


def peak(uri: str, times: int, sort_memory: int | None) -> float:
    """Return the peak of a process that writes the rows of a file again, as if there were so many files."""
    with deltars.connect(uri) as catalog:
        scan, target = scanned(catalog.table("t"))
        bin_ = files_of(scan, [0] * times)
        small = target.with_options(target_file_size=4 << 20)  # and so are its row groups
        write_bin(bin_, Rewrite(target) if sort_memory is None else Rewrite(small, (("k",),), None, sort_memory))
        return peak_mib()


@pytest.mark.parametrize(
    "sort_memory",
    [pytest.param(None, id="compaction", marks=pytest.mark.soak(only=True)), pytest.param(4 << 20, id="spilled sort")],
)
def test_memory_does_not_grow_with_the_bin(
    catalog: deltars.Catalog, migrated_uri: str, sort_memory: int | None
) -> None:
    rng = random.Random(1)
    rows = 100_000
    catalog.write("t", pa.table({name: [rng.getrandbits(60) for _ in range(rows)] for name in "kvw"}))
    few, many = (30, 60) if sort_memory is None else (5, 30)
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        small, large = (pool.apply(peak, (migrated_uri, times, sort_memory)) for times in (few, many))
    grown_mib = rows * 24 * (many - few) / 2**20
    assert large - small < grown_mib / 2
