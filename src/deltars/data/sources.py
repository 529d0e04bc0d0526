"""Detection of sources that can be read only once: a second use raises an error and does not write an empty table.

    an iterator (pyarrow.RecordBatchReader, …)      claimed by its first use; any second use is refused
    frames and queries of known libraries           can be read again
    any other stream                                detected: it had rows before and has none now, or it continues
                                                    where an earlier write stopped

A source counts as used as soon as its first row is requested, even if the write fails.
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
"""How many sources without weak references are kept alive, so that a second use is recognized."""

_READABLE_AGAIN = ("datafusion", "deltars", "duckdb", "ibis", "pandas", "polars", "pyarrow")
"""Libraries whose frames and queries start again on each read. Having no rows the second time is legitimate there."""

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
    """Return whether the source can be read only once, as an iterator."""
    return isinstance(source, pa.RecordBatchReader) or hasattr(type(source), "__next__")


def kind_of(source: object) -> str:
    """Return the source's type, as users import it."""
    kind = type(source)
    return f"{kind.__module__.removesuffix('.lib')}.{kind.__qualname__}"


def claim(source: object) -> None:
    """Record that a single-use source is being read. Raise `SourceConsumed` if it was read before."""
    if not is_single_use(source):
        return
    with _lock:
        known = _claimed.get(id(source))
        # Python reuses the ids of deleted objects.
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
        hint="Pass a source that can be read again (reader.read_all() returns a pyarrow.Table), or create a new reader"
        " for each write, inside the function that catalog.run() calls.",
    )


def open_stream(source: Any) -> pa.RecordBatchReader:
    """Open a source that offers an Arrow stream."""
    try:
        return pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid as error:
        if "released" in str(error):
            raise consumed(source, "its stream was already taken") from error
        raise ValidationError(
            f"the {kind_of(source)} returned no Arrow stream of rows: {error}",
            field="df",
            hint="Give a frame with named columns, such as series.to_frame().",
        ) from error


def refuse_used_up(source: object, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches. Raise `SourceConsumed` if they show that an earlier write used the source up."""
    reference = None if _can_be_read_again(source) else _reference(source, _read)
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
                raise consumed(source, "an earlier write stopped in the middle of it, so it would continue there")
            _read[id(source)] = _Earlier(reference, first_rows, is_complete=False)
        yield batch
    if first_rows is not None:
        _read[id(source)] = _Earlier(reference, first_rows, is_complete=True)
    elif earlier is not None:
        raise consumed(source, "an earlier write took its rows, so it has none left")


def _look_of(rows: pa.RecordBatch) -> str:
    try:
        return repr(rows.to_pylist())
    except Exception:
        # Python has no timestamps after the year 9999 and not every time zone. Such rows can still be written.
        return repr(rows.serialize().to_pybytes())


def _can_be_read_again(source: object) -> bool:
    return type(source).__module__.lstrip("_").partition(".")[0] in _READABLE_AGAIN


def _reference(source: object, known: dict[int, Any]) -> weakref.ref[Any] | None:
    """Return a weak reference that removes the source from `known` when it is deleted; None if it supports none."""
    key = id(source)

    def forget(gone: weakref.ref[Any]) -> None:
        # The lock is not taken: the garbage collector may run this while the same thread holds it.
        found = known.get(key)
        if found is gone or getattr(found, "source", None) is gone:
            known.pop(key, None)

    try:
        return weakref.ref(source, forget)
    except TypeError:
        return None


__all__ = ["claim", "consumed", "is_single_use", "kind_of", "open_stream", "refuse_used_up"]
