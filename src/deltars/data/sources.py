"""Sources of rows that can be read only once: a second use is an error, not a table without rows.

    an iterator (pyarrow.RecordBatchReader, …)      claimed by its first use, wherever the second comes from
    frames and queries of libraries that we know    can be read again
    any other stream                                found out: it gave rows before and now none, or goes on where an
                                                    earlier write stopped

A source counts as used from the moment its first row is asked for, whatever becomes of the write.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from deltars.errors import SourceConsumed, ValidationError

_MAX_UNWATCHED = 100
"""How many sources are kept alive, to be known again, that have no weak references."""

_READ_AGAIN = ("datafusion", "deltars", "duckdb", "ibis", "pandas", "polars", "pyarrow")
"""Libraries whose frames and queries begin anew each time; that one has no rows any more is possible."""

_FIRST_ROWS = 10


class _Earlier(NamedTuple):
    """An earlier read of a source that gave rows."""

    source: weakref.ref[Any]
    first_rows: str
    is_complete: bool


_lock = threading.Lock()
_claimed: dict[int, weakref.ref[Any]] = {}
_claimed_unwatched: deque[object] = deque(maxlen=_MAX_UNWATCHED)
_read: dict[int, _Earlier] = {}


def is_single_use(source: object) -> bool:
    """Return whether reading uses the source up. An iterator is its own only pass."""
    return isinstance(source, pa.RecordBatchReader) or hasattr(type(source), "__next__")


def kind_of(source: object) -> str:
    """Return the type's name as users know it."""
    kind = type(source)
    return f"{kind.__module__.removesuffix('.lib')}.{kind.__qualname__}"


def claim(source: object) -> None:
    """Remember that a source is read from now on; raise `SourceConsumed` if it was before."""
    if not is_single_use(source):
        return
    with _lock:
        known = _claimed.get(id(source))
        # An id may have been another object's.
        is_known = known is not None and known() is source
        if is_known or any(other is source for other in _claimed_unwatched):
            raise consumed(source, "was read by an earlier write, so a second one would get no rows")
        found = _reference(source, _claimed)
        if found is None:
            _claimed_unwatched.append(source)
        else:
            _claimed[id(source)] = found


def consumed(source: object, why: str) -> SourceConsumed:
    return SourceConsumed(
        f"this {kind_of(source)} can be read only once, and {why}",
        field="df",
        hint="Give something that can be read again (reader.read_all() makes a pyarrow.Table), or make a new reader"
        " for each write: inside the function that catalog.run() calls.",
    )


def opened(source: Any) -> pa.RecordBatchReader:
    """Open a source that offers an Arrow stream."""
    try:
        return pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid as error:
        if "released" in str(error):
            raise consumed(source, "its stream was taken before") from error
        raise ValidationError(f"the {kind_of(source)} gave no Arrow stream: {error}", field="df") from error


def watched(source: object, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise `SourceConsumed` where they show that an earlier write has used the source up."""
    reference = None if _is_read_again(source) else _reference(source, _read)
    if reference is None:
        yield from batches
        return
    earlier = _read.get(id(source))
    if earlier is not None and earlier.source() is not source:
        earlier = None
    first_rows = None
    for batch in batches:
        if batch.num_rows and first_rows is None:
            first_rows = _look_of(batch.slice(0, _FIRST_ROWS))
            if earlier is not None and not earlier.is_complete and earlier.first_rows != first_rows:
                raise consumed(source, "an earlier write stopped in the middle of it: it does not begin anew")
            _read[id(source)] = _Earlier(reference, first_rows, is_complete=False)
        yield batch
    if first_rows is not None:
        _read[id(source)] = _Earlier(reference, first_rows, is_complete=True)
    elif earlier is not None:
        raise consumed(source, "gave its rows to an earlier write: now it has none")


def _look_of(rows: pa.RecordBatch) -> str:
    try:
        return repr(rows.to_pylist())
    except Exception:
        # Python has no timestamps after the year 9999, nor every time zone: such rows can be written all the same.
        return repr(rows.serialize().to_pybytes())


def _is_read_again(source: object) -> bool:
    return type(source).__module__.lstrip("_").partition(".")[0] in _READ_AGAIN


def _reference(source: object, known: dict[int, Any]) -> weakref.ref[Any] | None:
    """A weak reference that takes the source out of `known` when it goes; None where it can have none."""
    key = id(source)

    def forget(gone: weakref.ref[Any]) -> None:
        # Without the lock: the collector may come while this thread holds it.
        found = known.get(key)
        if found is gone or getattr(found, "source", None) is gone:
            known.pop(key, None)

    try:
        return weakref.ref(source, forget)
    except TypeError:
        return None


__all__ = ["claim", "consumed", "is_single_use", "kind_of", "opened", "watched"]
