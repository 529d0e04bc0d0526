"""Sources of rows that can be read only once: a second use is an error, not a table without rows.

    an iterator (pyarrow.RecordBatchReader, …)      claimed by its first use, wherever the second comes from
    a stream that gave rows before, and now none    found out when it ends
    anything else                                   can be read again

A source counts as used from the moment its first row is asked for, whatever becomes of the write.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from deltars.errors import SourceConsumed, ValidationError

_MAX_UNWATCHED = 100
"""How many sources are kept alive, to be known again, that have no weak references."""

_lock = threading.Lock()
_claimed: dict[int, weakref.ref[Any]] = {}
_claimed_unwatched: deque[object] = deque(maxlen=_MAX_UNWATCHED)
_gave_rows: dict[int, weakref.ref[Any]] = {}


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
        if _is_in(_claimed, source) or any(other is source for other in _claimed_unwatched):
            raise consumed(source, "was read by an earlier write, so a second one would get no rows")
        if not _remember(_claimed, source):
            _claimed_unwatched.append(source)


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
    """Yield the batches; raise `SourceConsumed` at the end if there was no row, and there were rows an earlier time."""
    has_rows = False
    for batch in batches:
        if batch.num_rows and not has_rows:
            has_rows = True
            with _lock:
                _remember(_gave_rows, source)
        yield batch
    with _lock:
        gave_rows = _is_in(_gave_rows, source)
    if gave_rows and not has_rows:
        raise consumed(source, "gave its rows to an earlier write: now it has none")


def _is_in(known: dict[int, weakref.ref[Any]], source: object) -> bool:
    found = known.get(id(source))
    # An id may be another object's by now.
    return found is not None and found() is source


def _remember(known: dict[int, weakref.ref[Any]], source: object) -> bool:
    """Remember a source for as long as it lives; False where that cannot be known."""
    key = id(source)

    def forget(gone: weakref.ref[Any]) -> None:
        # Without the lock: the collector may come while this thread holds it.
        if known.get(key) is gone:
            known.pop(key, None)

    try:
        known[key] = weakref.ref(source, forget)
    except TypeError:
        return False
    return True


__all__ = ["claim", "consumed", "is_single_use", "kind_of", "opened", "watched"]
