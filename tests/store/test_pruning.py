"""A where as a condition in SQL: never too narrow, and narrow enough to be worth asking for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sqlalchemy import CompoundSelect, Connection, Text, bindparam, event, insert, literal, select
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

import deltars
from deltars.log.bounds import HIGHEST, LOWEST, Bounds, on_scale
from deltars.log.pruning import Pruner
from deltars.predicate import parse
from deltars.protocol import AddFile, Metadata
from deltars.store.backends import Backend
from deltars.store.file_search import by_range, probes
from deltars.store.read.file_conditions import EVERY, File, Named, as_sql, valued, values_of
from deltars.store.read.filter_sql import conditions_of
from deltars.store.read.live_files import TableContents, filtered_files
from deltars.store.read.pruning import MAX_INTERVALS, file_filter, translation_of
from deltars.store.schema import RANGE_WIDTHS, dl_add_files, dl_tables
from tests.store.conftest import OpenLog
from tests.support.log import FEATURES, Log, added, metadata, removed
from tests.support.soak import scaled
from tests.support.where import Case, cases

files = dl_add_files.c


def _slot(connection: Connection, table_id: UUID) -> int:
    slot: int = connection.execute(select(dl_tables.c.slot).where(dl_tables.c.table_id == table_id)).scalar_one()
    return slot


def _found(log: Log, where: str, of: Metadata) -> list[str]:
    """The paths of the live files that the database does not rule out."""
    database = log.catalog._session.database
    predicate = parse(where, of.schema)
    with database.read() as connection:
        asked = as_sql(translation_of(of).condition(predicate), File(database.backend))
        live = select(files.path).where(files.table_id == log.table_id, files.removed_version.is_(None), asked)
        return sorted(connection.execute(live).scalars())


def _row(add: AddFile, ord_: int, table_id: UUID, slot: int, bounds: Bounds, backend: Backend) -> dict[str, Any]:
    numbers = bounds.of(add.stats)

    def array(values: Sequence[float | None] | None) -> Any:
        return backend.array_text(values) if values is not None and backend.name == "sqlite" else values

    return {
        "table_id": table_id, "version": 1, "ord": ord_, "path": add.path, "size": 1, "modification_time": 1,
        "partition_values": add.partition_values, "stats": add.stats, "data_change": True, "slot": slot,
        "num_records": numbers.num_records, "mins": array(numbers.mins), "maxs": array(numbers.maxs),
    }  # fmt: skip


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    return open_log()


@settings(max_examples=scaled(60, soak=3_000), suppress_health_check=list(HealthCheck))
@given(case=cases())
@pytest.mark.soak
def test_no_file_with_a_matching_row_is_ruled_out(log: Log, case: Case) -> None:
    # What jsonb cannot hold never gets into the log there.
    assume("\0" not in "".join(value or "" for file in case.files for value in file.partition_values.values()))
    database = log.catalog._session.database
    bounds = Bounds(case.metadata.schema, case.metadata.partition_columns, case.metadata.configuration)
    predicate = parse(case.condition.sql, case.metadata.schema, zone=case.zone)
    kept = Pruner(predicate, case.metadata)
    with database.write(30) as connection:
        slot = _slot(connection, log.table_id)
        rows = []
        for number, file in enumerate(case.files):
            stats = file.stats if file.stats is None or _is_json(file.stats) else None
            add = added(f"{number}", partition_values=file.partition_values, stats=stats)
            rows.append(_row(add, number, log.table_id, slot, bounds, database.backend))
        connection.execute(insert(dl_add_files), rows)
        conditions = conditions_of(file_filter(predicate, case.metadata), database.backend, lambda _: valued)
        asked, certain, search = conditions.whole, conditions.certain, conditions.search
        query = select(files.path, certain.label("certain")).where(files.table_id == log.table_id, asked)
        found = {path: bool(is_certain) for path, is_certain in connection.execute(query)}
        if search is not None:
            # The index must find all of them too.
            searched = query.where(files.removed_version.is_(None), search.is_hit)
            ranges = translation_of(case.metadata).ranges(predicate)
            places = {"slot": slot, "probes": None if ranges is None else probes(ranges, slot)}
            assert {path for path, _ in connection.execute(searched, places)} == found.keys()
        # So does the statement that is kept for other values.
        asked_again = file_filter(predicate, case.metadata).whole
        kept_query = select(files.path).where(
            database.backend.id_of(bindparam("table", type_=Text())) == files.table_id,
            as_sql(asked_again, File(database.backend), Named("whole")),
        )
        given = {"table": str(log.table_id), **values_of(asked_again, "whole")}
        again = database.backend.run(connection, database.backend.prepare(kept_query), given)
        assert {path for (path,) in again} == found.keys()
        transaction = connection.get_transaction()
        assert transaction is not None
        transaction.rollback()
    for number, (file, must_keep) in enumerate(zip(case.files, case.must_keep(), strict=True)):
        assert str(number) in found or not must_keep
        # And nothing that the exact judge would keep: a file that it passes over may still be here.
        is_kept = kept.keeps(file.partition_values, file.stats)
        assert str(number) in found or not is_kept
        # Whom the database is certain of, the judge would have kept.
        assert is_kept or not found.get(str(number))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


DDL = (
    "id BIGINT, name STRING, price DECIMAL(20,4), at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, x DOUBLE,"
    " s STRUCT<n: INT, t: STRUCT<deep: STRING>>, flag BOOLEAN, region STRING, number INT"
)
PARTITIONS = ["region", "number", "flag"]


def _stats(low: dict[str, Any], high: dict[str, Any]) -> str:
    return json.dumps({"numRecords": 2, "minValues": low, "maxValues": high})


ONE = added(
    "one",
    partition_values={"region": "north", "number": "7", "flag": "true"},
    stats=_stats(
        {"id": 1, "name": "ada", "price": 1.25, "at": "2026-01-01T00:00:00.000Z", "wall": "2026-01-01T00:00:00.000",
         "day": "2026-01-01", "x": 1.5, "s": {"n": 1, "t": {"deep": "k"}}},
        {"id": 9, "name": "alan", "price": 9.75, "at": "2026-01-31T00:00:00.000Z", "wall": "2026-01-31T00:00:00.000",
         "day": "2026-01-31", "x": 2.5, "s": {"n": 9, "t": {"deep": "m"}}},
    ),
)  # fmt: skip
NOT_KNOWN = added("unknown", partition_values={"region": None, "number": None, "flag": None})


@pytest.fixture
def some(open_log: OpenLog) -> tuple[Log, Metadata]:
    """A table of one file with statistics, and one without any and null for every partition."""
    log = open_log().create(DDL, features=(*FEATURES, "timestampNtz"), partition_columns=PARTITIONS)
    log.commit([ONE, NOT_KNOWN])
    return log, metadata(DDL, partition_columns=PARTITIONS)


RULED_OUT = [
    "id = 10", "id = 0", "id > 9.5", "id < 1", "id IN (-5, 10, 11)", "id BETWEEN 20 AND 30", "10 < id", "id <=> 44",
    "NOT (id <= 10)", "name = 'zoe'", "name < 'a'", "name LIKE 'b%'", "price > 9.7600", "price = 20",
    "at >= '2026-02-01'", "at < TIMESTAMP '2026-01-01 00:00:00+02:00'", "wall > '2026-02-01 00:00:00'",
    "day > DATE '2026-01-31'", "day = '2025-12-31'", "x < 1", "x = 3", "x > 3 AND x < 4", "x IN (0.5D, 7D)",
    "s.n = 10", "s.t.deep > 'n'", "region = 'south'", "region > 'south'", "region LIKE 's%'", "region IN ('a', 'b')",
    "number = 8", "number > 7", "number IN (1, 2)", "NOT flag", "flag = FALSE",
    "id = 5 AND region = 'south'", "id = 50 OR name = 'zoe'", "lower(name) = 'ada' AND id = 50",
]  # fmt: skip
KEPT = [
    "id = 5", "id >= 9", "id <> 5", "id IN (3, 99)", "name = 'alan'", "name LIKE 'al%'", "price = 9.75",
    "at = '2026-01-31 00:00:00.0005'", "day = '2026-01-31'", "x > 3", "x <> 2", "s.n = 9", "s.t.deep = 'l'",
    "region = 'north'", "region <> 'south'", "number = 7", "number < 8", "flag", "id = 50 OR lower(name) = 'x'",
    "id IS NOT NULL", "name NOT LIKE 'b%'", "region LIKE 'n%'", "TRUE",
]  # fmt: skip


def test_what_the_bounds_or_partition_values_exclude_is_ruled_out(some: tuple[Log, Metadata]) -> None:
    log, of = some
    for where in RULED_OUT:
        assert _found(log, where, of) == ["unknown"], where


def test_what_they_do_not_exclude_is_kept(some: tuple[Log, Metadata]) -> None:
    log, of = some
    for where in KEPT:
        assert _found(log, where, of) == ["one", "unknown"], where


def test_what_can_never_be_true_finds_nothing(some: tuple[Log, Metadata]) -> None:
    log, of = some
    for where in ("FALSE", "id = NULL", "id IN (NULL)", "1 = 2"):
        assert _found(log, where, of) == [], where


def test_a_missing_partition_is_found_by_its_null(some: tuple[Log, Metadata]) -> None:
    log, of = some
    log.commit([added("empty", partition_values={"region": "", "number": "1", "flag": "false"})])
    assert _found(log, "region IS NULL", of) == ["empty", "unknown"]


def test_a_list_of_many_values_is_asked_for_in_few_ranges(open_log: OpenLog) -> None:
    log = open_log().create("id BIGINT, other BIGINT")
    of = metadata("id BIGINT, other BIGINT")
    log.commit(
        [
            added(f"{i:03}", stats=_stats({"id": i * 10, "other": i * 10}, {"id": i * 10 + 1, "other": i * 10 + 1}))
            for i in range(100)
        ]
    )
    wanted = [*range(0, 100, 10), *range(500, 600, 10), 990]
    for column in ("id", "other"):
        assert len(_found(log, f"{column} IN ({', '.join(map(str, wanted))})", of)) == 21
        many = _found(log, f"{column} IN ({', '.join(str(i * 20) for i in range(50))})", of)
        assert 50 <= len(many) <= 100 - MAX_INTERVALS + 1


OLD = "day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ"
OLD_FOUND = {
    "day = '0001-01-01'": ["old"],
    "day = '1582-10-14'": ["old"],
    "day BETWEEN '1582-10-01' AND '1582-10-15'": ["old"],
    "day IN ('0001-01-01', '1582-10-13')": ["old"],
    "day > '1582-10-15'": ["new"],
    "day >= '1582-10-15'": ["new", "old"],
    "day < '1582-10-15'": ["old"],
    "day = '1700-01-01'": [],
    "at = '1883-01-01 00:00:00'": ["old"],
    "at > '1900-01-02'": ["new"],
    "at < '2026-01-01'": ["old"],
    "wall = '1582-10-14 12:00:00'": ["old"],
    "wall < '1582-10-15'": ["old"],
    "wall > '1600-01-01'": ["new"],
}


@pytest.mark.parametrize("range_column", ["day", "at", "wall"])
def test_bounds_of_the_hybrid_calendar_rule_no_file_out(open_log: OpenLog, range_column: str) -> None:
    """Also those that are in the database already: the numbers there are as the writer's texts say."""
    properties = {"deltars.rangeColumn": range_column}
    log = open_log().create(OLD, features=(*FEATURES, "timestampNtz"), configuration=properties)
    old = {"day": "1582-10-04", "at": "1883-01-01T00:22:58.000Z", "wall": "1582-10-04T12:00:00.000"}
    new = {"day": "2026-01-01", "at": "2026-01-01T00:00:00.000Z", "wall": "2026-01-01T00:00:00.000"}
    log.commit([added(name, stats=_stats(bound, bound)) for name, bound in (("old", old), ("new", new))])
    of = metadata(OLD, configuration=properties)
    assert {where: _found(log, where, of) for where in OLD_FOUND} == OLD_FOUND


def test_partition_values_of_other_forms_are_not_passed_over_in_silence(open_log: OpenLog) -> None:
    ddl = "id INT, day DATE, n INT, ok BOOLEAN"
    log = open_log().create(ddl, partition_columns=["day", "n", "ok"])
    log.commit([added("odd", partition_values={"day": "2026-1-1", "n": "7.0", "ok": "1"})])
    of = metadata(ddl, partition_columns=["day", "n", "ok"])
    for where in ("day = '2026-01-01'", "day IN ('2026-01-01', '2026-01-02')", "day <> '2026-01-01'", "n = 7", "n > 6",
                  "n IN (7, 11)", "ok", "NOT ok"):  # fmt: skip
        assert _found(log, where, of) == ["odd"], where


@pytest.mark.parametrize("text", ["7", "07", "+7", "007"])
def test_whole_number_is_found_however_it_was_written(open_log: OpenLog, text: str) -> None:
    log = open_log().create("id INT, n INT", partition_columns=["n"])
    log.commit([added("seven", partition_values={"n": text}), added("eight", partition_values={"n": "8"})])
    of = metadata("id INT, n INT", partition_columns=["n"])
    for where in ("n = 7", "n IN (7, 9)", "n < 8", "n BETWEEN 6 AND 7", "n = 7.0", "n < 7.5"):
        assert _found(log, where, of) == ["seven"], where


@pytest.mark.parametrize(
    ("type_", "text", "where"),
    [
        ("BIGINT", "9007199254740993", "n > 9007199254740992"),
        ("BIGINT", "-9007199254740993", "n < -9007199254740992"),
        ("DECIMAL(38,18)", "5.000000000000000001", "n > 5"),
        ("DECIMAL(38,18)", "4.999999999999999999", "n < 5"),
    ],
)
def test_numbers_closer_than_doubles_tell_apart_are_kept(open_log: OpenLog, type_: str, text: str, where: str) -> None:
    log = open_log().create(f"id INT, n {type_}", partition_columns=["n"])
    log.commit([added("found", partition_values={"n": text}), added("far", partition_values={"n": "7000"})])
    of = metadata(f"id INT, n {type_}", partition_columns=["n"])
    assert "found" in _found(log, where, of)
    assert _found(log, "n BETWEEN 6999.5 AND 7000.5", of) == ["far"]


@pytest.mark.parametrize(
    ("where", "certain"),
    [
        ("id >= 5", ["6 to 9"]),
        ("id < 3", ["1 to 4"]),
        ("id = 7", ["6 to 9"]),
        ("x > 1.5 AND id > 0", ["1 to 4", "6 to 9"]),
        ("id < 0 OR x < 2.5", ["1 to 4", "6 to 9"]),
        ("abs(id) > 3 AND id > 0", ["1 to 4", "6 to 9"]),
        ("id <> 3", []),
        ("n = 1 AND id > 0", []),
        ("id IN (2, 3)", []),
    ],
)
def test_files_far_inside_what_is_asked_for_need_no_second_look(
    open_log: OpenLog, where: str, certain: list[str]
) -> None:
    ddl = "id BIGINT, x DOUBLE, n INT"
    log = open_log().create(ddl, partition_columns=["n"])
    some = {"n": "1"}
    low, high = (_stats({"id": a, "x": 1.0}, {"id": b, "x": 3.0}) for a, b in ((1, 4), (6, 9)))
    nulls = json.dumps({"numRecords": 2, "nullCount": {"id": 2, "x": 2}})
    log.commit(
        [
            added("1 to 4", partition_values=some, stats=low),
            added("6 to 9", partition_values=some, stats=high),
            added("nulls", partition_values=some, stats=nulls),
            added("unknown", partition_values=some),
        ]
    )
    of = metadata(ddl, partition_columns=["n"])
    database = log.catalog._session.database
    with database.read() as connection:
        is_certain = as_sql(translation_of(of).certainty(parse(where, of.schema)), File(database.backend))
        query = select(files.path).where(files.table_id == log.table_id, is_certain)
        assert sorted(connection.execute(query).scalars()) == certain


def test_long_conditions_are_left_to_the_exact_judge(open_log: OpenLog) -> None:
    ddl = "id INT, day DATE, n INT"
    log = open_log().create(ddl, partition_columns=["day", "n"])
    log.commit([added(day, partition_values={"day": day, "n": "1"}) for day in ("2026-01-01", "2026-01-02")])
    of = metadata(ddl, partition_columns=["day", "n"])
    many = range(2_000)
    either = " OR ".join(f"(day = '2026-01-01' AND n = {i})" for i in many)
    assert "2026-01-01" in _found(log, either, of)
    both = " AND ".join(["day = '2026-01-01'", *(f"n <> {-i - 1}" for i in many)])
    assert _found(log, both, of) == ["2026-01-01"]
    values = ", ".join(map(str, range(40_000)))
    assert len(_found(log, f"n IN ({values})", of)) == 2


def test_day_beyond_the_calendar_is_kept(open_log: OpenLog) -> None:
    log = open_log().create("id INT, day DATE", partition_columns=["day"])
    for day in ("+10000-01-01", "2026-01-01", "2026-01-02"):
        log.commit([added(day, partition_values={"day": day})])
    of = metadata("id INT, day DATE", partition_columns=["day"])
    assert _found(log, "day > '2026-01-01'", of) == ["+10000-01-01", "2026-01-02"]
    assert _found(log, "day = '2026-01-01'", of) == ["2026-01-01"]


def test_partition_columns_of_any_name_can_be_asked_for(open_log: OpenLog) -> None:
    names = ["a b", "é", "x.y", "quo`te", "$dollar", "/slash", 'double"quote']
    ddl = ", ".join("`" + name.replace("`", "``") + "` STRING" for name in names) + ", id INT"
    log = open_log().create(ddl, partition_columns=names)
    for value in ("1", "2"):
        log.commit([added(value, partition_values=dict.fromkeys(names, value))])
    of = metadata(ddl, partition_columns=names)
    for name in names:
        quoted = "`" + name.replace("`", "``") + "`"
        found = _found(log, f"{quoted} = '2'", of)
        assert "2" in found
        assert found == ["2"] or name[0] in "$/" or '"' in name


def test_numbers_of_any_size_can_be_bounds_of_the_range_column(open_log: OpenLog) -> None:
    """In files enough to split a page of the index, which multiplies their widths."""
    log = open_log().create("x DOUBLE")
    wide = [added(f"wide-{i}", stats=_stats({"x": -1.7e308}, {"x": 1.7e308})) for i in range(300)]
    high = [added(f"high-{i}", stats=_stats({"x": 1e300}, {"x": 1.7e308})) for i in range(300)]
    log.commit([*wide, *high, *(added(f"none-{i}") for i in range(300))])
    of = metadata("x DOUBLE")
    assert len(_found(log, "x = 1e305", of)) == 900
    assert len(_found(log, "x = 5", of)) == 600
    assert len(_found(log, "x < -1e305", of)) == 600


def test_condition_that_nothing_is_known_of_is_true(some: tuple[Log, Metadata]) -> None:
    _, of = some
    for where in ("lower(name) = 'x'", "id <> 5", "flag IS NOT NULL", "x > 1"):
        assert translation_of(of).condition(parse(where, of.schema)) == EVERY, where


def test_a_range_of_the_chosen_column_meets_only_files_of_its_own_table(open_log: OpenLog) -> None:
    first, second = open_log().create("id BIGINT"), open_log(name="other").create("id BIGINT")
    for log in (first, second):
        log.commit([added(log.name, stats=_stats({"id": 5}, {"id": 5}))])
    assert _found(second, "id = 5", metadata("id BIGINT")) == ["other"]


RANGES = ["id = 500", "id BETWEEN 100 AND 110", "id IN (3, 700)", "id < 5 OR id > 1990", "id = 7 AND x = 1"]


NUMBERS = st.one_of(
    st.floats(LOWEST, HIGHEST),
    st.integers(-1_000, 1_000).map(float),
    st.sampled_from([LOWEST, HIGHEST, 0.0, -0.0, 5e-324, 1e-3, 0.0999999999999999, 1e14, 2.0**53, 1e18, 9.3e18]),
)


@settings(max_examples=scaled(60, soak=5_000), suppress_health_check=list(HealthCheck))
@given(
    ranges=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30),
    intervals=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4),
    widths=st.lists(st.sampled_from([*RANGE_WIDTHS, *(math.nextafter(width, 0) for width in RANGE_WIDTHS)])),
)
@pytest.mark.backends("postgres", "sqlite")
@pytest.mark.soak
def test_range_index_finds_every_file_that_overlaps(
    log: Log, ranges: list[tuple[float, float]], intervals: list[tuple[float, float]], widths: list[float]
) -> None:
    """Also if minimum and maximum are exchanged, and if the width of a file is at the end of its class."""
    database = log.catalog._session.database
    bounds = Bounds(metadata("x DOUBLE").schema)
    ends = [low for interval in intervals for low in interval]
    ranges += [(on_scale(end - width), end) for end in ends for width in widths]
    with database.write(30) as connection:
        slot = _slot(connection, log.table_id)
        rows = [
            _row(
                added(f"{number}", stats=_stats({"x": low}, {"x": high})),
                number,
                log.table_id,
                slot,
                bounds,
                database.backend,
            )
            for number, (low, high) in enumerate(ranges)
        ]
        if rows:
            connection.execute(insert(dl_add_files), rows)
        hit = by_range(database.backend, literal(probes(intervals, slot), Text())).is_hit
        found = set(connection.execute(select(files.path).where(files.removed_version.is_(None), hit)).scalars())
        transaction = connection.get_transaction()
        assert transaction is not None
        transaction.rollback()
    for number, (low, high) in enumerate(ranges):
        if any(low <= end and high >= begin for begin, end in intervals):
            assert str(number) in found


PLACES = [
    {"region": "north", "n": "1"}, {"region": "", "n": None}, {"region": None, "n": "07"},
    {"region": 'q"uo\\te', "n": "7"},    {"region": "é\u2603", "n": "-7"}, {"region": "a,b", "n": "1e3"},
]  # fmt: skip


@pytest.mark.backends("postgres", "sqlite")
def test_files_are_found_by_partition_whether_or_not_partitions_are_many(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log().create("id BIGINT, region STRING, n INT", partition_columns=["region", "n"])
    other = open_log(name="other").create("id BIGINT, region STRING, n INT", partition_columns=["region", "n"])
    for each in (log, other):
        each.commit([added(f"{each.name}-{i}-{k}", partition_values=p) for i, p in enumerate(PLACES) for k in range(3)])
    old = deltars.SqlTxnLogReader(log.catalog).snapshot(log.table_id)
    log.commit([removed(f"{log.name}-0-0")])
    snapshot = deltars.SqlTxnLogReader(log.catalog).snapshot(log.table_id)
    expected = {
        "region = 'north'": {"0"}, "region IS NULL": {"1", "2"}, "n = 7": {"2", "3"}, "n < 0": {"4"},
        "region > 'r'": {"4"},
        "n IN (1, 7) AND id > 3": {"0", "2", "3"}, "region = 'nowhere'": set(), "id > 3": set("012345"),
    }  # fmt: skip
    for most in (10_000, len(PLACES), len(PLACES) - 1, 1, 0):
        monkeypatch.setattr("deltars.store.file_search.MAX_PARTITIONS", most)
        monkeypatch.setattr("deltars.store.backends.base._kept", {})
        for where, places in expected.items():
            for seen, gone in ((snapshot, 1), (old, 0)):
                paths = seen.select_files(where=where)["path"].to_pylist()
                # Exact, whatever the database kept: 1e3 is no whole number, which only the exact check knows.
                kept = [path for path in paths if "-5-" not in path or "5" in places]
                assert len(kept) == len(set(kept)) == 3 * len(places) - gone * ("0" in places), (most, where)
                assert {path.split("-")[1] for path in kept} == places, (most, where)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("where", "index"), [("id = 5", "range"), ("id IN (1, 7)", "range"), ("part = 5", "partition")]
)
def test_sqlite_looks_files_up_in_its_indexes(open_log: OpenLog, where: str, index: str) -> None:
    log = open_log().create("id BIGINT, part INT", partition_columns=["part"])
    log.commit([added(f"{i}", partition_values={"part": f"{i}"}, stats=_stats({"id": i}, {"id": i})) for i in range(9)])
    with log.catalog._session.database.read() as connection:
        event.listen(connection, "before_cursor_execute", _explained, retval=True)
        cursor = connection.execute(_query(log, where)).cursor
        assert cursor is not None
        plan = cursor.fetchall()
    # Before the branches that read nothing, unless the table's metadata changed or its partitions are too many.
    searched = plan[: [step[3] for step in plan].index("UNION ALL")]
    [looked_up] = [
        step[3] for step in searched if step[3].startswith(("SEARCH dl_add_files", "SEARCH ranged", "SCAN dl"))
    ][-1:]
    assert f"USING INDEX ix_dl_add_files_{index}" in looked_up


def _explained(_: Connection, __: Any, statement: str, parameters: Any, *___: Any) -> tuple[str, Any]:
    return f"EXPLAIN QUERY PLAN {statement}", parameters


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("where", RANGES)
def test_range_of_the_chosen_column_is_answered_from_its_index_whatever_the_statistics_say(
    open_log: OpenLog, where: str, is_analyzed: bool
) -> None:
    log = open_log().create("id BIGINT, x INT")
    log.commit([added(f"{i}", stats=_stats({"id": i}, {"id": i})) for i in range(2_000)])
    with log.catalog._session.database.write(30) as connection:
        if is_analyzed:
            connection.exec_driver_sql(f'ANALYZE "{log.catalog._session.database.backend.schema}".dl_add_files')
    used = _indexes_used(log, where)
    assert "ix_dl_add_files_range" in used
    assert "ix_dl_add_files_live" not in used


@pytest.mark.backends("postgres")
def test_what_the_range_index_alone_cannot_answer_is_not_left_to_it(open_log: OpenLog) -> None:
    log = open_log().create("id BIGINT, x INT, d DOUBLE")
    log.commit([added(f"{i}", stats=_stats({"id": i, "x": i}, {"id": i, "x": i})) for i in range(2_000)])
    for where in ("id = 5 OR x = 5", "x = 5", "id <> 5", "id IS NULL"):
        assert "ix_dl_add_files_range" not in _indexes_used(log, where), where


def _indexes_used(log: Log, where: str) -> set[str]:
    """Those that PostgreSQL looked into for the files of a where."""
    database = log.catalog._session.database
    text = _query(log, where).compile(
        dialect=PGDialect_psycopg(),  # type: ignore[no-untyped-call]
        compile_kwargs={"literal_binds": True},
        schema_translate_map={None: database.backend.schema},
        render_schema_translate=True,
    )
    with database.read() as connection:
        [plan] = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}").scalar_one()
    return {node["Index Name"] for node in _nodes(plan["Plan"]) if "Index Name" in node and node["Actual Loops"]}


def _query(log: Log, where: str) -> CompoundSelect[Any]:
    snapshot = deltars.SqlTxnLogReader(log.catalog).snapshot(log.table_id)
    assert isinstance(snapshot.contents, TableContents)
    asked, backend = file_filter(parse(where, snapshot.schema), snapshot.metadata), snapshot.contents.database.backend
    conditions = conditions_of(asked, backend, Named)
    query = filtered_files(log.table_id, snapshot.version, ["path"], conditions, with_stats=False)
    return query.params(snapshot.contents.values(asked))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
