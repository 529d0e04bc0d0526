"""Sources that can be read only once: a second use is refused by name, and never an empty write."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import deltars
from deltars.data import sources
from deltars.errors import SchemaMismatch, SourceConsumed
from tests.support.lake import Lake
from tests.support.together import Meanwhile

pytestmark = pytest.mark.backends("sqlite")

FRAME = pa.table({"id": [1, 2, 3]})


def ids(lake: Lake, table: str) -> list[int]:
    return sorted(lake.catalog.table(table).to_arrow(columns=["id"])["id"].to_pylist())


class OneShot:
    """As a database driver's result: one capsule, no iterator, and nothing but errors afterwards."""

    def __init__(self, frame: pa.Table) -> None:
        self._capsule = frame.to_reader().__arrow_c_stream__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._capsule


class Drained:
    """A stream that is empty once it was read, and says nothing."""

    def __init__(self, frame: pa.Table) -> None:
        self._reader = frame.to_reader()

    def __arrow_c_schema__(self) -> object:
        return self._reader.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._reader.__arrow_c_stream__(requested_schema)


class Again:
    """A stream that can be asked for any number of times."""

    def __init__(self, frame: pa.Table) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


def _generated() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from FRAME.to_batches()

    return pa.RecordBatchReader.from_batches(FRAME.schema, batches())


READ_ONCE = {
    "reader": FRAME.to_reader,
    "generator": _generated,
    "one capsule": lambda: OneShot(FRAME),
    "drained": lambda: Drained(FRAME),
}


@pytest.mark.parametrize("make", READ_ONCE.values(), ids=READ_ONCE)
def test_second_table_of_a_transaction_does_not_get_a_source_that_was_read(lake: Lake, make: Any) -> None:
    source = make()
    with lake.begin() as tx:
        tx.write("a", source)
        with pytest.raises(SourceConsumed, match=r"can be read only once") as caught:
            tx.write("b", source)
        assert type(source).__qualname__ in str(caught.value)
        assert "inside the function that catalog.run() calls" in str(caught.value)
        assert caught.value.field == "df"
    assert ids(lake, "a") == [1, 2, 3]
    assert lake["b"].version == 0


@pytest.mark.parametrize("make", READ_ONCE.values(), ids=READ_ONCE)
def test_retry_of_run_does_not_get_a_source_that_was_read(lake: Lake, make: Any) -> None:
    source, tries = make(), []

    def load(tx: deltars.Transaction) -> None:
        tries.append(tx.id)
        tx.write("a", source)
        if len(tries) == 1:
            lake["a"].append("theirs")

    with pytest.raises(SourceConsumed):
        lake.catalog.run(load)
    assert len(tries) == 2
    assert lake["a"].live() == ["theirs"]


def test_retry_of_run_takes_a_source_that_is_made_inside_or_can_be_read_again(lake: Lake) -> None:
    for make in (FRAME.to_reader, lambda: FRAME, lambda: Again(FRAME)):
        tries: list[int] = []
        outside = make()

        def load(tx: deltars.Transaction, make: Any = make, tries: Any = tries, outside: Any = outside) -> None:
            tries.append(1)
            tx.write("a", make() if isinstance(outside, pa.RecordBatchReader) else outside, "overwrite")
            if len(tries) == 1:
                lake["a"].append()

        lake.catalog.run(load)
        assert ids(lake, "a") == [1, 2, 3]


def test_write_that_failed_half_way_has_used_its_source_up(lake: Lake) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise OSError("the line is dead")

    source = pa.RecordBatchReader.from_batches(FRAME.schema, batches())
    with lake.begin() as tx:
        with pytest.raises(OSError, match="the line is dead"):
            tx.write("a", source)
        with pytest.raises(SourceConsumed, match=r"pyarrow\.RecordBatchReader"):
            tx.write("a", source)
    assert tx.result.versions == {}


def test_stream_that_goes_on_where_a_failed_write_stopped_is_refused(lake: Lake) -> None:
    batches = [pa.record_batch({"id": [number]}) for number in (1, -1, 2, 3)]
    frame = pa.Table.from_batches(batches)
    lake.catalog.table("a").alter.add_constraint("positive", "id > 0")
    drained = Drained(frame)
    with pytest.raises(deltars.ValidationError, match="positive"):
        lake.catalog.write("a", drained)
    with pytest.raises(SourceConsumed, match="stopped in the middle"):
        lake.catalog.write("a", drained)
    again = Again(frame)
    for _ in range(2):  # one that begins anew is only wrong in the same way
        with pytest.raises(deltars.ValidationError, match="positive"):
            lake.catalog.write("a", again)
    assert ids(lake, "a") == []


def test_table_that_has_no_rows_any_more_is_no_consumed_source(lake: Lake) -> None:
    lake.catalog.write("b", FRAME)
    source = lake.catalog.table("b")
    lake.catalog.write("a", source)
    lake.catalog.write("b", FRAME.slice(0, 0), "overwrite")
    lake.catalog.write("a", source)
    assert ids(lake, "a") == [1, 2, 3]


def test_source_that_no_row_was_read_of_may_be_used_again(lake: Lake) -> None:
    source = pa.table({"nobody": [1]}).to_reader()
    with lake.begin() as tx:
        with pytest.raises(SchemaMismatch):
            tx.write("a", source)
        tx.write("b", source, merge_schema=True)
    assert tx.result.versions == {"b": 1}
    lake.catalog.write("a", FRAME, app_id="job", app_version=1)
    for make in READ_ONCE.values():
        source = make()
        assert lake.catalog.write("a", source, app_id="job", app_version=1).skipped
        lake.catalog.write("a", source, "ignore")
        lake.catalog.write("a", source, "overwrite")
        assert ids(lake, "a") == [1, 2, 3]


@pytest.mark.backends("sqlite")
def test_rows_that_python_has_no_values_for_are_written_from_a_stream(lake: Lake) -> None:
    far = pa.table({"at": pa.array([2**60], pa.timestamp("us"))})
    nowhere = pa.table({"at": pa.array([0], pa.timestamp("us", "Nowhere/Land"))})
    for name, frame in {"far": far, "nowhere": nowhere}.items():
        source = Again(frame)
        for version in range(2):
            assert lake.catalog.write(name, source).versions == {name: version}
        assert lake.catalog.table(name).to_arrow().num_rows == 2


def test_empty_source_is_no_error(lake: Lake) -> None:
    for source in (FRAME.slice(0, 0).to_reader(), Again(FRAME.slice(0, 0)), FRAME.slice(0, 0)):
        lake.catalog.write("a", source)
        if not isinstance(source, pa.RecordBatchReader):
            lake.catalog.write("a", source)
    assert ids(lake, "a") == []


def test_of_threads_that_share_a_reader_one_writes_it(lake: Lake) -> None:
    source, tx = FRAME.to_reader(), lake.begin()
    writers = [Meanwhile(tx.write, name, source) for name in "abcabc"]
    answers = [writer.outcome() for writer in writers]
    assert sum(isinstance(answer, SourceConsumed) for answer in answers) == 5
    tx.commit()
    assert sorted(ids(lake, "a") + ids(lake, "b") + ids(lake, "c")) == [1, 2, 3]


def test_what_is_remembered_goes_with_the_source(lake: Lake) -> None:
    gc.collect()
    before = len(sources._claimed) + len(sources._read)
    for _ in range(10):
        lake.catalog.write("a", FRAME.to_reader())
        lake.catalog.write("a", Again(FRAME))
    gc.collect()
    assert len(sources._claimed) + len(sources._read) <= before


def test_iterator_without_weak_references_is_known_again() -> None:
    class Slotted:
        __slots__ = ()

        def __next__(self) -> None: ...

    source = Slotted()
    sources.claim(source)
    sources.claim(Slotted())
    with pytest.raises(SourceConsumed):
        sources.claim(source)
