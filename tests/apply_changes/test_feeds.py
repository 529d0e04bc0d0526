"""Change feeds: what each option does, deletes and late events, several tables, replays, and what is refused.

Each runs in this process, and in the long form on Spark too.
"""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import deltars
from deltars.errors import SchemaMismatch, ValidationError, VersionConflict

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.timeout(600)]

FEED: dict[str, Any] = {
    "keys": "id",
    "sequence_by": "at",
    "apply_as_deletes": "op = 'D'",
    "except_column_list": ["op", "at"],
}


def _events(*events: tuple[int | None, int | None, str, str | None], **more: list[Any]) -> pa.Table:
    ids, ats, ops, names = zip(*events, strict=True) if events else ((), (), (), ())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array(ats, pa.int64()),
            "op": pa.array(ops, pa.string()),
            "name": pa.array(names, pa.string()),
            **more,
        }
    )


Frames = Callable[..., Any]


@pytest.fixture(params=["here", pytest.param("spark", marks=pytest.mark.soak(only=True))])
def events(request: pytest.FixtureRequest) -> Frames:
    """Events as a frame: of Arrow, or of Spark."""
    if request.param == "here":
        return _events
    spark: SparkSession = request.getfixturevalue("spark")
    request.getfixturevalue("all_by_spark")

    def made(*given: Any, **more: Any) -> Any:
        rows = _events(*given, **more)
        schema = "id BIGINT, at BIGINT, op STRING, name STRING" + "".join(f", {name} STRING" for name in more)
        return spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], schema)

    return made


def _rows(table: deltars.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=str)


def test_two_tables_of_both_types_become_visible_together(catalog: deltars.Catalog, events: Frames) -> None:
    first = events((1, 1, "I", "Ada"), (2, 1, "I", "Alan"), (1, 3, "U", "Ada L."))
    with catalog.begin() as tx:
        one = tx.apply_changes("people", first, **FEED)
        two = tx.apply_changes("people_history", first, stored_as_scd_type=2, **FEED)
    companions = {"people__tombstones", "people_history__hidden_events"}
    assert set(tx.result.versions) == {"people", "people_history", *companions}
    assert (one.rows_inserted, two.rows_inserted) == (2, 3)
    people, history = catalog.table("people"), catalog.table("people_history")
    assert people.schema.names == ("id", "name", "__SEQUENCE")
    assert _rows(people) == [(1, "Ada L.", 3), (2, "Alan", 1)]
    assert history.schema.names == ("id", "name", "__START_AT", "__END_AT")
    assert _rows(history) == [(1, "Ada L.", 3, None), (1, "Ada", 1, 3), (2, "Alan", 1, None)]
    late = events((1, 2, "U", "Ada K."), (2, 5, "D", None))
    one = people.apply_changes(late, **FEED)
    two = history.apply_changes(late, stored_as_scd_type=2, **FEED)
    assert (one.rows_inserted, one.rows_updated, one.rows_deleted) == (0, 0, 1)
    assert (two.rows_inserted, two.rows_updated, two.rows_deleted) == (1, 2, 0)
    assert _rows(people) == [(1, "Ada L.", 3)]
    assert _rows(history) == [(1, "Ada K.", 2, 3), (1, "Ada L.", 3, None), (1, "Ada", 1, 2), (2, "Alan", 1, 5)]
    version = history.version
    assert history.apply_changes(late, stored_as_scd_type=2, **FEED).rows_changed == 0
    assert history.version == version


def test_a_deleted_key_comes_back_only_by_a_newer_event(catalog: deltars.Catalog, events: Frames) -> None:
    catalog.create_table("t", "id BIGINT, name STRING")
    table = catalog.table("t")
    table.write(pa.table({"id": [1, 9], "name": ["before the feed", "untouched"]}))
    table.apply_changes(events((1, 5, "D", None), (2, 7, "D", None)), **FEED)
    assert _rows(table) == [(9, "untouched", None)]
    tombstones = catalog.table("t__tombstones")
    assert _rows(tombstones) == [(1, 5), (2, 7)]
    table.apply_changes(events((1, 4, "U", "late"), (2, 7, "U", "same moment")), **FEED)
    assert _rows(table) == [(9, "untouched", None)]
    table.apply_changes(events((1, 6, "U", "back"), (2, 6, "D", None), (9, 1, "U", "changed")), **FEED)
    assert _rows(table) == [(1, "back", 6), (9, "changed", 1)]
    assert _rows(tombstones) == [(2, 7)]


def test_nulls_are_ignored_up_to_a_delete(catalog: deltars.Catalog, events: Frames) -> None:
    feed = {**FEED, "ignore_null_updates": True}
    cities = [["Bath", None, "York"], [None, "Hull", None, None]]
    batches = [
        events((1, 10, "U", "a"), (2, 10, "U", "b"), (3, 10, "U", "c"), city=cities[0]),
        # Of key 1 the first event is late; key 2 is deleted in between; key 3 gets a null only.
        events((1, 5, "U", "late"), (1, 12, "U", None), (2, 11, "D", None), (2, 12, "U", None), city=cities[1]),
        events((3, 11, "U", None), city=pa.array([None], pa.string())),
    ]
    for batch in batches:
        with catalog.begin() as tx:
            tx.apply_changes("t", batch, **feed)
            tx.apply_changes("h", batch, stored_as_scd_type=2, **feed)
    assert _rows(catalog.table("t")) == [(1, "a", "Hull", 12), (2, None, None, 12), (3, "c", "York", 11)]
    assert _rows(catalog.table("h")) == [
        (1, "a", "Bath", 10, 12),
        (1, "a", "Hull", 12, None),
        (1, "late", None, 5, 10),
        (2, "b", None, 10, 11),
        (2, None, None, 12, None),
        (3, "c", "York", 10, None),
    ]


@pytest.mark.soak(only=True)
def test_sequences_and_values_of_any_type(catalog: deltars.Catalog, spark: SparkSession) -> None:
    """Two columns order the events; the values hold a map, NaN and zeros of both signs; a key is a double."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        (1.5, moment, 2, {"a": 1}, math.nan, False),
        (1.5, moment, 1, {"a": 1}, 0.0, False),
        (1.5, moment, 3, {"a": 1}, math.nan, False),
        (1.5, moment, 4, {"a": 2}, -0.0, False),
        (-0.0, moment, 1, None, None, False),
        (0.0, moment, 2, None, None, True),
    ]
    columns = "id DOUBLE, ts TIMESTAMP, n INT, m MAP<STRING, INT>, x DOUBLE, gone BOOLEAN"
    frame = spark.createDataFrame(rows, columns).repartition(2)
    feed: dict[str, Any] = {
        "keys": ["ID"],
        "sequence_by": F.struct("ts", "n"),
        "apply_as_deletes": F.col("gone"),
        "column_list": ["id", "m", "x"],
    }
    with catalog.begin() as tx:
        tx.apply_changes("t", frame, **feed)
        for part in (frame.where("n % 2 = 0"), frame.where("n % 2 = 1")):
            tx.apply_changes("h", part, stored_as_scd_type="2", **feed)
    last = {"ts": moment, "n": 4}
    [row] = catalog.table("t").to_arrow().to_pylist()
    assert (row["id"], dict(row["m"]), row["x"], row["__SEQUENCE"]) == (1.5, {"a": 2}, 0.0, last)
    found = catalog.table("h").to_arrow().sort_by("x").to_pylist()
    spans = [(row["id"], row["__START_AT"]["n"], (row["__END_AT"] or {"n": None})["n"]) for row in found]
    assert sorted(spans, key=str) == [(-0.0, 1, 2), (1.5, 1, 2), (1.5, 2, 4), (1.5, 4, None)]


def test_a_batch_is_applied_once(catalog: deltars.Catalog, events: Frames) -> None:
    for _ in range(2):
        with catalog.begin(txn_id="batch-7") as tx:
            tx.apply_changes("t", events((1, 1, "U", "a")), app_id="feed", app_version=7, **FEED)
            tx.apply_changes("h", events((1, 1, "D", None)), stored_as_scd_type=2, **FEED)
    assert set(tx.result.versions) == {"t", "t__tombstones", "h", "h__hidden_events"}
    table = catalog.table("t")
    assert table.apply_changes(events((1, 2, "U", "b")), app_id="feed", app_version=7, **FEED).skipped
    assert not table.apply_changes(events(), app_id="feed", app_version=8, **FEED).skipped
    assert _rows(table) == [(1, "a", 1)]
    assert catalog.table("h").to_arrow().num_rows == 0


def test_bad_input_is_refused_and_changes_nothing(catalog: deltars.Catalog) -> None:
    good = _events((1, 1, "U", "a"))
    with catalog.begin() as tx:
        tx.apply_changes("t", good, **FEED)
        tx.apply_changes("h", good, stored_as_scd_type=2, **FEED)
    cases: list[tuple[str, pa.Table, dict[str, Any], type[Exception], str]] = [
        ("t", _events((None, 2, "U", "a")), {}, ValidationError, "the key id is null in 1 event"),
        ("t", _events((1, None, "U", "a"), (2, None, "U", "a")), {}, ValidationError, "null in 2 events"),
        ("t", _events((1, 2, "U", "a"), (1, 2, "U", "b")), {}, ValidationError, "two different events .*id = 1"),
        ("h", _events((1, 2, "U", None), (1, 2, "D", None)), {"type": 2}, ValidationError, "two different events"),
        ("t", good, {"keys": []}, ValidationError, "at least one column"),
        ("t", good, {"keys": "nope"}, ValidationError, "keys names 'nope'"),
        ("t", good, {"sequence_by": "nope"}, ValidationError, "sequence_by names 'nope'"),
        ("t", good, {"sequence_by": 7}, ValidationError, "sequence_by must be"),
        ("t", good, {"apply_as_deletes": "op ="}, ValidationError, "apply_as_deletes"),
        ("t", good, {"apply_as_deletes": "name"}, ValidationError, "apply_as_deletes"),
        ("t", good, {"apply_as_deletes": 7}, ValidationError, "apply_as_deletes must be a condition"),
        ("t", good, {"column_list": ["id", "name"]}, ValidationError, "exclude each other"),
        ("t", good, {"except_column_list": ["id"]}, ValidationError, "the key id must be a column"),
        ("t", good, {"except_column_list": []}, ValidationError, "no column 'at'"),
        ("t", good, {"type": 2}, ValidationError, "lacks the column __START_AT"),
        ("h", good, {}, ValidationError, "has the column __START_AT"),
        ("t", good, {"type": 3}, ValidationError, "must be 1 or 2"),
        ("t", good, {"track_history_column_list": "name"}, ValidationError, "only an SCD 2 table"),
        ("h", good, {"type": 2, "track_history_column_list": "op"}, ValidationError, "track_history_column_list names"),
        ("t", good, {"ignore_null_updates": "no"}, ValidationError, "True or False"),
        ("t", good.set_column(0, "id", [["x"]]), {}, SchemaMismatch, "id"),
        ("t", good.rename_columns(["id", "at", "op", "__sequence"]), {}, ValidationError, "reserved|no column"),
        ("t", good, {"appid": 1}, TypeError, "appid"),
        ("new", [1], {}, ValidationError, "cannot be written"),
    ]
    with catalog.begin() as tx:
        for name, events, options, error, said in cases:
            given = {**FEED, "stored_as_scd_type": options.get("type", 1), **options}
            given.pop("type", None)
            with pytest.raises(error, match=said):
                tx.apply_changes(name, events, **given)
        tx.apply_changes("t", pa.concat_tables([good, good]), **FEED)
    assert tx.result.versions == {}


def test_half_a_batch_is_never_committed(catalog: deltars.Catalog, events: Frames) -> None:
    """The tombstones refuse the change, after the target was changed; the program goes on as if nothing was wrong."""
    catalog.create_table("t__tombstones", "id BIGINT, __SEQUENCE BIGINT", properties={"delta.appendOnly": "true"})
    tx = catalog.begin()
    with pytest.raises(ValidationError, match="append-only"):
        tx.apply_changes("t", events((1, 1, "U", "a")), **FEED)
    with pytest.raises(ValidationError, match="apply_changes did not finish"):
        tx.commit()
    assert [table.name for table in catalog.tables()] == ["t__tombstones"]


def test_a_late_event_and_a_delete_of_one_key_do_not_both_commit(catalog: deltars.Catalog, events: Frames) -> None:
    with catalog.begin() as tx:
        tx.apply_changes("t", events((7, 1, "U", "x")), **FEED)
    deletes, upserts, other = (catalog.begin(isolation="serializable") for _ in range(3))
    deletes.apply_changes("t", events((1, 5, "D", None)), **FEED)
    upserts.apply_changes("t", events((1, 3, "U", "late")), **FEED)
    other.apply_changes("t", events((2, 3, "U", "other")), **FEED)
    deletes.commit()
    other.commit()
    with pytest.raises(VersionConflict):
        upserts.commit()
    assert _rows(catalog.table("t")) == [(2, "other", 3), (7, "x", 1)]


def test_threads_of_one_transaction_apply_one_after_the_other(catalog: deltars.Catalog) -> None:
    batches = [_events((1, at, "D" if at == 3 else "U", f"n{at}")) for at in range(1, 4)]
    with catalog.begin() as tx:
        threads = [
            threading.Thread(target=tx.apply_changes, args=("h", batch), kwargs={**FEED, "stored_as_scd_type": 2})
            for batch in batches
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert _rows(catalog.table("h")) == [(1, "n1", 1, 2), (1, "n2", 2, 3)]


def test_spark_frames_and_columns_are_applied_by_spark(catalog: deltars.Catalog, spark: SparkSession) -> None:
    """The same events in this process and on Spark make the same tables."""
    rows = _events((1, 5, "U", "b"), (1, 1, "U", "a"), (2, 2, "U", "x"), (2, 4, "D", None), (1, 3, "U", "a"))
    columns = {**FEED, "sequence_by": F.col("at") + 0, "apply_as_deletes": F.col("op") == "D"}
    with catalog.begin() as tx:
        for name, frame, feed in (("here", rows, FEED), ("there", spark.createDataFrame(rows), columns)):
            tx.apply_changes(f"{name}_last", frame, **feed)
            tx.apply_changes(f"{name}_history", frame, stored_as_scd_type=2, **feed)
    for table in ("last", "last__tombstones", "history", "history__hidden_events"):
        here, there = (catalog.table(f"{name}_{table}") for name in ("here", "there"))
        assert here.schema == there.schema
        assert _rows(here) == _rows(there), table
    for wrong, said in ((F.col("nope"), "nope"), (F.create_map("op", "at"), "no order")):
        with pytest.raises(ValidationError, match=said):
            catalog.table("here_last").apply_changes(rows, **{**FEED, "sequence_by": wrong})


def test_small_spark_frames_are_applied_in_this_process(
    catalog: deltars.Catalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("Spark was asked")

    monkeypatch.setattr("deltars.transaction.apply_changes._Application._spark_feed", unexpected)
    events = _events((1, 1, "I", "Ada"), (2, 1, "I", "Alan"), (1, 3, "U", "Ada L."))
    frame = spark.createDataFrame(events)
    for name, one in (("people", frame), ("of_unknown_size", frame.mapInArrow(lambda rows: rows, frame.schema))):
        with catalog.begin() as tx:
            tx.apply_changes(name, one, **FEED)
        assert _rows(catalog.table(name)) == [(1, "Ada L.", 3), (2, "Alan", 1)]


def test_large_spark_frames_are_applied_by_spark(
    catalog: deltars.Catalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltars.spark.change.source.MAX_HELD_ROWS", 10)
    monkeypatch.setattr("deltars.transaction.apply_changes.ArrowFeed", None)
    frame = spark.range(20).repartition(2).selectExpr("id", "id AS at", "'I' AS op", "uuid() AS name")
    catalog.run(lambda tx: tx.apply_changes("people", frame, **FEED))
    assert len(_rows(catalog.table("people"))) == 20


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"keys": "nope"}, "nope"),
        ({"sequence_by": "nope"}, "nope"),
        ({"apply_as_deletes": "nope = 1"}, "nope"),
        ({"apply_as_deletes": "op +"}, "apply_as_deletes"),
    ],
)
def test_mistakes_about_a_spark_frame_are_found_before_a_job_runs(
    catalog: deltars.Catalog, spark: SparkSession, wrong: dict[str, str], said: str
) -> None:
    def fail(_: Any) -> Any:
        raise AssertionError("a job ran")

    frame = spark.createDataFrame(_events((1, 1, "I", "Ada")))
    frame = frame.mapInArrow(fail, frame.schema)
    with pytest.raises(deltars.DeltarsError, match=said), catalog.begin() as tx:
        tx.apply_changes("people", frame, **{**FEED, **wrong})


def test_frames_of_every_kind_need_no_spark(catalog: deltars.Catalog) -> None:
    rows = _events((1, 1, "U", "a"), (2, 1, "U", "b"))
    frames: list[Any] = [rows, rows.to_pandas(), polars.from_arrow(rows), rows.to_reader(), rows.to_batches()[0]]
    for place, frame in enumerate(frames):
        with catalog.begin() as tx:
            tx.apply_changes(f"t{place}", frame, **FEED)
            if not isinstance(frame, pa.RecordBatchReader):  # which is read once
                tx.apply_changes(f"h{place}", frame, stored_as_scd_type=2, **FEED)
        assert _rows(catalog.table(f"t{place}")) == [(1, "a", 1), (2, "b", 1)], type(frame)
    assert isinstance(frames[1], pandas.DataFrame)


def test_program_without_spark_applies_events_and_loads_no_pyspark(migrated_uri: str) -> None:
    program = f"""
import sys, pyarrow as pa, deltars
catalog = deltars.connect({migrated_uri!r})
rows = pa.table({{"id": [1, 1], "at": [1, 2], "v": ["a", "b"]}})
catalog.run(lambda tx: tx.apply_changes("t", rows, keys="id", sequence_by="at", stored_as_scd_type=2))
print(sorted(catalog.table("t").to_arrow()["v"].to_pylist()), "pyspark" in sys.modules)
nested = rows.append_column("s", pa.array([{{"x": 1}}, {{"x": 2}}]))
try:
    catalog.run(lambda tx: tx.apply_changes("u", nested, keys="s", sequence_by="at"))
except deltars.ValidationError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert done.startswith("['a', 'b'] False\nonly Spark can do this: "), done


@pytest.mark.parametrize("type", [1, 2])
def test_batch_without_events_makes_an_empty_table(catalog: deltars.Catalog, type: Any) -> None:
    for _ in range(2):
        with catalog.begin() as tx:
            assert tx.apply_changes("t", _events(), stored_as_scd_type=type, **FEED).rows_changed == 0
    assert (catalog.table("t").count(), catalog.table("t").version) == (0, 0)


def test_values_are_compared_as_spark_compares_them(catalog: deltars.Catalog) -> None:
    """NaN, zeros of both signs, nested values, keys of several columns, and a table with other types."""
    catalog.create_table(
        "h", "Id BIGINT, part STRING, x DOUBLE, s STRUCT<a: ARRAY<DOUBLE>>, __START_AT BIGINT, __END_AT BIGINT"
    )
    rows = [
        (1, "p", 1, math.nan, {"a": [0.0, math.nan]}),
        (1, "p", 2, math.nan, {"a": [-0.0, math.nan]}),
        (1, "p", 3, -0.0, {"a": [1.0]}),
        (1, "p", 4, 0.0, {"a": [1.0]}),
        (1, "q", 1, None, None),
    ]
    columns = dict(zip(("id", "part", "at", "x", "s"), zip(*rows, strict=True), strict=True))
    frame = pa.table({**columns, "id": pa.array(columns["id"], pa.int32()), "at": pa.array(columns["at"], pa.int16())})
    feed: dict[str, Any] = {"keys": ["ID", "part"], "sequence_by": "at", "except_column_list": "at"}
    for part in (frame.slice(3), frame.slice(1, 2), frame.slice(0, 1)):
        catalog.table("h").apply_changes(part, stored_as_scd_type=2, **feed)
    found = catalog.table("h").to_arrow().select(["part", "__START_AT", "__END_AT"]).to_pylist()
    assert sorted(map(str, (tuple(row.values()) for row in found))) == [
        "('p', 1, 3)",
        "('p', 3, None)",
        "('q', 1, None)",
    ]
