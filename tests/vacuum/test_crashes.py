"""A vacuum that is interrupted before any call to the storage or the database: nothing that is needed is gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import deltars
from tests.catalog.test_undo_crashes import every_interruption
from tests.support.soak import scaled
from tests.vacuum.lake import NOW, VECTORS, files, live, put

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.soak, pytest.mark.timeout(scaled(300, soak=3_600))]

ROWS = 4_000


def spread(numbers: range) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "p": [str(number % 2) for number in numbers]})


def load(catalog: deltars.Catalog) -> None:
    """Leave removed files, vectors and orphans behind, and the same rows as before."""
    table = catalog.table("t")
    table.write(spread(range(ROWS)), "overwrite")
    table.delete("id % 7 = 0 or id % 11 = 0")
    table.delete("id % 13 = 0 and p = '1'")
    put(table, "p=7/part-orphan.parquet", days_old=2)
    put(table, "part-1.parquet#123", days_old=2)
    put(table, "write-0/_temporary/0/part-2.parquet", days_old=2)


def expected() -> list[int]:
    return [n for n in range(ROWS) if n % 7 and n % 11 and not (n % 13 == 0 and n % 2)]


def contents(table: deltars.Table, as_of: str | None = None) -> list[int]:
    return sorted(table.to_arrow(as_of=as_of)["id"].to_pylist())


@pytest.fixture
def uri(migrated_uri: str, catalog: deltars.Catalog) -> str:
    catalog.create_table("t", "id BIGINT, p STRING", partition_by=["p"], properties=VECTORS)
    load(catalog)
    catalog.tag("kept")
    load(catalog)
    catalog.close()
    return migrated_uri


@pytest.mark.promise("N5")
def test_interrupted_vacuum_is_finished_by_the_next_and_loses_nothing(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(catalog: deltars.Catalog) -> None:
        table = catalog.table("t")
        assert contents(table) == contents(table, "kept") == expected()
        assert table.verify(deep=True).is_ok
        table.vacuum(**NOW, full=True)
        named = live(table) | live(table, catalog.snapshot("kept").versions["t"])
        left = files(table)
        assert {path for path in left if path.endswith(".parquet")} == named
        # Two files of vectors of the tag, and two of now.
        assert len(left - named) == 4, left - named
        assert all(path.endswith(".bin") for path in left - named)
        assert not (Path(table.location) / "write-0").exists()
        assert contents(table) == contents(table, "kept") == expected()
        load(catalog)

    every_interruption(uri, monkeypatch, lambda catalog: catalog.table("t").vacuum(**NOW, full=True), check)
    with deltars.connect(uri) as opened:
        assert opened.table("t").verify(deep=True).is_ok
