"""One transaction used by many threads: nothing is lost, and the result is that of some order of the calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pytest

import deltars
from deltars.errors import SourceConsumed, TableExists, TransactionClosed, ValidationError
from deltars.transaction import open_transaction, plane
from tests.support.lake import Lake, OpenLake
from tests.support.log import added
from tests.support.soak import record, scaled, seed
from tests.support.together import Meanwhile

T = TypeVar("T")

THREADS = 24


def together(calls: list[Callable[[], T]]) -> list[T | BaseException]:
    """What each call returned or raised; all begin at the same moment."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T | BaseException:
        start.wait(30)
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def done(calls: list[Callable[[], T]]) -> list[T]:
    answers = together(calls)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers  # type: ignore[return-value]


def ids(catalog: deltars.Catalog, table: str) -> list[int]:
    return sorted(catalog.table(table).to_arrow(columns=["id"])["id"].to_pylist())


def _table_uri(catalog_uri: str, table: str) -> str:
    path, _, query = catalog_uri.partition("?")
    return f"{path}/{table}" + (f"?{query}" if query else "")


class Gate:
    """A frame whose rows wait: `reached` once the first is asked for, and there when `open` is set."""

    def __init__(self, *numbers: int, **columns: list[Any]) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self._table = pa.table({"id": pa.array(numbers, pa.int64()), **columns})

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._table.schema, self._batches())

    def __arrow_c_schema__(self) -> object:
        return self._table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A source that can be read again."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self.reached.set()
        assert self.open.wait(30)
        yield from self._table.to_batches()


# -- nothing is lost ---------------------------------------------------------------------------------------------------


def test_threads_that_write_one_table_lose_no_frame(lake: Lake) -> None:
    tx = lake.begin()
    done([partial(tx.write, "a", pa.table({"id": [n]})) for n in range(THREADS)])
    assert tx.commit().versions == {"a": 1}
    assert ids(lake.catalog, "a") == list(range(THREADS))


def test_threads_that_write_different_tables_lose_none(open_lake: OpenLake) -> None:
    names = [f"t{number}" for number in range(THREADS)]
    lake = open_lake(*names[::2])  # the others are created by the transaction
    tx = lake.begin(max_tables=THREADS)
    done([partial(tx.write, name, pa.table({"id": [1]})) for name in names])
    assert tx.commit().versions.keys() == set(names)
    assert all(ids(lake.catalog, name) == [1] for name in names)


def test_unbound_transaction_binds_once_however_many_threads_come_first(lake: Lake) -> None:
    tables = [_table_uri(lake.uri, name) for name in "abc" * 4]
    for number in range(3):
        tx, frame = deltars.begin(), pa.table({"id": [number]})
        done([partial(tx.write, table, frame) for table in tables])
        assert tx.commit().versions == dict.fromkeys("abc", number + 1)
    for name in "abc":
        assert Counter(ids(lake.catalog, name)) == dict.fromkeys(range(3), 4)


@pytest.mark.backends("sqlite")
def test_threads_that_stage_actions_lose_none(lake: Lake) -> None:
    tx = lake.begin()
    done([partial(tx.stage, "ab"[n % 2], [added(f"{n}")]) for n in range(THREADS)])
    tx.commit()
    assert sorted(map(int, lake["a"].live() + lake["b"].live())) == list(range(THREADS))


@pytest.mark.backends("sqlite")
def test_table_created_by_many_threads_at_once_is_one_with_all_their_frames(lake: Lake) -> None:
    tx = lake.begin()
    done([partial(tx.write, "new", pa.table({"id": [n]})) for n in range(THREADS)])
    assert tx.commit().versions == {"new": 0}
    assert ids(lake.catalog, "new") == list(range(THREADS))


@pytest.mark.backends("sqlite")
def test_table_created_by_many_threads_at_once_takes_readers_that_cannot_be_read_again(lake: Lake) -> None:
    tx = lake.begin()
    readers = [pa.table({"id": [n]}).to_reader() for n in range(8)]
    done([partial(tx.write, "no plain name", reader) for reader in readers])
    tx.commit()
    assert ids(lake.catalog, "no plain name") == list(range(8))


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(("mode", "errors"), [("error", THREADS - 1), ("ignore", 0)])
def test_of_threads_that_create_a_table_unless_it_exists_one_does(
    lake: Lake, mode: deltars.WriteMode, errors: int
) -> None:
    tx = lake.begin()
    answers = together([partial(tx.write, "new", pa.table({"id": [n]}), mode) for n in range(THREADS)])
    assert sum(isinstance(answer, TableExists) for answer in answers) == errors
    assert sum(answer is None for answer in answers) == THREADS - errors
    tx.commit()
    assert len(ids(lake.catalog, "new")) == 1


@pytest.mark.backends("sqlite")
def test_application_writes_its_version_once_however_many_threads_try(lake: Lake) -> None:
    tx = lake.begin()
    write = partial(tx.write, "a", app_id="job", app_version=7)
    done([partial(write, pa.table({"id": [n]})) for n in range(THREADS)])
    result = tx.commit()
    assert len(ids(lake.catalog, "a")) == 1
    assert len(result.skipped) == THREADS - 1


@pytest.mark.backends("sqlite")
def test_alterations_and_rows_of_many_threads_are_all_there(lake: Lake) -> None:
    tx = lake.begin()

    def work(number: int) -> None:
        if number % 2:
            tx.alter("a").add_columns(f"c{number} STRING")
        else:
            tx.write("a", pa.table({"id": [number]}))

    done([partial(work, n) for n in range(THREADS)])
    tx.commit()
    assert ids(lake.catalog, "a") == list(range(0, THREADS, 2))
    names = set(lake.catalog.table("a").schema.names)
    assert names >= {f"c{number}" for number in range(1, THREADS, 2)}


@pytest.mark.backends("sqlite")
def test_columns_that_many_threads_merge_are_all_there(lake: Lake) -> None:
    tx = lake.begin()
    frames = [pa.table({"id": [n], f"c{n % 3}": [n], "shared": [n]}) for n in range(THREADS)]
    done([partial(tx.write, "a", frame, merge_schema=True) for frame in frames])
    tx.commit()
    rows = lake.catalog.table("a").to_arrow().to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(THREADS))
    for row in rows:
        assert row["shared"] == row[f"c{row['id'] % 3}"] == row["id"]


@pytest.mark.backends("sqlite")
def test_merged_columns_of_many_threads_have_one_physical_name(lake: Lake) -> None:
    lake.catalog.write("mapped", pa.table({"id": [-1]}), properties={"delta.columnMapping.mode": "name"})
    tx = lake.begin()
    frames = [pa.table({"id": [n], "more": [n]}) for n in range(8)]
    done([partial(tx.write, "mapped", frame, merge_schema=True) for frame in frames])
    tx.commit()
    rows = lake.catalog.table("mapped").to_arrow().to_pylist()
    assert sorted((row["id"], row["more"]) for row in rows if row["id"] >= 0) == [(n, n) for n in range(8)]


# -- some order --------------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
def test_overwriting_replaces_what_another_thread_staged_while_its_rows_were_written(lake: Lake) -> None:
    lake.catalog.write("a", pa.table({"id": [1]}))
    tx, gate = lake.begin(), Gate(3)
    overwriting = Meanwhile(tx.write, "a", gate.reader(), "overwrite")
    assert gate.reached.wait(30)
    tx.write("a", pa.table({"id": [2]}))
    gate.open.set()
    overwriting.result()
    tx.commit()
    assert ids(lake.catalog, "a") == [3]


@pytest.mark.backends("sqlite")
def test_replace_where_replaces_what_another_thread_staged_meanwhile(lake: Lake) -> None:
    lake.catalog.write("a", pa.table({"id": [1, 11]}))
    tx, gate = lake.begin(), Gate(13)
    overwriting = Meanwhile(tx.write, "a", gate.reader(), "overwrite", replace_where="id > 10")
    assert gate.reached.wait(30)
    tx.write("a", pa.table({"id": [2, 12]}))
    gate.open.set()
    overwriting.result()
    tx.commit()
    assert ids(lake.catalog, "a") == [1, 2, 13]


@pytest.mark.backends("sqlite")
def test_dynamic_overwriting_replaces_the_partitions_that_another_thread_wrote_meanwhile(lake: Lake) -> None:
    lake.catalog.write("p", pa.table({"id": [1, 2], "k": ["x", "y"]}), partition_by="k")
    tx, gate = lake.begin(), Gate(5, k=["x"])
    overwriting = Meanwhile(tx.write, "p", gate.reader(), "overwrite", partition_overwrite="dynamic")
    assert gate.reached.wait(30)
    tx.write("p", pa.table({"id": [3, 4], "k": ["x", "y"]}))
    gate.open.set()
    overwriting.result()
    tx.commit()
    assert ids(lake.catalog, "p") == [2, 4, 5]


@pytest.mark.backends("sqlite")
def test_append_that_ends_after_the_schema_was_replaced_is_judged_by_the_new_one(lake: Lake) -> None:
    tx, gate = lake.begin(), Gate(1)
    appending = Meanwhile(tx.write, "a", gate)
    assert gate.reached.wait(30)
    tx.write("a", pa.table({"other": ["x"]}), "overwrite", overwrite_schema=True)
    gate.open.set()
    assert isinstance(appending.error(), deltars.SchemaMismatch)
    tx.commit()
    assert lake.catalog.table("a").to_arrow().to_pylist() == [{"other": "x"}]


@pytest.mark.backends("sqlite")
def test_rows_are_written_again_for_a_constraint_that_another_thread_added(lake: Lake) -> None:
    tx, good, bad = lake.begin(), Gate(5), Gate(-5)
    writers = [Meanwhile(tx.write, "a", gate) for gate in (good, bad)]
    assert good.reached.wait(30)
    assert bad.reached.wait(30)
    tx.alter("a").add_constraint("positive", "id > 0")
    good.open.set()
    bad.open.set()
    writers[0].result()
    assert "positive" in str(writers[1].error())
    tx.commit()
    assert ids(lake.catalog, "a") == [5]


@pytest.mark.backends("sqlite")
def test_reader_that_cannot_be_read_again_is_refused_where_the_table_changed_meanwhile(lake: Lake) -> None:
    tx, gate = lake.begin(), Gate(5)
    writing = Meanwhile(tx.write, "a", gate.reader())
    assert gate.reached.wait(30)
    tx.alter("a").add_constraint("positive", "id > 0")
    gate.open.set()
    error = writing.error()
    assert isinstance(error, SourceConsumed)
    assert "another thread of this transaction changed the table" in str(error)
    tx.write("a", pa.table({"id": [6]}))
    tx.commit()
    assert ids(lake.catalog, "a") == [6]


@pytest.mark.backends("sqlite")
def test_new_table_with_other_partitions_in_another_thread_is_refused(lake: Lake) -> None:
    tx, gate = lake.begin(), Gate(1, k=["x"])
    writing = Meanwhile(tx.write, "new", gate, partition_by=["k"])
    assert gate.reached.wait(30)
    tx.write("new", pa.table({"id": [2], "k": ["y"]}))
    gate.open.set()
    error = writing.error()
    assert isinstance(error, ValidationError)
    assert error.field == "partition_by"
    tx.commit()
    assert ids(lake.catalog, "new") == [2]


@pytest.mark.backends("sqlite")
def test_constraint_is_checked_against_rows_that_another_thread_stages_meanwhile(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.catalog.write("a", pa.table({"id": [1]}))
    tx = lake.begin()
    seen: list[int] = []
    original = plane.any_breaks

    def late(scan: Any, condition: str) -> bool:
        answer = original(scan, condition)
        if not seen:
            seen.append(1)
            Meanwhile(tx.write, "a", pa.table({"id": [-1]})).result()
        return answer

    monkeypatch.setattr(open_transaction, "any_breaks", late)
    with pytest.raises(ValidationError, match="positive"):
        tx.alter("a").add_constraint("positive", "id > 0")
    tx.commit()
    assert ids(lake.catalog, "a") == [-1, 1]


@pytest.mark.backends("sqlite")
def test_threads_may_read_while_others_write(lake: Lake) -> None:
    tx = lake.begin()

    def work(number: int) -> int:
        if number % 2:
            return len(tx.files("a", "id >= 0"))
        tx.write("a", pa.table({"id": [number]}))
        return -1

    counts = done([partial(work, n) for n in range(THREADS)])
    assert all(-1 <= count <= THREADS // 2 for count in counts)
    tx.commit()
    assert ids(lake.catalog, "a") == list(range(0, THREADS, 2))


@pytest.mark.soak
@pytest.mark.backends("sqlite")
def test_appends_and_overwrites_of_many_threads_come_out_as_in_the_order_that_history_tells(lake: Lake) -> None:
    rounds, lot = scaled(4, soak=300), Random(seed())
    for _ in range(rounds):
        choices: list[deltars.WriteMode] = ["append", "append", "overwrite"]
        tx, modes = lake.begin(), [lot.choice(choices) for _ in range(12)]
        done([partial(tx.write, "a", pa.table({"id": [n]}), mode) for n, mode in enumerate(modes)])
        tx.commit()
        [entry, *_] = lake.catalog.table("a").history(limit=1)
        order = [step["parameters"]["mode"].lower() for step in entry.operation_params["operations"]]
        assert sorted(order) == sorted(modes)
        found = ids(lake.catalog, "a")
        last = max((at for at, mode in enumerate(order) if mode == "overwrite"), default=None)
        if last is not None:
            assert len(found) == len(order) - last
            assert [modes[n] for n in found].count("overwrite") == 1
        lake.catalog.write("a", pa.table({"id": pa.array([], pa.int64())}), "overwrite")
    record("threads of one transaction", rounds=rounds, threads=12)


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_write_that_finishes_after_the_end_is_refused_and_is_nowhere(lake: Lake, end: str) -> None:
    tx, gate = lake.begin(), Gate(2)
    tx.write("a", pa.table({"id": [1]}))
    writing = Meanwhile(tx.write, "a", gate)
    assert gate.reached.wait(30)
    getattr(tx, end)()
    gate.open.set()
    assert isinstance(writing.error(), TransactionClosed)
    assert ids(lake.catalog, "a") == ([1] if end == "commit" else [])
    assert f"{tx.id} {'committed' if end == 'commit' else 'rolled back'}:" in repr(tx)


@pytest.mark.backends("sqlite")
def test_commit_that_leaves_writes_of_other_threads_behind_says_so(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    tx, gate = lake.begin(), Gate(2)
    writing = Meanwhile(tx.write, "a", gate)
    assert gate.reached.wait(30)
    tx.commit()
    gate.open.set()
    assert isinstance(writing.error(), TransactionClosed)
    assert "1 write was still running" in caplog.text


@pytest.mark.every_case_on("sqlite")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_writers_racing_the_end_are_in_it_or_refused(lake: Lake, end: str) -> None:
    tx = lake.begin()

    def write(number: int) -> int:
        tx.write("ab"[number % 2], pa.table({"id": [number]}))
        return number

    calls: list[Callable[[], Any]] = [partial(write, n) for n in range(16)]
    answers = together([*calls, getattr(tx, end)])
    written = [answer for answer in answers[:16] if isinstance(answer, int)]
    refused = [answer for answer in answers[:16] if isinstance(answer, TransactionClosed)]
    assert len(written) + len(refused) == 16
    there = ids(lake.catalog, "a") + ids(lake.catalog, "b")
    assert sorted(there) == (sorted(written) if end == "commit" else [])


def test_of_two_threads_that_commit_one_does_and_the_other_is_told(lake: Lake) -> None:
    tx = lake.begin()
    tx.stage("a", [added("1")])
    answers = together([tx.commit, tx.commit, tx.commit])
    results = [answer for answer in answers if isinstance(answer, deltars.TransactionResult)]
    assert len(results) == 1
    assert sum(isinstance(answer, TransactionClosed) for answer in answers) == 2
    assert tx.result == results[0]
    assert lake["a"].live() == ["1"]


@pytest.mark.backends("sqlite")
def test_read_that_comes_after_the_end_is_refused(lake: Lake) -> None:
    tx = lake.begin()
    calls: list[Callable[[], Any]] = [*[partial(tx.files, "a")] * 8, tx.rollback]
    answers = together(calls)
    assert all(isinstance(answer, pa.Table | TransactionClosed) or answer is None for answer in answers)


# -- what threads share besides ----------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
def test_parts_of_a_catalog_are_made_once(lake: Lake) -> None:
    with deltars.connect(lake.uri) as catalog:
        for name in ("registry", "reader", "cuts", "writer", "publisher"):
            parts = done([partial(getattr, catalog._session, name)] * THREADS)
            assert len({id(part) for part in parts}) == 1


def test_many_transactions_of_one_catalog_at_once(lake: Lake) -> None:
    def append(number: int) -> None:
        with lake.begin(isolation="serializable") as tx:
            tx.write("a", pa.table({"id": [number]}))
            tx.write("b", pa.table({"id": [number]}))

    done([partial(append, n) for n in range(12)])
    assert ids(lake.catalog, "a") == ids(lake.catalog, "b") == list(range(12))
