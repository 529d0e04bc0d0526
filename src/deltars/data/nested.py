"""Replacement of the values inside lists and maps."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

Inside = Callable[[pa.Array, str], pa.Array]
"""Function from the values of one part (`element`, or `key` and `value`) to as many new values."""


def with_values(array: pa.ListArray | pa.LargeListArray | pa.MapArray, type_: pa.DataType, inside: Inside) -> pa.Array:
    """Return the lists or maps as this type, with their values replaced by the results of `inside`."""
    offsets, start, length = _window(array)
    if types.is_map(array.type):
        keys = inside(array.keys.slice(start, length), "key")
        values = inside(array.items.slice(start, length), "value")
        return pa.MapArray.from_arrays(offsets, keys, values, type=type_, mask=array.is_null())
    elements = inside(array.values.slice(start, length), "element")
    return pa.ListArray.from_arrays(offsets, elements, type=type_, mask=array.is_null())


def _window(array: pa.ListArray | pa.LargeListArray | pa.MapArray) -> tuple[pa.Array, int, int]:
    """Return offsets from zero, and start and length of the values they cover. A slice keeps the child of the whole."""
    if not len(array):
        # Spark 4.1 sends no offsets for an empty array, as Arrow allows. Reading them would go past their end.
        return pa.array([0], pa.int32()), 0, 0
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, start).cast(pa.int32()), start, end - start
