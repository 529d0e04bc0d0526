"""Which files a merge's keys pass over: all between two keys, and never one that holds a key."""

from __future__ import annotations

import json
import math
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltars.log.key_set import KeySet
from deltars.log.read_set import Added
from deltars.log.value_ranges import comparable
from deltars.predicate import Column, parse
from deltars.protocol import PrimitiveType
from tests.support.log import metadata
from tests.support.soak import scaled
from tests.support.where import Case, cases

TABLE = metadata("id BIGINT, x DOUBLE, name STRING, day DATE", partition_columns=["day"])
ID, X, NAME = (
    Column((name,), PrimitiveType(type_)) for name, type_ in (("id", "long"), ("x", "double"), ("name", "string"))
)


def file(low: Any, high: Any, column: str = "id", nulls: int = 0, day: str | None = "2026-01-01") -> Added:
    stats = {"numRecords": 2, "minValues": {column: low}, "maxValues": {column: high}, "nullCount": {column: nulls}}
    return Added("f", "", json.dumps({"day": day}), json.dumps(stats))


def test_file_between_two_keys_is_passed_over() -> None:
    keys = KeySet(ID, [2000, 2010, 2020], TABLE)
    assert not keys.could_match(file(2001, 2009))
    assert not keys.could_match(file(1, 1999))
    assert not keys.could_match(file(2021, 9000))
    assert keys.could_match(file(2005, 2010))
    assert keys.could_match(file(1, 9000))


def test_file_of_which_nothing_is_known_is_kept() -> None:
    keys = KeySet(ID, [7], TABLE)
    assert keys.could_match(Added("f"))
    assert keys.could_match(Added("f", stats='{"numRecords":3}'))
    assert keys.could_match(Added("f", stats="broken"))
    assert not keys.could_match(file(None, None, nulls=2))


def test_no_key_matches_no_file() -> None:
    assert not KeySet(ID, [], TABLE).could_match(file(1, 9))
    assert not KeySet(ID, [], TABLE).could_match(Added("f"))


def test_further_keys_narrow_by_their_range() -> None:
    keys = KeySet(ID, [5], TABLE, parse("day >= '2026-01-01' AND day <= '2026-01-31'", TABLE.schema))
    assert keys.could_match(file(1, 9))
    assert not keys.could_match(file(1, 9, day="2026-02-01"))
    assert not keys.could_match(file(1, 9, day=None))


def test_key_that_is_a_partition_column() -> None:
    day = Column(("day",), PrimitiveType("date"))
    keys = KeySet(day, [date(2026, 1, 1), date(2026, 1, 3)], TABLE)
    kept = [keys.could_match(file(1, 9, day=text)) for text in ("2026-01-01", "2026-01-02", "2026-01-03", None)]
    assert kept == [True, False, True, False]
    assert keys.could_match(Added("f", partition_values="{}"))


def test_floating_point_keys_compare_as_spark_does() -> None:
    assert KeySet(X, [0.0], TABLE).could_match(file(-1.0, -0.0, "x"))
    assert KeySet(X, [-0.0], TABLE).could_match(file(0.0, 1.0, "x"))
    nan = KeySet(X, [1.0, math.nan], TABLE)
    # Not every writer counts NaN in its maximum.
    assert nan.could_match(file(5.0, 6.0, "x"))
    assert not KeySet(X, [1.0, 9.0], TABLE).could_match(file(5.0, 6.0, "x"))


def test_string_that_was_cut_in_the_statistics_is_found() -> None:
    long = "k" * 40
    assert KeySet(NAME, [long], TABLE).could_match(file("a", long[:32], "name"))


def test_files_as_a_table_are_judged_alike() -> None:
    keys, files = KeySet(ID, [2000, 2010], TABLE), [file(2001, 2009), file(1, 2000), file(2010, 2010), Added("f")]
    columns = {
        "partition_values": [one.partition_values or "{}" for one in files],
        "stats": pa.array([one.stats for one in files], pa.string()),
    }
    assert keys.keep(pa.table(columns)).to_pylist() == [keys.could_match(one) for one in files]


@pytest.mark.soak
@settings(max_examples=scaled(100, soak=10_000))
@given(cases(), st.data())
def test_no_file_that_holds_a_key_is_passed_over(case: Case, data: st.DataObject) -> None:
    leaves = [(path, type_) for path, type_ in case.metadata.schema.leaves() if isinstance(type_, PrimitiveType)]
    path, type_ = data.draw(st.sampled_from(leaves))
    found = {comparable(row[path]): row[path] for file in case.files for row in file.rows if row[path] is not None}
    wanted = data.draw(st.sets(st.sampled_from(sorted(found)), max_size=4)) if found else set()
    keys = KeySet(Column(path, type_), [found[key] for key in sorted(wanted)], case.metadata)
    for file in case.files:
        holds = any(row[path] is not None and comparable(row[path]) in wanted for row in file.rows)
        added = Added("f", partition_values=json.dumps(file.partition_values), stats=file.stats)
        assert keys.could_match(added) or not holds
