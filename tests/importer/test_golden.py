"""Every golden table, imported and read: as delta-spark judged it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltars
from deltars.importer import LogSource
from deltars.protocol import AddFile, RemoveFile
from tests.support.golden import GoldenTable, golden_tables, same_rows
from tests.support.soak import is_soak

# The servers take longer for each; every kind of table is among these.
SAMPLE = frozenset(
    {
        "basic-with-inserts-deletes-checkpoint/delta",
        "checkpoint/delta",
        "data-reader-escaped-chars/delta",
        "data-reader-partition-values/delta",
        "data-reader-timestamp_ntz-id-mode/delta",
        "deltalog-state-reconstruction-without-metadata/delta",
        "dv-partitioned-with-checkpoint/delta",
        "dv-with-columnmapping/delta",
        "log-replay-dv-key-cases/delta",
        "multi-part-checkpoint/delta",
        "only-checkpoint-files/delta",
        "time-travel-schema-changes-b/delta",
        "v2-checkpoint-json/delta",
        "v2-checkpoint-parquet/delta",
        "versions-not-contiguous/delta",
    }
)


def _chosen(backend: str) -> Iterator[GoldenTable]:
    for table in golden_tables():
        if backend == "sqlite" or is_soak() or table.name in SAMPLE:
            yield table


@pytest.mark.soak
def test_every_golden_table_is_imported_and_read_or_refused(
    catalog: deltars.Catalog, backend: str, tmp_path: Path
) -> None:
    wrong = []
    for number, golden in enumerate(_chosen(backend)):
        place = tmp_path / f"golden-{number}"
        shutil.copytree(golden.root, place)
        problem = _problem(catalog, golden, place)
        if problem:
            wrong.append(f"{golden.name}: {problem}")
        shutil.rmtree(place)
    assert not wrong


def _problem(catalog: deltars.Catalog, golden: GoldenTable, place: Path) -> str | None:
    before = _files(place)
    try:
        table = catalog.import_table(str(place), place.name)
    except deltars.ImportRefused as error:
        if golden.outcome != "refuse":
            return f"was refused: {error}"
        return "something is left of it" if catalog.table_exists(place.name) or _files(place) != before else None
    if golden.outcome == "refuse":
        return "was not refused"
    if live := _difference(table, place):
        return live
    if golden.outcome == "log":
        return None
    rows = table.to_arrow()
    if golden.num_rows is not None and rows.num_rows != golden.num_rows:
        return f"{rows.num_rows} rows, not {golden.num_rows}"
    expected = golden.expected()
    if expected is not None and not same_rows(rows, expected):
        return "its rows are not the expected ones"
    return None


def _files(place: Path) -> set[str]:
    return {str(path) for path in place.rglob("*")}


def _difference(table: deltars.Table, place: Path) -> str | None:
    """Between the files of the catalog and those that the log's commits, replayed here once more, leave live."""
    listing = LogSource(str(place)).listing
    if listing.first_missing(0) is not None:
        return None
    live: dict[tuple[str, str], AddFile] = {}
    for version in LogSource(str(place)).versions():
        for batch in version.batches():
            for _, action in batch:
                if isinstance(action, AddFile):
                    live[action.key] = action
                elif isinstance(action, RemoveFile):
                    live.pop(action.key, None)
    ours = sorted((row["path"], row["size"], row["stats"]) for row in table.snapshot().files.to_pylist())
    theirs = sorted((add.path, add.size, add.stats) for add in live.values())
    return None if repr(ours) == repr(theirs) else f"live files {ours}, not {theirs}"


def test_partition_values_that_are_empty_are_null(catalog: deltars.Catalog, tmp_path: Path) -> None:
    [golden] = [table for table in golden_tables() if table.name == "data-reader-partition-values/delta"]
    place = tmp_path / "partitions"
    shutil.copytree(golden.root, place)
    rows = catalog.import_table(str(place)).to_arrow()
    partitions = [
        name
        for name in rows.column_names
        if name.startswith("as_") and name not in ("as_list_of_records", "as_nested_struct")
    ]
    nulls = [row for row in rows.to_pylist() if row["as_string"] is None]
    assert rows.num_rows == 3
    assert nulls
    assert all(row[name] is None for row in nulls for name in partitions if row["as_int"] is None)
