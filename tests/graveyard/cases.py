"""Published bugs of Delta Lake, delta-rs, Iceberg, DuckLake and their readers, as cases that every engine can run.

Each names the project and the number of its issue, or of the change that repaired it. It says in our words what went
wrong, and returns what it saw with what it should have seen. Most of the bugs are repaired by now; the cases stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.graveyard.engines import Conflict, Engine, NotOffered

Outcome = tuple[Any, Any]


@dataclass(frozen=True)
class Case:
    """A bug: where it was published, what went wrong, and the steps that show it."""

    project: str
    number: int
    what: str
    run: Callable[[Engine], Outcome]

    @property
    def name(self) -> str:
        return f"{self.project} {self.number}"


CASES: list[Case] = []


def case(project: str, number: int, what: str) -> Callable[[Callable[[Engine], Outcome]], Callable[[Engine], Outcome]]:
    def add(run: Callable[[Engine], Outcome]) -> Callable[[Engine], Outcome]:
        CASES.append(Case(project, number, what, run))
        return run

    return add


def ids(*values: int | None) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def pairs(*rows: tuple[int | None, str | None]) -> pa.Table:
    return pa.table(
        {"id": pa.array([row[0] for row in rows], pa.int64()), "name": pa.array([row[1] for row in rows], pa.string())}
    )


def started(engine: Engine, *frames: pa.Table, **options: Any) -> None:
    """Create the engine's table for the first frame, and append each as a file."""
    engine.create(frames[0].schema, **options)
    for frame in frames:
        engine.append(frame)


# -- rows that a change should not have touched ------------------------------------------------------------------------


@case("delta-rs", 2320, "A merge that updated and inserted lost the rows that matched nothing.")
def merge_keeps_unmatched(engine: Engine) -> Outcome:
    started(engine, pairs(*((number, "old") for number in range(50))))
    engine.upsert(pairs((49, "new"), (50, "new")), "t.id = s.id")
    return engine.rows(), sorted([(number, "old") for number in range(49)] + [(49, "new"), (50, "new")], key=repr)


@case("delta-rs", 2362, "A merge into a table of several files removed files that held no match.")
def merge_keeps_other_files(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a")), pairs((2, "b")), pairs((3, "c")))
    engine.upsert(pairs((2, "B"), (4, "d")), "t.id = s.id")
    return engine.rows(), [(1, "a"), (2, "B"), (3, "c"), (4, "d")]


@case(
    "delta-rs",
    2158,
    "A merge whose condition also tested a column of the target deleted the rows that failed the test.",
)
def merge_with_test_on_target(engine: Engine) -> Outcome:
    started(engine, pairs((1, None), (2, "kept")))
    engine.upsert(
        pairs((1, "set"), (2, "wrong")), "t.id = s.id AND t.name IS NULL", insert=False, set={"name": "s.name"}
    )
    return engine.rows(), [(1, "set"), (2, "kept")]


@case("delta-rs", 4475, "A merge into a file of more than 8,192 rows said that several source rows match.")
def merge_into_large_file(engine: Engine) -> Outcome:
    started(engine, ids(*range(8_200)))
    engine.upsert(ids(8_199, 8_200), "t.id = s.id")
    return len(engine.rows()), 8_201


@case("delta-rs", 4490, "A merge whose condition compared a boolean failed.")
def merge_on_boolean(engine: Engine) -> Outcome:
    frame = pa.table({"id": pa.array([1, 2], pa.int64()), "active": [True, False]})
    started(engine, frame)
    engine.upsert(
        pa.table({"id": pa.array([1, 2], pa.int64()), "active": [False, True]}),
        "t.id = s.id AND t.active = true",
        insert=False,
    )
    return engine.rows(), [(1, False), (2, False)]


@case("delta", 1413, "A merge into files without statistics removed them and added nothing.")
def merge_without_statistics(engine: Engine) -> Outcome:
    frame = pa.table({"id": pa.array([1, 2], pa.int64()), "blob": pa.array([b"x", b"y"])})
    started(engine, frame)
    engine.upsert(pa.table({"id": pa.array([9], pa.int64()), "blob": pa.array([b"y"])}), "t.blob = s.blob")
    return engine.rows(), [(1, b"x"), (9, b"y")]


@case("delta", 482, "A merge whose source was read from its own target set other columns to null.")
def merge_from_itself(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a"), (2, "b"), (3, "c")))
    source = pairs(*[row for row in engine.rows() if row[0] == 2])
    engine.upsert(source, "t.id = s.id", insert=False, delete=True)
    return engine.rows(), [(1, "a"), (3, "c")]


@case("iceberg", 8126, "A merge that deleted rows failed when a remaining row held a null.")
def merge_delete_beside_nulls(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a"), (2, None), (3, None)))
    engine.upsert(pairs((1, "x"), (3, None)), "t.id = s.id", insert=False, delete=True)
    return engine.rows(), [(2, None)]


@case("iceberg-python", 954, "DELETE with a condition also deleted the rows where the column is null.")
def delete_keeps_nulls(engine: Engine) -> Outcome:
    started(engine, ids(1, 2, None))
    engine.delete("id = 2")
    return engine.rows(), [(1,), (None,)]


@case("iceberg-python", 955, "An overwrite by a condition dropped the rows where the column is null.")
def overwrite_keeps_nulls(engine: Engine) -> Outcome:
    started(engine, ids(1, 2, None))
    engine.overwrite(ids(2, 2), "id = 2")
    return engine.rows(), [(1,), (2,), (2,), (None,)]


@case(
    "iceberg-python",
    1020,
    "An overwrite whose condition covered every row of a file left an empty file that broke reads.",
)
def overwrite_of_everything(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a"), (2, "b")))
    engine.overwrite(pairs((3, "c")), "id > 0")
    return (engine.rows(), engine.rows("id = 3")), ([(3, "c")], [(3, "c")])


@case("iceberg-rust", 2780, "Deleting by a value of a nullable column deleted rows that had no value there.")
def delete_by_new_column(engine: Engine) -> Outcome:
    started(engine, ids(1, 2))
    engine.add_column("status", "STRING")
    engine.append(pa.table({"id": pa.array([3], pa.int64()), "status": ["INACTIVE"]}))
    engine.delete("status = 'INACTIVE'")
    return engine.rows(), [(1, None), (2, None)]


@case("databend", 12960, "DELETE with >= deleted nulls.")
def delete_greater_keeps_nulls(engine: Engine) -> Outcome:
    started(engine, ids(1, None))
    engine.delete("id >= 1")
    return engine.rows(), [(None,)]


@case("ducklake", 597, "In one transaction, DELETE after UPDATE removed rows that it did not name.")
def delete_after_update(engine: Engine) -> Outcome:
    engine.create(ids().schema)
    session = engine.begin()
    session.append(ids(1, 2))
    session.update({"id": "3"}, "id = 1")
    session.delete("id = 2")
    seen = session.rows()
    session.commit()
    return (seen, engine.rows()), ([(3,)], [(3,)])


@case("ducklake", 917, "DELETE of an id that several files hold missed rows.")
def delete_of_duplicates(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a"), (2, "a")), pairs((1, "b")), pairs((1, "c"), (3, "c")))
    engine.delete("id = 1")
    return engine.rows(), [(2, "a"), (3, "c")]


@case("iceberg-python", 3758, "An upsert into a partitioned table kept the row it replaced, and doubled another.")
def upsert_into_partitions(engine: Engine) -> Outcome:
    def frame(*rows: tuple[str, int, int]) -> pa.Table:
        return pa.table(
            {
                "k": [row[0] for row in rows],
                "v": pa.array([row[1] for row in rows], pa.int64()),
                "ts": [datetime(2026, 1, row[2]) for row in rows],
            }
        )

    started(engine, frame(("a", 1, 1), ("b", 1, 1), ("c", 1, 2)), partition_by=["k"])
    engine.upsert(frame(("a", 2, 1)), "t.k = s.k")
    return [row[:2] for row in engine.rows()], [("a", 2), ("b", 1), ("c", 1)]


@case("iceberg-python", 3105, "An upsert after a column was added failed.")
def upsert_after_new_column(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a"), (2, "b")))
    engine.add_column("ping", "STRING")
    frame = pa.table({"id": pa.array([2, 3], pa.int64()), "name": ["B", "c"], "ping": ["x", "y"]})
    engine.upsert(frame, "t.id = s.id")
    return engine.rows(), [(1, "a", None), (2, "B", "x"), (3, "c", "y")]


@case("iceberg-python", 1759, "An upsert of a few thousand keys exceeded the recursion limit.")
def upsert_of_many_keys(engine: Engine) -> Outcome:
    started(engine, ids(*range(0, 6_000, 2)))
    engine.upsert(ids(*range(5_000)), "t.id = s.id")
    return len(engine.rows()), 5_500


# -- deletion vectors --------------------------------------------------------------------------------------------------


@case("trino", 21737, "A deletion vector of a partitioned table hid every row.")
def vector_in_partition(engine: Engine) -> Outcome:
    started(
        engine,
        pa.table({"id": pa.array([1, 2], pa.int64()), "part": pa.array([1, 1], pa.int64())}),
        partition_by=["part"],
        vectors=True,
    )
    engine.delete("id = 1")
    return engine.rows(), [(2, 1)]


@case("trino", 24648, "A second DELETE from a file forgot the rows of its first deletion vector.")
def vector_upon_vector(engine: Engine) -> Outcome:
    started(engine, ids(1, 2, 3, 4), vectors=True)
    engine.delete("id = 1")
    engine.delete("id = 3")
    return engine.rows(), [(2,), (4,)]


@case("trino", 23229, "The deletion vector of a whole file was one row too long.")
def vector_of_last_row(engine: Engine) -> Outcome:
    started(engine, ids(*range(10)), vectors=True)
    engine.delete("id = 9")
    engine.append(ids(99))
    return engine.rows()[-1], (99,)


@case("duckdb-iceberg", 691, "A filter for nulls brought deleted rows back.")
def deleted_rows_stay_deleted(engine: Engine) -> Outcome:
    started(engine, pairs((1, None), (2, None), (3, "x")), vectors=True)
    engine.delete("id = 1")
    return engine.rows("name IS NULL"), [(2, None)]


@case("delta-kernel-rs", 669, "A checkpoint of files without deletion vectors was read as if they had some.")
def checkpoint_without_vectors(engine: Engine) -> Outcome:
    started(engine, ids(1))
    engine.checkpoint()
    engine.append(ids(2))
    return engine.rows(), [(1,), (2,)]


# -- files that a filter should not have skipped -----------------------------------------------------------------------


def _moments(engine: Engine, *, checkpoint: bool) -> Outcome:
    latest = datetime(2023, 3, 30, 0, 0, 0, 902, tzinfo=UTC)
    frame = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "ts": pa.array([latest - timedelta(seconds=1), latest], pa.timestamp("us", "UTC")),
        }
    )
    started(engine, frame)
    if checkpoint:
        engine.checkpoint()
    found = engine.rows("ts >= TIMESTAMP '2023-03-30 00:00:00.000902+00:00'")
    return [row[0] for row in found], [2]


@case("delta-rs", 2571, "A checkpoint cut the maximum of timestamps to milliseconds, so that filters skipped the file.")
def microseconds_in_checkpoint(engine: Engine) -> Outcome:
    return _moments(engine, checkpoint=True)


@case("delta", 7444, "The upper bound of timestamps was below their maximum, so that filters skipped the file.")
def microseconds_in_statistics(engine: Engine) -> Outcome:
    return _moments(engine, checkpoint=False)


@case("delta-rs", 3133, "Merges after a checkpoint inserted again what was there, because the file was skipped.")
def merge_after_checkpoint(engine: Engine) -> Outcome:
    latest = datetime(2025, 1, 16, 10, 23, 58, 301_999, tzinfo=UTC)
    frame = pa.table(
        {"key": ["A"], "since": pa.array([latest], pa.timestamp("us", "UTC")), "value": pa.array([0], pa.int64())}
    )
    started(engine, frame)
    engine.checkpoint()
    engine.upsert(frame.set_column(2, "value", pa.array([1], pa.int64())), "t.key = s.key AND t.since = s.since")
    engine.compact()
    return [row[2] for row in engine.rows()], [1]


@case("iceberg", 9130, "A filter col > x skipped files whose only matches are NaN.")
def nan_is_greater(engine: Engine) -> Outcome:
    def frame(*values: float) -> pa.Table:
        return pa.table({"id": pa.array(range(len(values)), pa.int64()), "x": pa.array(values, pa.float64())})

    started(engine, frame(1.0, math.nan), frame(5.0, math.nan))
    return len(engine.rows("x > 3")), 3


@case("iceberg-python", 3921, "A NaN as the upper bound of a file was taken for a proof that every row passes NOT IN.")
def nan_is_no_proof(engine: Engine) -> Outcome:
    started(engine, pa.table({"id": pa.array([1, 2], pa.int64()), "x": [1.0, math.nan]}))
    engine.delete("x NOT IN (1.0, 2.0)")
    return [row[0] for row in engine.rows()], [1]


@case("polars", 29462, "Equal negative bounds of decimals made a filter return nothing.")
def negative_decimals(engine: Engine) -> Outcome:
    five = Decimal("-5.00")
    started(engine, pa.table({"x": pa.array([five] * 3, pa.decimal128(5, 2))}))
    return tuple(len(engine.rows(f"x {how}")) for how in ("= -5.00", "< 0", "<= -5.00", "> -5.00")), (3, 3, 3, 0)


@case("ducklake", 867, "Statistics that were null were replaced by those of another table.")
def statistics_of_nulls(engine: Engine) -> Outcome:
    started(engine, pairs((1, None), (2, None)), pairs((3, "m")))
    return (engine.rows("name = 'm'"), len(engine.rows("name IS NULL"))), ([(3, "m")], 2)


@case("ducklake", 1041, "Files of a partition with a null were read wrongly by a filter on it.")
def null_partition(engine: Engine) -> Outcome:
    started(
        engine, pa.table({"pk": pa.array([0, 1, None, 1], pa.int64()), "v": ["a", "b", "c", "d"]}), partition_by=["pk"]
    )
    return (engine.rows("pk = 1"), engine.rows("pk IS NULL"), len(engine.rows("pk IS NOT NULL"))), (
        [(1, "b"), (1, "d")],
        [(None, "c")],
        3,
    )


@case("ducklake", 470, "A filter with OR or IN read every partition. It may skip some, and must find all rows.")
def several_partitions(engine: Engine) -> Outcome:
    started(engine, pa.table({"p": ["a", "b", "c", "d"], "v": pa.array([1, 2, 3, 4], pa.int64())}), partition_by=["p"])
    return (engine.rows("p = 'a' OR p = 'c'"), engine.rows("p IN ('b', 'd')")), (
        [("a", 1), ("c", 3)],
        [("b", 2), ("d", 4)],
    )


# -- partition values --------------------------------------------------------------------------------------------------


def _partitions(engine: Engine, values: list[str], column: str = "p") -> Outcome:
    frame = pa.table({column: values, "v": pa.array(range(len(values)), pa.int64())})
    started(engine, frame, partition_by=[column])
    found = engine.rows()
    quoted = f"`{column}`" if engine.name == "deltars" else f'"{column}"'
    one = [len(engine.rows(f"{quoted} = '{value}'")) for value in values]
    return (sorted(found), one), (sorted(zip(values, range(len(values)), strict=True)), [1] * len(values))


@case("delta-rs", 433, "Partition values with a slash or a blank were not found again.")
def slash_and_blank(engine: Engine) -> Outcome:
    return _partitions(engine, ["A/A", "B B"])


@case("delta-rs", 1299, "A partition value with & was not found again.")
def ampersand(engine: Engine) -> Outcome:
    return _partitions(engine, ["R&D", "Commerce"])


@case("delta-rs", 1896, "A partition value that looks encoded was encoded a second time.")
def colons_and_percent(engine: Engine) -> Outcome:
    return _partitions(engine, ["2023-11-05 00:00:00", "2023-11-05 00%3A00%3A00"])


@case("delta-rs", 3577, "Partition values with reserved or non-ASCII characters lost their slashes.")
def reserved_characters(engine: Engine) -> Outcome:
    return _partitions(engine, ["/a/", "ü#?{}[]", "日本", "100%"])


@case("delta", 2280, "Partitions with brackets were left out by a reader.")
def brackets(engine: Engine) -> Outcome:
    return _partitions(engine, ["product 1", "product 1 (beta)", "product 4 [alpha]"])


@case("delta-rs", 495, "A partition column whose name looks encoded was read as null.")
def encoded_column_name(engine: Engine) -> Outcome:
    return _partitions(engine, ["1", "2"], column="x%20x")


@case("delta-rs", 4352, "Repeated merges into a partition with encoded characters doubled its rows.")
def merge_into_encoded_partition(engine: Engine) -> Outcome:
    frame = pa.table({"p": ["a b/c%"], "id": pa.array([1], pa.int64())})
    started(engine, frame, partition_by=["p"])
    for _ in range(2):
        engine.upsert(frame, "t.p = s.p AND t.id = s.id")
    return engine.rows(), [("a b/c%", 1)]


@case("delta-rs", 3939, "Overwriting a partition whose value has a blank failed.")
def overwrite_encoded_partition(engine: Engine) -> Outcome:
    def frame(value: int) -> pa.Table:
        return pa.table({"p": ["profile 1"], "v": pa.array([value], pa.int64())})

    started(engine, frame(1), partition_by=["p"])
    engine.overwrite(frame(2), "p = 'profile 1'")
    return engine.rows(), [("profile 1", 2)]


@case("delta-rs", 3139, "An overwrite by a condition on strings failed for some Arrow string types.")
def overwrite_by_large_string(engine: Engine) -> Outcome:
    frame = pa.table({"c": pa.array(["a", "b"], pa.large_string()), "v": pa.array([1, 2], pa.int64())})
    started(engine, frame)
    engine.overwrite(frame.slice(0, 1).set_column(1, "v", pa.array([9], pa.int64())), "c = 'a'")
    return engine.rows(), [("a", 9), ("b", 2)]


@case("delta-rs", 3959, "An overwrite by a condition failed when the frame was empty.")
def overwrite_by_nothing(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a"), (2, "b")))
    engine.overwrite(pairs((1, "a")).slice(0, 0), "id = 1")
    return engine.rows(), [(2, "b")]


@case(
    "delta",
    1147,
    "An overwrite by a condition refused rows for some conditions and not for others. It must refuse each row outside.",
)
def overwrite_outside_condition(engine: Engine) -> Outcome:
    if engine.name == "DuckLake":
        raise NotOffered  # it has DELETE and INSERT in one transaction, and no overwrite by a condition
    started(engine, ids(1, 2))
    try:
        engine.overwrite(ids(5), "id = 1")
    except Exception:
        return engine.rows(), [(1,), (2,)]
    return "accepted", "refused"


# -- maintenance -------------------------------------------------------------------------------------------------------


@case("delta-rs", 3911, "A vacuum after a compaction reported files that it did not delete.")
def vacuum_after_compaction(engine: Engine) -> Outcome:
    started(engine, ids(1), ids(2))
    engine.compact()
    removed = [path for path in engine.vacuum() if path.endswith(".parquet")]
    return (len(removed), len([path for path in engine.vacuum() if path.endswith(".parquet")]), engine.rows()), (
        2,
        0,
        [(1,), (2,)],
    )


@case("delta-rs", 3644, "After several compactions a vacuum forgot the files of the older ones.")
def vacuum_after_compactions(engine: Engine) -> Outcome:
    started(engine, ids(1), ids(2))
    engine.compact()
    engine.append(ids(3))
    engine.compact()
    return len([path for path in engine.vacuum() if path.endswith(".parquet")]), 4


@case("delta-rs", 2016, "Cleaning the log after checkpoints made the table unreadable.")
def checkpoints_and_vacuum(engine: Engine) -> Outcome:
    started(engine, ids(1))
    engine.checkpoint()
    for number in range(2, 5):
        engine.append(ids(number))
    engine.compact()
    engine.vacuum()
    return engine.rows(), [(1,), (2,), (3,), (4,)]


@case("feldera", 7061, "A compaction of a table with deletion vectors brought deleted rows back.")
def compaction_of_vectors(engine: Engine) -> Outcome:
    started(engine, ids(1, 2, 3), ids(4, 5, 6), vectors=True)
    engine.delete("id IN (2, 5)")
    engine.compact()
    return engine.rows(), [(1,), (3,), (4,), (6,)]


@case("ducklake", 660, "A compaction after a column was renamed failed, or wrote both names.")
def compaction_after_rename(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a")))
    engine.rename_column("name", "label")
    engine.append(pa.table({"id": pa.array([2], pa.int64()), "label": ["b"]}))
    engine.compact()
    return engine.rows("label = 'b'") + engine.rows("label = 'a'"), [(2, "b"), (1, "a")]


@case("ducklake", 1137, "Renaming a column written in other letter case corrupted the transaction.")
def rename_in_other_case(engine: Engine) -> Outcome:
    started(engine, pa.table({"id": pa.array([1], pa.int64()), "MyCol": ["a"]}))
    try:
        engine.rename_column("mycol", "newname")
    except NotOffered:
        raise
    except Exception as error:
        if "INTERNAL" in str(error):
            return "internal error", "renamed or refused"
    return engine.rows(), [(1, "a")]


@case(
    "datafusion-ducklake",
    254,
    "Columns that swapped their names in three steps could not be read at the steps between.",
)
def swapped_names(engine: Engine) -> Outcome:
    started(engine, pa.table({"x": ["in-x"], "y": ["in-y"]}))
    for name, new_name in (("x", "tmp"), ("y", "x"), ("tmp", "y")):
        engine.rename_column(name, new_name)
    return engine.rows("y = 'in-x' AND x = 'in-y'"), [("in-x", "in-y")]


# -- two writers -------------------------------------------------------------------------------------------------------


def _both(engine: Engine, first: Callable[[Any], None], second: Callable[[Any], None]) -> str:
    """Run two transactions that began at the same state. Return which of them committed."""
    one, two = engine.begin(), engine.begin()
    first(one)
    try:
        second(two)
        one.commit()
        two.commit()
    except Conflict:
        return "first"
    except Exception as error:
        if "conflict" in str(error).lower():
            one.commit()
            return "first"
        raise
    return "both"


@case("ducklake", 1393, "Two upserts of one new key, each DELETE of nothing then INSERT, both committed.")
def two_upserts_of_a_new_key(engine: Engine) -> Outcome:
    started(engine, ids(9))

    def upsert(session: Any) -> None:
        session.delete("id = 1")
        session.append(ids(1))

    return (_both(engine, upsert, upsert), engine.rows()), ("first", [(1,), (9,)])


@case("ducklake", 906, "Two upserts of one key that was there both committed, and the key was there twice.")
def two_upserts_of_a_key(engine: Engine) -> Outcome:
    started(engine, ids(1, 9))

    def upsert(session: Any) -> None:
        session.delete("id = 1")
        session.append(ids(1))

    return (_both(engine, upsert, upsert), engine.rows()), ("first", [(1,), (9,)])


@case("ducklake", 1215, "Two transactions deleted the same row, one of them among many others. The row came back.")
def two_deletes_of_a_row(engine: Engine) -> Outcome:
    started(engine, ids(*range(100)))
    outcome = _both(engine, lambda one: one.delete("id = 5"), lambda two: two.delete("id < 50"))
    return (outcome in ("first", "both"), [row for row in engine.rows() if row == (5,)]), (True, [])


@case("duckdb", 17223, "UPDATE and DELETE of the same row by two transactions both committed.")
def update_against_delete(engine: Engine) -> Outcome:
    started(engine, pairs((1, "a"), (2, "b")))
    outcome = _both(engine, lambda one: one.update({"name": "'x'"}, "id = 1"), lambda two: two.delete("id = 1"))
    return (outcome, engine.rows()), ("first", [(1, "x"), (2, "b")])


@case("iceberg-python", 2001, "Two appends at once: the second one failed, though they touch nothing in common.")
def two_appends(engine: Engine) -> Outcome:
    started(engine, ids(0))
    one, two = engine.begin(), engine.begin()
    one.append(ids(1))
    two.append(ids(2))
    one.commit()
    try:
        two.commit()
    except Conflict:
        engine.append(ids(2))
    return engine.rows(), [(0,), (1,), (2,)]


@case("iceberg", 14093, "A write that began before a column was added took the column away again.")
def append_against_new_column(engine: Engine) -> Outcome:
    started(engine, ids(1))
    session = engine.begin()
    session.append(ids(2))
    engine.add_column("extra", "STRING")
    try:
        session.commit()
    except Conflict:
        engine.append(ids(2))
    return engine.rows(), [(1, None), (2, None)]


@case("ducklake", 1472, "A DELETE that began before a compaction committed after it, and its rows stayed.")
def delete_against_compaction(engine: Engine) -> Outcome:
    started(engine, ids(1), ids(2))
    session = engine.begin()
    engine.compact()
    session.delete("id = 1")
    try:
        session.commit()
    except Conflict:
        engine.delete("id = 1")
    return engine.rows(), [(2,)]


@case("delta", 4776, "A table partitioned by a date could not be overwritten a second time.")
def second_overwrite(engine: Engine) -> Outcome:
    def frame(name: str) -> pa.Table:
        return pa.table({"day": [date(2026, 1, 1)], "name": [name]})

    started(engine, frame("a"), partition_by=["day"])
    for name in ("b", "c"):
        engine.overwrite(frame(name), "day = DATE '2026-01-01'")
    return engine.rows(), [(date(2026, 1, 1), "c")]
