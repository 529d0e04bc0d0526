"""Rows of other writers' files are found by a where, whatever their statistics say."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltars

DAYS = [dt.date(1, 1, 1), dt.date(1582, 10, 14), dt.date(1582, 10, 15), dt.date(2026, 1, 1)]
HYBRID = {"0001-01-01": "0001-01-03", "1582-10-14": "1582-10-04"}
MOMENT = dt.datetime(1883, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def old(catalog: deltars.Catalog, tmp_path: Path) -> deltars.Table:
    """A file a day, with the names that the hybrid calendar has for these days in the statistics."""
    place = tmp_path / "old"
    for number, day in enumerate(DAYS):
        rows: dict[str, Any] = {"id": [number], "day": [day], "at": pa.array([MOMENT], pa.timestamp("us", "UTC"))}
        write_deltalake(place, pa.table(rows), mode="append")
    for log in (place / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                stats = json.loads(line["add"]["stats"])
                for part in ("minValues", "maxValues"):
                    stats[part]["day"] = HYBRID.get(stats[part]["day"], stats[part]["day"])
                    stats[part]["at"] = "1883-01-01T00:22:58.000Z"
                line["add"]["stats"] = json.dumps(stats)
        log.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return catalog.import_table(str(place), "old")


def _ids(table: deltars.Table, where: str) -> list[int]:
    return sorted(table.to_arrow(where=where)["id"].to_pylist())


def test_days_and_moments_of_the_old_calendar_are_found(old: deltars.Table) -> None:
    for where, ids in {
        "day = DATE '0001-01-01'": [0],
        "day < '0001-01-02'": [0],
        "day = '1582-10-14'": [1],
        "day BETWEEN '1582-10-05' AND '1582-10-15'": [1, 2],
        "day IN (DATE '1582-10-14', DATE '2026-01-01')": [1, 3],
        "day > '1582-10-14'": [2, 3],
        "day <> '1582-10-04' AND day < '1600-01-01'": [0, 1, 2],
        "at = '1883-01-01 00:00:00'": [0, 1, 2, 3],
    }.items():
        assert _ids(old, where) == ids, where
    assert old.snapshot().select_files(where="day > '1600-01-01'").num_rows == 1


def test_rows_of_the_old_calendar_are_replaced(catalog: deltars.Catalog, old: deltars.Table) -> None:
    new = pa.table({"id": [9], "day": [dt.date(1582, 10, 14)], "at": pa.array([MOMENT], pa.timestamp("us", "UTC"))})
    catalog.write("old", new, mode="overwrite", replace_where="day = '1582-10-14'")
    assert sorted(old.to_arrow()["id"].to_pylist()) == [0, 2, 3, 9]
    catalog.write("old", new.slice(0, 0), mode="overwrite", replace_where="day < '1582-10-15'")
    assert sorted(old.to_arrow()["id"].to_pylist()) == [2, 3]


@pytest.mark.backends("sqlite")
def test_patterns_and_nulls_of_structs_need_no_spark(catalog: deltars.Catalog) -> None:
    structs = pa.array([{"a": 1}, {"a": None}, None], pa.struct([("a", pa.int64())]))
    catalog.write("events", pa.table({"id": [1, 2, 3], "name": ["ada", "alan", None], "s": structs}))
    table = catalog.table("events")
    for where, ids in {
        "name LIKE 'a_a'": [1],
        "name LIKE '%a%n'": [2],
        "name NOT LIKE '_l%'": [1],
        "s IS NULL": [3],
        "s IS NOT NULL AND s.a IS NULL": [2],
        "s.a IS NULL": [2, 3],
    }.items():
        assert _ids(table, where) == ids, where
